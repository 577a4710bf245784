//! The internal write-intent bitmap, which marks the chunks in which the members may be
//! inconsistent.
//!
//! One bit represents a chunk of every member's data area (not of the array's data). The bit is set
//! durably before a write to the chunk starts. After a crash only the chunks whose bits are set
//! need new parity. A member that is added again needs only the chunks whose bits were set while
//! the member was absent.
//!
//! Source: `md-bitmap.h` as documented in md(4), and bitmaps that Linux's md wrote.

use crate::md::terms::{Cause, SECTOR, Uuid};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header. The bits follow immediately, the lowest bit of each byte first.
pub const HEADER_SIZE: usize = 256;

const MAGIC: u32 = 0x6d74_6962;
/// The version that mdadm creates. In this version the order of the bits is the same on every
/// machine.
const VERSION: u32 = 4;
/// The bit `BITMAP_STALE` of the state word.
const STALE: u32 = 1 << 1;
/// The bit `BITMAP_WRITE_ERROR` of the state word.
const WRITE_ERROR: u32 = 1 << 2;

#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U32,
    uuid: [u8; 16],
    events: U64,
    events_cleared: U64,
    sync_size: U64,
    state: U32,
    chunksize: U32,
    daemon_sleep: U32,
    write_behind: U32,
    sectors_reserved: U32,
    nodes: U32,
    cluster_name: [u8; 64],
    pad: [u8; 120],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_SIZE);

/// The properties that a bitmap must have to match its array.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// The array's uuid.
    pub set: Uuid,
    /// Sectors used on each member.
    pub sync_size: u64,
    /// Bytes available for header and bits.
    pub space: u64,
}

/// The header, decoded and checked.
#[derive(Debug, Clone)]
pub struct Header {
    raw: RawHeader,
}

impl Header {
    /// Creates the header of a new bitmap without set bits.
    pub fn new(set: Uuid, sync_size: u64, chunk: u32) -> Header {
        let mut raw = RawHeader::new_zeroed();
        raw.magic.set(MAGIC);
        raw.version.set(VERSION);
        raw.uuid = set.0;
        raw.sync_size.set(sync_size);
        raw.chunksize.set(chunk);
        raw.daemon_sleep.set(5);
        Header { raw }
    }

    /// Checks the header at the start of `bytes`.
    ///
    /// # Errors
    /// Any [`Cause`]; versions 5 (clustered) and 6 (lockless) are [`Cause::BitmapVersion`].
    pub fn decode(bytes: &[u8], expected: &Expected) -> Result<Header, Cause> {
        let (raw, _) =
            RawHeader::read_from_prefix(bytes).map_err(|_| Cause::Length { len: bytes.len() })?;
        if raw.magic.get() != MAGIC {
            return Err(Cause::NotABitmap);
        }
        let version = raw.version.get();
        if version != VERSION {
            return Err(Cause::BitmapVersion { version });
        }
        if raw.uuid != expected.set.0 {
            return Err(Cause::Uuid { found: Uuid(raw.uuid), expected: expected.set });
        }
        let bytes = raw.chunksize.get();
        if !bytes.is_power_of_two() || u64::from(bytes) < SECTOR {
            return Err(Cause::BitmapChunk { bytes });
        }
        if raw.sync_size.get() != expected.sync_size {
            let found = raw.sync_size.get();
            return Err(Cause::SyncSize { found, expected: expected.sync_size });
        }
        let header = Header { raw };
        let room = expected.space.saturating_sub(HEADER_SIZE as u64).saturating_mul(8);
        if header.bits() > room {
            return Err(Cause::BitmapSpace { bits: header.bits(), bytes: expected.space });
        }
        Ok(header)
    }

    /// Returns the header's bytes.
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes.copy_from_slice(self.raw.as_bytes());
        bytes
    }

    /// Returns the array's uuid.
    pub fn set(&self) -> Uuid {
        Uuid(self.raw.uuid)
    }

    /// Returns how many bytes of a member's data area one bit represents: a power of two, at least
    /// 512.
    pub fn chunk(&self) -> u64 {
        u64::from(self.raw.chunksize.get())
    }

    /// Returns the number of bits.
    pub fn bits(&self) -> u64 {
        self.raw.sync_size.get().div_ceil((self.chunk() / SECTOR).max(1))
    }

    /// Returns how many bytes the bits take.
    pub fn bit_bytes(&self) -> u64 {
        self.bits().div_ceil(8)
    }

    /// Returns the sectors used on each member.
    pub fn sync_size(&self) -> u64 {
        self.raw.sync_size.get()
    }

    /// Returns the array's event count when this header was written.
    pub fn events(&self) -> u64 {
        self.raw.events.get()
    }

    /// Returns the event count that the array had when bits were last cleared with *all* members in
    /// sync. A member whose event count is at least this can be updated from the bits.
    pub fn events_cleared(&self) -> u64 {
        self.raw.events_cleared.get()
    }

    /// Returns the number of seconds after which the kernel writes cleared bits to the device.
    pub fn daemon_sleep(&self) -> u32 {
        self.raw.daemon_sleep.get()
    }

    /// Returns whether the bits are unreliable; then all bits count as set.
    pub fn is_stale(&self) -> bool {
        self.raw.state.get() & (STALE | WRITE_ERROR) != 0
    }

    /// See [`Header::events`].
    pub fn set_events(&mut self, events: u64) {
        self.raw.events.set(events);
    }

    /// See [`Header::events_cleared`].
    pub fn set_events_cleared(&mut self, events: u64) {
        self.raw.events_cleared.set(events);
    }

    /// Declares the bits reliable again.
    pub fn set_fresh(&mut self) {
        self.raw.state.set(self.raw.state.get() & !(STALE | WRITE_ERROR));
    }
}

#[cfg(test)]
mod tests;
