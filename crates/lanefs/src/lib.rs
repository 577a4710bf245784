//! ext4 in user space that keeps scaling as cores are added.
//!
//! [`FileSystem`] opens an image or block device with an ext4 file system, in the format that
//! `mke2fs` writes and the kernel mounts. Its methods resemble the functions of [`std::fs`], and
//! need neither a mount nor privileges. They take `&self`, so threads can share a file system.
//! Threads that work in different directories do not wait for each other.
//!
//! ```
//! use lanefs::device::RamDevice;
//! use lanefs::{FileSystem, FormatOptions, OpenOptions};
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//!
//! let device = Arc::new(RamDevice::create(64 << 20).unwrap());
//! FileSystem::format(&*device, &FormatOptions::default())?;
//! let fs = FileSystem::open_device(device, &OpenOptions::new())?;
//!
//! fs.create_dir_all("/home/ann")?;
//! std::thread::scope(|scope| {
//!     for n in 0..4 {
//!         let fs = &fs;
//!         scope.spawn(move || fs.write(format!("/home/ann/{n}"), b"hello").unwrap());
//!     }
//! });
//!
//! let mut file = fs.create_file("/etc-issue")?;
//! writeln!(file, "welcome")?;
//! file.sync_all()?; // the file now survives a crash
//! drop(file);
//!
//! let mut text = String::new();
//! fs.open_file("/etc-issue")?.read_to_string(&mut text)?;
//! assert_eq!(text, "welcome\n");
//! assert_eq!(fs.read_dir("/home/ann")?.count(), 4);
//! let missing = fs.metadata("/nowhere").unwrap_err();
//! assert_eq!(missing.to_string(), "/nowhere: no such file or directory");
//!
//! fs.close()?; // writes all changes in place and marks the file system clean
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`FileSystem::open`] opens an image, and [`FileSystem::create`] creates one. The names of RAID-5
//! arrays are the same as on the command line; see [`Source`].
//!
//! With the feature `build`, `build::Builder` makes an image together with its files on any device.
//! The files come from directories, tars (which may be streams) and container images.
//!
//! What is changed is in memory first. **A program that ends by [`std::process::exit`] without
//! [`FileSystem::sync`] or [`FileSystem::close`] loses what it changed in the last seconds.**
//!
//! Servers of other protocols and tools work on inodes and names instead of paths: see [`inode`].
#![forbid(unsafe_code)]

mod attributes;
mod copy;
mod directory;
mod error;
mod extents;
mod file;
mod filesystem;
mod host;
mod metadata;
mod mounted;
mod options;
mod remove;
mod source;

pub use directory::{DirEntry, ReadDir, WalkDir};
pub use error::{Cause, Error, Result};
pub use file::File;
pub use filesystem::FileSystem;
pub use lanefs_ext4::{
    Atime, Attr, BadKey, Error as Ext4Error, ExtentFlags, Fallocate, FileDigest, FileExtent,
    MasterKey, NewKind, NewVerity, Rdev, Rename, SetAttr, SetTime, StatFs, Statistics,
};
pub use lanefs_lanes::LineHeap;
pub use lanefs_mkfs::MkfsOptions as FormatOptions;
pub use lanefs_ondisk::encryption::Policy as EncryptionPolicy;
pub use lanefs_ondisk::verity::Algorithm as VerityAlgorithm;
pub use lanefs_ondisk::{BlockSize, FileType, Ino, Time};
pub use lanefs_vfs::{Credentials, Follow, NewNode, OpenFlags};
pub use metadata::{FileTimes, Metadata};
pub use options::{FileOptions, OpenOptions};
pub use source::Source;

/// Devices that a file system can be on. A program can bring its own [`Device`](device::Device).
pub mod device {
    pub use lanefs_device::{
        Access, BadTable, Device, DeviceError, FileDevice, GatedDevice, OpenError, OpenOptions,
        Operation, Pace, Partition, PartitionError, Pick, RamDevice, ReadKind, User, WriteKind,
        file_of, forward, is_uri,
    };
}

/// What errors of the file system, [`Ext4Error`], consist of.
pub mod fault {
    pub use lanefs_ext4::{CannotGrow, Fault, InvalidArgument, MissingKey};
    pub use lanefs_journal::{Error as JournalError, Tid};
    pub use lanefs_ondisk::{Block, Corruption, UnfitJournal, Unsupported};
}

/// What the options of a new file system, [`FormatOptions`], consist of.
pub mod format {
    pub use lanefs_ext4::OnError;
    pub use lanefs_mkfs::{
        Contents, FileFault, Identity, InodeCount, InodeTables, JournalSize, Kind, MkfsError,
        OnLoss, TablePlaces, Usage,
    };
    pub use lanefs_ondisk::casefold::Folding;
    pub use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat};
}

/// Confines a program to what it needs, before it opens a stranger's image.
pub mod jail {
    pub use lanefs_jail::{Capability, Jail, NotAlone, Walls};
}

