//! Mounts and unmounts: by mount(2) where that is allowed, otherwise by fusermount3.

use super::options::Options;
use crate::protocol::Checks;
use lanefs_ext4::Synchronous;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType,
};
use std::ffi::{CString, OsStr};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use thiserror::Error;

const SET_USER_ID_HELPER: &str = "fusermount3";
/// The environment variable that tells the helper, fusermount3, the descriptor number of a socket.
/// On this socket the helper sends the descriptor of the connection.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// Why mounting failed.
#[derive(Debug, Error)]
pub enum MountError {
    /// The mount point is not a reachable directory.
    #[error("{}: {source}", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// /dev/fuse cannot be opened.
    #[error("/dev/fuse: {source} (is the kernel module fuse loaded?)")]
    Device {
        /// The host's error.
        source: io::Error,
    },
    /// The kernel refused the mount.
    #[error("mounting on {}: {source}", path.display())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// fusermount3 is missing or refused.
    #[error("mounting on {} by fusermount3: {reason}", path.display())]
    Helper {
        /// The mount point.
        path: PathBuf,
        /// The helper's message.
        reason: String,
    },
}

/// A mount of this program.
#[derive(Debug, Clone)]
pub struct MountPoint {
    path: PathBuf,
}

/// How to unmount a busy mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// The mount stays, and the unmount fails.
    Refuse,
    /// The mount is detached from the tree at once, and unmounted after its last use.
    Detach,
}

impl MountPoint {
    /// Mounts on directory `path` and returns the descriptor of the connection. `source` is the
    /// source that /proc/mounts will show.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn attach(
        path: &Path,
        source: &OsStr,
        options: &Options,
    ) -> Result<(OwnedFd, MountPoint), MountError> {
        let path = directory(path)?;
        let device = match mount_directly(&path, source, options, Type::Fuse) {
            Err(MountError::Refused { source: error, .. })
                if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) =>
            {
                mount_by_helper(&path, source, options)?
            }
            other => other?,
        };
        Ok((device, MountPoint { path }))
    }

    /// Does the same as [`MountPoint::attach`], with type `fuseblk`. The kernel then claims
    /// `block_device` exclusively, and sends requests for sync(2) and syncfs(2) to the server.
    /// umount(2) waits for the server. Only mount(2) supports this type.
    ///
    /// Until [`crate::Session::start`] has returned, programs that use the mount wait.
    ///
    /// # Errors
    /// See [`MountError`]. Also EBUSY if another server has already mounted the block device,
    /// because the kernel then reuses that server's mount.
    pub fn attach_block(
        path: &Path,
        block_device: &Path,
        options: &Options,
    ) -> Result<(OwnedFd, MountPoint), MountError> {
        let path = directory(path)?;
        let source = block_device.as_os_str();
        let device = mount_directly(&path, source, options, Type::FuseBlock)?;
        let point = MountPoint { path };
        if is_connected(&device) {
            return Ok((device, point));
        }
        let refused = |source| MountError::Refused { path: point.path.clone(), source };
        point.detach(Busy::Detach).map_err(refused)?;
        Err(refused(Errno::BUSY.into()))
    }

    /// Makes this mount read-only. No request is sent, so the server need not run yet.
    ///
    /// # Errors
    /// The errors of mount(2).
    pub fn make_read_only(&self, options: &Options) -> io::Result<()> {
        // The flag applies to the mount, not to the file system, because the kernel would send a
        // SYNCFS to the server if the file system became read-only.
        let flags = mount_flags(options) | MountFlags::RDONLY | MountFlags::BIND;
        Ok(rustix::mount::mount_remount(&self.path, flags, c"")?)
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts. When this function returns, the server may still have dirty data to write.
    ///
    /// # Errors
    /// The errors of umount(2): EBUSY if the mount is busy and `busy` is [`Busy::Refuse`], EINVAL
    /// if nothing is mounted there any more.
    pub fn detach(&self, busy: Busy) -> io::Result<()> {
        detach(&self.path, busy)
    }

    /// Makes the kernel write back its dirty pages. Errors are ignored, because the caller cannot
    /// report them.
    pub fn write_back(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(root) = rustix::fs::open(&self.path, flags, Mode::empty()) {
            let _ = rustix::fs::syncfs(root);
        }
    }

    /// Aborts the connection, even while it is used, and unmounts. Requests in progress and all
    /// later requests fail.
    ///
    /// # Errors
    /// The same as for [`MountPoint::detach`].
    pub fn cut_off(&self) -> io::Result<()> {
        // The connection is aborted even if umount(2) fails because files are open.
        let forced =
            rustix::mount::unmount(&self.path, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE);
        match forced {
            Ok(()) => Ok(()),
            Err(_) => self.detach(Busy::Detach),
        }
    }
}

/// Unmounts `path`, even if another program mounted it.
///
/// # Errors
/// The same as for [`MountPoint::detach`].
pub fn detach(path: &Path, busy: Busy) -> io::Result<()> {
    let flags = match busy {
        Busy::Refuse => UnmountFlags::NOFOLLOW,
        Busy::Detach => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(path, flags) {
        Err(Errno::PERM) => {}
        other => return Ok(other?),
    }
    let lazily: &[&str] = if busy == Busy::Detach { &["-z"] } else { &[] };
    let output = Command::new(SET_USER_ID_HELPER)
        .arg("-u")
        .args(lazily)
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if reason.contains("busy") {
        return Err(Errno::BUSY.into());
    }
    Err(io::Error::other(reason))
}

/// The kernel's two FUSE file system types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Fuse,
    /// A mount for which the kernel claims a block device exclusively.
    FuseBlock,
}

