//! Buffers for requests. When a request ends, its thread's lane keeps the buffers for later
//! requests.

use lanefs_lanes::{Mutex, PerLane, Rank};
use std::ops::{Deref, DerefMut};

/// The number of buffers that a lane keeps.
const KEPT: usize = 8;

#[derive(Debug)]
pub(crate) struct Scratch {
    lanes: PerLane<Mutex<Vec<Vec<u8>>>>,
}

/// A buffer with undefined contents; returned to its lane when dropped.
#[derive(Debug)]
pub(crate) struct Buffer<'a> {
    scratch: &'a Scratch,
    bytes: Vec<u8>,
    len: usize,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { lanes: PerLane::new(|_| Mutex::new(Rank::LaneList, Vec::new())) }
    }

    pub(crate) fn take(&self, len: u64) -> Buffer<'_> {
        let len = len as usize;
        let mut bytes = self.lanes.mine().lock().pop().unwrap_or_default();
        if bytes.len() < len {
            bytes = vec![0; len];
        }
        Buffer { scratch: self, bytes, len }
    }
}

impl Deref for Buffer<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let mut kept = self.scratch.lanes.mine().lock();
        if kept.len() < KEPT {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}
