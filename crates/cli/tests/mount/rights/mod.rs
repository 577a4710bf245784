//! A trial: one operation by one caller on one object, and the state of the object afterwards.

pub mod calls;
pub mod cases;
pub mod library;
pub mod listed;
pub mod prepare;

use std::fmt::Write;

/// A user with a group and supplementary groups.
#[derive(Debug)]
pub struct Caller {
    pub name: &'static str,
    pub uid: u32,
    pub gid: u32,
    pub groups: &'static [u32],
}

/// The owner of the objects, and their group.
pub const OWNER: u32 = 1001;
pub const GROUP: u32 = 2001;
/// A user and a group that own nothing.
pub const STRANGER: u32 = 1003;
pub const OTHER_GROUP: u32 = 3000;

pub const CALLERS: [Caller; 6] = [
    Caller { name: "root", uid: 0, gid: 0, groups: &[] },
    Caller { name: "owner", uid: OWNER, gid: GROUP, groups: &[] },
    Caller { name: "owner outside the group", uid: OWNER, gid: OTHER_GROUP, groups: &[] },
    Caller { name: "member", uid: 1002, gid: GROUP, groups: &[] },
    Caller { name: "supplementary member", uid: 1002, gid: OTHER_GROUP, groups: &[GROUP] },
    Caller { name: "stranger", uid: STRANGER, gid: OTHER_GROUP, groups: &[] },
];

/// The type of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Fifo,
    Symlink,
}

/// The inode flag that is set on the object of a case, or on the directory that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    None,
    Immutable,
    AppendOnly,
}

pub const FLAGS: [Flag; 3] = [Flag::None, Flag::Immutable, Flag::AppendOnly];

impl Flag {
    /// Returns the bits for `FS_IOC_SETFLAGS`.
    pub fn bits(self) -> u32 {
        match self {
            Flag::None => 0,
            Flag::Immutable => 0x10,
            Flag::AppendOnly => 0x20,
        }
    }
}

/// Further properties of the object, in addition to its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// Only the extended attributes that all objects have: `trusted.there`, and for files and
    /// directories also `user.there`.
    Attributes,
    /// An access list that lets [`STRANGER`] read and write, and for a directory also a default
    /// list.
    Lists,
    /// File capabilities.
    Capabilities,
}

/// The mode, owner and flag of the object's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    pub mode: u32,
    pub uid: u32,
    pub flag: Flag,
}

