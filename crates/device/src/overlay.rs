//! A layer above a device: it keeps writes in memory, so the device does not change.

use crate::device::{Device, DeviceError, Operation, ReadKind, WriteKind, check_range};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Mutex, Rank};
use std::collections::HashMap;
use std::io;
use std::path::Path;

const GRANULE: u64 = OverlayDevice::GRANULE;
const SHARDS: u64 = 64;

/// Granules by number. Each is in an `Arc`, so that forks share it until one of them writes it.
type Granules = HashMap<u64, Arc<[u8]>>;

/// A writable view of a device. The device itself is never written: changed granules of 4 KiB are
/// kept in memory.
///
/// This device serves read-only mounts whose journal needs replay. It also serves crash states,
/// many of which share one base. Nothing is durable, and a flush does nothing.
pub struct OverlayDevice {
    below: Arc<dyn Device>,
    shards: Box<[Mutex<Granules>]>,
    /// Bytes of the changed granules, at most `cap`.
    held: AtomicU64,
    cap: u64,
}

impl std::fmt::Debug for OverlayDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OverlayDevice").field("held", &self.held()).field("cap", &self.cap).finish()
    }
}

impl OverlayDevice {
    /// Bytes of a granule. The first write to a granule copies the whole granule to memory.
    pub const GRANULE: u64 = 4096;

    /// Creates a view of `below` with at most `cap` bytes of changes; a write that needs more fails
    /// with [`io::ErrorKind::StorageFull`].
    pub fn new(below: Arc<dyn Device>, cap: u64) -> OverlayDevice {
        let shards = (0..SHARDS).map(|_| Mutex::new(Rank::Bucket, Granules::default())).collect();
        OverlayDevice { below, shards, held: AtomicU64::new(0), cap }
    }

    /// Returns a second view with the same changes. Later changes to one view do not affect the
    /// other. The second view shares the changed granules, and needs memory only for a map of them.
    pub fn fork(&self) -> OverlayDevice {
        let shards: Box<[_]> = self
            .shards
            .iter()
            .map(|shard| Mutex::new(Rank::Bucket, shard.lock().clone()))
            .collect();
        let held = AtomicU64::new(self.held());
        OverlayDevice { below: self.below.clone(), shards, held, cap: self.cap }
    }

    /// Returns the offset and content of each changed granule. The last granule of a device may
    /// extend beyond its end.
    pub fn changes(&self) -> Vec<(u64, Arc<[u8]>)> {
        let mut changes = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            changes.extend(shard.iter().map(|(granule, bytes)| (granule * GRANULE, bytes.clone())));
        }
        changes
    }

    /// Returns the total size of the changed granules in bytes.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Writes the contents of this device to a new or truncated file at `path`, leaving holes for
    /// zeros.
    ///
    /// # Errors
    /// Errors of the device below and of the host.
    pub fn to_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        crate::ram::to_file(self, path)
    }

    fn shard(&self, granule: u64) -> &Mutex<Granules> {
        &self.shards[(granule % SHARDS) as usize]
    }

    /// Returns a granule of the device below. After the end of the device, the granule contains
    /// zeros.
    fn read_below(&self, granule: u64) -> Result<Arc<[u8]>, DeviceError> {
        let mut bytes = vec![0; GRANULE as usize];
        let at = granule * GRANULE;
        let n = GRANULE.min(self.len() - at);
        self.below.read_at(at, &mut bytes[..n as usize])?;
        Ok(bytes.into())
    }

    fn reserve(&self, offset: u64) -> Result<(), DeviceError> {
        let full =
            |_| DeviceError::new(Operation::Write, offset, GRANULE, io::ErrorKind::StorageFull);
        let more = |held: u64| held.checked_add(GRANULE).filter(|sum| *sum <= self.cap);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(full)?;
        Ok(())
    }

    fn write_granule(&self, piece: Piece, bytes: &[u8]) -> Result<(), DeviceError> {
        let change = |held: &mut Arc<[u8]>| {
            if Arc::get_mut(held).is_none() {
                *held = Arc::from(&held[..]);
            }
            if let Some(own) = Arc::get_mut(held) {
                own[piece.skip..piece.skip + bytes.len()].copy_from_slice(bytes);
            }
        };
        if let Some(held) = self.shard(piece.granule).lock().get_mut(&piece.granule) {
            change(held);
            return Ok(());
        }
        // The lock is never held across I/O, so the device below is read without it.
        self.reserve(piece.granule * GRANULE)?;
        let fresh = self.read_below(piece.granule).inspect_err(|_| self.release())?;
        let mut shard = self.shard(piece.granule).lock();
        if shard.contains_key(&piece.granule) {
            self.release();
        }
        change(shard.entry(piece.granule).or_insert(fresh));
        Ok(())
    }

    fn release(&self) {
        self.held.fetch_sub(GRANULE, Ordering::Relaxed);
    }
}

/// The part of a range in one granule.
#[derive(Clone, Copy)]
struct Piece {
    granule: u64,
    /// The number of bytes in the granule that come before the range.
    skip: usize,
    /// The offset of the piece in the caller's buffer.
    from: usize,
    len: usize,
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = offset + from as u64;
        let skip = (at % GRANULE) as usize;
        let n = (GRANULE as usize - skip).min(len - from);
        let piece = Piece { granule: at / GRANULE, skip, from, len: n };
        from += n;
        (n > 0).then_some(piece)
    })
}

impl Device for OverlayDevice {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, buf: &mut [u8], _: ReadKind) -> Result<(), DeviceError> {
        check_range(Operation::Read, offset, buf.len() as u64, self.len())?;
        for piece in pieces(offset, buf.len()) {
            let part = &mut buf[piece.from..piece.from + piece.len];
            let held = self.shard(piece.granule).lock().get(&piece.granule).cloned();
            match held {
                Some(bytes) => part.copy_from_slice(&bytes[piece.skip..piece.skip + piece.len]),
                None => self.below.read_at(offset + piece.from as u64, part)?,
            }
        }
        Ok(())
    }

    fn write(&self, mut offset: u64, bufs: &[&[u8]], _: WriteKind) -> Result<(), DeviceError> {
        for buf in bufs {
            check_range(Operation::Write, offset, buf.len() as u64, self.len())?;
            for piece in pieces(offset, buf.len()) {
                self.write_granule(piece, &buf[piece.from..piece.from + piece.len])?;
            }
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(Operation::Discard, offset, len, self.len())
    }
}

#[cfg(test)]
mod tests;
