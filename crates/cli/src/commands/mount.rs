//! `lanefs mount`: mounts an image on a directory.

mod block;

use super::raid::{ArrayFigures, LiveArray, LiveControl};
use crate::cli::{
    advised, announce_mmp, complain, no_file_system, open_array_to_mount, open_image_to_mount,
    read_keys, tell_notes,
};
use crate::commands::mount::block::{failed, message, warn};
use block::Attached;
use lanefs::{Cause, Source};
use lanefs_device::{Access, Device, FileDevice, OpenError, OpenOptions, Pick, file_of, is_uri};
use lanefs_ext4::Mount;
use lanefs_fuse::daemon::{self, Half, Parent, Signals};
use lanefs_fuse::{
    Busy, Carried, DirectIo, Ending, Ids, MountEntry, MountPoint, Opens, Options, Server, Session,
    Transport,
};
use lanefs_raid5::{ArrayOptions, OpenArray};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long a busy mount may continue after the first signal. Then its connection is aborted.
const GRACE: Duration = Duration::from_secs(5);

/// Mounts an image file or block device on a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command returns when the image is mounted; its server continues in the background. lanefs
umount unmounts and waits until the image is closed. umount(8) also unmounts, but waits only for a
block device that root mounted to write. Mounting without root needs fusermount3, and the mount is
for its user alone unless -o allow_other is given and /etc/fuse.conf allows it. If the mode or the
features of an image, or the write protection of a device, forbid writing, it is mounted read-only,
with a warning.

Exit codes: 0 mounted (with -f: unmounted without an error), 1 failure, 2 wrong usage.

Examples:
  lanefs mount disk.img mnt
  lanefs mount -o ro,noatime disk.img mnt
  lanefs mount disk.img@2 mnt                   partition 2 of a disk (docs/disks.md)
  lanefs mount -o ro,norecovery disk.img mnt    without replaying the log
  lanefs mount -f /dev/sdx1 mnt                 in the foreground
  lanefs mount -o remount,ro disk.img mnt       as root: read-only from now on, the image is clean
  lanefs mount -o remount,rw disk.img mnt       as root: writable again

Ids (docs/mount.md), for an image whose root directory belongs to another user:
  lanefs mount -o fakeroot disk.img mnt            you act as root of the image; owners are kept
  lanefs mount -o uid=1000,gid=1000 disk.img mnt   all files are shown as those of 1000
  lanefs mount -o idmap=1000:0:1 disk.img mnt      files of user 0 in the image are those of 1000;
                                                   u: or g: in front maps users or groups alone
  lanefs chown 1000:1000 disk.img:/                gives the directory away, without a mount

Options for speed, with their cost:
  -o direct         file data and the log bypass the host's page cache: the default for whole block
                    devices outside of arrays; no_direct turns it off. Cost: every read that
                    misses the mount's own cache is a read of the device; writes of parts of pages
                    wait for each other. The host's page cache is still used for metadata outside of
                    the log, for parts of pages, and for files whose blocks are smaller than a page.
                    An image file needs a host file system with O_DIRECT
  -o no_open        open and close send no request. Cost: writes to immutable and append-only files
                    fail late, at write(2), fsync(2) or close(2). O_DIRECT writes of one file run
                    one by one. A search for holes makes the kernel write dirty pages. Blocks
                    claimed in advance for a file are given back only when space is short. No effect
                    on images with the feature verity
  -o no_writeback   rename and unlink send fewer requests, and O_DIRECT writes of one file run in
                    parallel, unless the file is also open without O_DIRECT or mapped shared. Cost:
                    each write(2) is a request, which also reports ENOSPC
  -o async_dio      io_submit(2) keeps many requests in flight. Cost: a file that is written in
                    this way must not be read through the page cache at the same time
  -o rows=N         up to N rows of an array are written at once (default 256). Cost: memory for N
                    rows; lanefs stats shows the waits for a row

Other options:
  -o key=FILE           the master key of encrypted directories
  -o journal_path=PATH  the image or device of the journal, if the journal is not in the image
  -o fast_commit        with the feature fast_commit, an fsync may write a small record instead of a
                        commit. Cost: after a crash only Lanefs or the kernel may replay the log
  -o transport=TRANSPORT  read: requests by read(2); ring: by io_uring; auto, the default: by
                        io_uring if root wrote Y to /sys/module/fuse/parameters/enable_uring before
                        the mount. io_uring needs 8 to 64 threads and up to 64 MiB of buffers for
                        each processor")]
