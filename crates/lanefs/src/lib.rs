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
//! With the feature `build`, `Builder` makes an image together with its files on any device. The
//! files come from directories, tars (which may be streams) and container images.
//!
//! The crates of the lower layers are public as modules: they contain every type that occurs in a
//! signature of this crate. [`FileSystem::vfs`] returns the layer that works on inodes and names;
//! file servers need this layer.
#![forbid(unsafe_code)]

mod attributes;
mod directory;
mod error;
mod extents;
mod file;
mod filesystem;
mod metadata;
mod mounted;
mod options;
mod remove;
mod source;

pub use directory::{DirEntry, ReadDir};
pub use error::{Cause, Error, Result};
pub use file::File;
pub use filesystem::FileSystem;
#[cfg(feature = "build")]
pub use lanefs_build as build;
/// Builds images from directories, tars and container images.
///
/// ```
/// use lanefs::build::{Room, Source, Spare};
/// use lanefs::device::RamDevice;
/// use lanefs::{Builder, FileSystem, OpenOptions};
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
pub use lanefs_build::Builder;
pub use lanefs_device as device;
pub use lanefs_ext4 as ext4;
pub use lanefs_ext4::{
    Atime, Attr, ExtentFlags, Fallocate, FileDigest, FileExtent, MasterKey, NewKind, NewVerity,
    Rdev, Rename, SetAttr, SetTime, SetXattr, StatFs, Statistics,
};
pub use lanefs_journal as journal;
pub use lanefs_lanes as lanes;
pub use lanefs_lanes::{Contention, LineHeap, Rank};
pub use lanefs_mkfs as mkfs;
/// How to make a file system. The defaults are those of `mke2fs -t ext4`.
///
/// ```
/// use lanefs::device::RamDevice;
/// use lanefs::mkfs::{InodeCount, JournalSize};
/// use lanefs::{FileSystem, FormatOptions};
///
/// let device = RamDevice::create(64 << 20)?;
/// let options = FormatOptions {
///     label: b"backup".to_vec(),
///     inodes: InodeCount::PerBytes(64 << 10),
///     journal: JournalSize::Blocks(4096),
///     ..FormatOptions::default()
/// };
/// FileSystem::format(&device, &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use lanefs_mkfs::MkfsOptions as FormatOptions;
pub use lanefs_ondisk as ondisk;
pub use lanefs_ondisk::encryption::Policy as EncryptionPolicy;
pub use lanefs_ondisk::{FileType, Ino, Time};
pub use lanefs_raid5 as raid5;
pub use lanefs_vfs as vfs;
pub use lanefs_vfs::{Credentials, Follow, NewNode, Vfs};
pub use metadata::{FileTimes, Metadata};
pub use options::{FileOptions, OpenOptions};
pub use source::Source;

/// Checks that the program in `docs/library.md` compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Taught;
