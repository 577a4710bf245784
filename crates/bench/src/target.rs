//! Targets: the file systems that are measured.

use crate::error::{Error, Result};
use crate::host::HostDirectory;
use crate::library::{Library, Mounting};
use crate::programs::make_image_with;
use crate::raid::array::array;
use crate::target_tree::TargetTree;
use lanefs_device::RamDevice;
use lanefs_lanes::sync::Arc;
use lanefs_mkfs::{Contents, InodeCount, InodeTables, MkfsOptions, mkfs};
use lanefs_ondisk::BlockSize;
use lanefs_raid5::Consistency;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

/// The smallest size of an image in RAM, in bytes.
const RAM_IMAGE: u64 = 1 << 30;
/// The block size of every image in bytes.
const BLOCK: u32 = 4096;
/// How many members an array in memory has: the default, and the allowed numbers.
const MEMBERS: usize = 4;
const MEMBERS_ALLOWED: RangeInclusive<usize> = 3..=64;

/// A target in the syntax of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSpec {
    /// `lib:ram`: the library on a new image in memory.
    Ram,
    /// `lib:raid5` or `lib:raid5=N`: the library on a new RAID-5 array in memory.
    Raid5 {
        /// Number of members.
        members: usize,
    },
    /// `lib:IMAGE` or `lib:md:MEMBER,MEMBER,...`: the library on an existing image or array.
    Image(PathBuf),
    /// `dir:PATH`: a directory of the host.
    Directory(PathBuf),
}

impl FromStr for TargetSpec {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<TargetSpec, String> {
        match text.split_once(':') {
            Some(("lib", "ram")) => Ok(TargetSpec::Ram),
            Some(("lib", "raid5")) => Ok(TargetSpec::Raid5 { members: MEMBERS }),
            Some(("lib", array)) if array.starts_with("raid5=") => {
                let members = array.strip_prefix("raid5=").and_then(|n| n.parse().ok());
                match members.filter(|members| MEMBERS_ALLOWED.contains(members)) {
                    Some(members) => Ok(TargetSpec::Raid5 { members }),
                    None => Err(format!(
                        "'{text}': an array in memory has {} to {} members",
                        MEMBERS_ALLOWED.start(),
                        MEMBERS_ALLOWED.end()
                    )),
                }
            }
            Some(("lib", path)) if !path.is_empty() => Ok(TargetSpec::Image(path.into())),
            Some(("dir", path)) if !path.is_empty() => Ok(TargetSpec::Directory(path.into())),
            _ => Err(format!(
                "'{text}' is none of lib:ram, lib:raid5, lib:raid5=N, lib:IMAGE, lib:md:MEMBER,..., dir:PATH"
            )),
        }
    }
}

impl TargetSpec {
    /// Returns whether the target is created in memory for the run.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, TargetSpec::Ram | TargetSpec::Raid5 { .. })
    }

    /// Returns whether the target is on an array in memory.
    pub fn is_array_in_memory(&self) -> bool {
        matches!(self, TargetSpec::Raid5 { .. })
    }

    /// Returns whether the target is the library in this process.
    pub fn is_of_library(&self) -> bool {
        !matches!(self, TargetSpec::Directory(_))
    }
}

/// The process that serves a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// There is no server process. The library or the kernel does its work in the caller's threads,
    /// so the caller's CPU time includes this work. It does not include the time of kernel threads.
    None,
    /// The process with this id. Its CPU time is added to the caller's.
    Process(u32),
}

/// A file system on which workloads run.
pub struct Target {
    /// The target's name in tables.
    pub name: String,
    /// The target's tree of files.
    pub place: Box<dyn TargetTree>,
    /// The server process, if there is one.
    pub server: Server,
}

impl Target {
    /// Opens the target `spec`; an image in memory has at least `room` bytes.
    pub fn open(spec: &TargetSpec, how: Mounting, room: u64) -> Result<Target> {
        match spec {
            TargetSpec::Ram => Target::in_memory(room.max(RAM_IMAGE), how),
            TargetSpec::Raid5 { members } => Target::on_array(*members, room.max(RAM_IMAGE), how),
            TargetSpec::Image(path) => {
                let place = Box::new(Library::open(path, how)?);
                Ok(Target { name: format!("lib:{}", path.display()), place, server: Server::None })
            }
            TargetSpec::Directory(path) => {
                let place = Box::new(HostDirectory::open(path)?);
                Ok(Target { name: format!("dir:{}", path.display()), place, server: Server::None })
            }
        }
    }

