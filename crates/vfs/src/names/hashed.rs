//! A name with its hash, for caches of names.

use lanefs_lanes::NameKey;

/// A name with its hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HashedName<'a> {
    /// The name.
    pub(crate) bytes: &'a [u8],
    /// The hash of the name ([`NameKey::hash`]), computed with this process's key.
    pub(crate) hash: u64,
}

impl<'a> From<&'a [u8]> for HashedName<'a> {
    fn from(bytes: &'a [u8]) -> HashedName<'a> {
        HashedName { bytes, hash: NameKey::of_process().hash(bytes) }
    }
}
