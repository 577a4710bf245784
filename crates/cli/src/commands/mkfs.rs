//! `lanefs mkfs`

mod arguments;
mod fill;
mod from;
mod journal_device;
mod seal;
mod target;
mod unnamed;
mod verity;
mod words;

pub use arguments::Arguments;

use crate::cli::{Failure, MadeFile, Report, complain, open_with_notes};
use arguments::options;
use journal_device::JournalDisk;
use lanefs::Source;
use lanefs_device::{Access, Device};
use lanefs_mkfs::{Contents, MkfsOptions, Report as Made, mkfs, preview};
use std::process::ExitCode;
use target::{facts, fit_to_rows, open, open_for, refuse_overwriting, summary, whole_of};
use words::Wanted;

/// Runs `lanefs mkfs`.
pub fn run(arguments: &Arguments) -> ExitCode {
    Report::run("mkfs", |report| Ok(run_with(arguments, report)?))
}

fn run_with(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    let fill = &arguments.fill;
    let why = match arguments.wanted() {
        _ if arguments.image.as_os_str() == "-" => {
            "an image cannot be written to standard output; ./- is the file of this name"
        }
        _ if arguments.makes_journal_device() => return journal_device::make(arguments, report),
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
    if arguments.dry_run && !path.exists() && Source::array_name(path).is_none() {
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
    if !path.exists() {
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
    let device = open_for(arguments, size)?;
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
