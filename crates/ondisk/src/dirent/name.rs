//! A valid name of a directory entry.

use super::format::NameForm;
use thiserror::Error;

/// The longest name in bytes.
pub const MAX_NAME: usize = 255;

/// A name of 1 to 255 bytes without `/` and NUL, or with any bytes if it is encrypted. "." and ".."
/// are names too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a>(&'a [u8]);

/// The reason why bytes are not a name. This is an error of the caller, never of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name has more than 255 bytes.
    #[error("the name is longer than 255 bytes")]
    TooLong,
    /// The name contains a slash or NUL.
    #[error("the name contains a slash or NUL")]
    Byte,
}

impl<'a> Name<'a> {
    /// Creates a plain name from `bytes`, after checking them.
    pub fn new(bytes: &'a [u8]) -> Result<Name<'a>, NameError> {
        Name::of(NameForm::Plain, bytes)
    }

    /// Creates a name of the given form from `bytes`, after checking them.
    pub fn of(form: NameForm, bytes: &'a [u8]) -> Result<Name<'a>, NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.len() > MAX_NAME {
            return Err(NameError::TooLong);
        }
        if form == NameForm::Plain && bytes.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Err(NameError::Byte);
        }
        Ok(Name(bytes))
    }

    /// Returns the bytes of the name.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the name's length as a record stores it: in one byte, which is enough for every
    /// length.
    pub(super) fn len_byte(self) -> u8 {
        self.0.len() as u8
    }
}
