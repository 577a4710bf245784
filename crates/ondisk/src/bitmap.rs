//! Block and inode bitmaps: checks, searches, checksums. A set bit means that the block or inode is
//! in use.
//!
//! [`Bitmap`] stores bits in words for fast searches. Both in memory and on disk, all bits after
//! the bitmap's last bit are set.
//!
//! Source: ext4 disk layout documentation, "Block and Inode Bitmaps".

pub use crate::cause::BitmapCause as Cause;

use crate::checksum::Checksums;
use crate::error::Corruption;
use crate::group_desc::GroupDesc;
use crate::superblock::Geometry;
use crate::types::{Block, Group};
use std::ops::Range;

/// A bitmap of one group, in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// Bit `n` of the bitmap is bit `n % 64` of word `n / 64`. Unused bits of the last word are
    /// set.
    words: Box<[u64]>,
    bits: u32,
}

const WORD: u32 = u64::BITS;

impl Bitmap {
    /// Creates a bitmap with all bits clear.
    pub fn new(bits: u32) -> Bitmap {
        let words = vec![0; bits.div_ceil(WORD) as usize].into_boxed_slice();
        let mut bitmap = Bitmap { words, bits };
        bitmap.pad();
        bitmap
    }

    /// Creates a bitmap of `bits` bits from `bytes`, which have the on-disk form. If `bytes` is too
    /// short, the missing bits are set.
    pub fn from_bytes(bytes: &[u8], bits: u32) -> Bitmap {
        let words = vec![u64::MAX; bits.div_ceil(WORD) as usize].into_boxed_slice();
        let mut bitmap = Bitmap { words, bits };
        let (chunks, rest) = bytes.as_chunks();
        let mut last = [0xff; 8];
        last[..rest.len()].copy_from_slice(rest);
        for (word, chunk) in bitmap.words.iter_mut().zip(chunks.iter().chain([&last])) {
            *word = u64::from_le_bytes(*chunk);
        }
        bitmap.pad();
        bitmap
    }

    /// Fills `bytes` with the bits in their on-disk form, and sets all bits of `bytes` after the
    /// bitmap's last bit.
    pub fn write_to(&self, bytes: &mut [u8]) {
        let (chunks, rest) = bytes.as_chunks_mut();
        for (chunk, word) in chunks.iter_mut().zip(&self.words) {
            *chunk = word.to_le_bytes();
        }
        let used = chunks.len().min(self.words.len());
        chunks[used..].as_flattened_mut().fill(0xff);
        let last = self.words.get(used).map_or([0xff; 8], |word| word.to_le_bytes());
        rest.copy_from_slice(&last[..rest.len()]);
    }

    fn pad(&mut self) {
        let used = self.bits % WORD;
        if let Some(last) = self.words.last_mut().filter(|_| used != 0) {
            *last |= u64::MAX << used;
        }
    }

    /// Returns the number of bits.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns a bit. Bits beyond the end count as set.
    pub fn get(&self, bit: u32) -> bool {
        self.words.get((bit / WORD) as usize).is_none_or(|word| word & mask_of(bit) != 0)
    }

    /// Sets `len` bits from `start`, all of which must be clear. On error no bit changes.
    ///
    /// # Errors
    /// [`Cause::BeyondEnd`] or [`Cause::AlreadySet`].
    pub fn set(&mut self, start: u32, len: u32) -> Result<(), Cause> {
        let range = self.range(start, len)?;
        match self.next_set(range.clone()) {
            Some(bit) => Err(Cause::AlreadySet { bit }),
            None => {
                self.for_words(range, |word, mask| *word |= mask);
                Ok(())
            }
        }
    }

    /// Clears `len` bits from `start`, all of which must be set. On error no bit changes.
    ///
    /// # Errors
    /// [`Cause::BeyondEnd`] or [`Cause::AlreadyClear`].
    pub fn clear(&mut self, start: u32, len: u32) -> Result<(), Cause> {
        let range = self.range(start, len)?;
        match self.next_clear(range.clone()) {
            Some(bit) => Err(Cause::AlreadyClear { bit }),
            None => {
                self.for_words(range, |word, mask| *word &= !mask);
                Ok(())
            }
        }
    }

