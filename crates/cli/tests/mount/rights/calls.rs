//! Runs operations with system calls, on a mount of the kernel or of Lanefs.

use super::*;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use rustix::io::{Errno, Result};
use rustix::process::{Gid, Uid};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A mounted tree.
pub struct Tree {
    pub root: PathBuf,
}

/// Runs `act` in a thread with the caller's credentials.
pub fn as_caller<T: Send>(caller: &Caller, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            let groups: Vec<Gid> = caller.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            rustix::thread::set_thread_groups(&groups).unwrap();
            let (uid, gid) = (Uid::from_raw(caller.uid), Gid::from_raw(caller.gid));
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            act()
        });
        acting.join().unwrap()
    })
}

pub fn timestamps(atime: Stamp, mtime: Stamp) -> Timestamps {
    let spec = |stamp| match stamp {
        Stamp::Omit => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Stamp::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Stamp::At(secs, nanos) => Timespec { tv_sec: secs, tv_nsec: nanos.into() },
    };
    Timestamps { last_access: spec(atime), last_modification: spec(mtime) }
}

pub fn set_times(path: &Path, times: &Timestamps) -> Result<()> {
    rustix::fs::utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW)
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

pub fn set_flags(path: &Path, flags: u32) -> Result<()> {
    change_flags(path, flags, 0)
}

fn change_flags(path: &Path, set: u32, clear: u32) -> Result<()> {
    let file = open(path, OFlags::RDONLY)?;
    let flags = rustix::fs::ioctl_getflags(&file)?.bits();
    rustix::fs::ioctl_setflags(&file, IFlags::from_bits_retain(flags & !clear | set))
}

fn names(list: &[u8]) -> Vec<String> {
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    names
}

fn list_xattr(path: &Path) -> Result<Vec<String>> {
    let mut buffer = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut buffer[..])?;
    Ok(names(&buffer[..len]))
}

fn get_xattr(path: &Path, name: &str) -> Result<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    let len = rustix::fs::lgetxattr(path, name, &mut buffer[..])?;
    buffer.truncate(len);
    Ok(buffer)
}

fn ids(uid: Option<u32>, gid: Option<u32>) -> (Option<Uid>, Option<Gid>) {
    (uid.map(Uid::from_raw), gid.map(Gid::from_raw))
}

impl Tree {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Opens the object of a case. This is done before the object gets its flag.
    pub fn open_old(&self, case: &Case) -> Result<File> {
        let fd = open(&self.at(&case.path()), OFlags::RDWR)?;
        Ok(File::from(fd))
    }

    /// Sets the flag of the object. Called in cases whose descriptor must be opened before the flag
    /// is set.
    pub fn flag(&self, case: &Case) {
        super::prepare::flag_object(&self.root, case);
    }

    pub fn act(&self, case: &Case, old: Option<&Result<File>>) -> Outcome {
        let done = match (case.op, old) {
            (Op::Old(op), Some(Ok(file))) => by_old(file, op),
            (Op::Old(_), opened) => Err(opened.map_or(Errno::BADF, |o| *o.as_ref().unwrap_err())),
            _ => self.by_path(case),
        };
        done.map_err(|errno| errno.raw_os_error())
    }

    fn by_path(&self, case: &Case) -> Result<String> {
        let path = self.at(&case.path());
        let dir = self.at(&case.dir());
        let move_to = |to: PathBuf, flags| rustix::fs::renameat_with(CWD, &path, CWD, to, flags);
        let done = match case.op {
            Op::Chmod(mode) => rustix::fs::chmod(&path, Mode::from_raw_mode(mode)),
            Op::Chown(uid, gid) => {
                let (uid, gid) = ids(uid, gid);
                rustix::fs::chownat(CWD, &path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
            Op::Times(atime, mtime) => set_times(&path, &timestamps(atime, mtime)),
            Op::Link if case.object.kind == Kind::Directory => {
                rustix::fs::link(path.join("in"), path.join("linked"))
            }
            Op::Link => rustix::fs::link(&path, dir.join("linked")),
            Op::Rename => move_to(dir.join("moved"), RenameFlags::empty()),
            Op::RenameAway => move_to(self.at(&case.away()), RenameFlags::empty()),
            Op::RenameOver => rustix::fs::rename(dir.join("other"), &path),
            Op::Exchange => move_to(dir.join("other"), RenameFlags::EXCHANGE),
            Op::Unlink => rustix::fs::unlink(&path),
            Op::Rmdir => rustix::fs::rmdir(&path),
            Op::Truncate(len) => {
                let file = open(&path, OFlags::WRONLY | OFlags::APPEND)?;
                rustix::fs::ftruncate(file, len)
            }
            Op::Open(how) => open(&path, how_flags(how)).map(drop),
            Op::Append => {
                let file = open(&path, OFlags::WRONLY | OFlags::APPEND)?;
                rustix::io::write(file, b"a").map(drop)
            }
            Op::Overwrite => {
                let file = open(&path, OFlags::WRONLY)?;
                rustix::io::pwrite(file, b"a", 1).map(drop)
            }
            Op::Allocate => {
                let file = open(&path, OFlags::WRONLY | OFlags::APPEND)?;
                rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 9000)
            }
            Op::Punch => {
                let file = open(&path, OFlags::WRONLY | OFlags::APPEND)?;
                rustix::fs::fallocate(file, PUNCH, 0, 4096)
            }
            Op::Read | Op::ReadNoAtime => {
                let no_atime = if case.op == Op::Read { OFlags::empty() } else { OFlags::NOATIME };
                let file = open(&path, OFlags::RDONLY | no_atime)?;
                rustix::io::read(file, &mut [0; 16][..]).map(drop)
            }
            Op::ReadLink => {
                let target = rustix::fs::readlink(&path, Vec::new())?;
                return Ok(target.to_string_lossy().into_owned());
            }
            Op::SetXattr(name) => rustix::fs::lsetxattr(&path, name, b"set", XattrFlags::empty()),
            Op::SameXattr(name) => {
                rustix::fs::lsetxattr(&path, name, b"value", XattrFlags::empty())
            }
            Op::RemoveXattr(name) => rustix::fs::lremovexattr(&path, name),
            Op::GetXattr(name) => return get_xattr(&path, name).map(|value| hex(&value)),
            Op::ListXattr => return list_xattr(&path).map(|names| names.join(" ")),
            Op::SetAcl(which, list) => {
                rustix::fs::setxattr(&path, which.name(), &list.bytes(), XattrFlags::empty())
            }
            Op::RemoveAcl(which) => rustix::fs::removexattr(&path, which.name()),
            Op::GetAcl(which) => return get_xattr(&path, which.name()).map(|value| hex(&value)),
            Op::Chattr(set, clear) => change_flags(&path, set, clear),
            Op::Stat => {
                let stat = rustix::fs::lstat(&path)?;
                return Ok(format!("{:o} {} {}", stat.st_mode, stat.st_uid, stat.st_gid));
            }
            Op::MakeIn(kind) => make_in(&path.join("made"), kind),
            Op::UnlinkIn => rustix::fs::unlink(path.join("in")),
            Op::ListIn => {
                let names = fs::read_dir(&path).map_err(number)?.count();
                return Ok(names.to_string());
            }
            Op::Old(_) => unreachable!("done by descriptor"),
        };
        done.map(|()| String::new())
    }

    /// Returns what root sees after a case: the state of the case's directory, of the object, and
    /// of the object's entries.
    pub fn observe(&self, case: &Case) -> Vec<Seen> {
        let dir = self.at(&case.dir());
        let mut seen = vec![look(&dir, "directory")];
        seen.extend(within(&dir, ""));
        if case.op == Op::RenameAway && fs::symlink_metadata(self.at(&case.away())).is_ok() {
            seen.push(look(&self.at(&case.away()), "away"));
        }
        seen
    }
}

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

fn number(error: std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap())
}

