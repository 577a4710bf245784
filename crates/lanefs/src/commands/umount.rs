//! `lanefs umount`: unmounts, and returns when the image is closed.

use crate::cli::{complain, host_cause};
use lanefs::Source;
use lanefs_fuse::{Busy, MountEntry, detach};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Unmounts a directory and waits until its image is closed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An image that is mounted on several directories is unmounted from all of them.

Examples:
  lanefs umount mnt
  lanefs umount disk.img
  lanefs umount --lazy mnt        in use or not")]
pub struct Arguments {
    /// The directory, or the image that is mounted on it
    pub mount_point: PathBuf,
    /// Vanish from the tree now, end when the last user does
    #[arg(short, long)]
    pub lazy: bool,
}

/// Unmounts; success means that the image may be used by others.
pub fn run(arguments: &Arguments) -> ExitCode {
    match unmount(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = host_cause(&error);
            complain(format_args!("lanefs umount: {}: {cause}", arguments.mount_point.display()));
            ExitCode::FAILURE
        }
    }
}

fn unmount(arguments: &Arguments) -> io::Result<()> {
    let entries = MountEntry::all_of(&arguments.mount_point)?;
    let Some(first) = entries.first() else {
        return Err(io::Error::other("no Lanefs file system is mounted there"));
    };
    // Opened before the unmount, so that it is this image that is waited for whatever happens to its
    // name. Somebody who may unmount but not read the image cannot wait.
    let images = match Source::array_name(&first.source) {
        Some(array) => array.paths().iter().map(File::open).collect(),
        None => vec![File::open(&first.source)],
    };
    let busy = if arguments.lazy { Busy::Detach } else { Busy::Refuse };
    // Several if the image is mounted read-only in several places.
    for entry in &entries {
        detach(&entry.mount_point, busy)?;
    }
    if arguments.lazy {
        return Ok(());
    }
    for image in images.iter().flatten() {
        // The server holds its lock until the last byte is flushed.
        rustix::io::retry_on_intr(|| rustix::fs::flock(image, FlockOperation::LockShared))?;
    }
    Ok(())
}