    /// Sets all bits of a range, some of which may be set already. Ignores the part of the range
    /// beyond the bitmap's end.
    pub fn fill(&mut self, range: Range<u32>) {
        let end = range.end.min(self.bits);
        self.for_words(range.start..end, |word, mask| *word |= mask);
    }

    /// Sets the bits that are set in `other`, a bitmap of the same length.
    pub fn union(&mut self, other: &Bitmap) {
        debug_assert_eq!(self.bits, other.bits);
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    fn range(&self, start: u32, len: u32) -> Result<Range<u32>, Cause> {
        let end = start.checked_add(len).filter(|&end| end <= self.bits);
        end.map(|end| start..end).ok_or(Cause::BeyondEnd { start, len })
    }

    /// Calls `change` with each word that contains bits of `range`, and with the mask of those
    /// bits. The range must be within the bitmap.
    fn for_words(&mut self, range: Range<u32>, change: impl Fn(&mut u64, u64)) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at / WORD * WORD + WORD);
            change(&mut self.words[(at / WORD) as usize], mask_between(at, end));
            at = end;
        }
    }
}

fn mask_of(bit: u32) -> u64 {
    1 << (bit % WORD)
}

/// Returns a mask of the bits `start..end`, which must all be in one word of the bitmap.
fn mask_between(start: u32, end: u32) -> u64 {
    u64::MAX >> (WORD - (end - start)) << (start % WORD)
}

impl Bitmap {
    /// Returns the first clear bit of a range.
    pub fn next_clear(&self, range: Range<u32>) -> Option<u32> {
        self.next(range, |word| !word)
    }

    /// Returns the first set bit of a range.
    pub fn next_set(&self, range: Range<u32>) -> Option<u32> {
        self.next(range, |word| word)
    }

    fn next(&self, range: Range<u32>, wanted: impl Fn(u64) -> u64) -> Option<u32> {
        let end = range.end.min(self.bits);
        let mut at = range.start;
        while at < end {
            let word = wanted(*self.words.get((at / WORD) as usize)?) >> (at % WORD);
            if word != 0 {
                let found = at + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            at = at / WORD * WORD + WORD;
        }
        None
    }

    /// Returns the runs of clear bits in a range, in order. Runs are cut at the ends of the range.
    pub fn clear_runs(&self, range: Range<u32>) -> ClearRuns<'_> {
        ClearRuns { bitmap: self, rest: range.start..range.end.min(self.bits) }
    }

    /// Returns the first run of at least `len` clear bits that begins in a range; it may end beyond
    /// the range.
    pub fn next_clear_run(&self, range: Range<u32>, len: u32) -> Option<Range<u32>> {
        self.clear_runs(range.start..self.bits)
            .take_while(|run| run.start < range.end)
            .find(|run| run.end - run.start >= len)
    }

    /// Returns the longest run of clear bits in a range. If several runs are equally long, returns
    /// the first of them.
    pub fn longest_clear_run(&self, range: Range<u32>) -> Option<Range<u32>> {
        // `max_by_key` would return the last of equal runs.
        self.clear_runs(range).reduce(|best, run| if run.len() > best.len() { run } else { best })
    }

    /// Counts the clear bits.
    pub fn count_clear(&self) -> u32 {
        self.words.iter().map(|word| word.count_zeros()).sum()
    }
}

/// The runs of clear bits in a range of a bitmap.
#[derive(Debug, Clone)]
pub struct ClearRuns<'b> {
    bitmap: &'b Bitmap,
    rest: Range<u32>,
}

impl Iterator for ClearRuns<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        let start = self.bitmap.next_clear(self.rest.clone())?;
        let end = self.bitmap.next_set(start..self.rest.end).unwrap_or(self.rest.end);
        self.rest.start = end;
        Some(start..end)
    }
}

