//! `lanefs setfattr`

use crate::cli::{
    Failure, FileArguments, ImagePath, Intent, Report, from_hex, long_help, read_blocks, unquoted,
    with_each,
};
use crate::copy::{ImageTree, Settings, Tree};
use lanefs::{FileSystem, Follow};
use lanefs_build::base64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Changes extended attributes of files in an image
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(group = clap::ArgGroup::new("change").required(true).args(["name", "remove", "restore"]))]
#[command(after_help = "\
A value is text, in double quotes or without, in which \\012 stands for a byte in octal digits. Or
it is 0x with hexadecimal digits, or 0s with base 64.

Exit codes: 0 success, 1 something could not be changed (the rest was), 2 wrong usage.

Examples:
  lanefs setfattr -n user.origin -v https://example.org disk.img:/srv/file
  lanefs setfattr -x user.origin disk.img:/srv/file
  lanefs getfattr -R -h -d -m - a.img | lanefs setfattr -h --restore - b.img")]
pub struct Arguments {
    /// Files; with --restore the directory to which the paths of the dump are relative
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<ImagePath>,
    /// Set this attribute; without -v its value is empty
    #[arg(short, long)]
    name: Option<String>,
    /// The value
    #[arg(short, long, requires = "name", allow_hyphen_values = true)]
    value: Option<String>,
    /// Remove this attribute
    #[arg(short = 'x', long, value_name = "NAME")]
    remove: Option<String>,
    /// Set the attributes from FILE, the output of getfattr -d; - is standard input
    #[arg(long, value_name = "FILE")]
    restore: Option<PathBuf>,
    /// Change symbolic links, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs setfattr`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("setfattr");
    // The dump is read before the image is locked, since the dump may come from a slow pipe.
    let changes = match &arguments.restore {
        Some(file) => report.given(restored(file)),
        None => report.given(arguments.change().map(|change| vec![(None, vec![change])])),
    };
    let Some(changes) = changes else { return report.exit() };
    let follow = if arguments.no_dereference { Follow::Nothing } else { Follow::Links };
    let places = &arguments.places;
    with_each("setfattr", &arguments.image, Intent::Change, places, |fs, place, report| {
        for (below, changes) in &changes {
            let place = match below {
                Some(path) => place.join(path),
                None => place.clone(),
            };
            report.check(apply(fs, &place, follow, changes));
        }
        Ok(())
    })
}

/// The name of an attribute, and its new value; `None` removes the attribute.
type Change = (Vec<u8>, Option<Vec<u8>>);

impl Arguments {
    fn change(&self) -> Result<Change, Failure> {
        match (&self.name, &self.remove) {
            (Some(name), _) => {
                let text = self.value.as_deref().unwrap_or_default();
                Ok((name.as_bytes().to_vec(), Some(decoded(name, text.as_bytes())?)))
            }
            (None, name) => Ok((name.clone().unwrap_or_default().into_bytes(), None)),
        }
    }
}

/// A file and its changes. The file is given by its path below the operand; `None` means the
/// operand itself.
type Changes = (Option<PathBuf>, Vec<Change>);

fn restored(file: &Path) -> Result<Vec<Changes>, Failure> {
    let mut all = Vec::new();
    for block in read_blocks(file)? {
        let mut changes = Vec::new();
        for line in &block.lines {
            let (name, value) = match line.iter().position(|byte| *byte == b'=') {
                Some(at) => (line.get(..at), line.get(at + 1..)),
                None => (Some(line.as_slice()), None),
            };
            let name = unquoted(name.unwrap_or_default());
            let value = decoded(&String::from_utf8_lossy(&name), value.unwrap_or_default())?;
            changes.push((name, Some(value)));
        }
        // A path in a dump is relative to the operand, even if it begins with a slash.
        let path = block.path.strip_prefix("/").unwrap_or(&block.path).to_path_buf();
        all.push((Some(path), changes));
    }
    Ok(all)
}

fn decoded(name: &str, text: &[u8]) -> Result<Vec<u8>, Failure> {
    let number = |digits: &[u8], decode: fn(&str) -> Option<Vec<u8>>| {
        let value = std::str::from_utf8(digits).ok().and_then(decode);
        let shown = String::from_utf8_lossy(text).into_owned();
        value.ok_or_else(|| Failure::new(name, format_args!("'{shown}' is not a value")))
    };
    match text {
        [b'0', b'x' | b'X', digits @ ..] => number(digits, from_hex),
        [b'0', b's' | b'S', digits @ ..] => {
            number(digits, |digits| base64::decode(digits.as_bytes()))
        }
        [b'"', inner @ .., b'"'] => Ok(unquoted(inner)),
        text => Ok(unquoted(text)),
    }
}

fn apply(
    fs: &FileSystem,
    place: &ImagePath,
    follow: Follow,
    changes: &[Change],
) -> Result<(), Failure> {
    let tree = ImageTree::new(fs, &place.image);
    let node = tree.find(&place.path, follow)?;
    for (name, value) in changes {
        match value {
            Some(value) => {
                let attributes = vec![(name.clone(), value.clone())];
                tree.set(&node, &Settings { attributes, ..Settings::default() })?;
            }
            None => tree.remove_attribute(&node, name)?,
        }
    }
    Ok(())
}