pub struct Arguments {
    /// Image file, block device, partition of either (IMAGE@WHICH), or array (md:MEMBER,... or
    /// md:UUID)
    pub source: PathBuf,
    /// Directory to mount on
    pub mount_point: PathBuf,
    /// Comma-separated options: those described below (fakeroot, uid=, gid= and idmap= under Ids),
    /// and these options of ext4, mount(8) and FUSE: ro, rw, norecovery, relatime, noatime,
    /// strictatime, commit=SECONDS, discard, stripe=BLOCKS, errors=continue|remount-ro,
    /// offset=BYTES, sizelimit=BYTES, usrquota, grpquota, prjquota, noquota, sync, dirsync,
    /// allow_other, dev, suid, exec, symfollow and their opposites, fsname=NAME
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground
    #[arg(short, long)]
    pub foreground: bool,
    /// Print the transport of the kernel's requests, and how to get a faster one
    #[arg(short, long)]
    pub verbose: bool,
    /// Accepted for mount(8), without effect: Lanefs never writes /etc/mtab
    #[arg(short, hide = true)]
    pub no_mtab: bool,
    /// Do everything except the mount (accepted for mount(8))
    #[arg(long, hide = true)]
    pub fake: bool,
    /// Tolerate unknown options (accepted for mount(8))
    #[arg(short, hide = true)]
    pub sloppy: bool,
    /// Type that mount(8) was called with (accepted for mount(8))
    #[arg(short = 't', hide = true)]
    pub file_system_type: Option<OsString>,
}

/// Runs `lanefs mount`. In the foreground, returns after the unmount. In the background, returns
/// when the image is mounted.
pub fn run(arguments: &Arguments) -> ExitCode {
    if arguments.options.iter().any(|list| Options::is_remount(list)) {
        return match remount(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&*error),
        };
    }
    let (options, ids) = match parse_options(arguments) {
        Ok(parsed) => parsed,
        Err(error) => return failed(&error),
    };
    if arguments.fake {
        return ExitCode::SUCCESS;
    }
    let mut parent = Parent::none();
    if !arguments.foreground {
        // fork(2) must come before anything that may start a thread.
        match daemon::background() {
            Ok(Half::Server(waiting)) => parent = waiting,
            Ok(Half::Caller(code)) => return code,
            Err(error) => return failed(&error),
        }
    }
    match start(arguments, options, ids) {
        Ok(started) => serve(started, parent),
        Err(error) => {
            parent.failed(&advised(&message(&*error)));
            ExitCode::FAILURE
        }
    }
}

/// Remounts: changes options of the existing mount.
fn remount(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let options = Options::for_remount(&arguments.options)?;
    let wanted = &arguments.mount_point;
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", wanted.display());
    let entry = MountEntry::of(wanted).map_err(|error| failed(&error))?;
    let entry = entry.ok_or_else(|| failed(&"no Lanefs mount is there"))?;
    if arguments.fake {
        return Ok(());
    }
    lanefs_fuse::remount(&entry.mount_point, &options).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::ResourceBusy => "a file is open for writing: close it first",
            io::ErrorKind::ReadOnlyFilesystem => {
                "it was mounted read-only, or had an error; unmount and mount again"
            }
            io::ErrorKind::PermissionDenied => "only root can remount",
            _ => return failed(&error).into(),
        };
        failed(&why).into()
    })
}

fn parse_options(arguments: &Arguments) -> Result<(Options, Ids), lanefs_fuse::OptionError> {
    // As with the kernel's file systems, a mount by root is for all users, and file permissions
    // restrict what they can do.
    let is_root = rustix::process::geteuid().is_root();
    let mut options = Options { allow_other: is_root, ..Options::default() };
    arguments.options.iter().try_for_each(|list| match arguments.sloppy {
        true => options.add_known(list),
        false => options.add(list),
    })?;
    let ids = options.settle(rustix::process::getuid().as_raw())?;
    Ok((options, ids))
}

