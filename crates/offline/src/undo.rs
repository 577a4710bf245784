//! Undo files: the old and the new content of the blocks that a repair writes in place.
//!
//! All numbers are little-endian. A file is: 8 bytes `LANEUNDO`; a 32-bit version, 2; 32 bits with
//! the size of a block in bytes; 64 bits with the length of the device; 64 bits with the number of
//! blocks; then for each block 64 bits with its offset on the device, its old bytes, and its new
//! ones; at the end 32 bits with the crc32c of all preceding bytes.

use crate::error::{Error, Refusal};
use lanefs_device::Device;
use lanefs_ondisk::checksum::Seed;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

const MAGIC: &[u8; 8] = b"LANEUNDO";
const VERSION: u32 = 2;
const HEADER: usize = 32;
const OFFSET: usize = 8;
const SUM: usize = 4;
/// The largest size of a block.
const LARGEST: usize = 1 << 16;
/// The unit that a power cut writes as a whole or not at all.
const SECTOR: usize = 512;

/// The old and the new content of a block.
type Both = [Vec<u8>; 2];

/// The old and the new content of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    block: usize,
    device: u64,
    blocks: BTreeMap<u64, Both>,
}

impl Undo {
    /// Reads the old content of blocks of `len` bytes, whose offsets and new content are given.
    /// With `None`, a block keeps its content.
    pub(crate) fn read<'a>(
        device: &dyn Device,
        writes: impl Iterator<Item = (u64, Option<&'a Vec<u8>>)>,
        len: usize,
    ) -> Result<Undo, Error> {
        let mut blocks = BTreeMap::new();
        for (at, new) in writes {
            let mut old = vec![0; len];
            device.read_at(at, &mut old)?;
            let new = new.unwrap_or(&old).clone();
            blocks.insert(at, [old, new]);
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
            bytes.extend(block.iter().flatten());
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
            && (1..=LARGEST).contains(&block)
            && Seed::START.chain(rest).value() == u32::from_le_bytes(*sum)
            && (blocks.len() as u64) == word(24).saturating_mul((OFFSET + 2 * block) as u64);
        if !is_valid {
            return Err(broken());
        }
        let blocks = blocks
            .chunks_exact(OFFSET + 2 * block)
            .filter_map(|part| part.split_first_chunk::<OFFSET>())
            .map(|(at, bytes)| {
                let (old, new) = bytes.split_at(block);
                (u64::from_le_bytes(*at), [old.to_vec(), new.to_vec()])
            })
            .collect();
        Ok(Undo { block, device: word(16), blocks })
    }

    /// Reads an undo file. Returns `None` if `file` is another file, or not a whole undo file.
    pub fn load(file: &mut File) -> Option<Undo> {
        let mut bytes = vec![0; MAGIC.len()];
        file.read_exact(&mut bytes).ok()?;
        (bytes == MAGIC).then(|| file.read_to_end(&mut bytes))?.ok()?;
        Undo::decode(&bytes).ok()
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns whether `device` has a part of the new blocks only, because [`Undo::redo`] was
    /// interrupted: each sector is old or new, and there are sectors of both kinds.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn is_interrupted(&self, device: &dyn Device) -> Result<bool, Error> {
        if device.len() != self.device {
            return Ok(false);
        }
        let (mut now, mut has_old, mut has_new) = (vec![0; self.block], false, false);
        for (at, [old, new]) in &self.blocks {
            device.read_at(*at, &mut now)?;
            let sectors = old.chunks(SECTOR).zip(new.chunks(SECTOR));
            for (now, (old, new)) in now.chunks(SECTOR).zip(sectors) {
                match (now == old, now == new) {
                    (true, true) => {}
                    (true, false) => has_old = true,
                    (false, true) => has_new = true,
                    (false, false) => return Ok(false),
                }
            }
        }
        Ok(has_old && has_new)
    }

    /// Puts the old blocks back, durably. If the process is killed meanwhile, [`Undo::apply`] can
    /// be called again.
    ///
    /// # Errors
    /// [`Error::Refused`] if the device's length is not the one in the undo file; the errors of the
    /// device.
    pub fn apply(&self, device: &dyn Device) -> Result<(), Error> {
        self.write(device, |[old, _]| old)
    }

    /// Writes the new blocks, durably. If the process is killed meanwhile, [`Undo::redo`] can be
    /// called again, if the undo file is durable.
    ///
    /// # Errors
    /// Those of [`Undo::apply`].
    pub fn redo(&self, device: &dyn Device) -> Result<(), Error> {
        self.write(device, |[_, new]| new)
    }

    fn write(&self, device: &dyn Device, which: fn(&Both) -> &Vec<u8>) -> Result<(), Error> {
        if device.len() != self.device {
            let (is, was) = (device.len(), self.device);
            return Err(Refusal::OtherImage { is, was }.into());
        }
        for (at, block) in &self.blocks {
            device.write_at(*at, which(block))?;
        }
        Ok(device.flush()?)
    }
}
