//! Blocks of the orphan file, which lists the inodes that are still open but have no name, and the
//! inodes that are being truncated.
//!
//! A block consists of an array of inode numbers, with 0 in free slots, and of a tail.
//!
//! Source: kernel documentation, "Orphan file".

pub use crate::cause::orphan::Cause;
use crate::checksum::{Checksums, Seed};
use crate::types::{Block, Ino};

/// The first word of the tail.
const MAGIC: u32 = 0x0b10_ca04;
const SLOT_SIZE: usize = 4;
const TAIL_SIZE: usize = 8;

/// The start value of the checksums of an orphan file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanSeed(Option<Seed>);

impl OrphanSeed {
    /// Returns the seed for the orphan file with this inode number and generation.
    pub fn new(checksums: Checksums, ino: Ino, generation: u32) -> OrphanSeed {
        OrphanSeed(checksums.seed().map(|seed| seed.of_inode(ino, generation)))
    }

    /// Computes the checksum over the number of the block on the device, and over all slots.
    fn checksum(self, block: Block, slots: &[u8]) -> Option<u32> {
        Some(self.0?.chain_u64(block.0).chain(slots).value())
    }
}

/// A checked block of the orphan file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanBlock {
    slots: Vec<u32>,
}

impl OrphanBlock {
    /// Returns the number of slots of a block of this size.
    pub fn slots_per_block(block_size: crate::types::BlockSize) -> usize {
        (block_size.bytes() - TAIL_SIZE) / SLOT_SIZE
    }

    /// Creates a block without orphans.
    pub fn empty(block_size: crate::types::BlockSize) -> OrphanBlock {
        OrphanBlock { slots: vec![0; OrphanBlock::slots_per_block(block_size)] }
    }

    /// Decodes a block of the orphan file. The block is number `block` on the device. Checks magic
    /// and checksum.
    ///
    /// # Errors
    /// Any [`Cause`]. The caller adds the number of the block in the file: see
    /// [`crate::Corruption::OrphanFile`].
    pub fn decode(bytes: &[u8], block: Block, seed: OrphanSeed) -> Result<OrphanBlock, Cause> {
        let length = Cause::Length { len: bytes.len() };
        let (rest, sum) = bytes.split_last_chunk().ok_or(length.clone())?;
        let (slots, magic) = rest.split_last_chunk().ok_or(length)?;
        let found = u32::from_le_bytes(*magic);
        if found != MAGIC {
            return Err(Cause::Magic { found });
        }
        let found = u32::from_le_bytes(*sum);
        match seed.checksum(block, slots) {
            Some(expected) if expected != found => Err(Cause::Checksum { found, expected }),
            _ => {
                let (slots, _) = slots.as_chunks();
                Ok(OrphanBlock { slots: slots.iter().map(|s| u32::from_le_bytes(*s)).collect() })
            }
        }
    }

    /// Encodes this block, which is block `block` of the device.
    pub fn encode(&self, block: Block, seed: OrphanSeed) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        let sum = seed.checksum(block, &bytes).unwrap_or(0);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the orphan in a slot, if there is one. The number comes from the image and may be
    /// invalid.
    pub fn get(&self, slot: usize) -> Option<Ino> {
        self.slots.get(slot).filter(|&&ino| ino != 0).map(|&ino| Ino(ino))
    }

    /// Stores an orphan in a slot, or clears the slot.
    ///
    /// # Panics
    /// If the slot does not exist, which is an error of the caller.
    pub fn set(&mut self, slot: usize, ino: Option<Ino>) {
        self.slots[slot] = ino.map_or(0, |ino| ino.0);
    }

    /// Returns the first free slot at or after `from`.
    pub fn next_free(&self, from: usize) -> Option<usize> {
        let tail = self.slots.get(from..)?;
        tail.iter().position(|&ino| ino == 0).map(|n| from + n)
    }

    /// Returns all orphans with their slots.
    pub fn orphans(&self) -> impl Iterator<Item = (usize, Ino)> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|&(_, &ino)| ino != 0).map(|(slot, &ino)| (slot, Ino(ino)))
    }
}

/// Returns the byte range of a slot in the encoded block `bytes`; `None` if the slot is out of
/// range.
fn slot_range(bytes: &[u8], slot: usize) -> Option<std::ops::Range<usize>> {
    let start = slot.checked_mul(SLOT_SIZE)?;
    let end = start.checked_add(SLOT_SIZE)?;
    (end <= bytes.len().checked_sub(TAIL_SIZE)?).then_some(start..end)
}

