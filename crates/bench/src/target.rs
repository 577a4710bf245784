//! What is measured against what.

use crate::peers::make_image_with;
use crate::{Error, HostDirectory, Library, Mounting, Place, Result};
use lanefs_device::RamDevice;
use lanefs_lanes::sync::Arc;
use std::path::PathBuf;
use std::str::FromStr;

/// The least bytes of an image in RAM.
const RAM_IMAGE: u64 = 1 << 30;
/// Bytes of it for each file that is made: an inode is for 8 KiB.
const ROOM_A_FILE: u64 = 12 << 10;

/// A target as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSpec {
    /// `lib:ram`: Lanefs in this process, on a new image in its memory.
    Ram,
    /// `lib:IMAGE`: Lanefs in this process, on an image that exists.
    Image(PathBuf),
    /// `dir:PATH`: a directory of the host.
    Directory(PathBuf),
}

impl FromStr for TargetSpec {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<TargetSpec, String> {
        match text.split_once(':') {
            Some(("lib", "ram")) => Ok(TargetSpec::Ram),
            Some(("lib", path)) if !path.is_empty() => Ok(TargetSpec::Image(path.into())),
            Some(("dir", path)) if !path.is_empty() => Ok(TargetSpec::Directory(path.into())),
            _ => Err(format!("'{text}' is none of lib:ram, lib:IMAGE, dir:PATH")),
        }
    }
}

/// The process behind a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// None, or the kernel: its time is that of the caller, but for the kernel's own threads.
    None,
    /// A process, whose CPU time counts in.
    Process(u32),
}

/// Something that workloads run on.
pub struct Target {
    /// What tables call it.
    pub name: String,
    /// Where.
    pub place: Box<dyn Place>,
    /// Who serves it.
    pub server: Server,
}

impl Target {
    /// Opens what `spec` names; an image in memory has room for `files` files.
    pub fn open(spec: &TargetSpec, how: Mounting, files: u64) -> Result<Target> {
        match spec {
            TargetSpec::Ram => {
                let bytes = files.saturating_mul(ROOM_A_FILE).next_multiple_of(1 << 20);
                Target::in_memory(bytes.max(RAM_IMAGE), how)
            }
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

    /// Lanefs on a new image of `bytes` in this process's memory.
    pub fn in_memory(bytes: u64, how: Mounting) -> Result<Target> {
        Target::in_memory_with(bytes, &[], how)
    }

    /// As [`Target::in_memory`], in groups of 32 MiB: some for each of many workers.
    pub fn with_many_groups(bytes: u64, how: Mounting) -> Result<Target> {
        Target::in_memory_with(bytes, &["-g", "8192"], how)
    }

    fn in_memory_with(bytes: u64, more: &[&str], how: Mounting) -> Result<Target> {
        let image = tempfile::Builder::new()
            .prefix("lanefs-bench-")
            .tempfile()
            .map_err(|e| Error::host("a temporary file", e))?;
        make_image_with(image.path(), bytes, more)?;
        let ram = RamDevice::from_file(image.path())
            .map_err(|e| Error::host(image.path().display().to_string(), e))?;
        let place = Box::new(Library::on(Arc::new(ram), how)?);
        Ok(Target { name: "lib:ram".into(), place, server: Server::None })
    }

    /// True for Lanefs as a library.
    pub(crate) fn in_this_process(&self) -> bool {
        self.place.host_path().is_none()
    }

    /// The same under another name.
    pub fn named(self, name: impl Into<String>) -> Target {
        Target { name: name.into(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_told_apart_by_what_stands_before_the_colon() {
        assert_eq!("lib:ram".parse(), Ok(TargetSpec::Ram));
        assert_eq!("lib:./ram".parse(), Ok(TargetSpec::Image("./ram".into())));
        assert_eq!("dir:/mnt/a:b".parse(), Ok(TargetSpec::Directory("/mnt/a:b".into())));
        for wrong in ["", "ram", "/mnt", "lib:", "dir:", "fuse:/mnt"] {
            assert!(wrong.parse::<TargetSpec>().is_err(), "{wrong}");
        }
    }
}
