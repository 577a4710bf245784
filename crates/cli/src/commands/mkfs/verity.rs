//! The arguments for a hash tree of dm-verity.

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
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?));
    let bytes: Option<Vec<u8>> = bytes.collect();
    let bytes = bytes.filter(|bytes| rest.is_empty() && bytes.len() <= 256).ok_or_else(wrong)?;
    Ok(Salt(bytes))
}