/// A directory in which every user may do everything.
pub const OPEN: Parent = Parent { mode: 0o777, uid: 0, flag: Flag::None };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    pub kind: Kind,
    pub mode: u32,
    pub flag: Flag,
    pub extra: Extra,
    pub place: Parent,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    Omit,
    Now,
    At(i64, u32),
}

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Chmod(u32),
    Chown(Option<u32>, Option<u32>),
    Times(Stamp, Stamp),
    /// Adds another name for the object. If the object is a directory, adds another name for a file
    /// in it.
    Link,
    Rename,
    /// Renames the object into another directory, to which all users may write.
    RenameAway,
    /// Renames a file of root so that it replaces the object.
    RenameOver,
    Exchange,
    Unlink,
    Rmdir,
    Truncate(u64),
    Open(How),
    /// Opens the object for appending and writes a byte.
    Append,
    Overwrite,
    Allocate,
    Punch,
    Read,
    ReadNoAtime,
    ReadLink,
    /// Uses a descriptor that the caller opened before the object got its flag.
    Old(OldOp),
    SetXattr(&'static str),
    /// Sets the attribute to the value that it already has.
    SameXattr(&'static str),
    RemoveXattr(&'static str),
    GetXattr(&'static str),
    ListXattr,
    SetAcl(Which, List),
    RemoveAcl(Which),
    GetAcl(Which),
    /// Sets the flags in the first number, and clears those in the second.
    Chattr(u32, u32),
    Stat,
    /// Creates a file, directory or symbolic link in the object, which is a directory.
    MakeIn(Kind),
    UnlinkIn,
    ListIn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Write,
    Append,
    Truncate,
    NoAtime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldOp {
    Truncate(u64),
    Write,
    Allocate,
    Punch,
    Chmod,
    Chown,
    Times(Stamp, Stamp),
    SetXattr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Access,
    Default,
}

impl Which {
    pub fn name(self) -> &'static str {
        match self {
            Which::Access => "system.posix_acl_access",
            Which::Default => "system.posix_acl_default",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// An access control list that a mode can express.
    Minimal,
    /// An access control list with an entry for a named user.
    Named,
}

impl List {
    /// Returns the list in the format of setxattr(2).
    pub fn bytes(self) -> Vec<u8> {
        const NOBODY: u32 = u32::MAX;
        let entries: &[(u16, u16, u32)] = match self {
            List::Minimal => &[(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 1, NOBODY)],
            List::Named => &[
                (1, 6, NOBODY),
                (2, 6, STRANGER),
                (4, 4, NOBODY),
                (0x10, 7, NOBODY),
                (0x20, 0, NOBODY),
            ],
        };
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
}

/// One trial.
#[derive(Debug, Clone)]
pub struct Case {
    pub number: usize,
    pub caller: usize,
    pub op: Op,
    pub object: Object,
}

impl Case {
    pub fn caller(&self) -> &'static Caller {
        &CALLERS[self.caller]
    }

    /// Returns the directory of the case, which no other case uses.
    pub fn dir(&self) -> String {
        format!("c{}", self.number)
    }

    pub fn path(&self) -> String {
        format!("{}/o", self.dir())
    }

    /// Returns the destination of [`Op::RenameAway`].
    pub fn away(&self) -> String {
        format!("away/n{}", self.number)
    }
}

/// The outcome of an operation: its result, or an error number.
pub type Outcome = Result<String, i32>;

/// The observed state of an inode; times are (seconds, nanoseconds).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub name: String,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u64,
    pub size: u64,
    pub flags: Option<u32>,
    pub xattrs: Vec<(String, Vec<u8>)>,
    pub times: [(i64, u32); 3],
}

/// The initial times of objects: the access time and the modification time.
pub const ATIME: (i64, u32) = (1_000_000_000, 500_000_000);
pub const MTIME: (i64, u32) = (1_100_000_000, 250_000_000);

/// The bits of `flags` that are visible to users, without those that only describe how the inode is
/// stored.
const FLAGS_COMPARED: u32 = 0x10 | 0x20 | 0x40 | 0x80 | 0x08 | 0x10000;

impl Seen {
    /// Formats the state as text. `started` is the time at which the first operation of the run
    /// started (seconds, nanoseconds).
    pub fn text(&self, started: (i64, u32)) -> String {
        let Seen { name, mode, uid, gid, links, .. } = self;
        let mut text = format!("{name}: {mode:o} {uid}:{gid} {links}");
        let is_dir = mode & 0o170_000 == 0o040_000;
        if !is_dir {
            write!(text, " {} bytes", self.size).unwrap();
        }
        if let Some(flags) = self.flags {
            write!(text, " flags {:x}", flags & FLAGS_COMPARED).unwrap();
        }
        for (name, value) in &self.xattrs {
            write!(text, " {name}={}", hex(value)).unwrap();
        }
        for ((time, what), was) in
            self.times.iter().zip(["atime", "mtime", "ctime"]).zip([Some(ATIME), Some(MTIME), None])
        {
            let moved = match *time {
                time if Some(time) == was => "kept".to_owned(),
                time if was.is_none() && time < started => "kept".to_owned(),
                time if time >= started && time.0 < started.0 + 3600 => "moved".to_owned(),
                // This time was set when the image was prepared, not by the operation.
                time if time.0 > started.0 - 3600 && time < started => "earlier".to_owned(),
                (secs, nanos) => format!("{secs}.{nanos:09}"),
            };
            write!(text, " {what} {moved}").unwrap();
        }
        text
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