/// Returns the first free slot of a block.
pub fn free_slot(bytes: &[u8]) -> Option<usize> {
    let slots = bytes.get(..bytes.len().checked_sub(TAIL_SIZE)?)?;
    slots.as_chunks::<SLOT_SIZE>().0.iter().position(|slot| *slot == [0; SLOT_SIZE])
}

/// Stores an orphan in a slot of a block, or clears the slot. [`seal`] sets the checksum.
pub fn set_slot(bytes: &mut [u8], slot: usize, ino: Option<Ino>) {
    if let Some(range) = slot_range(bytes, slot) {
        bytes[range].copy_from_slice(&ino.map_or(0, |ino| ino.0).to_le_bytes());
    }
}

/// Sets the checksum of a block of the orphan file. The block is number `block` on the device.
pub fn seal(bytes: &mut [u8], block: Block, seed: OrphanSeed) {
    let Some(slots) = bytes.len().checked_sub(TAIL_SIZE) else { return };
    if let Some(sum) = seed.checksum(block, &bytes[..slots]) {
        let at = bytes.len() - size_of::<u32>();
        bytes[at..].copy_from_slice(&sum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BlockSize;

    fn seed() -> OrphanSeed {
        OrphanSeed::new(Checksums::All { seed: Seed::from_raw(7) }, Ino(12), 3)
    }

    fn block() -> OrphanBlock {
        let mut block = OrphanBlock::empty(BlockSize::new(1024).unwrap());
        block.set(3, Some(Ino(99)));
        block
    }

    #[test]
    fn a_block_reads_back() {
        let bytes = block().encode(Block(5), seed());
        assert_eq!(bytes.len(), 1024);
        let read = OrphanBlock::decode(&bytes, Block(5), seed()).unwrap();
        assert_eq!(read, block());
        assert_eq!(read.orphans().collect::<Vec<_>>(), [(3, Ino(99))]);
        assert_eq!((read.slots(), read.get(3), read.get(254)), (254, Some(Ino(99)), None));
        assert_eq!((read.next_free(3), read.next_free(254)), (Some(4), None));
    }

    #[test]
    fn a_block_of_another_place_is_corruption() {
        let bytes = block().encode(Block(5), seed());
        let error = OrphanBlock::decode(&bytes, Block(6), seed()).unwrap_err();
        assert!(matches!(error, Cause::Checksum { .. }));
    }

    #[test]
    fn a_block_of_another_file_is_corruption() {
        let bytes = block().encode(Block(5), seed());
        let other = OrphanSeed::new(Checksums::All { seed: Seed::from_raw(7) }, Ino(12), 4);
        let error = OrphanBlock::decode(&bytes, Block(5), other).unwrap_err();
        assert!(matches!(error, Cause::Checksum { .. }));
    }

    #[test]
    fn a_block_without_magic_is_corruption() {
        let mut bytes = block().encode(Block(5), seed());
        bytes[1016] ^= 1;
        let error = OrphanBlock::decode(&bytes, Block(5), seed()).unwrap_err();
        assert!(matches!(error, Cause::Magic { .. }));
        let error = OrphanBlock::decode(&bytes[..7], Block(5), seed()).unwrap_err();
        assert_eq!(error, Cause::Length { len: 7 });
    }

    #[test]
    fn without_checksums_only_the_magic_counts() {
        let seed = OrphanSeed::new(Checksums::None, Ino(12), 3);
        let bytes = block().encode(Block(5), seed);
        assert_eq!(OrphanBlock::decode(&bytes, Block(99), seed), Ok(block()));
    }

    #[test]
    fn a_block_changed_as_bytes_is_the_block_changed_as_slots() {
        let size = BlockSize::new(1024).unwrap();
        let mut block = OrphanBlock::empty(size);
        let mut bytes = block.encode(Block(7), seed());
        assert_eq!(free_slot(&bytes), Some(0));
        set_slot(&mut bytes, 0, Some(Ino(12)));
        set_slot(&mut bytes, 1, Some(Ino(13)));
        set_slot(&mut bytes, 0, None);
        set_slot(&mut bytes, 1 << 40, Some(Ino(14)));
        seal(&mut bytes, Block(7), seed());
        block.set(1, Some(Ino(13)));
        assert_eq!(bytes, block.encode(Block(7), seed()));
        assert_eq!(free_slot(&bytes), Some(0));
    }
}
