//! `lanefs df`

use crate::cli::{ImageArguments, Images, Intent, Report, human, long_help, widths};
use lanefs::StatFs;
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows used and free space of images
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
Exit codes: 0 success, 1 something could not be read (the rest was), 2 wrong usage.

Example:
  lanefs df -h disk.img")]
pub struct Arguments {
    /// The images
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// Show sizes with units: K, M, G, T
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Show inodes instead of bytes
    #[arg(short, long)]
    inodes: bool,
    /// Print a JSON object for each image, on a line of its own, with bytes and inodes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: ImageArguments,
}

/// Runs `lanefs df`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("df");
    let mut lines = vec![header(arguments)];
    for image in &arguments.images {
        let opened = Images::open(&arguments.image.into(), [(image.as_path(), Intent::Read)]);
        match opened.and_then(|images| Ok(images.get(image)?.space())) {
            Ok(space) if arguments.json => report.printed(print_json(image, &space)),
            Ok(space) => {
                let shown = image.display().to_string();
                lines.push(columns(arguments, &space, crate::cli::printable(&shown)));
            }
            Err(failure) => report.fail(failure),
        }
    }
    // With `--json`, or if no image could be opened, `lines` holds only the heading, which is then
    // left out.
    if lines.len() > 1 {
        report.printed(print(&lines));
    }
    report.exit()
}

fn header(arguments: &Arguments) -> [String; 5] {
    let words = match (arguments.inodes, arguments.human_readable) {
        (true, _) => ["Image", "Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["Image", "Size", "Used", "Avail", "Use%"],
        (false, false) => ["Image", "1K-blocks", "Used", "Available", "Use%"],
    };
    words.map(String::from)
}

fn columns(arguments: &Arguments, space: &StatFs, image: String) -> [String; 5] {
    if arguments.inodes {
        let used = space.inodes.saturating_sub(space.inodes_free);
        let numbers = [space.inodes, used, space.inodes_free].map(|n| n.to_string());
        let [all, used_text, free] = numbers;
        return [image, all, used_text, free, percent(used, space.inodes)];
    }
    let used = space.blocks.saturating_sub(space.blocks_free);
    let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
    let show = |blocks| match arguments.human_readable {
        true => human(bytes(blocks)),
        false => bytes(blocks).div_ceil(1024).to_string(),
    };
    let share = percent(used, used.saturating_add(space.blocks_available));
    [image, show(space.blocks), show(used), show(space.blocks_available), share]
}

fn print_json(image: &Path, space: &StatFs) -> io::Result<()> {
    let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
    let facts = json!({
        "image": image.to_string_lossy(),
        "block_size": space.block_size,
        "bytes": bytes(space.blocks),
        "free_bytes": bytes(space.blocks_free),
        "available_bytes": bytes(space.blocks_available),
        "inodes": space.inodes,
        "free_inodes": space.inodes_free,
    });
    writeln!(io::stdout().lock(), "{facts}")
}

/// Formats a percentage. It is rounded up, as in df(1), so 0 % means that nothing is used.
fn percent(used: u64, all: u64) -> String {
    if all == 0 {
        return "-".into();
    }
    format!("{}%", (u128::from(used) * 100).div_ceil(u128::from(all)))
}

fn print(lines: &[[String; 5]]) -> io::Result<()> {
    let [w0, w1, w2, w3, w4] = widths(lines.iter());
    let mut out = io::stdout().lock();
    for [image, all, used, free, share] in lines {
        writeln!(out, "{image:w0$} {all:>w1$} {used:>w2$} {free:>w3$} {share:>w4$}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up() {
        assert_eq!(percent(0, 10), "0%");
        assert_eq!(percent(1, 1000), "1%");
        assert_eq!(percent(u64::MAX, u64::MAX), "100%");
        assert_eq!(percent(0, 0), "-");
    }
}
