//! The errors of building an image.

use lanefs_mkfs::{FileFault, MkfsError};
use std::fmt::Display;
use std::io;
use thiserror::Error;

/// A result whose error is this crate's error type.
pub type Result<T> = std::result::Result<T, Error>;

/// Building an image failed.
#[derive(Debug, Error)]
#[error("{place}: {cause}")]
pub struct Error {
    /// The source, or the entry in the source, that caused the error.
    pub place: String,
    /// The reason.
    #[source]
    pub cause: Cause,
}

impl Error {
    pub(crate) fn new(place: impl Display, cause: impl Into<Cause>) -> Error {
        Error { place: place.to_string(), cause: cause.into() }
    }

    /// Puts the name of the source before the entry that the error names.
    pub(crate) fn within(self, source: &dyn Display) -> Error {
        match self.place.is_empty() {
            true => Error { place: source.to_string(), ..self },
            false => Error { place: format!("{source}: {}", self.place), ..self },
        }
    }
}

/// The reason why building an image failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values
pub enum Cause {
    #[error("{}", plain(.0))]
    Io(#[from] io::Error),
    #[error("permission denied: the owner can read it after chmod u+rX; or read it as root")]
    Unreadable,
    #[error("the attribute {name} cannot be read: {}", plain(source))]
    Attribute { name: String, source: io::Error },
    #[error("it became shorter while it was read")]
    Changed,
    #[error("the archive ends in the middle of it")]
    Truncated,
    #[error("not a tar archive: {found}")]
    NotTar { found: &'static str },
    #[error("the checksum of its header is wrong")]
    HeaderChecksum,
    #[error("its header has no valid {field}")]
    HeaderField { field: &'static str },
    #[error("its extended header has a malformed record{}", named(.key))]
    Record { key: String },
    #[error("{what} of {bytes} bytes; at most {most} are accepted")]
    TooLong { what: &'static str, bytes: u64, most: u64 },
    #[error("its map of holes is not valid")]
    Sparse,
    #[error("the name leaves the tree by '..'")]
    Outside,
    #[error("the name is empty, or a part of it is longer than 255 bytes or has a NUL")]
    Name,
    #[error("the link leads to '{target}', which is not in the tree")]
    NoTarget { target: String },
    #[error("the link leads to '{target}', a directory")]
    LinkToDirectory { target: String },
    #[error("the link leads into the directory '{name}', which it replaces")]
    LinkIntoItself { name: String },
    #[error("'{part}' is not a directory")]
    NotDirectory { part: String },
    #[error("there is a directory with files of this name already")]
    OverDirectory,
    #[error("too many symbolic links in the name")]
    Loop,
    #[error("{what} is not supported")]
    Unsupported { what: String },
    #[error("{what} is missing")]
    Missing { what: String },
    #[error("{what} is not valid: {detail}")]
    Invalid { what: &'static str, detail: String },
    #[error("its content has the digest sha256:{found}, not {expected}")]
    Digest { expected: String, found: String },
    #[error("{kind} {id} is in none of the maps")]
    Unmapped { kind: &'static str, id: u32 },
    #[error("its user or group is 4294967295, which no file can have")]
    NoOwner,
    #[error("line {line}: {detail}")]
    Table { line: usize, detail: String },
    #[error("{0}")]
    File(FileFault),
    #[error("{0}")]
    Mkfs(#[from] MkfsError),
}

fn named(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!(" '{key}'") }
}

/// Formats an error of the host in lower case, without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}