    /// Creates a target with Lanefs on a new image of `bytes` in this process's memory.
    pub fn in_memory(bytes: u64, how: Mounting) -> Result<Target> {
        Target::in_memory_with(bytes, &[], how)
    }

    /// Does the same as [`Target::in_memory`], with groups of 32 MiB, so that each of many workers
    /// has several groups. `log` is the size of the journal in MiB; `None` means the default of
    /// mke2fs.
    pub fn with_many_groups(bytes: u64, log: Option<u64>, how: Mounting) -> Result<Target> {
        let log = log.map(|mebibytes| format!("size={mebibytes}"));
        let mut options = vec!["-g", "8192"];
        if let Some(size) = &log {
            options.extend(["-J", size]);
        }
        Target::in_memory_with(bytes, &options, how)
    }

    /// Creates a target with Lanefs on a new array of `members` in this process's memory, with
    /// `bytes` of data. The array has two defaults of mdadm: chunks of 512 KiB, and a
    /// resynchronisation after a crash. Lanefs's mkfs creates the file system, with the same block
    /// size and inode ratio that mke2fs uses for images in memory.
    pub fn on_array(members: usize, bytes: u64, how: Mounting) -> Result<Target> {
        let name = format!("lib:raid5={members}");
        let failed = |e: String| Error::host(&*name, std::io::Error::other(e));
        let policies =
            lanefs_raid5::Policies { stripe_wake: how.stripe_wake, ..Default::default() };
        let array = array(members, bytes, Consistency::Resync, policies)?;
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        let shape = array.geometry();
        let options = MkfsOptions {
            block_size: BlockSize::new(BLOCK),
            inodes: InodeCount::PerBytes(8 << 10),
            inode_tables: InodeTables::Zeroed,
            contents: Contents::Zeros,
            stride: u16::try_from(blocks(shape.chunk())).unwrap_or(0),
            stripe_width: u32::try_from(blocks(shape.row_len())).unwrap_or(0),
            ..MkfsOptions::default()
        };
        mkfs(&*array, &options).map_err(|e| failed(e.to_string()))?;
        let place = Box::new(Library::on_array(&name, array, how)?);
        Ok(Target { name, place, server: Server::None })
    }

    fn in_memory_with(bytes: u64, more: &[&str], how: Mounting) -> Result<Target> {
        let image = tempfile::Builder::new()
            .prefix("lanefs-bench-")
            .tempfile()
            .map_err(|e| Error::host("a temporary file", e))?;
        make_image_with(image.path(), bytes, more)?;
        let ram = RamDevice::from_file(image.path())
            .map_err(|e| Error::host(image.path().display().to_string(), e))?;
        let place = Box::new(Library::on_memory("lib:ram", Arc::new(ram), how)?);
        Ok(Target { name: "lib:ram".into(), place, server: Server::None })
    }

    /// Returns whether the target is Lanefs as a library.
    pub(crate) fn in_this_process(&self) -> bool {
        self.place.host_path().is_none()
    }

    /// Returns the target with another name.
    pub fn named(self, name: impl Into<String>) -> Target {
        Target { name: name.into(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_before_the_colon_selects_the_kind_of_target() {
        assert_eq!("lib:ram".parse(), Ok(TargetSpec::Ram));
        assert_eq!("lib:./ram".parse(), Ok(TargetSpec::Image("./ram".into())));
        assert_eq!("lib:raid5".parse(), Ok(TargetSpec::Raid5 { members: 4 }));
        assert_eq!("lib:raid5=9".parse(), Ok(TargetSpec::Raid5 { members: 9 }));
        assert_eq!("lib:md:a,b,c".parse(), Ok(TargetSpec::Image("md:a,b,c".into())));
        assert_eq!("dir:/mnt/a:b".parse(), Ok(TargetSpec::Directory("/mnt/a:b".into())));
        for wrong in ["", "ram", "/mnt", "lib:", "dir:", "fuse:/mnt", "lib:raid5=2", "lib:raid5=x"]
        {
            assert!(wrong.parse::<TargetSpec>().is_err(), "{wrong}");
        }
    }
}