fn how_flags(how: How) -> OFlags {
    match how {
        How::Write => OFlags::WRONLY,
        How::Append => OFlags::WRONLY | OFlags::APPEND,
        How::Truncate => OFlags::WRONLY | OFlags::TRUNC,
        How::NoAtime => OFlags::RDONLY | OFlags::NOATIME,
    }
}

fn by_old(file: &File, op: OldOp) -> Result<String> {
    let done = match op {
        OldOp::Truncate(len) => rustix::fs::ftruncate(file, len),
        OldOp::Write => file.write_all_at(b"a", 1).map_err(number),
        OldOp::Allocate => rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 9000),
        OldOp::Punch => rustix::fs::fallocate(file, PUNCH, 0, 4096),
        OldOp::Chmod => rustix::fs::fchmod(file, Mode::from_raw_mode(0o6755)),
        OldOp::Chown => {
            let (uid, gid) = ids(None, Some(OTHER_GROUP));
            rustix::fs::fchown(file, uid, gid)
        }
        OldOp::Times(atime, mtime) => rustix::fs::futimens(file, &timestamps(atime, mtime)),
        OldOp::SetXattr => rustix::fs::fsetxattr(file, "user.old", b"set", XattrFlags::empty()),
    };
    done.map(|()| String::new())
}

fn make_in(path: &Path, kind: Kind) -> Result<()> {
    // The umask of the test applies, unless the directory has a default access control list, which
    // replaces the umask.
    match kind {
        Kind::File => {
            let mode = Mode::from_raw_mode(0o6777);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            rustix::fs::open(path, flags, mode).map(drop)
        }
        Kind::Directory => rustix::fs::mkdir(path, Mode::from_raw_mode(0o777)),
        Kind::Symlink => rustix::fs::symlink("target", path),
        Kind::Fifo => unreachable!("not made"),
    }
}

fn within(dir: &Path, prefix: &str) -> Vec<Seen> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut seen = Vec::new();
    for name in names {
        let (path, name) = (dir.join(&name), format!("{prefix}{name}"));
        let it = look(&path, &name);
        let is_dir = it.mode & 0o170_000 == 0o040_000;
        seen.push(it);
        if is_dir {
            seen.extend(within(&path, &format!("{name}/")));
        }
    }
    seen
}

fn look(path: &Path, name: &str) -> Seen {
    let stat = fs::symlink_metadata(path).unwrap();
    let kind = stat.mode() & 0o170_000;
    let flags = (kind == 0o100_000 || kind == 0o040_000)
        .then(|| rustix::fs::ioctl_getflags(open(path, OFlags::RDONLY).unwrap()).unwrap().bits());
    let names = list_xattr(path).unwrap();
    let xattrs = names.into_iter().map(|name| {
        let value = get_xattr(path, &name).unwrap();
        (name, value)
    });
    let time = |secs, nanos| (secs, u32::try_from(nanos).unwrap());
    Seen {
        name: name.to_owned(),
        mode: stat.mode(),
        uid: stat.uid(),
        gid: stat.gid(),
        links: stat.nlink(),
        size: stat.size(),
        flags,
        xattrs: xattrs.collect(),
        times: [
            time(stat.atime(), stat.atime_nsec()),
            time(stat.mtime(), stat.mtime_nsec()),
            time(stat.ctime(), stat.ctime_nsec()),
        ],
    }
}
