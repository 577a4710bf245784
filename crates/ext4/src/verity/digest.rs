//! The digest of a verity file.

use super::hasher::Hash;
use lanefs_ondisk::verity::Algorithm;
use std::fmt;

/// The digest of a verity file, as `fsverity digest` computes it: the hash of its descriptor, which
/// contains the size, the salt and the root hash of the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileDigest {
    pub(super) algorithm: Algorithm,
    pub(super) hash: Hash,
}

impl FileDigest {
    /// Returns the hash algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the bytes of the digest: 32 of SHA-256, 64 of SHA-512.
    pub fn bytes(&self) -> &[u8] {
        self.hash.bytes()
    }
}

impl fmt::Display for FileDigest {
    /// Writes `sha256:` or `sha512:` and the digest in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.algorithm.name())?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileDigest({self})")
    }
}