struct Started {
    session: Session<Server>,
    mount_point: MountPoint,
    signals: Signals,
    ending: Ending,
    array: Option<Arc<LiveArray>>,
}

/// The opened image, device or array.
struct Opened {
    device: Arc<dyn Device>,
    /// The mount, if it already exists: a mount of type `fuseblk` is made before the device is
    /// read. `None` for other types.
    attached: Option<Attached>,
    array: Option<Arc<OpenArray>>,
    /// The source that the mount table shows.
    shown: OsString,
}

/// Opens the image, mounts it and negotiates with the kernel. These are all the steps whose errors
/// the caller of the command must see.
fn start(arguments: &Arguments, mut options: Options, ids: Ids) -> Result<Started, Box<dyn Error>> {
    let signals = Signals::block()?;
    let wanted_read_only = options.read_only;
    let ending = Ending::new()?;
    let Opened { device, attached, array, shown: source } = open_source(arguments, &mut options)?;
    let is_protected = options.read_only && !wanted_read_only;
    if !options.read_only {
        announce_mmp("lanefs mount", &arguments.source, &device);
    }
    let mut settings = options.for_ext4();
    settings.journal = open_journal(&options)?;
    settings.keys = read_keys(&options.keys).map_err(|error| error.to_string())?;
    let mount =
        Mount::open(device.clone(), settings).map_err(|error| match no_file_system(&*device) {
            Some(why) => Box::from(format!("{}: {why}", arguments.source.display())),
            None => Box::<dyn Error>::from(error),
        })?;
    drop(device);
    let is_read_only = mount.fs().is_read_only();
    if is_protected && !options.no_recovery {
        warn(&source, "it is write-protected: mounted read-only");
    } else if is_read_only && !options.read_only {
        warn(&source, "it has features that can only be read (lanefs info): mounted read-only");
    }
    options.read_only |= is_read_only;
    if options.wishes.opens == Opens::NotAsked && mount.fs().has_verity() {
        options.kept_safer.push("no_open: writers of verity files are refused at open(2)");
    }
    options.kept_safer.iter().for_each(|why| warn(&source, &format!("without effect: {why}")));
    let ids_in_words = ids.to_string();
    let mut server = Server::new(mount, options.wishes, ids)?.with(ending.control()?);
    if !is_read_only {
        tell_of_closed_root(&source, &server);
    }
    if let Some(array) = &array {
        server = server.with(Box::new(ArrayFigures(Arc::downgrade(array))));
    }
    let array = array.map(|array| Arc::new(LiveArray::new(array)));
    if let Some(array) = array.clone().filter(|_| !is_read_only) {
        server = server.with(Box::new(LiveControl(array)));
    }
    let shown = match &options.shown_source {
        Some(name) => name.into(),
        None => source.clone(),
    };
    let attached = match attached {
        Some(attached) if is_read_only => attached.read_only(&options),
        Some(attached) => Ok(attached),
        None => Attached::new(MountPoint::attach(&arguments.mount_point, &shown, &options)),
    };
    let attached = match attached {
        Ok(attached) => attached,
        Err(error) => {
            server.close()?;
            return Err(error);
        }
    };
    let (session, mount_point) = attached.start(server)?;
    let carried = session.carried();
    if arguments.verbose {
        complain(format_args!("lanefs mount: {}: requests by {carried}", source.display()));
        complain(format_args!("lanefs mount: {}: ids: {ids_in_words}", source.display()));
    } else if options.wishes.transport == Transport::Ring && matches!(carried, Carried::ByRead(_)) {
        warn(&source, &format!("requests by {carried}"));
    }
    Ok(Started { session, mount_point, signals, ending, array })
}

/// Returns `path`, the file of the image `name`, with the name of the partition.
fn at_partition(path: &Path, name: &Path) -> PathBuf {
    let of_file = file_of(name).as_os_str().len();
    let which = name.as_os_str().as_bytes().get(of_file..).unwrap_or_default();
    let mut path = path.as_os_str().to_owned();
    path.push(OsStr::from_bytes(which));
    path.into()
}

