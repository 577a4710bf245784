//! Creates file systems with the layout of `mke2fs -t ext4` 1.47 and its own configuration file.
//!
//! It has three steps, and each passes plain values to the next: `numbers` chooses sizes and
//! counts, `layout` places every block, and `write` writes the blocks, the superblock last. For a
//! given time, uuid and hash seed the result is the same byte for byte, and equals that of mke2fs
//! except for the count of KiB written.

mod error;
pub mod extend;
mod journal;
mod layout;
mod numbers;
mod options;
mod resize;
mod runs;
mod signature;
mod write;

pub use error::MkfsError;
pub use options::{Contents, InodeCount, InodeTables, JournalSize, MkfsOptions};
pub use signature::existing_signature;

use crate::mkfs::layout::Layout;
use crate::mkfs::numbers::Numbers;
use lanefs_device::Device;
use lanefs_ondisk::superblock::Superblock;

/// Describes the new file system.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of block groups.
    pub groups: u32,
    /// Number of inodes.
    pub inodes: u32,
    /// Blocks of the journal; 0 if there is none.
    pub journal_blocks: u32,
    /// Blocks that only root may take.
    pub reserved_blocks: u64,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// The features, by the names that `dumpe2fs` prints.
    pub features: Vec<String>,
}

/// Returns the length in blocks of the journal that a file system of `blocks` blocks gets by
/// default: 0 if it is too small for one.
pub fn journal_blocks(blocks: u64) -> u32 {
    journal::default_blocks(blocks)
}

/// Creates an ext4 file system on `device`. The old contents are lost; see [`existing_signature`].
///
/// The superblock is written last, after a flush: after an earlier crash the device has no file
/// system.
///
/// # Errors
/// [`MkfsError`]; after a device error the contents are undefined.
///
/// ```
/// use lanefs_device::RamDevice;
/// use lanefs_ext4::mkfs::{mkfs, MkfsOptions};
///
/// let device = RamDevice::create(64 << 20).unwrap();
/// let report = mkfs(&device, &MkfsOptions { label: b"scratch".to_vec(), ..Default::default() })?;
/// assert_eq!((report.block_size, report.inodes), (1024, 16384));
/// # Ok::<(), lanefs_ext4::mkfs::MkfsError>(())
/// ```
pub fn mkfs(device: &dyn Device, options: &MkfsOptions) -> Result<Report, MkfsError> {
    options.check()?;
    let numbers = Numbers::choose(options, device.len())?;
    let block_size = numbers.block_size.bytes() as u32;
    if device.alignment() > block_size {
        return Err(MkfsError::Alignment { device: device.alignment(), block_size });
    }
    let mut raw = numbers.raw_superblock(options);
    let superblock = Superblock::from_raw(raw.clone())?;
    let layout = Layout::place(&superblock.geometry(), &numbers)?;
    layout.complete_superblock(&mut raw);
    let superblock = Superblock::from_raw(raw)?;
    write::write(device, options, &superblock, &layout)?;
    Ok(Report {
        block_size,
        blocks: numbers.blocks,
        groups: superblock.geometry().group_count(),
        inodes: superblock.geometry().inode_count(),
        journal_blocks: numbers.journal_blocks,
        reserved_blocks: numbers.reserved,
        uuid: superblock.uuid(),
        features: superblock.features().names(),
    })
}
