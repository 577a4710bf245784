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

use crate::cli::{Failure, MadeFile, Report, complain, open_source};
use arguments::options;
use journal_device::JournalDisk;
use lanefs::Source;
use lanefs_device::{Access, Device};
use lanefs_ext4::mkfs::{Contents, MkfsOptions, Report as Made, mkfs, preview};
use std::process::ExitCode;
use target::{
    fit_to_rows, open, open_for, print_summary, refuse_overwriting, tell_as_json, whole_of,
};
use words::Wanted;

/// Runs `lanefs mkfs`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("mkfs");
    if arguments.image.as_os_str() == "-" {
        let why = "an image cannot be written to standard output; ./- is the file of this name";
        report.fail(Failure::new("-", why));
        return report.exit();
    }
    if arguments.makes_journal_device() {
        report.check(journal_device::make(arguments));
        return report.exit();
    }
    if arguments.fill.is_given() && arguments.journal_device().is_some() {
        let why = "--from makes journals inside: leave out -J device=";
        report.fail(Failure::new(arguments.image.display(), why));
        return report.exit();
    }
    if arguments.fill.is_given() {
        report.check(from::run(arguments, &report));
        return report.exit();
    }
    let why = match (arguments.wanted(), &arguments.fill) {
        (Some(Wanted::Auto(_)), _) => {
            Some("--size auto follows from the files: give them by --from")
        }
        (_, fill) if fill.shrink => Some("--shrink follows from the files: give them by --from"),
        (_, fill) if fill.verity.is_some() => Some("--verity seals files: give them by --from"),
        _ => None,
    };
    if let Some(why) = why {
        report.fail(Failure::new(arguments.image.display(), why));
        return report.exit();
    }
    match make(arguments) {
        Ok(made) => {
            if arguments.json {
                let counts = serde_json::json!({});
                report.printed(tell_as_json(&arguments.image, &made, counts));
            } else if !arguments.quiet {
                report.printed(print_summary(&arguments.image, &made, arguments.verbose));
                if !arguments.dry_run {
                    print_owner_hint(arguments);
                }
            }
        }
        Err(failure) => report.fail(failure),
    }
    report.exit()
}

fn make(arguments: &Arguments) -> Result<Made, Failure> {
    let path = &arguments.image;
    let failed = |cause: &dyn std::fmt::Display| Failure::new(path.display(), cause);
    let mut options = options(arguments).map_err(|cause| failed(&cause))?;
    let journal = arguments.journal_device().map(JournalDisk::open).transpose()?;
    if let Some(journal) = &journal {
        // As in mke2fs, the file system takes its block size from the journal device.
        if *options.block_size.get_or_insert(journal.block_size) != journal.block_size {
            let has = journal.block_size.bytes();
            let what = format_args!("the journal device has blocks of {has} bytes: give -b {has}");
            return Err(failed(&what));
        }
    }
    if arguments.dry_run && !path.exists() && Source::array_name(path).is_none() {
        let len = arguments.size().ok_or_else(|| failed(&"does not exist: give a --size"))?;
        return preview(len, &options).map_err(|error| failed(&error));
    }
    if Source::array_name(path).is_some() {
        let source = open_source(path, Access::ReadWrite, whole_of(arguments))?;
        for note in source.notes() {
            complain(format_args!("lanefs: {}: {note}", path.display()));
        }
        fit_to_rows(&mut options, &source);
        let device = source.device();
        refuse_overwriting(arguments, &*device)?;
        return on_device(arguments, &*device, &options, journal.as_ref());
    }
    // An incomplete file system is useless, so a new file is removed after a failure.
    let mut new = None;
    if !path.exists() {
        let size = arguments.size().ok_or_else(|| failed(&"does not exist: give a --size"))?;
        let file = MadeFile::create(path, arguments.offset().saturating_add(size));
        new = Some(file.map_err(|error| Failure::host(path.display(), &error))?);
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
        return preview(size.unwrap_or(len), &options).map_err(|error| failed(&error));
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
    let failed = |cause: &dyn std::fmt::Display| Failure::new(arguments.image.display(), cause);
    if arguments.dry_run {
        return preview(device.len(), options).map_err(|error| failed(&error));
    }
    // If an option is wrong, the preview fails before the old contents are changed.
    preview(device.len(), options).map_err(|error| failed(&error))?;
    if arguments.discards() {
        device.discard(0, device.len()).map_err(|error| failed(&error))?;
    }
    let made = mkfs(device, options).map_err(|error| failed(&error))?;
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
