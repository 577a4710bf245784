//! Names of attributes. A name consists of a prefix, which is stored as a number, and the rest.

use std::cmp::Ordering;
use thiserror::Error;

/// The longest name in bytes, its prefix included.
pub const MAX_NAME: usize = 255;

/// The prefixes that the kernel's ext4 supports, with their numbers. If the prefix is the whole
/// name, the rest is empty.
const PREFIXES: [(u8, &[u8]); 5] = [
    (AttributeName::USER, b"user."),
    (AttributeName::ACL_ACCESS, b"system.posix_acl_access"),
    (AttributeName::ACL_DEFAULT, b"system.posix_acl_default"),
    (AttributeName::TRUSTED, b"trusted."),
    (AttributeName::SECURITY, b"security."),
];

/// The name of an attribute. Any prefix number is valid, so that entries with unknown prefixes
/// survive when other attributes are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeName<'a> {
    /// The number of the prefix (`e_name_index`).
    pub index: u8,
    /// The part after the prefix: at most 255 bytes without NUL.
    pub rest: &'a [u8],
}

/// The reason why bytes are not a name. This is an error of the caller, never of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name has no prefix that the kernel's ext4 supports.
    #[error("the attribute's name has no known prefix")]
    Prefix,
    /// The rest after the prefix contains a NUL, is empty although it must not be, or is not empty
    /// although it must be.
    #[error("the attribute's name is not valid for its prefix")]
    Rest,
    /// The name has more than 255 bytes.
    #[error("the attribute's name is longer than 255 bytes")]
    TooLong,
}

impl<'a> AttributeName<'a> {
    /// `user.`
    pub const USER: u8 = 1;
    /// `system.posix_acl_access`; nothing follows this prefix.
    pub const ACL_ACCESS: u8 = 2;
    /// `system.posix_acl_default`; nothing follows this prefix.
    pub const ACL_DEFAULT: u8 = 3;
    /// `trusted.`
    pub const TRUSTED: u8 = 4;
    /// `security.`
    pub const SECURITY: u8 = 6;

    /// `system.`
    pub const SYSTEM: u8 = 7;
    /// The prefix of the encryption context, which has no text form.
    pub const ENCRYPTION: u8 = 9;

    /// Returns the name of the attribute that holds data of a file or directory in its inode
    /// (feature `inline_data`). Programs cannot name this attribute.
    pub const fn inline_data() -> AttributeName<'static> {
        AttributeName { index: AttributeName::SYSTEM, rest: b"data" }
    }

    /// Returns the name of the attribute that holds the encryption context. Programs cannot name
    /// this attribute.
    pub const fn encryption_context() -> AttributeName<'static> {
        AttributeName { index: AttributeName::ENCRYPTION, rest: b"c" }
    }

    /// Returns the name of the access ACL.
    pub const fn acl_access() -> AttributeName<'static> {
        AttributeName { index: AttributeName::ACL_ACCESS, rest: &[] }
    }

    /// Returns the name of the default ACL.
    pub const fn acl_default() -> AttributeName<'static> {
        AttributeName { index: AttributeName::ACL_DEFAULT, rest: &[] }
    }

    /// Splits a name in the form of getxattr(2) into its prefix and the rest.
    pub fn parse(full: &'a [u8]) -> Result<AttributeName<'a>, NameError> {
        if full.len() > MAX_NAME {
            return Err(NameError::TooLong);
        }
        for (index, prefix) in PREFIXES {
            let Some(rest) = full.strip_prefix(prefix) else { continue };
            let wants_rest = prefix.ends_with(b".");
            if rest.is_empty() == wants_rest || rest.contains(&0) {
                return Err(NameError::Rest);
            }
            return Ok(AttributeName { index, rest });
        }
        Err(NameError::Prefix)
    }

    /// Returns the name in the form of listxattr(2), without a NUL; `None` if the kernel's ext4
    /// does not support the prefix's number.
    pub fn full(&self) -> Option<Vec<u8>> {
        let (_, prefix) = PREFIXES.iter().find(|(index, _)| *index == self.index)?;
        Some([*prefix, self.rest].concat())
    }
}

/// Orders entries as in a block: by the number of the prefix, then the length of the rest, then the
/// bytes of the rest.
impl Ord for AttributeName<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |name: &AttributeName<'_>| (name.index, name.rest.len());
        key(self).cmp(&key(other)).then_with(|| self.rest.cmp(other.rest))
    }
}

impl PartialOrd for AttributeName<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
