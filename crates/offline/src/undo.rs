//! Undo files: the old content of the blocks that a repair writes.
//!
//! All numbers are little-endian. A file is: 8 bytes `LANEUNDO`; a 32-bit version, 1; 32 bits with
//! the size of a block in bytes; 64 bits with the length of the device; 64 bits with the number of
//! blocks; then for each block 64 bits with its offset on the device, and its bytes; at the end 32
//! bits with the crc32c of all preceding bytes.

use crate::error::{Error, Refusal};
use lanefs_device::Device;
use lanefs_ondisk::checksum::Seed;
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"LANEUNDO";
const VERSION: u32 = 1;
const HEADER: usize = 32;
const OFFSET: usize = 8;
const SUM: usize = 4;

/// The old content of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    block: usize,
    device: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Undo {
    /// Reads blocks of `len` bytes at the offsets `places`.
    pub(crate) fn read(
        device: &dyn Device,
        places: impl Iterator<Item = u64>,
        len: usize,
    ) -> Result<Undo, Error> {
        let mut blocks = BTreeMap::new();
        for at in places {
            let mut bytes = vec![0; len];
            device.read_at(at, &mut bytes)?;
            blocks.insert(at, bytes);
        }
        Ok(Undo { block: len, device: device.len(), blocks })
    }

    /// Returns the bytes of an undo file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.block as u32).to_le_bytes());
        bytes.extend(self.device.to_le_bytes());
        bytes.extend((self.blocks.len() as u64).to_le_bytes());
        for (at, block) in &self.blocks {
            bytes.extend(at.to_le_bytes());
            bytes.extend(block);
        }
        let sum = Seed::START.chain(&bytes).value();
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Decodes an undo file.
    ///
    /// # Errors
    /// [`Error::Refused`] if `bytes` is not a complete undo file.
    pub fn decode(bytes: &[u8]) -> Result<Undo, Error> {
        let broken = || Error::from(Refusal::BrokenUndo);
        let (rest, sum) = bytes.split_last_chunk::<SUM>().ok_or_else(broken)?;
        let (head, blocks) = rest.split_at_checked(HEADER).ok_or_else(broken)?;
        let word = |at: usize| {
            let word = head.get(at..at + 8).and_then(|word| word.first_chunk());
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        let version = word(8) as u32;
        let block = usize::try_from(word(8) >> 32).map_err(|_| broken())?;
        let is_valid = head.starts_with(MAGIC)
            && version == VERSION
            && block > 0
            && Seed::START.chain(rest).value() == u32::from_le_bytes(*sum)
            && (blocks.len() as u64) == word(24).saturating_mul((block + OFFSET) as u64);
        if !is_valid {
            return Err(broken());
        }
        let blocks = blocks
            .chunks_exact(block + OFFSET)
            .filter_map(|part| part.split_first_chunk::<OFFSET>())
            .map(|(at, bytes)| (u64::from_le_bytes(*at), bytes.to_vec()))
            .collect();
        Ok(Undo { block, device: word(16), blocks })
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Puts the old blocks back, durably. If the process is killed meanwhile, [`Undo::apply`] can
    /// be called again.
    ///
    /// # Errors
    /// [`Error::Refused`] if the device's length is not the one in the undo file; the errors of the
    /// device.
    pub fn apply(&self, device: &dyn Device) -> Result<(), Error> {
        if device.len() != self.device {
            let (is, was) = (device.len(), self.device);
            return Err(Refusal::OtherImage { is, was }.into());
        }
        for (at, bytes) in &self.blocks {
            device.write_at(*at, bytes)?;
        }
        Ok(device.flush()?)
    }
}
