//! Operands: paths in images, and paths of the host.

use crate::cli::{Failure, Size};
use lanefs::MasterKey;
use lanefs::device::{Access, Device, FileDevice, OpenOptions, Pick, is_uri};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// The prefix of an array's name.
const ARRAY: &[u8] = lanefs_raid5::PREFIX.as_bytes();

/// How a command accesses an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intent {
    /// Nothing is written.
    Read,
    /// The image is changed.
    Change,
}

impl Intent {
    pub fn access(self) -> Access {
        match self {
            Intent::Read => Access::ReadOnly,
            Intent::Change => Access::ReadWrite,
        }
    }
}

/// A path in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePath {
    /// The image file or block device, on the host.
    pub image: PathBuf,
    /// The path in the image, from the root of the image.
    pub path: PathBuf,
}

/// The source or destination of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// `IMAGE:/path`
    Image(ImagePath),
    /// A path of the host.
    Host(PathBuf),
    /// `-`: standard input or output.
    Standard,
}

/// Splits `IMAGE:/path` at the first `:/` behind the scheme of a URI; a trailing colon stands for
/// the root. In an array's name, such as `md:/dev/sda,/dev/sdb`, neither the colon of `md:` nor a
/// colon after a backslash ends the name.
fn split(operand: &[u8]) -> Option<ImagePath> {
    let is_array = operand.starts_with(ARRAY);
    let scheme = operand.windows(3).position(|part| part == b"://");
    let from = match scheme.filter(|_| is_uri(Path::new(OsStr::from_bytes(operand)))) {
        Some(end) => end + 3,
        None if is_array => ARRAY.len(),
        None => 0,
    };
    let rest = operand.get(from..)?;
    let is_name = |at: usize| is_array && at > 0 && rest.get(at - 1) == Some(&b'\\');
    let colons = rest.windows(2).enumerate().filter(|(_, pair)| *pair == b":/");
    let colon = colons.map(|(at, _)| at).find(|at| !is_name(*at));
    let last = rest.len().checked_sub(1).filter(|at| rest.ends_with(b":") && !is_name(*at));
    let colon = colon.or(last)? + from;
    let (image, path) = operand.split_at(colon);
    if image.is_empty() {
        return None;
    }
    let path = match path {
        b":" => b"/",
        path => path.get(1..).unwrap_or_default(),
    };
    let path_of = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    Some(ImagePath { image: path_of(image), path: path_of(path) })
}

impl From<OsString> for Operand {
    fn from(operand: OsString) -> Operand {
        let bytes = operand.as_bytes();
        if bytes == b"-" {
            return Operand::Standard;
        }
        // An operand that starts with "./" is a path of the host.
        let place = if bytes.starts_with(b"./") { None } else { split(bytes) };
        place.map_or_else(|| Operand::Host(operand.into()), Operand::Image)
    }
}

/// Converts an operand of a command that accepts only paths in images. An operand without a path,
/// such as `disk.img`, is the name of an image and means the root of this image.
impl From<OsString> for ImagePath {
    fn from(operand: OsString) -> ImagePath {
        let whole = || ImagePath { image: operand.clone().into(), path: "/".into() };
        split(operand.as_bytes()).unwrap_or_else(whole)
    }
}

impl ImagePath {
    /// Returns the operand for the file at path `below`, relative to this directory. If `below` is
    /// empty, returns the directory itself.
    pub fn below(&self, below: &[u8]) -> ImagePath {
        if below.is_empty() { self.clone() } else { self.join(OsStr::from_bytes(below)) }
    }

    /// Returns the operand `IMAGE:/path`, with the bytes of the path unchanged.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.image.as_os_str().as_bytes(), b":", self.path.as_os_str().as_bytes()].concat()
    }

    /// Returns the image with the intent, as [`Images::open`](super::Images::open) takes them.
    pub fn wanted(&self, intent: Intent) -> (&Path, Intent) {
        (&self.image, intent)
    }

    /// Converts an error that the library returned for a path in this image.
    pub fn failure(&self, error: lanefs::Error) -> Failure {
        Failure::within(self.image.display(), &error)
    }

    /// Returns the operand for `name` in this directory.
    pub fn join(&self, name: impl AsRef<Path>) -> ImagePath {
        ImagePath { image: self.image.clone(), path: self.path.join(name) }
    }
}

