//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Creates file systems with the same layout as `mke2fs -t ext4` of e2fsprogs 1.47 with its
//! `mke2fs.conf`.
//!
//! There are three steps, each of which passes plain values to the next: `numbers` chooses sizes
//! and counts, `layout` places every block, and `write` writes the blocks, the superblock last. For
//! a given time, uuid and hash seed the result is always the same, byte for byte. It equals the
//! result of mke2fs except for the superblock's count of written KiB, and the superblock's
//! checksum, which covers this count.
//!
//! First the signatures of other formats are wiped from the first and last 128 KiB, and the device
//! is flushed. Last the superblock is written and flushed. So a crash leaves no incomplete file
//! system. The journal is zeroed unless the device is known to hold zeros, because a recovery must
//! not find old transactions in it.
//!
//! A file system can be created together with its files: [`Filling`] takes the data of the files
//! first, and their tree at the end. With [`Room::Fitted`], `fitting` then computes the size that
//! the files need.
#![forbid(unsafe_code)]

mod filling;
mod fitting;
mod journal;
mod layout;
mod maps;
mod numbers;
mod options;
mod report;
pub mod resize;
mod runs;
mod signature;
mod tree;
mod write;

pub use report::{FileFault, MkfsError, Report};

pub use filling::Filling;
pub use fitting::most_bytes_fitted;
pub use journal::{JournalLength, attach_journal, journal_device_blocks, make_journal_device};
pub use options::{
    Contents, Identity, InodeCount, InodeTables, JournalSize, Kind, MkfsOptions, OnLoss, Room,
    Spare, TablePlaces, Usage, random_uuid,
};
pub use signature::existing_signature;
pub use tree::{LOST_AND_FOUND, NewContent, NewFile, NewTree, ROOT};

use lanefs_device::Device;
use lanefs_ondisk::Time;
use lanefs_ondisk::superblock::Superblock;

/// Returns the default length of the journal, in blocks, for a file system of `blocks` blocks; 0 if
/// the file system is too small for a journal.
pub fn journal_blocks(blocks: u64) -> u32 {
    journal::default_blocks(blocks)
}

/// Returns how many blocks the journal has for fast commits by default, in addition to
/// [`journal_blocks`], in a file system of `blocks` blocks.
pub fn fast_commit_blocks(blocks: u64) -> u32 {
    journal::fast_commit_blocks(blocks)
}

/// Creates an ext4 file system on `device`. The old contents are lost; see [`existing_signature`].
///
/// The superblock is written last, after a flush: if a crash happens before that write, the device
/// has no file system.
///
/// # Errors
/// [`MkfsError`]; after a device error the contents are undefined.
///
/// ```
/// use lanefs_device::RamDevice;
/// use lanefs_mkfs::{mkfs, MkfsOptions};
///
/// let device = RamDevice::create(64 << 20).unwrap();
/// let report = mkfs(&device, &MkfsOptions { label: b"scratch".to_vec(), ..Default::default() })?;
/// assert_eq!((report.block_size, report.inodes), (1024, 16384));
/// # Ok::<(), lanefs_mkfs::MkfsError>(())
/// ```
pub fn mkfs(device: &dyn Device, options: &MkfsOptions) -> Result<Report, MkfsError> {
    let options = options.identified();
    let identity = options.identity();
    let tree = NewTree::empty(&options, Time { secs: identity.time as i64, nanos: 0 });
    Filling::begin_empty(device, &options, Room::Given)?.finish(&tree, &identity)
}

/// Returns the report that [`mkfs`] would return for a device of `len` bytes, without creating a
/// file system.
///
/// # Errors
/// The errors of [`mkfs`], except those of the device.
pub fn preview(len: u64, options: &MkfsOptions) -> Result<Report, MkfsError> {
    options.check()?;
    let options = options.identified();
    let numbers = numbers::Numbers::choose(&options, len)?;
    let superblock = Superblock::from_raw(numbers.raw_superblock(&options))?;
    let mut layout = layout::Layout::place(&superblock.geometry(), &numbers)?;
    let tree = NewTree::empty(&options, Time::default());
    let superblock = filling::complete(&options, &numbers, &mut layout, &tree)?;
    Ok(filling::report(&numbers, &superblock))
}
