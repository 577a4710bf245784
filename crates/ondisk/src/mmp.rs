//! The block of multiple mount protection (feature `mmp`). It lets a computer notice that another
//! computer uses the same file system.
//!
//! Source: kernel documentation, ext4, "Multiple Mount Protection".

pub use crate::cause::MmpCause as Cause;

use crate::checksum::Checksums;

const MAGIC: u32 = 0x004d_4d50;
const SIZE: usize = 1024;

/// Offsets of the fields.
const SEQUENCE: usize = 4;
const TIME: usize = 8;
const NODE: usize = 16;
const DEVICE: usize = 80;
const CHECK_INTERVAL: usize = 112;
const CHECKSUM: usize = SIZE - 4;

/// Sequence numbers that stand for a state. A computer that has the file system mounted does not
/// use them. It counts through smaller numbers, up to [`LAST_SEQUENCE`].
const CLEAN: u32 = 0xff4d_4d50;
const CHECKED: u32 = 0xe24d_4d50;
/// The largest sequence number of a mounted file system.
pub const LAST_SEQUENCE: u32 = 0xe24d_4d4f;

/// The use of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The file system is not mounted.
    Clean,
    /// e2fsck is checking the file system, or was interrupted while it did.
    Checked,
    /// The file system is mounted, or was mounted and never unmounted. The sequence number
    /// increases as long as the file system is mounted.
    Mounted(u32),
}

/// The contents of the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mmp {
    /// Whether the file system is in use.
    pub state: Use,
    /// The time of the last change of the block, in seconds since 1970.
    pub time: u64,
    /// The name of the computer that made the last change of the block.
    pub node: Vec<u8>,
    /// The name that the device has on that computer.
    pub device: Vec<u8>,
    /// A computer that has mounted the file system changes the block at least once in this many
    /// seconds.
    pub check_interval: u16,
}

impl Mmp {
    /// Decodes the block with all checks.
    ///
    /// # Errors
    /// Any [`Cause`].
    pub fn decode(bytes: &[u8], checksums: Checksums) -> Result<Mmp, Cause> {
        let len = bytes.len();
        let bytes: &[u8; SIZE] = bytes.first_chunk().ok_or(Cause::Length { len })?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let magic = word(0);
        if magic != MAGIC {
            return Err(Cause::Magic { found: magic });
        }
        if let Some(expected) = checksum(bytes, checksums) {
            let found = word(CHECKSUM);
            if found != expected {
                return Err(Cause::Checksum { found, expected });
            }
        }
        let name = |bytes: &[u8]| bytes.iter().copied().take_while(|byte| *byte != 0).collect();
        Ok(Mmp {
            state: match word(SEQUENCE) {
                CLEAN => Use::Clean,
                CHECKED => Use::Checked,
                number => Use::Mounted(number),
            },
            time: u64::from(word(TIME + 4)) << 32 | u64::from(word(TIME)),
            node: name(&bytes[NODE..DEVICE]),
            device: name(&bytes[DEVICE..CHECK_INTERVAL]),
            check_interval: word(CHECK_INTERVAL) as u16,
        })
    }

    /// Writes the fields into `bytes` and sets the checksum. The other bytes are kept. Names that
    /// are too long are truncated.
    ///
    /// # Errors
    /// [`Cause::Length`].
    pub fn encode_into(&self, bytes: &mut [u8], checksums: Checksums) -> Result<(), Cause> {
        let len = bytes.len();
        let bytes: &mut [u8; SIZE] = bytes.first_chunk_mut().ok_or(Cause::Length { len })?;
        let sequence = match self.state {
            Use::Clean => CLEAN,
            Use::Checked => CHECKED,
            Use::Mounted(number) => number,
        };
        bytes[..SEQUENCE].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[SEQUENCE..TIME].copy_from_slice(&sequence.to_le_bytes());
        bytes[TIME..NODE].copy_from_slice(&self.time.to_le_bytes());
        put_name(&mut bytes[NODE..DEVICE], &self.node);
        put_name(&mut bytes[DEVICE..CHECK_INTERVAL], &self.device);
        bytes[CHECK_INTERVAL..CHECK_INTERVAL + 2]
            .copy_from_slice(&self.check_interval.to_le_bytes());
        if let Some(sum) = checksum(bytes, checksums) {
            bytes[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        }
        Ok(())
    }
}

fn put_name(field: &mut [u8], name: &[u8]) {
    field.fill(0);
    // A NUL follows the name.
    let len = name.len().min(field.len() - 1);
    field[..len].copy_from_slice(&name[..len]);
}

fn checksum(bytes: &[u8; SIZE], checksums: Checksums) -> Option<u32> {
    Some(checksums.seed()?.chain(&bytes[..CHECKSUM]).value())
}

#[cfg(test)]
mod tests;
