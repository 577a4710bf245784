//! Journals on a device of their own: `-O journal_dev` makes one, `-J device=` uses it.

use super::arguments::{Arguments, options};
use super::target::{open_for, refuse_overwriting};
use crate::cli::{Failure, open_image};
use lanefs::Source;
use lanefs_device::{Access, Device, FileDevice, OpenOptions};
use lanefs_ext4::mkfs::{attach_journal, make_journal_device};
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::superblock::{JournalDevice, SUPERBLOCK_OFFSET};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The block size that mke2fs uses for a journal device.
const DEFAULT_BLOCK_SIZE: u32 = 4096;

/// Turns the whole image or device into a journal, and prints a description.
pub(super) fn make(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.image;
    let failed = |cause: &dyn std::fmt::Display| Failure::new(path.display(), cause);
    // An invalid option is refused, even if it would not change the journal.
    let given = options(arguments).map_err(|cause| failed(&cause))?.block_size;
    let block_size = given.or_else(|| BlockSize::new(DEFAULT_BLOCK_SIZE));
    let block_size = block_size.ok_or_else(|| failed(&"block size out of range"))?;
    if arguments.dry_run {
        return Err(failed(&"-n has no preview of a journal device"));
    }
    if Source::array_name(path).is_some() {
        return Err(failed(&"an array cannot be a journal device"));
    }
    let is_new = !path.exists();
    if is_new {
        arguments.size().ok_or_else(|| failed(&"does not exist: give a --size"))?;
        File::create_new(path).map_err(|error| Failure::host(path.display(), &error))?;
    }
    let made = fill(arguments, block_size);
    if made.is_err() && is_new {
        // An error while removing the file is ignored, because the message about the failure names
        // the file, so the user can remove it.
        let _ = std::fs::remove_file(path);
    }
    made
}

fn fill(arguments: &Arguments, block_size: BlockSize) -> Result<(), Failure> {
    let path = &arguments.image;
    let failed = |cause: &dyn std::fmt::Display| Failure::new(path.display(), cause);
    let device = open_for(arguments, arguments.size())?;
    refuse_overwriting(arguments, &device)?;
    let uuid = arguments.uuid.unwrap_or_else(|| uuid::Uuid::new_v4().into_bytes());
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = time.map_or(0, |since| since.as_secs() as u32);
    make_journal_device(&device, block_size, uuid, time).map_err(|error| failed(&error))?;
    let found = JournalDevice { uuid, block_size, blocks: device.len() >> block_size.bits() };
    print(arguments, &found).map_err(|error| failed(&error))
}

fn print(arguments: &Arguments, made: &JournalDevice) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let (image, blocks) = (arguments.image.display(), made.blocks);
    let (size, uuid) = (made.block_size.bytes(), uuid::Uuid::from_bytes(made.uuid).to_string());
    if arguments.json {
        let facts = serde_json::json!({
            "image": image.to_string(),
            "journal_blocks": blocks,
            "block_size": size,
            "uuid": uuid,
        });
        return writeln!(out, "{facts:#}");
    }
    match arguments.quiet {
        true => Ok(()),
        false => {
            writeln!(out, "{image}: a journal of {blocks} blocks of {size} bytes, UUID {uuid}")
        }
    }
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
        let device = open_image(path, Access::ReadWrite, OpenOptions::default())
            .map_err(|error| Failure::opening(path, &error))?;
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
        attach_journal(device, &self.device, number)
            .map_err(|error| Failure::new(self.path.display(), error))
    }
}

/// Converts a device number of stat(2) to the 32 bits that the superblock stores.
fn kernel_number(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}
