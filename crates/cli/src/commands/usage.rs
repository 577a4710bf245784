//! The use of space: `df` and `du`.

use crate::cli::{
    FileArguments, ImageArguments, ImagePath, Images, Intent, Report, Screen, Size, Stop, human,
    long_help, place_facts, widths,
};
use crate::copy::{ImageTree, Meta, Seen};
use crate::walk::{Entry, Order, Visit, Walk};
use lanefs::{FileSystem, FileType, Follow, StatFs};
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
pub struct Df {
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
pub fn df(arguments: &Df) -> ExitCode {
    let report = Report::new("df");
    let mut lines = vec![header(arguments)];
    for image in &arguments.images {
        let opened = Images::open(&arguments.image.into(), [(image.as_path(), Intent::Read)]);
        let space = opened.and_then(|images| Ok(images.get(image)?.space()));
        let Some(space) = report.given(space) else { continue };
        if arguments.json {
            report.printed(print_json(image, &space));
        } else {
            let shown = image.display().to_string();
            lines.push(columns(arguments, &space, crate::cli::printable(&shown)));
        }
    }
    // With `--json`, or if no image could be opened, `lines` holds only the heading, which is then
    // left out.
    if lines.len() > 1 {
        report.printed(print(&lines));
    }
    report.exit()
}

fn header(arguments: &Df) -> [String; 5] {
    let words = match (arguments.inodes, arguments.human_readable) {
        (true, _) => ["Image", "Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["Image", "Size", "Used", "Avail", "Use%"],
        (false, false) => ["Image", "1K-blocks", "Used", "Available", "Use%"],
    };
    words.map(String::from)
}

fn columns(arguments: &Df, space: &StatFs, image: String) -> [String; 5] {
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

/// Shows the space that files of an image take
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
The space of a directory includes everything below it. A file with several names is counted once.
Sizes are in units of 1 KiB unless -h, -b, -m or --block-size is given.

Exit codes: 0 success, 1 some files could not be read, 2 wrong usage.

Examples:
  lanefs du -sh disk.img:/usr
  lanefs du -h --max-depth 1 disk.img | sort -h
  lanefs du -a --json disk.img | jq -r 'select(.bytes > 1000000) | .path'")]
pub struct Du {
    /// Directories or files; IMAGE alone means its root directory
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<ImagePath>,
    /// Show files too, not only directories
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,
    /// Show only the total of each operand
    #[arg(short, long, conflicts_with = "max_depth")]
    summarize: bool,
    /// Show only the directories (with -a, also files) at most N levels below the operand
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Show the total of all operands too
    #[arg(short = 'c', long)]
    total: bool,
    /// Count the bytes of the contents, in place of the space on the disk
    #[arg(long)]
    apparent_size: bool,
    /// Count inodes instead of the space that they use
    #[arg(long, conflicts_with_all = ["apparent_size", "human_readable", "block_size", "bytes", "megabytes"])]
    inodes: bool,
    /// Show sizes with units: K, M, G, T
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// The same as --apparent-size --block-size 1
    #[arg(short, long, conflicts_with_all = ["human_readable", "block_size"])]
    bytes: bool,
    /// As --block-size 1K, which is the default
    #[arg(short, hide = true)]
    kilobytes: bool,
    /// As --block-size 1M
    #[arg(short, conflicts_with_all = ["human_readable", "block_size", "bytes"])]
    megabytes: bool,
    /// Show sizes in units of SIZE, rounded up
    #[arg(short = 'B', long, value_name = "SIZE", conflicts_with = "human_readable")]
    block_size: Option<Size>,
    /// Count a file once for each of its names
    #[arg(short = 'l', long)]
    count_links: bool,
    /// End each line with a NUL, not a newline
    #[arg(short = '0', long)]
    null: bool,
    /// Print a JSON object on each line
    #[arg(long, conflicts_with_all = ["human_readable", "block_size", "megabytes", "null"])]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// The space that a set of files takes, and the number of these files.
#[derive(Debug, Clone, Copy, Default)]
struct Space {
    /// Bytes taken on the disk or, if the user asks for it, bytes of the contents.
    bytes: u64,
    files: u64,
}

impl Space {
    fn add(&mut self, other: Space) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.files = self.files.saturating_add(other.files);
    }
}

/// Runs `lanefs du`.
pub fn du(arguments: &Du) -> ExitCode {
    let places = &arguments.places;
    Report::run("du", |report| {
        let wanted = places.iter().map(|place| place.wanted(Intent::Read));
        let images = Images::open(&arguments.image, wanted)?;
        let mut out = Screen::new();
        let mut count =
            Count { arguments, report, counted: Seen::default(), total: Space::default() };
        let printed = images.each(places, report, |fs, place| count.operand(fs, place, &mut out));
        let total = printed.and_then(|()| match arguments.total {
            true => count.line(count.total, None, &mut out),
            false => Ok(()),
        });
        Ok(total.and_then(|()| out.flush())?)
    })
}

struct Count<'a> {
    arguments: &'a Du,
    report: &'a Report,
    /// The files with several names that have already been counted.
    counted: Seen,
    total: Space,
}

impl Count<'_> {
    fn operand(
        &mut self,
        fs: &FileSystem,
        place: &ImagePath,
        out: &mut dyn Write,
    ) -> Result<(), Stop> {
        let tree = ImageTree::new(fs, &place.image);
        let top = tree.find(&place.path, Follow::Nothing)?;
        let mut walk = Walk::new(&tree, top, Order::Stored);
        let mut sums = Vec::new();
        while let Some(step) = walk.step() {
            let Some(visit) = self.report.given(step) else { continue };
            let (Entry { meta, depth, .. }, sum) = match visit {
                Visit::File(entry) => {
                    let Some(own) = self.of(&entry.meta) else { continue };
                    if entry.meta.file_type == FileType::Directory {
                        sums.push(own);
                        continue;
                    }
                    (entry, own)
                }
                Visit::Left(entry) => (entry, sums.pop().unwrap_or_default()),
            };
            match sums.last_mut() {
                Some(above) => above.add(sum),
                None => self.total.add(sum),
            }
            if self.is_shown(&meta, depth) {
                self.line(sum, Some((place, walk.path())), out)?;
            }
        }
        Ok(())
    }

    /// Returns the space of a file; `None` if it was counted under another name.
    fn of(&mut self, meta: &Meta) -> Option<Space> {
        let is_dir = meta.file_type == FileType::Directory;
        if !is_dir
            && meta.links > 1
            && !self.arguments.count_links
            && !self.counted.insert(meta.identity)
        {
            return None;
        }
        let bytes = match self.arguments.apparent_size || self.arguments.bytes {
            true => meta.size,
            false => meta.sectors.saturating_mul(512),
        };
        Some(Space { bytes, files: 1 })
    }

    fn is_shown(&self, meta: &Meta, depth: usize) -> bool {
        let most = match self.arguments.summarize {
            true => 0,
            false => self.arguments.max_depth.unwrap_or(usize::MAX),
        };
        let is_dir = meta.file_type == FileType::Directory;
        depth <= most && (is_dir || self.arguments.all || depth == 0)
    }

    /// Prints a line: for a file below an operand, or for the total.
    fn line(
        &self,
        space: Space,
        file: Option<(&ImagePath, &[u8])>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if self.arguments.json {
            let mut line = match file {
                Some((place, below)) => place_facts(&place.image, &place.below(below).path),
                None => json!({ "total": true }),
            };
            let what = if self.arguments.inodes { "inodes" } else { "bytes" };
            line[what] = json!(if self.arguments.inodes { space.files } else { space.bytes });
            return writeln!(out, "{line}");
        }
        write!(out, "{}\t", self.shown(space))?;
        match file {
            Some((place, below)) => out.write_all(&place.below(below).to_bytes())?,
            None => write!(out, "total")?,
        }
        out.write_all(if self.arguments.null { b"\0" } else { b"\n" })
    }

    fn shown(&self, space: Space) -> String {
        let arguments = self.arguments;
        let unit = match arguments.block_size {
            Some(size) => size.bytes().max(1),
            None if arguments.bytes => 1,
            None if arguments.megabytes => 1 << 20,
            None => 1 << 10,
        };
        match () {
            () if arguments.inodes => space.files.to_string(),
            () if arguments.human_readable => human(space.bytes),
            () => space.bytes.div_ceil(unit).to_string(),
        }
    }
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
