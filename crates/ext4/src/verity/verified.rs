//! Keeps verified blocks of hash trees in memory.
//!
//! A block is found by the digest of its file and by the block's number in the tree. The digest
//! determines every block of the tree, so a kept block never becomes invalid. The digest and the
//! number determine one slot in a table of fixed size (8 MiB); a new block replaces the block that
//! was in its slot.

use super::digest::FileDigest;
use super::hasher::Hash;
use lanefs_lanes::sync::OnceLock;
use lanefs_lanes::{Cached, Lines, Replaced};

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