impl Operand {
    /// Returns the path in an image, if the operand is one.
    pub fn place(&self) -> Option<&ImagePath> {
        match self {
            Operand::Image(place) => Some(place),
            Operand::Host(_) | Operand::Standard => None,
        }
    }

    /// Returns the path, if the operand is a path of the host.
    pub fn host(&self) -> Option<&Path> {
        match self {
            Operand::Host(path) => Some(path),
            Operand::Image(_) | Operand::Standard => None,
        }
    }

    /// Returns whether the path would name a file in an image if it did not start with "./".
    pub fn is_escaped(&self) -> bool {
        self.host().is_some_and(|path| split(path.as_os_str().as_bytes()).is_some())
    }
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.image.display(), self.path.display())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Image(place) => place.fmt(f),
            Operand::Host(path) => path.display().fmt(f),
            Operand::Standard => f.write_str("-"),
        }
    }
}

/// Options of every command that opens an image.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ImageArguments {
    /// Start of the file system in the image, in bytes (suffixes K, M, G, T), for a partition in a
    /// disk image
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub offset: Size,
}

impl ImageArguments {
    /// Returns the part of the image that is to be opened.
    pub fn part(self, pick: Pick) -> OpenOptions {
        OpenOptions { offset: self.offset.bytes(), len: None, pick }
    }
}

/// Options of every command that works on files in an image.
#[derive(Debug, Clone, clap::Args)]
pub struct FileArguments {
    #[command(flatten)]
    pub image: ImageArguments,
    /// File with a master key of encrypted directories (32 to 64 bytes); may be given more than
    /// once
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    #[command(flatten)]
    pub journal: JournalArguments,
}

impl From<ImageArguments> for FileArguments {
    fn from(image: ImageArguments) -> FileArguments {
        FileArguments { image, keys: Vec::new(), journal: JournalArguments::default() }
    }
}

/// Reads the master keys in these files.
pub fn read_keys(paths: &[PathBuf]) -> Result<Vec<MasterKey>, Failure> {
    let read = |path: &PathBuf| {
        File::open(path).and_then(MasterKey::read_from).map_err(Failure::on_host(path))
    };
    paths.iter().map(read).collect()
}

/// Option of the commands that also accept an image whose journal is on another device.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct JournalArguments {
    /// The image or device of the journal, if the journal is not in the image (mke2fs -J device=)
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
}

impl JournalArguments {
    /// Returns whether the option is given.
    pub fn is_given(&self) -> bool {
        self.journal.is_some()
    }

    /// Returns the path of the journal, if it is given.
    pub fn path(&self) -> Option<&Path> {
        self.journal.as_deref()
    }

    /// Opens the device of the journal, if it is given.
    pub fn open(&self, access: Access) -> Result<Option<Arc<dyn Device>>, Failure> {
        let open = |path| FileDevice::open(path, access, OpenOptions::default());
        // The error already names the path, so the failure adds only the name of the option.
        let opened = self.journal.as_ref().map(open).transpose();
        let device = opened.map_err(|error| Failure::new("--journal", error))?;
        Ok(device.map(|device| Arc::new(device) as Arc<dyn Device>))
    }
}

/// Options for how a command prints its result.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct OutputArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}

impl OutputArguments {
    /// Prints the result of a command: `facts` as JSON, or `lines`, or nothing.
    pub fn print(self, facts: &Value, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        match self {
            OutputArguments { json: true, .. } => writeln!(out, "{facts:#}")?,
            OutputArguments { quiet: true, .. } => {}
            _ => lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))?,
        }
        out.flush()
    }
}

/// Defines `--help` without `-h`, for commands where `-h` has another meaning.
pub fn long_help() -> clap::Arg {
    clap::Arg::new("help").long("help").action(clap::ArgAction::Help).help("Print help")
}

#[cfg(test)]
mod tests;
