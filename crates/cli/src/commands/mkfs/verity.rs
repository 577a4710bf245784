//! The arguments for a hash tree of dm-verity.

use crate::cli::from_hex;
use std::path::PathBuf;

/// Where the hash tree is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// After the file system, in the same file.
    Append,
    File(PathBuf),
}

impl std::str::FromStr for Place {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Place, Self::Err> {
        Ok(match text {
            "append" => Place::Append,
            path => Place::File(path.into()),
        })
    }
}

/// The bytes that are hashed before the bytes of each block.
#[derive(Debug, Clone)]
pub(super) struct Salt(pub(super) Vec<u8>);

/// Parses a salt: pairs of hexadecimal digits, or `-` for none.
pub(super) fn parse_salt(text: &str) -> Result<Salt, String> {
    let wrong = || format!("'{text}' is not 2 to 512 hexadecimal digits, or - for none");
    let text = if text == "-" { "" } else { text };
    let is_salt = |bytes: &Vec<u8>| bytes.len() <= 256 && text.len() == 2 * bytes.len();
    from_hex(text).filter(is_salt).map(Salt).ok_or_else(wrong)
}
