//! Runs operations on a mount of the kernel's ext4.

use crate::op::{File, Kind, Op, Outcome, Path, Seen, Tree, pattern};
use lanefs_ext4::{Fallocate, Rename, SetXattr};
use lanefs_ondisk::Time;
use rustix::fs::{self as host, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A kernel mount.
pub struct Kernel {
    root: PathBuf,
    open: HashMap<u8, OwnedFd>,
}

impl Kernel {
    /// Prepares to run operations on the tree below `root`.
    pub fn new(root: &std::path::Path) -> Kernel {
        // The operations specify all bits of a mode, so the umask must not clear any.
        rustix::process::umask(Mode::empty());
        Kernel { root: root.to_path_buf(), open: HashMap::new() }
    }

    fn at(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    fn with<R>(
        &self,
        file: &File,
        flags: OFlags,
        act: impl FnOnce(&OwnedFd) -> rustix::io::Result<R>,
    ) -> rustix::io::Result<R> {
        match file {
            File::Open(slot) => act(self.open.get(slot).ok_or(Errno::BADF)?),
            File::At(path) => {
                let flags =
                    flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOATIME | OFlags::NONBLOCK;
                act(&host::open(self.at(path), flags, Mode::empty())?)
            }
        }
    }

    fn create(&self, path: &Path, kind: &Kind, permissions: u16) -> rustix::io::Result<()> {
        let at = self.at(path);
        let mode = Mode::from_raw_mode(permissions.into());
        let node = |kind, device| host::mknodat(host::CWD, &at, kind, mode, device);
        match kind {
            Kind::Regular => {
                let flags = OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                host::open(&at, flags, mode).map(drop)
            }
            Kind::Directory => host::mkdir(&at, mode),
            Kind::Symlink(target) => host::symlink(OsStr::from_bytes(target), &at),
            Kind::Fifo => node(host::FileType::Fifo, 0),
            Kind::Socket => node(host::FileType::Socket, 0),
            Kind::CharDevice(a, b) => node(host::FileType::CharacterDevice, host::makedev(*a, *b)),
            Kind::BlockDevice(a, b) => node(host::FileType::BlockDevice, host::makedev(*a, *b)),
        }
    }

    fn chown(&self, path: &Path, uid: u32, gid: u32) -> rustix::io::Result<()> {
        let owner = (host::Uid::from_raw(uid), host::Gid::from_raw(gid));
        let at = self.at(path);
        host::chownat(host::CWD, &at, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn write(&self, file: &File, offset: u64, data: &[u8]) -> rustix::io::Result<()> {
        self.with(file, OFlags::WRONLY, |fd| {
            let mut done = 0;
            while done < data.len() {
                done += rustix::io::pwrite(fd, &data[done..], offset + done as u64)?;
            }
            Ok(())
        })
    }

    fn act(&mut self, op: &Op) -> rustix::io::Result<Seen> {
        match op {
            Op::Create { path, kind, permissions, uid, gid } => {
                self.create(path, kind, *permissions)?;
                if (*uid, *gid) != (0, 0) {
                    self.chown(path, *uid, *gid)?;
                }
                if permissions & 0o7000 != 0 && !matches!(kind, Kind::Symlink(_)) {
                    // The mode is set again, because mknod(2) does not set all of the set-ID and
                    // sticky bits, and chown(2) clears some of them.
                    let mode = Mode::from_raw_mode((*permissions).into());
                    host::chmodat(host::CWD, self.at(path), mode, AtFlags::empty())?;
                }
            }
            Op::Unnamed { dir, slot } => {
                let flags = OFlags::CLOEXEC | OFlags::TMPFILE | OFlags::RDWR;
                let fd = host::open(self.at(dir), flags, Mode::from_raw_mode(0o600))?;
                self.open.insert(*slot, fd);
            }
            Op::Open { path, slot } => {
                let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::NOFOLLOW;
                let fd = host::open(self.at(path), flags, Mode::empty())?;
                self.open.insert(*slot, fd);
            }
            Op::Close { slot } => drop(self.open.remove(slot).ok_or(Errno::BADF)?),
            Op::Read { file, offset, len } => {
                let mut bytes = vec![0; *len];
                let n = self.with(file, OFlags::RDONLY, |fd| {
                    rustix::io::pread(fd, &mut bytes[..], *offset)
                })?;
                bytes.truncate(n);
                return Ok(Seen::Bytes(bytes));
            }
            Op::Write { file, offset, len, seed } => {
                self.write(file, *offset, &pattern(*seed, *len))?;
            }
            Op::Append { file, len, seed } => {
                let size = self.with(file, OFlags::WRONLY, |fd| Ok(host::fstat(fd)?.st_size))?;
                self.write(file, size as u64, &pattern(*seed, *len))?;
            }
            Op::Truncate { file, size } => {
                self.with(file, OFlags::WRONLY, |fd| host::ftruncate(fd, *size))?;
            }
            Op::Fallocate { file, how, offset, len } => {
                let flags = match how {
                    Fallocate::Allocate => FallocateFlags::empty(),
                    Fallocate::AllocateKeepSize => FallocateFlags::KEEP_SIZE,
                    Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Fallocate::ZeroRange => FallocateFlags::ZERO_RANGE,
                    Fallocate::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
                    Fallocate::InsertRange => FallocateFlags::INSERT_RANGE,
                    Fallocate::ZeroRangeKeepSize => {
                        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
                    }
                };
                self.with(file, OFlags::WRONLY, |fd| host::fallocate(fd, flags, *offset, *len))?;
            }
            Op::Link { file: File::At(path), new } => {
                host::link(self.at(path), self.at(new))?;
            }
            Op::Link { file: file @ File::Open(_), new } => {
                let new = self.at(new);
                self.with(file, OFlags::RDONLY, |fd| {
                    host::linkat(fd, "", host::CWD, new, AtFlags::EMPTY_PATH)
                })?;
            }
            Op::Unlink { path } => host::unlink(self.at(path))?,
            Op::Rmdir { path } => host::rmdir(self.at(path))?,
            Op::Rename { path, new, how } => {
                let flags = match how {
                    Rename::Replace => RenameFlags::empty(),
                    Rename::NoReplace => RenameFlags::NOREPLACE,
                    Rename::Exchange => RenameFlags::EXCHANGE,
                    Rename::Whiteout { .. } => RenameFlags::WHITEOUT,
                    Rename::WhiteoutNoReplace { .. } => {
                        RenameFlags::WHITEOUT | RenameFlags::NOREPLACE
                    }
                };
                host::renameat_with(host::CWD, self.at(path), host::CWD, self.at(new), flags)?;
            }
            Op::SetXattr { path, name, value, how } => {
                let flags = match how {
                    SetXattr::Any => XattrFlags::empty(),
                    SetXattr::Create => XattrFlags::CREATE,
                    SetXattr::Replace => XattrFlags::REPLACE,
                    SetXattr::CreateAndReplace => XattrFlags::CREATE | XattrFlags::REPLACE,
                };
                host::lsetxattr(self.at(path), &name[..], value, flags)?;
            }
            Op::RemoveXattr { path, name } => host::lremovexattr(self.at(path), &name[..])?,
            Op::Chmod { path, permissions } => {
                let mode = Mode::from_raw_mode((*permissions).into());
                host::chmodat(host::CWD, self.at(path), mode, AtFlags::empty())?;
            }
            Op::Chown { path, uid, gid } => self.chown(path, *uid, *gid)?,
            Op::Times { path, atime, mtime } => {
                let spec =
                    |time: &Time| host::Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
                let times =
                    host::Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
                host::utimensat(host::CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::List { path } => {
                let failed = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
                let mut names = Vec::new();
                for entry in std::fs::read_dir(self.at(path)).map_err(failed)? {
                    names.push(entry.map_err(failed)?.file_name().into_vec());
                }
                names.sort();
                return Ok(Seen::Names(names));
            }
            Op::Fsync { file, .. } => self.with(file, OFlags::RDONLY, |fd| host::fsync(fd))?,
            Op::Sync => {
                let root = host::open(&self.root, OFlags::RDONLY, Mode::empty())?;
                host::syncfs(&root)?;
            }
        }
        Ok(Seen::Done)
    }
}

impl Tree for Kernel {
    fn apply(&mut self, op: &Op) -> Outcome {
        self.act(op).map_err(Errno::raw_os_error)
    }
}
