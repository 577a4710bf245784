//! Blocks of the orphan file, which lists the inodes that are still open but have no name, and the
//! inodes that are being truncated.
//!
//! A block consists of an array of inode numbers, with 0 in free slots, and of a tail.
//!
//! Source: kernel documentation, "Orphan file".

pub use crate::cause::OrphanCause as Cause;

use crate::checksum::{Checksums, Seed};
use crate::types::{Block, BlockSize, Ino};

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
    pub fn slots_per_block(block_size: BlockSize) -> usize {
        (block_size.bytes() - TAIL_SIZE) / SLOT_SIZE
    }

    /// Creates a block without orphans.
    pub fn empty(block_size: BlockSize) -> OrphanBlock {
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
mod tests;
