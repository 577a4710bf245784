//! The data of a file in the model.

use crate::listing::{Digest, GRAIN};
use std::collections::BTreeMap;

/// The data of a file, in pieces of [`GRAIN`] bytes; an absent piece is zeros.
#[derive(Clone, Default, Debug)]
pub struct Data {
    size: u64,
    grains: BTreeMap<u64, Vec<u8>>,
}

impl Data {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns up to `len` bytes from `offset`.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = (len as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut bytes = vec![0; len];
        for (grain, skip, from, n) in pieces(offset, len) {
            if let Some(held) = self.grains.get(&grain) {
                bytes[from..from + n].copy_from_slice(&held[skip..skip + n]);
            }
        }
        bytes
    }

    /// Overwrites the range, and grows the file if needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (grain, skip, from, n) in pieces(offset, data.len()) {
            let held = self.grains.entry(grain).or_insert_with(|| vec![0; GRAIN]);
            held[skip..skip + n].copy_from_slice(&data[from..from + n]);
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    /// Zeroes the range as far as it lies below the file's size. The file does not grow.
    pub fn zero(&mut self, offset: u64, len: u64) {
        const BYTES: u64 = GRAIN as u64;
        let end = offset.saturating_add(len);
        // Visits only the existing grains, because most of the range may be a huge hole.
        let touched = self.grains.range_mut(offset / BYTES..end.div_ceil(BYTES));
        for (grain, held) in touched {
            let start = grain * BYTES;
            let from = offset.saturating_sub(start).min(BYTES) as usize;
            let to = end.saturating_sub(start).min(BYTES) as usize;
            held[from..to].fill(0);
        }
    }

    /// Truncates the file, or grows it with zeros.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.grains.retain(|grain, _| grain * (GRAIN as u64) < size);
            self.zero(size, self.size - size);
        }
        self.size = size;
    }

    /// Removes the range, which ends before the end of the file; later bytes move to the range's
    /// start.
    pub fn collapse(&mut self, offset: u64, len: u64) {
        self.shift(|at| match at {
            _ if at < offset => Some(at),
            _ => at.checked_sub(len).filter(|moved| *moved >= offset),
        });
        self.size -= len;
    }

    /// Inserts a hole; the bytes from `offset` on move behind it.
    pub fn insert(&mut self, offset: u64, len: u64) {
        self.shift(|at| Some(if at < offset { at } else { at + len }));
        self.size += len;
    }

    /// Moves the bytes in units of 1,024 bytes, the smallest block size. For the offset of a unit,
    /// `to` returns its new offset, or `None` if the unit is removed.
    fn shift(&mut self, to: impl Fn(u64) -> Option<u64>) {
        const UNIT: usize = 1024;
        let size = self.size;
        for (grain, held) in std::mem::take(&mut self.grains) {
            for (n, unit) in held.chunks(UNIT).enumerate() {
                let at = grain * GRAIN as u64 + (n * UNIT) as u64;
                if let Some(moved) = to(at) {
                    self.write(moved, unit);
                }
            }
        }
        self.size = size;
    }

    /// Returns the digest that [`Listing`](crate::listing::Listing) uses.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::new(self.size);
        for (grain, held) in &self.grains {
            let at = grain * GRAIN as u64;
            let n = (self.size.saturating_sub(at)).min(GRAIN as u64) as usize;
            digest.grain(at, &held[..n]);
        }
        digest.end()
    }
}

/// Splits a range into pieces at grain boundaries. For each piece, returns the number of its grain,
/// its offset in that grain, its offset in the range, and its length in bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = offset + from as u64;
        let skip = (at % GRAIN as u64) as usize;
        let n = (GRAIN - skip).min(len - from);
        let piece = (at / GRAIN as u64, skip, from, n);
        from += n;
        (n > 0).then_some(piece)
    })
}
