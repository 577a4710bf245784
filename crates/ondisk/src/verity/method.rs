//! How a hash tree is computed: algorithm, block size and salt.

use crate::cause::verity::Cause;
use crate::types::BlockSize;

/// The limits of the tree's block size, as binary logarithms. The tree's blocks must also not be
/// larger than the blocks of the file system.
const LEAST_BLOCK_BITS: u8 = 10;
const MOST_BLOCK_BITS: u8 = 16;
/// The longest salt in bytes.
pub const MOST_SALT: usize = 32;

/// A hash algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// Returns the algorithm with this number in a descriptor.
    pub fn by_number(number: u8) -> Option<Algorithm> {
        [Algorithm::Sha256, Algorithm::Sha512].into_iter().find(|one| one.number() == number)
    }

    /// Returns the number in a descriptor: `FS_VERITY_HASH_ALG_*`.
    pub fn number(self) -> u8 {
        match self {
            Algorithm::Sha256 => 1,
            Algorithm::Sha512 => 2,
        }
    }

    /// Returns the size of a hash in bytes.
    pub fn hash_bytes(self) -> usize {
        match self {
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }

    /// Returns the block size of the hash algorithm in bytes. A salt is padded to a multiple of
    /// this size.
    pub fn unit_bytes(self) -> usize {
        match self {
            Algorithm::Sha256 => 64,
            Algorithm::Sha512 => 128,
        }
    }

    /// Returns the name, as `fsverity digest` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }
}

/// How a hash tree is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    algorithm: Algorithm,
    block_bits: u8,
    salt: Vec<u8>,
}

impl Method {
    /// Creates the method for a file of a file system with blocks of `block_size`, after a check of
    /// the parameters.
    ///
    /// # Errors
    /// [`Cause::BlockSize`] if the tree's blocks are smaller than 1024 bytes or larger than the
    /// blocks of the file system; [`Cause::SaltSize`] if the salt is longer than [`MOST_SALT`].
    pub fn new(
        algorithm: Algorithm,
        block_bits: u8,
        salt: &[u8],
        block_size: BlockSize,
    ) -> Result<Method, Cause> {
        let most = MOST_BLOCK_BITS.min(u8::try_from(block_size.bits()).unwrap_or(u8::MAX));
        if !(LEAST_BLOCK_BITS..=most).contains(&block_bits) {
            return Err(Cause::BlockSize { bits: block_bits });
        }
        if salt.len() > MOST_SALT {
            return Err(Cause::SaltSize { size: u8::try_from(salt.len()).unwrap_or(u8::MAX) });
        }
        Ok(Method { algorithm, block_bits, salt: salt.to_vec() })
    }

    /// Returns the hash algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the binary logarithm of the block size, which is the same for the data and the tree.
    /// Each block is hashed as a whole.
    pub fn block_bits(&self) -> u8 {
        self.block_bits
    }

    /// Returns the salt, which precedes each block that is hashed.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }
}