/// Opens the device of the journal, if the options name one.
fn open_journal(options: &Options) -> Result<Option<Arc<dyn Device>>, Box<dyn Error>> {
    let Some(path) = &options.journal else { return Ok(None) };
    let mut device = FileDevice::open(path, access_of(options), OpenOptions::default())?;
    go_direct(&mut device, path, options.direct)?;
    Ok(Some(Arc::new(device)))
}

/// Opens an image, block device or array. If the mount is to be of type `fuseblk`, also makes the
/// mount.
fn open_source(arguments: &Arguments, options: &mut Options) -> Result<Opened, Box<dyn Error>> {
    let name = &*arguments.source;
    if Source::array_name(name).is_none() {
        if options.rows.is_some() {
            return Err(format!("{}: -o rows is for arrays", name.display()).into());
        }
        let failed = |source| OpenError::Io { path: name.into(), source };
        let disk = file_of(name);
        // A file that was deleted can still be mounted by its name in `/proc/self/fd`.
        let path = match disk.canonicalize() {
            _ if is_uri(disk) => disk.into(),
            Err(_) if disk.exists() => std::path::absolute(disk).map_err(failed)?,
            found => found.map_err(failed)?,
        };
        let mut device = open_device(&at_partition(&path, name), options)?;
        tell_notes(name, device.notes());
        go_direct(&mut device, &path, options.direct)?;
        let attached = block::attach(&path, &mut device, &arguments.mount_point, options)?;
        let mut shown = path.into_os_string();
        if let Some(partition) = device.partition().filter(|_| options.offset == 0) {
            shown.push(format!("@{}", partition.number));
        }
        let device = Arc::new(device);
        return Ok(Opened { device, attached, array: None, shown });
    }
    if options.direct == DirectIo::Always {
        return Err(format!(
            "{}: -o direct is for images and devices, not for arrays",
            name.display()
        )
        .into());
    }
    options.read_only |= options.no_recovery;
    let part = part_of(options);
    let open = |access| {
        let mut how = ArrayOptions::new(access);
        how.policies.rows = options.rows.unwrap_or(how.policies.rows);
        open_array_to_mount(name, part, how)
    };
    let source = match open(access_of(options)) {
        Err(error) if matches!(error.cause(), Cause::Open(why) if forbids_writing(why)) => {
            let source = open(Access::ReadOnly)?;
            options.read_only = true;
            source
        }
        opened => opened?,
    };
    tell_notes(name, &source.notes());
    let device = source.device();
    Ok(match source {
        Source::Array(array) => {
            array.metadata().rename_members(|name| name.canonicalize().ok());
            let shown = shown_name(&array);
            Opened { shown, device, attached: None, array: Some(array) }
        }
        Source::Image(_) => Opened { shown: name.into(), device, attached: None, array: None },
    })
}

/// Lets file data and the log bypass the host's page cache, if `wanted` asks for it on this device.
fn go_direct(device: &mut FileDevice, path: &Path, wanted: DirectIo) -> Result<(), Box<dyn Error>> {
    match wanted {
        DirectIo::Never => Ok(()),
        DirectIo::BlockDevices if device.is_file() => Ok(()),
        DirectIo::BlockDevices => {
            // If the device has no direct I/O, the host's cache is used.
            let _ = device.with_direct_io(path);
            Ok(())
        }
        DirectIo::Always => device.with_direct_io(path).map_err(|error| {
            format!("{}: no direct I/O, so mount without -o direct: {error}", path.display()).into()
        }),
    }
}

/// Returns the name under which the array is shown. The name lists the members, so `lanefs umount`
/// can wait until the members are closed.
fn shown_name(array: &OpenArray) -> OsString {
    let members = array.metadata().members();
    let paths: Vec<PathBuf> = members.into_iter().map(|member| member.name).collect();
    lanefs_raid5::Source::name_of(paths.iter().map(PathBuf::as_path))
}

/// Opens the device for writing, or read-only if the options or the host require that.
fn open_device(source: &Path, options: &mut Options) -> Result<FileDevice, OpenError> {
    let part = part_of(options);
    options.read_only |= options.no_recovery;
    if !options.read_only {
        match open_image_to_mount(source, Access::ReadWrite, part) {
            Err(error) if forbids_writing(&error) => options.read_only = true,
            other => return other,
        }
    }
    open_image_to_mount(source, Access::ReadOnly, part)
}

