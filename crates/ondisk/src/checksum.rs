//! Checksums: the crc32c of `metadata_csum` with its seeds, and the crc16 of `gdt_csum`.
//!
//! Source: ext4 disk layout documentation, "Checksums". The crc32c of this module starts from all
//! ones, and is inverted neither between the chained parts nor at the end.

use crate::types::Ino;
use crc::{Crc, Digest, Table};

static CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&crc::CRC_16_MODBUS);

/// A running crc32c: a seed for further bytes, or the checksum of the bytes chained so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seed(u32);

impl Seed {
    /// The start value, before any byte is chained.
    pub const START: Seed = Seed(!0);

    /// Creates the seed from `s_checksum_seed` of a superblock.
    pub fn from_raw(value: u32) -> Seed {
        Seed(value)
    }

    /// Returns the seed of a file system without `metadata_csum_seed`, or of a journal.
    pub fn of_uuid(uuid: &[u8; 16]) -> Seed {
        Seed::START.chain(uuid)
    }

    /// Returns the seed for one inode, and for its directory blocks and extent nodes. For the inode
    /// of the orphan file, this is also the seed for the blocks of that file.
    pub fn of_inode(self, ino: Ino, generation: u32) -> Seed {
        self.chain_u64(u64::from(ino.0) | u64::from(generation) << 32)
    }

    /// Chains `bytes`.
    pub fn chain(self, bytes: &[u8]) -> Seed {
        Seed(!crc32c::crc32c_append(!self.0, bytes))
    }

    /// Chains a little-endian 32-bit word.
    pub fn chain_u32(self, word: u32) -> Seed {
        self.chain(&word.to_le_bytes())
    }

    /// Chains a little-endian 64-bit word.
    pub fn chain_u64(self, word: u64) -> Seed {
        self.chain(&word.to_le_bytes())
    }

    /// Returns the checksum of all chained bytes.
    pub fn value(self) -> u32 {
        self.0
    }
}

/// The checksums of a file system, and their start values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// No checksums.
    None,
    /// `gdt_csum`: group descriptors have a crc16 that starts with the uuid.
    Descriptors {
        /// `s_uuid`.
        uuid: [u8; 16],
    },
    /// `metadata_csum`: all metadata has a crc32c.
    All {
        /// The seed of the file system.
        seed: Seed,
    },
}

impl Checksums {
    /// Returns the seed of the file system, if it has `metadata_csum`.
    pub fn seed(self) -> Option<Seed> {
        match self {
            Checksums::All { seed } => Some(seed),
            _ => None,
        }
    }
}

/// A running crc16 as `gdt_csum` uses it: polynomial 0x8005, reflected, and started from all ones.
pub struct Crc16(Digest<'static, u16, Table<16>>);

impl Crc16 {
    /// Creates a checksum of no bytes.
    pub fn start() -> Crc16 {
        Crc16(CRC16.digest())
    }

    /// Chains `bytes`.
    pub fn chain(mut self, bytes: &[u8]) -> Crc16 {
        self.0.update(bytes);
        self
    }

    /// Returns the checksum of all chained bytes.
    pub fn value(self) -> u16 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chaining_in_parts_gives_the_checksum_of_the_whole() {
        let whole = Seed::START.chain(b"123456789");
        assert_eq!(Seed::START.chain(b"1234").chain(b"56789"), whole);
        // The published check value is that of a crc32c that is inverted at the end; the crc32c of
        // this module is not inverted.
        assert_eq!(!whole.value(), 0xe306_9283);
    }

    #[test]
    fn crc16_has_the_published_check_value() {
        assert_eq!(Crc16::start().chain(b"1234").chain(b"56789").value(), 0x4b37);
    }
}
