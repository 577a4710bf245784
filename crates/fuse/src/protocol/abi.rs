//! The wire format of /dev/fuse: numbers, and records with the kernel's field names.
//!
//! Source: `<linux/fuse.h>`, which is BSD-licensed for this purpose, and the kernel's
//! documentation. Everything is in the byte order of the host.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version of the protocol.
pub const MAJOR: u32 = 7;
/// The minor version that this server implements. A kernel whose version is older uses its own
/// version.
pub const MINOR: u32 = 39;
/// The node id of the root directory.
pub const ROOT_ID: u64 = 1;

/// The operation codes of requests.
#[allow(missing_docs, reason = "the kernel's own names")]
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// The feature flags of INIT.
#[allow(missing_docs, reason = "the kernel's own names")]
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// The bits of `valid` in [`SetattrIn`].
#[allow(missing_docs, reason = "the kernel's own names")]
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCK_OWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// The flags of an open file in the replies to OPEN and CREATE.
pub mod fopen {
    /// Reads and writes bypass the kernel's cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// The pages in the kernel's cache stay valid.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// Direct writes of one file may run in parallel; only with [`DIRECT_IO`].
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// A flag of WRITE's `write_flags`: the data is from the kernel's writeback cache.
pub const WRITE_CACHE: u32 = 1 << 0;
/// A flag of WRITE's `write_flags`: the server must remove set-user-ID and set-group-ID, since the
/// caller has no right to keep them.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// A flag of GETATTR's `getattr_flags`: the request has a handle. The kernel sends one if it needs
/// the attributes for a read, write or seek, but not for stat(2).
pub const GETATTR_FH: u32 = 1 << 0;
/// A notification: the kernel drops an inode's cached attributes, and also its cached pages if an
/// offset is given. In the notification's header, this code stands where a reply has the error
/// number, and the request number is 0.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// A flag of FSYNC's `fsync_flags`: synchronise only data.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// A flag of SETXATTR's `setxattr_flags`: setting this access ACL clears set-group-ID.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// The header of every request.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout, IntoBytes)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub total_extlen: u16,
    pub padding: u16,
}

/// The header of every reply.
#[repr(C)]
#[derive(Debug, IntoBytes, Immutable)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub struct OutHeader {
    pub len: u32,
    pub error: i32,
    pub unique: u64,
}

/// The attributes of an inode.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, IntoBytes, Immutable, KnownLayout)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub struct Attr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub blksize: u32,
    pub flags: u32,
}

/// The commands to /dev/fuse in an SQE of IORING_OP_URING_CMD.
#[allow(missing_docs, reason = "the kernel's own names")]
pub mod uring_cmd {
    pub const REGISTER: u32 = 1;
    pub const COMMIT_AND_FETCH: u32 = 2;
}

/// The buffer of a request that comes by io_uring, and of its reply, without the payload.
///
/// In a request, `in_out` starts with an [`InHeader`], `op_in` with the record of the operation,
/// and the payload has the remaining bytes. In a reply, `in_out` starts with an [`OutHeader`], and
/// the payload has the remaining bytes. Source: `struct fuse_uring_req_header` and `struct
/// fuse_uring_ent_in_out` of `<linux/fuse.h>` 7.42, and
/// Documentation/filesystems/fuse/fuse-io-uring.rst.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout, IntoBytes)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub struct UringReqHeader {
    pub in_out: [u8; 128],
    pub op_in: [u8; 128],
    pub flags: u64,
    pub commit_id: u64,
    pub payload_sz: u32,
    pub padding: u32,
    pub reserved: u64,
}

/// The command area of an SQE: `struct fuse_uring_cmd_req` of `<linux/fuse.h>` 7.42.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Immutable, IntoBytes)]
#[allow(missing_docs, reason = "the kernel's own names")]
pub struct UringCmdReq {
    pub flags: u64,
    pub commit_id: u64,
    pub qid: u16,
    pub padding: [u8; 6],
}

macro_rules! wire {
    ($derive:ident: $($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => { $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default, $derive, Immutable, KnownLayout)]
        #[allow(missing_docs, reason = "the kernel's own names")]
        pub struct $name { $(pub $field: $kind),* }
    )* };
}

wire! { FromBytes:
    /// INIT, up to the last field that is used; the rest is skipped.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// INIT's second part, present with [`init::INIT_EXT`].
    InitExtIn { flags2: u32 }
    /// FORGET.
    ForgetIn { nlookup: u64 }
    /// BATCH_FORGET; [`ForgetOne`] follows `count` times.
    BatchForgetIn { count: u32, dummy: u32 }
    /// One element of BATCH_FORGET.
    ForgetOne { nodeid: u64, nlookup: u64 }
    /// GETATTR.
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    /// SETATTR.
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// STATX.
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// MKNOD; the name follows.
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// MKDIR; the name follows.
    MkdirIn { mode: u32, umask: u32 }
    /// RENAME; both names follow.
    RenameIn { newdir: u64 }
    /// RENAME2; both names follow.
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    /// LINK; the name follows.
    LinkIn { oldnodeid: u64 }
    /// OPEN.
    OpenIn { flags: u32, open_flags: u32 }
    /// ACCESS: the bits of access(2).
    AccessIn { mask: u32, padding: u32 }
    /// CREATE and TMPFILE; the name follows.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// RELEASE.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// READ, READDIR and READDIRPLUS.
    ReadIn {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// WRITE; the data follows.
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// FSYNC and FSYNCDIR.
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    /// SETXATTR, with [`init::SETXATTR_EXT`]; name and value follow.
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    /// GETXATTR (the name follows) and LISTXATTR.
    GetxattrIn { size: u32, padding: u32 }
    /// FALLOCATE.
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// LSEEK.
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// COPY_FILE_RANGE.
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    /// IOCTL; the argument's bytes follow.
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
}

wire! { IntoBytes:
    /// Reply to INIT.
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32,
        max_background: u16, congestion_threshold: u16, max_write: u32, time_gran: u32,
        max_pages: u16, map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    /// Reply to LOOKUP, MKNOD, MKDIR, SYMLINK and LINK.
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    /// Reply to GETATTR and SETATTR.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    /// A time in [`StatxOut`].
    SxTime { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    /// Reply to STATX.
    StatxOut {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32,
        mode: u16, spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    /// Reply to OPEN.
    OpenOut { fh: u64, open_flags: u32, backing_id: u32 }
    /// Reply to CREATE and TMPFILE.
    CreateOut { entry: EntryOut, open: OpenOut }
    /// Reply to WRITE and COPY_FILE_RANGE.
    WriteOut { size: u32, padding: u32 }
    /// Reply to STATFS.
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    /// Reply to GETXATTR and LISTXATTR of size 0.
    GetxattrOut { size: u32, padding: u32 }
    /// Reply to LSEEK.
    LseekOut { offset: u64 }
    /// Reply to IOCTL; the bytes that the request returns follow.
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// Body of [`NOTIFY_INVAL_INODE`]; with length 0 the range extends to the end of the file, and
    /// with a negative offset no pages are dropped.
    NotifyInvalInodeOut { ino: u64, off: i64, len: i64 }
    /// One entry of READDIR; the name follows, and zeros up to a multiple of 8 bytes.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_kernels_sizes() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<WriteIn>(), 40);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<StatxOut>(), 32 + 256);
        assert_eq!(size_of::<Dirent>(), 24);
        assert_eq!(size_of::<CopyFileRangeIn>(), 56);
        assert_eq!(size_of::<UringReqHeader>(), 288);
        assert_eq!(size_of::<UringCmdReq>(), 24);
    }
}
