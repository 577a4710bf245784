//! Extended attributes: `getfattr` and `setfattr`.

use crate::cli::{
    Failure, FileArguments, ImagePath, Intent, Report, Screen, from_hex, hex, long_help,
    place_facts, quoted, read_blocks, unquoted, with_each,
};
use crate::copy::{Attribute, ImageNode, ImageTree, Settings, Tree};
use crate::walk::{Depth, each_file};
use lanefs::{FileSystem, Follow};
use lanefs_build::base64;
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows extended attributes of files in an image
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
The output is that of getfattr(1), and lanefs setfattr --restore reads it. Paths are below the
root of the image. Attributes of user.* are shown unless -m or -n is given.

Exit codes: 0 success, 1 a file or an attribute does not exist or cannot be read, 2 wrong usage.

Examples:
  lanefs getfattr -d disk.img:/srv/file
  lanefs getfattr -n security.capability -e hex disk.img:/bin/ping
  lanefs getfattr -R -h -d -m - disk.img > attributes  everything, for setfattr --restore")]
pub struct Getfattr {
    /// Files; IMAGE alone means its root directory
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<ImagePath>,
    /// Show this attribute
    #[arg(short, long, value_name = "NAME", conflicts_with = "pattern")]
    name: Option<String>,
    /// Show values too
    #[arg(short, long)]
    dump: bool,
    /// Show attributes whose name begins with TEXT, like security. or user.; - means all
    #[arg(
        short = 'm',
        long = "match",
        value_name = "TEXT",
        default_value = "user.",
        id = "pattern",
        allow_hyphen_values = true
    )]
    pattern: String,
    /// Encode values as text, hex or base64 [default: text if most of the value is printable, else
    /// base64]
    #[arg(short, long, value_name = "CODE")]
    encoding: Option<Encoding>,
    /// Print values only, unchanged
    #[arg(long)]
    only_values: bool,
    /// Show symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Include everything below directories; for a symbolic link there, show its own attributes
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Keep the slash at the start of paths
    #[arg(long)]
    absolute_names: bool,
    /// Print a JSON object for each file, on a line of its own; values are in base 64
    #[arg(long, conflicts_with_all = ["only_values", "encoding"])]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// How values are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Encoding {
    Text,
    Hex,
    Base64,
}

/// Runs `lanefs getfattr`.
pub fn getfattr(arguments: &Getfattr) -> ExitCode {
    let depth = if arguments.recursive { Depth::Tree } else { Depth::Itself };
    let follow = if arguments.no_dereference { Follow::Nothing } else { Follow::Links };
    let mut out: Box<dyn Write> = match arguments.only_values {
        true => Box::new(io::BufWriter::new(io::stdout().lock())),
        false => Box::new(Screen::new()),
    };
    with_each("getfattr", &arguments.image, Intent::Read, &arguments.places, |fs, place, report| {
        let done = each_file(fs, place, depth, follow, report, &mut |tree, place, entry| {
            let found = arguments.of(tree, &entry.node)?;
            if !found.is_empty() {
                report.printed(arguments.print(place, &found, &mut out));
            }
            Ok(())
        });
        report.printed(out.flush());
        done
    })
}

impl Getfattr {
    /// Returns the attributes to show, sorted by name.
    fn of(&self, tree: &ImageTree<'_>, node: &ImageNode) -> Result<Vec<Attribute>, Failure> {
        let Some(name) = &self.name else {
            let mut found = tree.attributes(node)?;
            let start = if self.pattern == "-" { "" } else { self.pattern.as_str() };
            // Patterns of getfattr(1) are regular expressions, and most of them only match the
            // start of a name, such as `^user\.`. So that these work here, a leading `^` and each
            // `\` are dropped.
            let start = start.trim_start_matches('^').replace('\\', "");
            found.retain(|(name, _)| name.starts_with(start.as_bytes()));
            found.sort_unstable();
            return Ok(found);
        };
        match tree.attribute(node, name.as_bytes())? {
            Some(value) => Ok(vec![(name.as_bytes().to_vec(), value)]),
            None if self.recursive => Ok(Vec::new()),
            None => {
                let place = format_args!("{}: {name}", tree.show(node));
                Err(Failure::new(place, "no such attribute"))
            }
        }
    }

    fn print(&self, place: &ImagePath, found: &[Attribute], out: &mut dyn Write) -> io::Result<()> {
        if self.only_values {
            return found.iter().try_for_each(|(_, value)| out.write_all(value));
        }
        if self.json {
            let (mut attributes, mut others) = (json!({}), json!({}));
            for (name, value) in found {
                let value = json!(base64::encode(value));
                match std::str::from_utf8(name) {
                    Ok(name) => attributes[name] = value,
                    Err(_) => others[base64::encode(name)] = value,
                }
            }
            let mut line = place_facts(&place.image, &place.path);
            line["attributes"] = attributes;
            if others != json!({}) {
                line["attributes_bytes"] = others;
            }
            return writeln!(out, "{line}");
        }
        out.write_all(b"# file: ")?;
        out.write_all(&quoted(shown(&place.path, self.absolute_names), b""))?;
        writeln!(out)?;
        for (name, value) in found {
            out.write_all(&quoted(name, b"="))?;
            if self.dump || self.name.is_some() {
                out.write_all(b"=")?;
                out.write_all(&encoded(value, self.encoding))?;
            }
            writeln!(out)?;
        }
        writeln!(out)
    }
}

/// Returns a path without the slash at its start; `.` for the root. If `absolute`, returns the path
/// unchanged.
pub fn shown(path: &Path, absolute: bool) -> &[u8] {
    let bytes = path.as_os_str().as_encoded_bytes();
    if absolute {
        return bytes;
    }
    let first = bytes.iter().position(|byte| *byte != b'/').unwrap_or(bytes.len());
    match bytes.get(first..) {
        None | Some([]) => b".",
        Some(rest) => rest,
    }
}

fn encoded(value: &[u8], encoding: Option<Encoding>) -> Vec<u8> {
    let printable = |byte: &&u8| matches!(**byte, b' '..=b'~');
    let unprintable = value.len() - value.iter().filter(printable).count();
    // As in getfattr(1), the value is text if at most one byte in eight is unprintable.
    let chosen = match unprintable.saturating_mul(8) <= value.len() {
        true => Encoding::Text,
        false => Encoding::Base64,
    };
    match encoding.unwrap_or(chosen) {
        Encoding::Hex => format!("0x{}", hex(value)).into_bytes(),
        Encoding::Base64 => format!("0s{}", base64::encode(value)).into_bytes(),
        Encoding::Text => {
            let mut text = vec![b'"'];
            for byte in value {
                match byte {
                    b'"' | b'\\' => text.extend([b'\\', *byte]),
                    b'\n' | b'\r' | 0 => text.extend(format!("\\{byte:03o}").bytes()),
                    byte => text.push(*byte),
                }
            }
            text.push(b'"');
            text
        }
    }
}

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
pub struct Setfattr {
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
pub fn setfattr(arguments: &Setfattr) -> ExitCode {
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

impl Setfattr {
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
