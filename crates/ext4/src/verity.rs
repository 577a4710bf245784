//! The hashes of verity files, and a cache of verified blocks of their hash trees.
//!
//! [`data/protected.rs`](crate::data) reads and verifies files. `ops/protect.rs` makes verity
//! files. The formats are in [`lanefs_ondisk::verity`].

use lanefs_lanes::sync::OnceLock;
use lanefs_lanes::{Cached, Lines, Replaced};
use lanefs_ondisk::verity::{Algorithm, Descriptor};
use sha2::{Digest, Sha256, Sha512};
use std::fmt;

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

// The digest of a verity file.

/// The digest of a verity file, as `fsverity digest` computes it: the hash of its descriptor, which
/// contains the size, the salt and the root hash of the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileDigest {
    pub(crate) algorithm: Algorithm,
    pub(crate) hash: Hash,
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

// Hashes blocks of verity files.

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

// Keeps verified blocks of hash trees in memory.
//
// A block is found by the digest of its file and by the block's number in the tree. The digest
// determines every block of the tree, so a kept block never becomes invalid. The digest and the
// number determine one slot in a table of fixed size (8 MiB); a new block replaces the block that
// was in its slot.

/// The largest total size of the kept blocks, in bytes.
const MOST_BYTES: usize = 8 << 20;

/// A verified block.
struct Block {
    file: FileDigest,
    /// The number of the block in the stored tree.
    stored: u64,
    bytes: Lines,
}

impl Replaced for Block {
    fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The verified blocks of the hash trees of all files of a mount.
///
/// # Locking
/// No lock is needed, because blocks are read under a pin and replaced as a whole. A reader of a
/// kept block writes nothing that other threads read.
#[derive(Default)]
pub(crate) struct VerifiedBlocks {
    /// The table, created when the first verity file is read.
    places: OnceLock<Box<[Cached<Block>]>>,
}

impl VerifiedBlocks {
    /// Returns the hash at `offset` of block `stored` of a file's tree; `None` if the block is not
    /// kept.
    pub(crate) fn hash(&self, file: &FileDigest, stored: u64, offset: usize) -> Option<Hash> {
        let places = self.places.get()?;
        let pin = lanefs_lanes::pin();
        let block = places.get(place(file, stored, places.len()))?.get(&pin)?;
        let is_it = block.stored == stored && block.file == *file;
        let len = file.algorithm().hash_bytes();
        block.bytes.get(offset..offset + len).filter(|_| is_it).map(Hash::new)
    }

    /// Keeps a verified block. `most` is the largest size in bytes that a tree block can have on
    /// this file system.
    pub(crate) fn keep(&self, file: &FileDigest, stored: u64, bytes: &[u8], most: usize) {
        let new = || (0..MOST_BYTES / most).map(|_| Cached::default()).collect();
        let places = self.places.get_or_init(new);
        if let Some(kept) = places.get(place(file, stored, places.len())) {
            kept.store(Block { file: *file, stored, bytes: Lines::from(bytes) });
        }
    }
}

/// Returns the slot of a block in a table of `places` slots. The file's digest determines the slot
/// of a tree's first block, and the other blocks of the tree have the slots after it.
fn place(file: &FileDigest, stored: u64, places: usize) -> usize {
    let start = file.bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (start.wrapping_add(stored) % places as u64) as usize
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use lanefs_ondisk::verity::Algorithm;

    fn digest(byte: u8) -> FileDigest {
        FileDigest { algorithm: Algorithm::Sha256, hash: Hash::new(&[byte; 32]) }
    }

    #[test]
    fn a_kept_block_is_found_by_its_file_and_number_until_another_takes_its_place() {
        let (kept, of_block) = (VerifiedBlocks::default(), [7; 4096]);
        assert_eq!(kept.hash(&digest(1), 3, 0), None);
        kept.keep(&digest(1), 3, &of_block, 4096);
        let hash = Some(Hash::new(&[7; 32]));
        assert_eq!(kept.hash(&digest(1), 3, 4064), hash);
        assert_eq!(kept.hash(&digest(1), 3, 4065), None);
        let places = (MOST_BYTES / 4096) as u64;
        for (file, stored) in [(digest(1), 4), (digest(1), 3 + places), (digest(2), 3)] {
            assert_eq!(kept.hash(&file, stored, 0), None);
        }
        kept.keep(&digest(1), 3 + places, &of_block, 4096);
        assert_eq!(kept.hash(&digest(1), 3, 0), None);
        assert_eq!(kept.hash(&digest(1), 3 + places, 0), hash);
    }
}
