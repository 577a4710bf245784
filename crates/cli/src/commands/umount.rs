//! `lanefs umount`: unmounts, and returns when the image is closed.

use crate::cli::{Failure, Report, host_cause};
use lanefs::Source;
use lanefs::device::file_of;
use lanefs_fuse::{Busy, Ended, MountEntry, Watch, detach};
use lanefs_raid5::Candidate;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Unmounts a directory and waits until its image is closed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An image that is mounted on several directories is unmounted from all of them.

Exit codes: 0 the image is closed (with --lazy: the mount is detached), 1 the mount is still there,
or its server ended with an error or was killed: data that was not synchronised may be lost; 2 wrong
usage.

Examples:
  lanefs umount mnt
  lanefs umount disk.img          a disk: from all directories of all its partitions
  lanefs umount md:a.img,b.img,c.img
  lanefs umount --lazy mnt        even while it is in use")]
pub struct Arguments {
    /// The directory, or the mounted image or array (md:MEMBER,... or md:UUID)
    pub mount_point: PathBuf,
    /// Detach the mount now; the mount ends when its last open file is closed
    #[arg(short, long)]
    pub lazy: bool,
}

/// Runs `lanefs umount`. Without `--lazy`, success means that the server has closed the image,
/// without an error.
pub fn run(arguments: &Arguments) -> ExitCode {
    let failed = Failure::on_host(&arguments.mount_point);
    Report::run("umount", |_| Ok(unmount(arguments).map_err(failed)?))
}

fn unmount(arguments: &Arguments) -> io::Result<()> {
    let entries = match Source::array_name(&arguments.mount_point) {
        Some(array) => mounts_of_array(&array)?,
        None => MountEntry::all_of(&arguments.mount_point)?,
    };
    let Some(first) = entries.first() else {
        return Err(io::Error::other("no Lanefs file system is mounted there"));
    };
    // The image is opened before the unmount, so that the command can wait for this image even if
    // it is renamed. If the user may not read the image, the error is ignored, and the command
    // waits only for servers that it can watch.
    let images = match Source::array_name(&first.source) {
        Some(array) => array.paths().iter().map(File::open).collect(),
        None => vec![File::open(file_of(&first.source))],
    };
    let busy = if arguments.lazy { Busy::Detach } else { Busy::Refuse };
    // There is one watch for each mount. An image has several mounts if it is mounted read-only on
    // several directories.
    let mut watches = Vec::new();
    for entry in &entries {
        let watch = if arguments.lazy { Ok(None) } else { Watch::of(&entry.mount_point) };
        detach(&entry.mount_point, busy)?;
        watches.push(watch);
    }
    if arguments.lazy {
        return Ok(());
    }
    let is_watched = watches.iter().all(|watch| matches!(watch, Ok(Some(_))));
    for watch in watches {
        let unknown = |error: io::Error| {
            let cause = host_cause(&error);
            io::Error::other(format!("unmounted, but the end of its server is unknown: {cause}"))
        };
        let Some(watch) = watch.map_err(unknown)? else { continue };
        match watch.wait().map_err(unknown)? {
            Ended::Well => {}
            Ended::Failed(why) => {
                return Err(io::Error::other(format!(
                    "unmounted, but its server ended with an error: {}",
                    why.replace('\n', "; ")
                )));
            }
            Ended::Killed => {
                return Err(io::Error::other(
                    "unmounted, but its server ended before it closed the image: writes that were not \
                     synchronised may be lost; the next mount replays the log",
                ));
            }
        }
    }
    if is_watched {
        return Ok(());
    }
    for image in images.iter().flatten() {
        // The server holds its lock until the last byte is flushed, so taking the lock here waits
        // for the server.
        rustix::io::retry_on_intr(|| rustix::fs::flock(image, FlockOperation::LockShared))?;
    }
    Ok(())
}

/// Returns all mounts of the array that has one of the given members, or the given UUID.
fn mounts_of_array(array: &lanefs_raid5::Source) -> io::Result<Vec<MountEntry>> {
    let given: Vec<PathBuf> =
        array.paths().iter().filter_map(|path| path.canonicalize().ok()).collect();
    let is_member = |member: &PathBuf| match array.set() {
        Some(set) => Candidate::peek(member).is_ok_and(|member| member.superblock.set() == set),
        None => given.contains(member),
    };
    let mut entries = MountEntry::all()?;
    entries.retain(|entry| {
        let mounted = Source::array_name(&entry.source);
        mounted.is_some_and(|mounted| mounted.paths().iter().any(is_member))
    });
    Ok(entries)
}
