//! Indexes the names of some blocks by hash.
//!
//! A leaf has a hundred names or more, and a search without an index reads half of them on average.
//! A program that walks a tree looks up every name. With this index each name is found at once,
//! after one pass over the blocks.

use lanefs_ondisk::dirent;
use lanefs_ondisk::dirent::{Cause, DirFormat, Entry, Name};

/// The positions of the names in one or several blocks. The index is valid only for the contents
/// from which it was built.
pub struct NameIndex {
    /// The number of slots is a power of two, and at most half of the slots are used. An unused
    /// slot is zero. The lower bits of a used slot contain the record's offset plus one, in units
    /// of four bytes from the start of the first block. The upper bits contain a part of the name's
    /// hash.
    slots: Box<[u32]>,
}

/// The number of low bits of a slot that contain the offset.
const PLACE: u32 = 20;

/// The largest number of slots that are examined for one name. If too many names have the same
/// hash, no index is built, because every search for such a name would examine all of them.
const LONGEST: usize = 128;

impl NameIndex {
    /// Builds the index of leaves, or of blocks of a linear directory; `None` if a block is
    /// damaged, a name occurs twice, or the blocks are too large.
    pub fn of(format: &DirFormat, blocks: &[&[u8]]) -> Option<NameIndex> {
        let bytes = format.block_size.bytes();
        let mut names: Vec<(u32, &[u8])> = Vec::with_capacity(blocks.len() * bytes / 32);
        for (n, block) in blocks.iter().enumerate() {
            for place in dirent::places(format, block).ok()? {
                let (offset, name) = place.ok()?;
                let place = u32::try_from((n * bytes + offset) / 4 + 1).ok()?;
                names.push((place, name));
            }
        }
        if blocks.len() * bytes / 4 >= 1 << PLACE {
            return None;
        }
        let slots = vec![0; (2 * names.len()).next_power_of_two()].into_boxed_slice();
        let mut index = NameIndex { slots };
        for (place, name) in names {
            let hash = lanefs_lanes::hash_of(name);
            let of_block = |n: usize| blocks.get(n).copied();
            let free = index.free_slot(format, of_block, hash, name)?;
            *index.slots.get_mut(free)? = tag_of(hash) | place;
        }
        Some(index)
    }

    /// Returns a free slot for a name that is not yet in the index.
    fn free_slot<'a>(
        &self,
        format: &DirFormat,
        blocks: impl Fn(usize) -> Option<&'a [u8]>,
        hash: u64,
        name: &[u8],
    ) -> Option<usize> {
        for at in self.probe(hash) {
            let slot = *self.slots.get(at)?;
            if slot == 0 {
                return Some(at);
            }
            if slot & !MASK == tag_of(hash) {
                let (n, offset) = place_of(format, slot);
                if dirent::named_at(format, blocks(n)?, offset, Name::of(format.names, name).ok()?)
                    .ok()?
                    .is_some()
                {
                    return None;
                }
            }
        }
        None
    }

    /// Returns the entry with this name, and the number of its block among the indexed blocks.
    ///
    /// # Errors
    /// If a slot points to an invalid record, because `blocks` returns other blocks than those that
    /// were indexed.
    #[inline]
    pub fn find<'a>(
        &self,
        format: &DirFormat,
        blocks: impl Fn(usize) -> Option<&'a [u8]>,
        name: Name<'_>,
    ) -> Result<Option<(usize, Entry<'a>)>, Cause> {
        let hash = lanefs_lanes::hash_of(name.bytes());
        for at in self.probe(hash) {
            let slot = self.slots.get(at).copied().unwrap_or(0);
            if slot == 0 {
                break;
            }
            if slot & !MASK != tag_of(hash) {
                continue;
            }
            let (n, offset) = place_of(format, slot);
            let Some(block) = blocks(n) else { break };
            if let Some(entry) = dirent::named_at(format, block, offset, name)? {
                return Ok(Some((n, entry)));
            }
        }
        Ok(None)
    }

    /// Returns the size of the index in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Returns the slots to examine for a name with this hash, each once.
    fn probe(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let len = self.slots.len();
        (0..len.min(LONGEST)).map(move |n| (hash as usize).wrapping_add(n) & (len - 1))
    }
}

const MASK: u32 = (1 << PLACE) - 1;

/// Returns the part of a hash that a slot stores, without the bits that choose the slot.
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32 & !MASK
}

/// Returns the block that contains the name to which a slot refers, and the offset of the name's
/// record in that block.
fn place_of(format: &DirFormat, slot: u32) -> (usize, usize) {
    let at = ((slot & MASK).saturating_sub(1) as usize) * 4;
    (at >> format.block_size.bits(), at & (format.block_size.bytes() - 1))
}

#[cfg(test)]
mod tests;