fn part_of(options: &Options) -> OpenOptions {
    OpenOptions { offset: options.offset, len: options.size_limit, pick: Pick::OnlyExt4 }
}

fn access_of(options: &Options) -> Access {
    if options.read_only { Access::ReadOnly } else { Access::ReadWrite }
}

/// Returns whether an image that cannot be opened for writing may be mounted read-only.
fn forbids_writing(error: &OpenError) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match error {
        OpenError::WriteProtected { .. } => true,
        OpenError::Io { source, .. } => {
            matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem)
        }
        _ => false,
    }
}

fn serve(started: Started, mut parent: Parent) -> ExitCode {
    let Started { session, mount_point, signals, ending, array } = started;
    let in_background = parent.is_waiting();
    // If the server runs in the background, the caller of the command sees no errors from here on.
    // A failure to leave the terminal is ignored.
    parent.serving();
    if in_background {
        let _ = daemon::let_go();
    }
    std::thread::spawn(move || end_on_signals(&signals, &mount_point));
    let (server, outcome, farewell) = session.run();
    let was_broken = server.is_broken();
    let array = array.map(LiveArray::end);
    let closed = server.close();
    let mut failures: Vec<Box<dyn Error>> = Vec::new();
    failures.extend(outcome.err().map(Box::from));
    if was_broken {
        failures.push("stopped after a panic; the log is left for the next mount to replay".into());
    }
    failures.extend(closed.err().map(Box::from));
    // After a panic the server still holds a reference to the array, so the array is neither closed
    // nor marked clean.
    let closed = array.and_then(Arc::into_inner).map_or(Ok(()), OpenArray::close);
    failures.extend(closed.err().map(Box::from));
    let failures: Vec<String> = failures.iter().map(|error| message(&**error)).collect();
    failures.iter().for_each(complain);
    ending.record(&failures);
    // If umount(2) is waiting for the server, dropping `farewell` makes umount(2) return.
    drop(farewell);
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Unmounts after a signal. The serving threads then notice that the connection is closed.
fn end_on_signals(signals: &Signals, mount_point: &MountPoint) {
    loop {
        signals.wait();
        match mount_point.detach(Busy::Refuse) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                // Cached data is written out while requests are still served. After the grace
                // period, the connection is aborted even if processes still use the mount.
                mount_point.write_back();
                std::thread::sleep(GRACE);
                if let Err(error) = mount_point.cut_off() {
                    complain(format_args!("lanefs: {}: {error}", mount_point.path().display()));
                }
            }
            Err(error) => {
                complain(format_args!("lanefs: {}: {error}", mount_point.path().display()));
            }
            Ok(()) => {}
        }
    }
}

/// If the user cannot create files in the root directory, prints the ways to get permission.
fn tell_of_closed_root(source: &OsStr, server: &Server) {
    use rustix::process::{getegid, geteuid, getgroups};
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let groups: Vec<u32> =
        getgroups().unwrap_or_default().into_iter().map(|gid| gid.as_raw()).collect();
    let Some((owner, group)) = server.root_closed_to(uid, gid, &groups) else { return };
    warn(
        source,
        &format!("user {uid} cannot write to its root directory, which belongs to {owner}:{group}"),
    );
    let image = source.display();
    let idmap = match (uid, owner) == (gid, group) {
        true => format!("-o idmap={uid}:{owner}:1"),
        false => format!("-o idmap=u:{uid}:{owner}:1,idmap=g:{gid}:{group}:1"),
    };
    for (way, what) in [
        ("-o fakeroot".to_owned(), "you act as root of the image".to_owned()),
        (format!("-o uid={uid},gid={gid}"), "all files are shown as yours".to_owned()),
        (idmap, format!("the files of {owner} are shown as yours")),
        (format!("lanefs chown {uid}:{gid} {image}:/"), "the directory becomes yours".to_owned()),
    ] {
        complain(format_args!("  {way:<28}  {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_cannot_be_written_is_mounted_read_only() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(4096).unwrap();
        let mut options = Options { no_recovery: true, ..Options::default() };
        let device = open_device(image.path(), &mut options).unwrap();
        assert!(options.read_only);
        assert!(lanefs_device::Device::is_read_only(&device));
    }
}
