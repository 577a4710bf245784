//! Operations on a tree. They are represented as data, so that any kind of tree can run them.

use lanefs_ext4::{Fallocate, Rename, SetXattr, SyncMode};
use lanefs_ondisk::Time;
use std::fmt;

/// A path from the root without a leading slash; the empty path is the root.
pub type Path = Vec<u8>;

/// How an operation refers to a file: by path, or by an open file.
#[derive(Clone, PartialEq, Eq)]
pub enum File {
    /// The file at this path.
    At(Path),
    /// The open file in this slot.
    Open(u8),
}

/// The modes of fallocate(2) that move no bytes.
pub const IN_PLACE: [Fallocate; 5] = [
    Fallocate::Allocate,
    Fallocate::AllocateKeepSize,
    Fallocate::PunchHole,
    Fallocate::ZeroRange,
    Fallocate::ZeroRangeKeepSize,
];

/// The kind of object to create.
#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with major and minor number.
    CharDevice(u32, u32),
    /// A block device with major and minor number.
    BlockDevice(u32, u32),
}

/// One operation. If it writes data, the data is a pattern computed from a seed.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are the arguments of the system calls of the same name
pub enum Op {
    Create {
        path: Path,
        kind: Kind,
        permissions: u16,
        uid: u32,
        gid: u32,
    },
    /// Creates a file in `dir` with O_TMPFILE, and leaves it open in `slot`.
    Unnamed {
        dir: Path,
        slot: u8,
    },
    Open {
        path: Path,
        slot: u8,
    },
    Close {
        slot: u8,
    },
    Read {
        file: File,
        offset: u64,
        len: usize,
    },
    Write {
        file: File,
        offset: u64,
        len: usize,
        seed: u64,
    },
    Append {
        file: File,
        len: usize,
        seed: u64,
    },
    Truncate {
        file: File,
        size: u64,
    },
    Fallocate {
        file: File,
        how: Fallocate,
        offset: u64,
        len: u64,
    },
    Link {
        file: File,
        new: Path,
    },
    Unlink {
        path: Path,
    },
    Rmdir {
        path: Path,
    },
    Rename {
        path: Path,
        new: Path,
        how: Rename,
    },
    SetXattr {
        path: Path,
        name: Vec<u8>,
        value: Vec<u8>,
        how: SetXattr,
    },
    RemoveXattr {
        path: Path,
        name: Vec<u8>,
    },
    Chmod {
        path: Path,
        permissions: u16,
    },
    Chown {
        path: Path,
        uid: u32,
        gid: u32,
    },
    Times {
        path: Path,
        atime: Time,
        mtime: Time,
    },
    List {
        path: Path,
    },
    Fsync {
        file: File,
        mode: SyncMode,
    },
    Sync,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq)]
pub enum Seen {
    /// The operation was done.
    Done,
    /// Bytes read.
    Bytes(Vec<u8>),
    /// Names in a directory, sorted, without `.` and `..`.
    Names(Vec<Vec<u8>>),
}

/// What an operation returns: a result, or an errno.
pub type Outcome = Result<Seen, i32>;

/// A tree of files on which operations can be run.
pub trait Tree {
    /// Runs `op`.
    fn apply(&mut self, op: &Op) -> Outcome;
}

/// Returns `len` bytes of a pattern. Each byte depends on the seed and on its position. No 8
/// successive bytes are all zero.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    for byte in bytes.iter_mut().step_by(8) {
        *byte |= 1;
    }
    bytes
}

/// Splits a path into its parent and its last name.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Joins `dir` and `name`.
pub fn join(dir: &[u8], name: &[u8]) -> Path {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Formats a path or name for messages, and cuts it after 60 characters if it is longer.
pub fn show(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    match text.char_indices().nth(60) {
        None => text.into_owned(),
        Some((cut, _)) => format!("{}…({} bytes)", &text[..cut], name.len()),
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            File::At(path) => write!(f, "{}", show(path)),
            File::Open(slot) => write!(f, "#{slot}"),
        }
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Done => write!(f, "done"),
            Seen::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Seen::Names(names) => {
                f.debug_list().entries(names.iter().map(|name| show(name))).finish()
            }
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Regular => write!(f, "file"),
            Kind::Directory => write!(f, "directory"),
            Kind::Symlink(target) => write!(f, "symlink to {}", show(target)),
            Kind::Fifo => write!(f, "pipe"),
            Kind::Socket => write!(f, "socket"),
            Kind::CharDevice(a, b) => write!(f, "char device {a}:{b}"),
            Kind::BlockDevice(a, b) => write!(f, "block device {a}:{b}"),
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { path, kind, permissions, uid, gid } => {
                write!(f, "create {} {kind:?} {permissions:o} {uid}:{gid}", show(path))
            }
            Op::Unnamed { dir, slot } => write!(f, "unnamed in {} as #{slot}", show(dir)),
            Op::Open { path, slot } => write!(f, "open {} as #{slot}", show(path)),
            Op::Close { slot } => write!(f, "close #{slot}"),
            Op::Read { file, offset, len } => write!(f, "read {file:?} {offset}+{len}"),
            Op::Write { file, offset, len, .. } => write!(f, "write {file:?} {offset}+{len}"),
            Op::Append { file, len, .. } => write!(f, "append {file:?} {len}"),
            Op::Truncate { file, size } => write!(f, "truncate {file:?} {size}"),
            Op::Fallocate { file, how, offset, len } => {
                write!(f, "fallocate {file:?} {how:?} {offset}+{len}")
            }
            Op::Link { file, new } => write!(f, "link {file:?} as {}", show(new)),
            Op::Unlink { path } => write!(f, "unlink {}", show(path)),
            Op::Rmdir { path } => write!(f, "rmdir {}", show(path)),
            Op::Rename { path, new, how } => {
                write!(f, "rename {} to {} {how:?}", show(path), show(new))
            }
            Op::SetXattr { path, name, value, how } => {
                let (path, name) = (show(path), show(name));
                write!(f, "set xattr {path} {name} {} bytes {how:?}", value.len())
            }
            Op::RemoveXattr { path, name } => {
                write!(f, "remove xattr {} {}", show(path), show(name))
            }
            Op::Chmod { path, permissions } => write!(f, "chmod {} {permissions:o}", show(path)),
            Op::Chown { path, uid, gid } => write!(f, "chown {} {uid}:{gid}", show(path)),
            Op::Times { path, atime, mtime } => {
                write!(f, "times {} {} {}", show(path), atime.secs, mtime.secs)
            }
            Op::List { path } => write!(f, "list {}", show(path)),
            Op::Fsync { file, mode } => write!(f, "fsync {file:?} {mode:?}"),
            Op::Sync => write!(f, "sync"),
        }
    }
}
