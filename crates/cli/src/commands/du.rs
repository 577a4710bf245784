//! `lanefs du`

use crate::cli::{
    FileArguments, ImagePath, Images, Intent, Report, Screen, Size, Stop, human, long_help,
    place_facts,
};
use crate::copy::{ImageTree, Meta, Seen};
use crate::walk::{Entry, Order, Visit, Walk};
use lanefs::{FileSystem, FileType, Follow};
use serde_json::json;
use std::io::{self, Write};
use std::process::ExitCode;

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
pub struct Arguments {
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
pub fn run(arguments: &Arguments) -> ExitCode {
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
    arguments: &'a Arguments,
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
            let (Entry { meta, depth, .. }, sum) = match step {
                Ok(Visit::File(entry)) => {
                    let Some(own) = self.of(&entry.meta) else { continue };
                    if entry.meta.file_type == FileType::Directory {
                        sums.push(own);
                        continue;
                    }
                    (entry, own)
                }
                Ok(Visit::Left(entry)) => (entry, sums.pop().unwrap_or_default()),
                Err(failure) => {
                    self.report.fail(failure);
                    continue;
                }
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
