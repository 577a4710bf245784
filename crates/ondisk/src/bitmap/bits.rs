//! The bits of a bitmap in memory.

use crate::cause::bitmap::Cause;
use std::ops::Range;

/// A bitmap of one group, in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// Bit `n` of the bitmap is bit `n % 64` of word `n / 64`. Unused bits of the last word are
    /// set.
    pub(super) words: Box<[u64]>,
    pub(super) bits: u32,
}

pub(super) const WORD: u32 = u64::BITS;

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
