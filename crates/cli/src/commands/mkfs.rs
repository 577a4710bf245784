//! `lanefs mkfs`

mod arguments;
mod from;
mod target;
mod words;

pub use arguments::Arguments;

use crate::cli::{Failure, MadeFile, Report, complain, is_there, open_image, open_with_notes};
use crate::commands::mkfs::arguments::options;
use crate::commands::mkfs::target::{
    facts, fit_to_rows, open, open_for, refuse_overwriting, summary, whole_of,
};
use crate::commands::mkfs::words::Wanted;
use lanefs::Source;
use lanefs_device::{Access, Device, FileDevice, OpenOptions};
use lanefs_mkfs::{
    Contents, MkfsOptions, Report as Made, attach_journal, journal_device_blocks,
    make_journal_device, mkfs, preview,
};
use lanefs_ondisk::superblock::{JournalDevice, SUPERBLOCK_OFFSET};
use lanefs_ondisk::{BlockSize, Time};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs `lanefs mkfs`.
pub fn run(arguments: &Arguments) -> ExitCode {
    Report::run("mkfs", |report| Ok(run_with(&arguments.on_disk()?, report)?))
}

fn run_with(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    let fill = &arguments.fill;
    let why = match arguments.wanted() {
        _ if arguments.image.as_os_str() == "-" => {
            "an image cannot be written to standard output; ./- is the file of this name"
        }
        _ if arguments.makes_journal_device() => return make_log_device(arguments, report),
        _ if fill.is_given() && arguments.journal_device().is_some() => {
            "--from makes journals inside: leave out -J device="
        }
        _ if fill.is_given() => return from::run(arguments, report),
        Some(Wanted::Auto(_)) => "--size auto follows from the files: give them by --from",
        _ if fill.shrink => "--shrink follows from the files: give them by --from",
        _ if fill.verity.is_some() => "--verity seals files: give them by --from",
        _ => {
            let made = make(arguments)?;
            let facts = facts(&arguments.image, &made);
            report.printed(arguments.output().print(&facts, summary(arguments, &made)));
            if !arguments.json && !arguments.quiet && !arguments.dry_run {
                print_owner_hint(arguments);
            }
            return Ok(());
        }
    };
    Err(Failure::new(arguments.image.display(), why))
}

fn make(arguments: &Arguments) -> Result<Made, Failure> {
    let path = arguments.image.as_path();
    let mut options = options(arguments).map_err(Failure::about(path))?;
    let journal = arguments.journal_device().map(JournalDisk::open).transpose()?;
    if let Some(journal) = &journal {
        // As in mke2fs, the file system takes its block size from the journal device.
        if *options.block_size.get_or_insert(journal.block_size) != journal.block_size {
            let has = journal.block_size.bytes();
            let what = format_args!("the journal device has blocks of {has} bytes: give -b {has}");
            return Err(Failure::new(path.display(), what));
        }
    }
    if arguments.dry_run && !is_there(path) && Source::array_name(path).is_none() {
        return preview(arguments.size_of_new()?, &options).map_err(Failure::about(path));
    }
    if Source::array_name(path).is_some() {
        let source = open_with_notes(path, Access::ReadWrite, whole_of(arguments))?;
        fit_to_rows(&mut options, &source);
        let device = source.device();
        refuse_overwriting(arguments, &*device)?;
        return on_device(arguments, &*device, &options, journal.as_ref());
    }
    // An incomplete file system is useless, so a new file is removed after a failure.
    let mut new = None;
    if !is_there(path) {
        let len = arguments.offset().saturating_add(arguments.size_of_new()?);
        new = Some(MadeFile::create(path, len).map_err(Failure::on_host(path))?);
        options.contents = Contents::Zeros;
    }
    let size = arguments.size();
    if arguments.dry_run {
        let whole = open(arguments, None)?;
        let (len, in_partition) = (whole.len(), whole.partition().is_some());
        drop(whole);
        if in_partition {
            open(arguments, size)?;
        }
        return preview(size.unwrap_or(len), &options).map_err(Failure::about(path));
    }
    // Only the first `size` bytes are opened, because the bytes after them may belong to another
    // partition.
    let check = |size| preview(size, &options).map(drop);
    let device = open_for(arguments, size, check)?;
    refuse_overwriting(arguments, &device)?;
    let made = on_device(arguments, &device, &options, journal.as_ref())?;
    new.into_iter().for_each(MadeFile::keep);
    Ok(made)
}

fn on_device(
    arguments: &Arguments,
    device: &dyn Device,
    options: &MkfsOptions,
    journal: Option<&JournalDisk>,
) -> Result<Made, Failure> {
    let path = arguments.image.as_path();
    // If an option is wrong, the preview fails before the old contents are changed.
    let planned = preview(device.len(), options).map_err(Failure::about(path))?;
    if arguments.dry_run {
        return Ok(planned);
    }
    if arguments.discards() {
        device.discard(0, device.len()).map_err(Failure::about(path))?;
    }
    let made = mkfs(device, options).map_err(Failure::about(path))?;
    if let Some(journal) = journal {
        journal.attach_to(device)?;
    }
    Ok(made)
}

/// Prints a hint that the new root directory belongs to root, unless root runs the command or
/// `--root-owner` is given.
fn print_owner_hint(arguments: &Arguments) {
    use rustix::process::{getegid, geteuid};
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    if uid != 0 && !arguments.gives_root_owner() {
        complain(format_args!(
            "{}: its root directory belongs to 0:0; for a mount of your own make it with \
             --root-owner {uid}:{gid}, or mount it with -o fakeroot",
            arguments.image.display()
        ));
    }
}

/// The block size that mke2fs uses for a journal device.
const DEFAULT_BLOCK_SIZE: u32 = 4096;

/// Turns the whole image or device into a journal, and prints a description.
fn make_log_device(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
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
    if !is_there(path) {
        arguments.size_of_new()?;
        new = Some(MadeFile::create(path, 0).map_err(Failure::on_host(path))?);
    }
    let found = log_device(arguments, block_size)?;
    new.into_iter().for_each(MadeFile::keep);
    report.printed(print_log_device(arguments, &found));
    Ok(())
}

fn log_device(arguments: &Arguments, block_size: BlockSize) -> Result<JournalDevice, Failure> {
    let path = arguments.image.as_path();
    let check = |size| journal_device_blocks(size, block_size).map(drop);
    let device = open_for(arguments, arguments.size(), check)?;
    refuse_overwriting(arguments, &device)?;
    let uuid = arguments.uuid.unwrap_or_else(lanefs_mkfs::random_uuid);
    let time = Time::now().secs as u32;
    make_journal_device(&device, block_size, uuid, time).map_err(Failure::about(path))?;
    Ok(JournalDevice { uuid, block_size, blocks: device.len() >> block_size.bits() })
}

fn print_log_device(arguments: &Arguments, made: &JournalDevice) -> std::io::Result<()> {
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
struct JournalDisk {
    path: PathBuf,
    device: FileDevice,
    block_size: BlockSize,
}

impl JournalDisk {
    /// Opens the device at `path`, and checks that it holds a journal.
    fn open(path: &Path) -> Result<JournalDisk, Failure> {
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
    fn attach_to(&self, device: &dyn Device) -> Result<(), Failure> {
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
