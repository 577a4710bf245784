//! Hashes blocks of verity files.

use lanefs_ondisk::verity::Algorithm;
use sha2::{Digest, Sha256, Sha512};

/// A hash of 32 or 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Hash {
    bytes: [u8; 64],
    len: usize,
}

impl Hash {
    /// Wraps the bytes of a hash that is already computed. Bytes after the first 64 are ignored.
    pub(crate) fn new(from: &[u8]) -> Hash {
        let mut bytes = [0; 64];
        bytes.iter_mut().zip(from).for_each(|(place, byte)| *place = *byte);
        Hash { bytes, len: from.len().min(64) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A hash algorithm that has already hashed the salt.
#[derive(Debug, Clone)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// Hashes the salt, padded with zeros to a multiple of the algorithm's block.
    pub(crate) fn new(algorithm: Algorithm, salt: &[u8]) -> Hasher {
        let mut salt = salt.to_vec();
        salt.resize(salt.len().next_multiple_of(algorithm.unit_bytes()), 0);
        match algorithm {
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new_with_prefix(salt)),
            Algorithm::Sha512 => Hasher::Sha512(Sha512::new_with_prefix(salt)),
        }
    }

    /// Returns the hash of a block.
    pub(crate) fn hash(&self, block: &[u8]) -> Hash {
        match self {
            Hasher::Sha256(salted) => Hash::new(&salted.clone().chain_update(block).finalize()),
            Hasher::Sha512(salted) => Hash::new(&salted.clone().chain_update(block).finalize()),
        }
    }
}