/// RAID-5 arrays, in the format of Linux's md.
pub mod raid {
    pub use lanefs_raid5::{
        Added, Array, ArrayError, ArrayOptions, AssembleError, Candidate, CatchUp,
        DirtyAndDegraded, Geometry, GeometryError, InvalidRequest, KnownMember, LeftOut,
        LogOutcome, MemberFault, Metadata, NewMember, OpenArray, Outside, Places, Policies,
        Replaced, Source as ArrayName, Statistics, Status, Upkeep, Uuid,
    };
}

/// The file system by inodes and names instead of paths, as servers of other protocols and tools
/// need it. It has no promise of stability: a new minor version may change it.
///
/// [`FileSystem::vfs`] returns the [`Vfs`](inode::Vfs) of a file system. Its methods check the
/// [`Credentials`] that they get with each call. [`Vfs::fs`](inode::Vfs::fs) is the floor below,
/// [`Fs`](inode::Fs), which checks no permissions. An [`InodeRef`](inode::InodeRef) keeps an inode
/// in memory, and its number from being used again. An [`OpenFile`](inode::OpenFile) is to be
/// released with [`Vfs::release`](inode::Vfs::release), and a reference dropped before the file
/// system ends.
///
/// ```
/// # use lanefs::device::RamDevice;
/// # use lanefs::{Credentials, FileSystem, Follow, FormatOptions, NewKind, NewNode, OpenOptions};
/// # let device = std::sync::Arc::new(RamDevice::create(64 << 20).unwrap());
/// # FileSystem::format(&*device, &FormatOptions::default())?;
/// # let fs = FileSystem::open_device(device, &OpenOptions::new())?;
/// let (vfs, who) = (fs.vfs(), Credentials::superuser());
/// let dir = vfs.walk(&who, vfs.root(), b"lost+found", Follow::Links)?;
/// let new = NewNode { kind: NewKind::Regular, permissions: 0o600, umask: 0 };
/// let made = vfs.make(&who, &dir, b"found", &new)?;
/// assert_eq!(vfs.lookup(&who, &dir, b"found")?.ino(), made.ino());
/// # Ok::<(), lanefs::Error>(())
/// ```
pub mod inode {
    pub use lanefs_ext4::{
        Acted, CHANGEABLE_FLAGS, DirEntry, Ends, Fs, Inode, InodeRef, Mount, MountOptions, Named,
        NewInode, Privilege, QuotaReport, Recovery, Rights, Seek, SetXattr, SyncMode,
    };
    pub use lanefs_journal::Statistics as JournalStatistics;
    pub use lanefs_lanes::{Contention, Rank};
    pub use lanefs_ondisk::quota::{Kind as QuotaKind, Limits as QuotaLimits};
    pub use lanefs_ondisk::superblock::Superblock;
    pub use lanefs_vfs::{Last, OpenFile, Parent, Slash, Vfs, VfsOptions, Want};
}

/// Builds images from directories, tars and container images.
///
/// ```
/// use lanefs::build::{Builder, Room, Source, Spare};
/// use lanefs::device::RamDevice;
/// use lanefs::{FileSystem, OpenOptions};
/// use std::sync::Arc;
///
/// # let mut tar = vec![0; 1024];
/// # let set = |tar: &mut Vec<u8>, at: usize, text: &str| tar[at..at + text.len()].copy_from_slice(text.as_bytes());
/// # set(&mut tar, 0, "motd");
/// # set(&mut tar, 100, "0000644");
/// # set(&mut tar, 124, "00000000010");
/// # set(&mut tar, 148, "        ");
/// # set(&mut tar, 156, "0");
/// # let sum: u32 = tar[..512].iter().map(|byte| u32::from(*byte)).sum();
/// # set(&mut tar, 148, &format!("{sum:06o}\0 "));
/// # set(&mut tar, 512, "welcome\n");
/// # tar.resize(2048, 0);
/// let stream = std::io::Cursor::new(tar); // any reader: a pipe, a socket, a decoder
/// let device = Arc::new(RamDevice::create(64 << 20)?);
/// let built = Builder::new()
///     .room(Room::Fitted(Spare::default()))
///     .source(Source::stream(stream))
///     .build(&*device)?;
/// assert_eq!((built.files, built.bytes() < 1 << 20), (1, true));
///
/// let fs = FileSystem::open_device(device, &OpenOptions::new().read_only())?;
/// assert_eq!(fs.read("/motd")?, b"welcome\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "build")]
pub mod build {
    pub use lanefs_build::{
        AttributeFilter, Builder, Built, Bytes, Cause, Error, FakerootState, HostView, IdMap,
        OnLoss, Owners, Progress, Result, Room, Sealed, ShortPath, Source, Spare, Subtree, Table,
        Unreadable, Verity, Whiteouts,
    };
    pub use lanefs_mkfs::Report;
}

/// Checks that the program in `docs/library.md` compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Taught;