/// Returns the path of a mount point as the mount table shows it.
fn directory(path: &Path) -> Result<PathBuf, MountError> {
    let no_mount_point = |source| MountError::MountPoint { path: path.into(), source };
    let path = path.canonicalize().map_err(no_mount_point)?;
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => Ok(path),
        Ok(_) => Err(no_mount_point(io::ErrorKind::NotADirectory.into())),
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            let reason = "a mount whose server has ended; `lanefs umount` removes it";
            Err(no_mount_point(io::Error::other(reason)))
        }
        Err(error) => Err(no_mount_point(error)),
    }
}

/// Returns whether the kernel made a connection for `device`, which is an open /dev/fuse. If so,
/// the first request can be read from `device` at once. If the block device is mounted as `fuseblk`
/// already, mount(2) reuses that mount, and `device` belongs to no connection.
fn is_connected(device: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(device, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&at_once)));
    ready == Ok(1) && polled[0].revents() == PollFlags::IN
}

fn mount_directly(
    path: &Path,
    source: &OsStr,
    options: &Options,
    kind: Type,
) -> Result<OwnedFd, MountError> {
    let refused = |source: io::Error| MountError::Refused { path: path.into(), source };
    let device: OwnedFd = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|source| MountError::Device { source })?
        .into();
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.wishes.checks == Checks::ByKernel {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let fs_type = match kind {
        Type::Fuse => c"fuse.lanefs",
        Type::FuseBlock => {
            // One page, for any block size of the file system. With a smaller size, kernels that
            // buffer by iomap could lose partial writes (Linux, "fuse: fix fuseblk i_blkbits for
            // iomap partial writes").
            data.push_str(&format!(",blksize={}", rustix::param::page_size()));
            c"fuseblk.lanefs"
        }
    };
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|e| refused(e.into()));
    rustix::mount::mount(
        text(source.as_bytes())?.as_c_str(),
        path,
        fs_type,
        mount_flags(options),
        text(data.as_bytes())?.as_c_str(),
    )
    .map_err(|error| refused(error.into()))?;
    Ok(device)
}

pub(super) fn mount_flags(options: &Options) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, options.no_devices);
    flags.set(MountFlags::NOSUID, options.no_set_user_id);
    flags.set(MountFlags::NOEXEC, options.no_execute);
    flags.set(MountFlags::NOSYMFOLLOW, options.no_symlinks);
    flags.set(MountFlags::SYNCHRONOUS, options.synchronous == Synchronous::All);
    flags.set(MountFlags::DIRSYNC, options.synchronous == Synchronous::Names);
    flags
}

/// Runs the helper, which mounts with its own rights, opens /dev/fuse and sends the descriptor over
/// a socket.
fn mount_by_helper(path: &Path, source: &OsStr, options: &Options) -> Result<OwnedFd, MountError> {
    let failed = |reason: String| MountError::Helper { path: path.into(), reason };
    let os = |error: Errno| failed(error.to_string());
    // The helper's socket must stay open across exec, so it is created without close-on-exec. This
    // program's socket must be closed by the exec, because otherwise this program would not notice
    // that the helper has exited.
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        rustix::net::SocketFlags::empty(),
        None,
    )
    .map_err(os)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).map_err(os)?;
    let child = Command::new(SET_USER_ID_HELPER)
        .arg("-o")
        .arg(OsStr::from_bytes(&helper_options(source, options)))
        .arg("--")
        .arg(path)
        .env(HELPER_SOCKET, theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    drop(theirs);
    let device = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok(device),
        _ => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

fn helper_options(source: &OsStr, options: &Options) -> Vec<u8> {
    let mut list = b"subtype=lanefs,fsname=".to_vec();
    for &byte in source.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            list.push(b'\\');
        }
        list.push(byte);
    }
    let flags = [
        (options.wishes.checks == Checks::ByKernel, ",default_permissions"),
        (options.allow_other, ",allow_other"),
        (options.read_only, ",ro"),
        (options.no_execute, ",noexec"),
        // A helper that does not know this option refuses to mount, which is better than a mount
        // that follows symbolic links.
        (options.no_symlinks, ",nosymfollow"),
        (options.synchronous == Synchronous::All, ",sync"),
        (options.synchronous == Synchronous::Names, ",dirsync"),
    ];
    for (_, flag) in flags.iter().filter(|(on, _)| *on) {
        list.extend_from_slice(flag.as_bytes());
    }
    list
}

/// Receives a descriptor from `socket`; `None` if the other end closes without sending one.
fn receive_descriptor(socket: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let mut buffers = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.next().and_then(|mut descriptors| descriptors.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_the_source_reaches_the_helper_escaped() {
        let list = helper_options(OsStr::new("/a,b\\c"), &Options::default());
        let text = String::from_utf8(list).unwrap();
        assert!(text.contains(r"fsname=/a\,b\\c"), "{text}");
    }
}
