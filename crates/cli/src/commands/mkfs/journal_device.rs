//! Journals on a device of their own: `-O journal_dev` makes one, `-J device=` uses it.

use super::arguments::{Arguments, options};
use super::target::{open_for, refuse_overwriting};
use crate::cli::{Failure, MadeFile, Report, open_image};
use lanefs::Source;
use lanefs_device::{Access, Device, FileDevice, OpenOptions};
use lanefs_mkfs::{attach_journal, make_journal_device};
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::superblock::{JournalDevice, SUPERBLOCK_OFFSET};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The block size that mke2fs uses for a journal device.
const DEFAULT_BLOCK_SIZE: u32 = 4096;

/// Turns the whole image or device into a journal, and prints a description.
pub(super) fn make(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    let path = arguments.image.as_path();
    // An invalid option is refused, even if it would not change the journal.
    let given = options(arguments).map_err(Failure::about(path))?.block_size;
    let block_size = given.or_else(|| BlockSize::new(DEFAULT_BLOCK_SIZE));
    let block_size = block_size.ok_or("block size out of range").map_err(Failure::about(path))?;
    if arguments.dry_run {
        return Err(Failure::new(path.display(), "-n has no preview of a journal device"));
    }
    if Source::array_name(path).is_some() {
        return Err(Failure::new(path.display(), "an array cannot be a journal device"));
    }
    let mut new = None;
    if !path.exists() {
        arguments.size_of_new()?;
        new = Some(MadeFile::create(path, 0).map_err(Failure::on_host(path))?);
    }
    let found = fill(arguments, block_size)?;
    new.into_iter().for_each(MadeFile::keep);
    report.printed(print(arguments, &found));
    Ok(())
}

fn fill(arguments: &Arguments, block_size: BlockSize) -> Result<JournalDevice, Failure> {
    let path = arguments.image.as_path();
    let device = open_for(arguments, arguments.size())?;
    refuse_overwriting(arguments, &device)?;
    let uuid = arguments.uuid.unwrap_or_else(lanefs_mkfs::random_uuid);
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = time.map_or(0, |since| since.as_secs() as u32);
    make_journal_device(&device, block_size, uuid, time).map_err(Failure::about(path))?;
    Ok(JournalDevice { uuid, block_size, blocks: device.len() >> block_size.bits() })
}

fn print(arguments: &Arguments, made: &JournalDevice) -> std::io::Result<()> {
    let (image, blocks) = (arguments.image.display().to_string(), made.blocks);
    let (size, uuid) = (made.block_size.bytes(), uuid::Uuid::from_bytes(made.uuid).to_string());
    let facts = serde_json::json!({
        "image": image,
        "journal_blocks": blocks,
        "block_size": size,
        "uuid": uuid,
    });
    let line = format!("{image}: a journal of {blocks} blocks of {size} bytes, UUID {uuid}");
    arguments.output().print(&facts, [line])
}

/// The device that holds the journal of a new file system.
pub(super) struct JournalDisk {
    path: PathBuf,
    device: FileDevice,
    pub(super) block_size: BlockSize,
}

impl JournalDisk {
    /// Opens the device at `path`, and checks that it holds a journal.
    pub(super) fn open(path: &Path) -> Result<JournalDisk, Failure> {
        let device = open_image(path, Access::ReadWrite, OpenOptions::default())?;
        let mut bytes = vec![0; 1024];
        let none = |why: &dyn std::fmt::Display| {
            let what = format!("no journal: {why}; make one with: lanefs mkfs -O journal_dev");
            Failure::new(path.display(), what)
        };
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(|error| none(&error))?;
        let found = JournalDevice::decode(&bytes).map_err(|error| none(&error))?;
        Ok(JournalDisk { path: path.into(), device, block_size: found.block_size })
    }

    /// Records this journal as the journal of the new file system on `device`.
    pub(super) fn attach_to(&self, device: &dyn Device) -> Result<(), Failure> {
        let number = std::fs::metadata(&self.path).map_or(0, |found| {
            if found.file_type().is_block_device() { kernel_number(found.rdev()) } else { 0 }
        });
        attach_journal(device, &self.device, number).map_err(Failure::about(&self.path))
    }
}

/// Converts a device number of stat(2) to the 32 bits that the superblock stores.
fn kernel_number(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}
