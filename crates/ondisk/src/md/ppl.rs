//! The partial parity log of a RAID-5 member, which closes the write hole.
//!
//! A header of one block lists up to 148 writes to rows whose parity is on this member. The partial
//! parities of these writes follow the header in the same order. The partial parity of a write is
//! the XOR of the row's data that the write leaves unchanged. After a crash, the parity of the row
//! is the XOR of the partial parity and the data on the members that the write changes. This is
//! true regardless of which parts of the write reached those members.
//!
//! Source: "Partial Parity Log" in Linux's md documentation; `linux/raid/md_p.h`. The checksums
//! are standard CRC-32C (started from all ones, inverted at the end).

use crate::md::terms::{Cause, Uuid};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub const HEADER_SIZE: usize = 4096;
/// The largest number of entries in one header.
pub const MAX_ENTRIES: usize = 148;

#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    data_sector: U64,
    pp_size: U32,
    data_size: U32,
    parity_disk: U32,
    checksum: U32,
}

#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    reserved: [u8; 512],
    signature: U32,
    padding: U32,
    generation: U64,
    entries_count: U32,
    checksum: U32,
    entries: [RawEntry; MAX_ENTRIES],
    tail: [u8; 8],
}

const _: () = assert!(size_of::<RawEntry>() == 24);
const _: () = assert!(size_of::<RawHeader>() == HEADER_SIZE);

/// One write that was in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// First sector of the *array* that was written.
    pub data_sector: u64,
    /// Bytes of partial parity after the header; 0 if whole rows were written.
    pub pp_size: u32,
    /// Bytes of data that were written.
    pub data_size: u32,
    /// The slot of the member that has the parity of the row and this log.
    pub parity_disk: u32,
    /// CRC-32C of the partial parity.
    pub checksum: u32,
}

/// A header of the log: it lists the writes that were in progress when the header was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// See [`signature`].
    pub signature: u32,
    /// The number of the header, which increases with each header. Only the newest header is valid.
    pub generation: u64,
    /// The entries, at most [`MAX_ENTRIES`].
    pub entries: Vec<Entry>,
}

/// Returns the signature of headers of the array with this uuid.
pub fn signature(set: Uuid) -> u32 {
    // The kernel starts the CRC from all ones and inverts the result, so it computes the standard
    // CRC-32C.
    checksum(&set.0)
}

/// Returns the CRC-32C of `bytes`. Headers and entries store such checksums.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

impl Header {
    /// Creates a header without entries, for the start of an array's log.
    pub fn empty(signature: u32) -> Header {
        Header { signature, generation: 0, entries: Vec::new() }
    }

    /// Decodes and checks the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`Cause::NotALog`] if the header's signature is not `signature`, which means that the log
    /// ends before this header. Another cause if `bytes` is too short, the checksum is wrong, or
    /// the count is impossible.
    pub fn decode(bytes: &[u8], signature: u32) -> Result<Header, Cause> {
        let (raw, _) =
            RawHeader::ref_from_prefix(bytes).map_err(|_| Cause::Length { len: bytes.len() })?;
        if raw.signature.get() != signature {
            return Err(Cause::NotALog);
        }
        let (found, expected) = (raw.checksum.get(), header_checksum(raw));
        if found != expected {
            return Err(Cause::Checksum { found, expected });
        }
        let count = raw.entries_count.get();
        let entries = usize::try_from(count).ok().and_then(|count| raw.entries.get(..count));
        let entries = entries.ok_or(Cause::EntryCount { count })?;
        let entries = entries.iter().map(|entry| Entry {
            data_sector: entry.data_sector.get(),
            pp_size: entry.pp_size.get(),
            data_size: entry.data_size.get(),
            parity_disk: entry.parity_disk.get(),
            checksum: entry.checksum.get(),
        });
        Ok(Header { signature, generation: raw.generation.get(), entries: entries.collect() })
    }

    /// Encodes the header into `block`, checksum included.
    ///
    /// # Panics
    /// If there are more than [`MAX_ENTRIES`] entries, which is an error of the caller.
    pub fn encode_into(&self, block: &mut [u8; HEADER_SIZE]) {
        assert!(self.entries.len() <= MAX_ENTRIES, "{} entries", self.entries.len());
        let mut raw = RawHeader::new_zeroed();
        raw.reserved = [0xff; 512];
        raw.signature.set(self.signature);
        raw.generation.set(self.generation);
        raw.entries_count.set(self.entries.len() as u32);
        for (raw, entry) in raw.entries.iter_mut().zip(&self.entries) {
            *raw = RawEntry {
                data_sector: entry.data_sector.into(),
                pp_size: entry.pp_size.into(),
                data_size: entry.data_size.into(),
                parity_disk: entry.parity_disk.into(),
                checksum: entry.checksum.into(),
            };
        }
        raw.checksum.set(header_checksum(&raw));
        block.copy_from_slice(raw.as_bytes());
    }

    /// Returns the distance in bytes from the start of this header to the next header: the size of
    /// this header and of all its partial parities.
    pub fn span(&self) -> u64 {
        let parities: u64 = self.entries.iter().map(|entry| u64::from(entry.pp_size)).sum();
        HEADER_SIZE as u64 + parities
    }
}

/// Computes the checksum over the whole header, with the checksum field taken as zero.
fn header_checksum(raw: &RawHeader) -> u32 {
    let mut raw = raw.clone();
    raw.checksum.set(0);
    checksum(raw.as_bytes())
}

#[cfg(test)]
mod tests;
