//! The hashes of verity files, and a cache of verified blocks of their hash trees.
//!
//! [`data/verity.rs`](crate::data) reads and verifies files. `ops/verity.rs` makes verity files.
//! The formats are in [`lanefs_ondisk::verity`].

mod digest;
mod hasher;
mod verified;

pub use digest::FileDigest;
pub(crate) use hasher::{Hash, Hasher};
pub(crate) use verified::VerifiedBlocks;

use lanefs_ondisk::verity::{Algorithm, Descriptor};

/// How the hash tree of a new verity file is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVerity {
    /// The hash algorithm.
    pub algorithm: Algorithm,
    /// The size in bytes of a block that is hashed as a whole: a power of two, 1024 or more, and at
    /// most a block of the file system. `None` stands for 4096, or for the largest possible size if
    /// that is smaller.
    pub block_bytes: Option<u32>,
    /// The salt: at most 32 bytes, which are hashed before the bytes of each block.
    pub salt: Vec<u8>,
}

impl Default for NewVerity {
    /// Returns the defaults of `fsverity enable`: SHA-256, blocks of 4096 bytes, no salt.
    fn default() -> NewVerity {
        NewVerity { algorithm: Algorithm::Sha256, block_bytes: None, salt: Vec::new() }
    }
}

/// A verity file's checked descriptor, with the hasher and the digest that follow from it.
#[derive(Debug)]
pub(crate) struct Verity {
    pub(crate) descriptor: Descriptor,
    pub(crate) hasher: Hasher,
    pub(crate) digest: FileDigest,
}

impl Verity {
    pub(crate) fn new(descriptor: Descriptor) -> Verity {
        let algorithm = descriptor.method().algorithm();
        // The descriptor itself is hashed without salt.
        let hash = Hasher::new(algorithm, b"").hash(descriptor.encode());
        let hasher = Hasher::new(algorithm, descriptor.method().salt());
        Verity { descriptor, hasher, digest: FileDigest { algorithm, hash } }
    }
}