impl Bitmap {
    /// Decodes the block bitmap of a group from its block. Checks length, checksum, the count of
    /// free blocks, and that the group's own metadata is in use.
    ///
    /// Must not be called for a group with `BLOCK_UNINIT`: see [`Bitmap::uninitialised_blocks`].
    ///
    /// # Errors
    /// [`Corruption::Bitmap`].
    pub fn decode_blocks(
        bytes: &[u8],
        group: Group,
        desc: &GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<Bitmap, Corruption> {
        let decode = || {
            let bits = geometry.clusters_in_group(group).ok_or(Cause::NoSuchGroup)?;
            Bitmap::verify_blocks(bytes, desc, geometry, checksums)?;
            let bitmap = Bitmap::from_bytes(bytes, bits);
            bitmap.check_count(desc.free_blocks)?;
            for range in own_metadata(group, desc, geometry) {
                if let Some(bit) = bitmap.next_clear(range) {
                    return Err(Cause::MetadataClear { bit });
                }
            }
            Ok(bitmap)
        };
        decode().map_err(|cause| Corruption::Bitmap { group, cause })
    }

    /// Decodes the inode bitmap of a group from its block. Checks length, checksum and the count of
    /// free inodes.
    ///
    /// Must not be called for a group with `INODE_UNINIT`, whose inodes are all free.
    ///
    /// # Errors
    /// [`Corruption::Bitmap`].
    pub fn decode_inodes(
        bytes: &[u8],
        group: Group,
        desc: &GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<Bitmap, Corruption> {
        let decode = || {
            Bitmap::verify_inodes(bytes, desc, geometry, checksums)?;
            let bitmap = Bitmap::from_bytes(bytes, geometry.inodes_per_group());
            bitmap.check_count(desc.free_inodes)?;
            Ok(bitmap)
        };
        decode().map_err(|cause| Corruption::Bitmap { group, cause })
    }

    /// Writes this block bitmap to its block, which is `bytes`. Stores the bitmap's checksum in the
    /// descriptor. The checksum of the descriptor itself is not updated.
    ///
    /// # Panics
    /// If `bytes` is not one block long, which is an error of the caller.
    pub fn encode_blocks_into(
        &self,
        bytes: &mut [u8],
        desc: &mut GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) {
        if let Some(sum) =
            self.encode_into(bytes, geometry, checksums, geometry.clusters_per_group())
        {
            desc.block_bitmap_csum = sum;
        }
    }

    /// Writes this inode bitmap to its block, which is `bytes`. Stores the bitmap's checksum in the
    /// descriptor. The checksum of the descriptor itself is not updated.
    ///
    /// # Panics
    /// If `bytes` is not one block long, which is an error of the caller.
    pub fn encode_inodes_into(
        &self,
        bytes: &mut [u8],
        desc: &mut GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) {
        if let Some(sum) = self.encode_into(bytes, geometry, checksums, geometry.inodes_per_group())
        {
            desc.inode_bitmap_csum = sum;
        }
    }

    /// Fills a block, and returns the checksum over its first `bits` bits.
    fn encode_into(
        &self,
        bytes: &mut [u8],
        geometry: &Geometry,
        checksums: Checksums,
        bits: u32,
    ) -> Option<u32> {
        assert_eq!(bytes.len(), geometry.block_size().bytes(), "length of a bitmap");
        self.write_to(bytes);
        checksum(bytes, bits, geometry, checksums).ok().flatten()
    }

    /// Returns the block bitmap of a group with `BLOCK_UNINIT`. The blocks in use are those of the
    /// superblock and the descriptors, and the parts of the runs in `metadata` that are in the
    /// group. For `metadata`, it is enough to pass [`GroupDesc::metadata`] of the same group. The
    /// reason is that a group with `BLOCK_UNINIT` contains no metadata of other groups: a program
    /// that places such metadata in a group also initialises the group's bitmap.
    ///
    /// # Errors
    /// [`Corruption::Bitmap`] if the group does not exist.
    pub fn uninitialised_blocks(
        group: Group,
        metadata: impl IntoIterator<Item = (Block, u64)>,
        geometry: &Geometry,
    ) -> Result<Bitmap, Corruption> {
        let no_group = Corruption::Bitmap { group, cause: Cause::NoSuchGroup };
        let bits = geometry.clusters_in_group(group).ok_or(no_group)?;
        let mut bitmap = Bitmap::new(bits);
        let overhead = u64::from(geometry.group_overhead(group));
        let first = geometry.group_first_block(group).unwrap_or_default();
        for (start, len) in std::iter::once((first, overhead)).chain(metadata) {
            if let Some(range) = bits_of(start, len, group, geometry) {
                bitmap.fill(range);
            }
        }
        Ok(bitmap)
    }

    /// Verifies the checksum of an encoded block bitmap, without any other check.
    ///
    /// # Errors
    /// [`Cause::Length`] or [`Cause::Checksum`].
    pub fn verify_blocks(
        bytes: &[u8],
        desc: &GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<(), Cause> {
        let expected = checksum(bytes, geometry.clusters_per_group(), geometry, checksums)?;
        check_checksum(desc.block_bitmap_csum, expected)
    }

    /// Verifies the checksum of an encoded inode bitmap, without any other check.
    ///
    /// # Errors
    /// [`Cause::Length`] or [`Cause::Checksum`].
    pub fn verify_inodes(
        bytes: &[u8],
        desc: &GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<(), Cause> {
        let expected = checksum(bytes, geometry.inodes_per_group(), geometry, checksums)?;
        check_checksum(desc.inode_bitmap_csum, expected)
    }

    fn check_count(&self, free: u32) -> Result<(), Cause> {
        let clear = self.count_clear();
        (clear == free).then_some(()).ok_or(Cause::FreeCount { clear, free })
    }
}

impl GroupDesc {
    /// Returns the runs of blocks that contain the group's bitmaps and inode table.
    pub fn metadata(&self, geometry: &Geometry) -> [(Block, u64); 3] {
        let table = u64::from(geometry.itable_blocks());
        [(self.block_bitmap, 1), (self.inode_bitmap, 1), (self.inode_table, table)]
    }
}

/// Returns which bits of a group's block bitmap represent the group's own metadata: superblock,
/// descriptors, and those parts of its bitmaps and inode table that are in the group. These bits
/// must be set.
fn own_metadata(
    group: Group,
    desc: &GroupDesc,
    geometry: &Geometry,
) -> impl Iterator<Item = Range<u32>> {
    let head = match group {
        Group(0) => geometry.primary_metadata().end - geometry.first_data_block().0,
        _ => geometry.group_overhead(group).into(),
    };
    let overhead = geometry.clusters().holding(head as u32);
    let runs = desc.metadata(geometry);
    let geometry = *geometry;
    let rest =
        runs.into_iter().filter_map(move |(start, len)| bits_of(start, len, group, &geometry));
    std::iter::once(0..overhead).chain(rest)
}

/// Returns which bits of a group's block bitmap represent the `len` blocks from `start`; `None` if
/// none of these blocks is in the group.
fn bits_of(start: Block, len: u64, group: Group, geometry: &Geometry) -> Option<Range<u32>> {
    let first = geometry.group_first_block(group)?.0;
    let end = geometry.group_last_block(group)?.0 + 1;
    let from = start.0.max(first);
    let to = start.0.saturating_add(len).min(end);
    if from >= to {
        return None;
    }
    let bit = |block: u64| ((block - first) >> geometry.cluster_bits()) as u32;
    Some(bit(from)..bit(to - 1) + 1)
}

/// Computes the checksum as descriptors store it: those of 32 bytes store only the lower half. It
/// covers `bits` bits, as many as the bitmap of a full group has, even for the last group, which
/// may have fewer blocks. The rest of the block is not covered.
fn checksum(
    bytes: &[u8],
    bits: u32,
    geometry: &Geometry,
    checksums: Checksums,
) -> Result<Option<u32>, Cause> {
    let length = Cause::Length { len: bytes.len() };
    if bytes.len() != geometry.block_size().bytes() {
        return Err(length);
    }
    let covered = bytes.get(..bits as usize / 8).ok_or(length)?;
    let stored = if geometry.desc_size() >= 64 { u32::MAX } else { 0xffff };
    Ok(checksums.seed().map(|seed| seed.chain(covered).value() & stored))
}

fn check_checksum(found: u32, expected: Option<u32>) -> Result<(), Cause> {
    match expected {
        Some(expected) if expected != found => Err(Cause::Checksum { found, expected }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
