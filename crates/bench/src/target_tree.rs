//! The trait [`TargetTree`], for the tree of files in which a workload runs.

use crate::error::Result;
use std::path::Path;

/// A tree of files. Paths are relative to its top.
pub trait TargetTree: Send + Sync {
    /// Creates a directory.
    fn make_dir(&self, path: &str) -> Result<()>;
    /// Opens a file.
    fn open<'a>(&'a self, path: &str, how: How) -> Result<Box<dyn Opened + 'a>>;
    /// Returns the size of a file in bytes; does not follow symbolic links.
    fn stat(&self, path: &str) -> Result<u64>;
    /// Creates an unnamed file in the directory `dir` (O_TMPFILE), for writing.
    fn make_unnamed<'a>(&'a self, dir: &str) -> Result<Box<dyn Opened + 'a>>;
    /// Removes the name of a file.
    fn remove(&self, path: &str) -> Result<()>;
    /// Moves a file.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Lists a directory. Returns the number of entries without "." and "..".
    fn list(&self, path: &str) -> Result<u64>;
    /// Returns the names in a directory, without "." and "..".
    fn names(&self, path: &str) -> Result<Vec<String>>;
    /// Returns the number of free blocks. The kernel never answers this request from a cache. Of
    /// all requests that it never answers from a cache, this one is the cheapest.
    fn free_blocks(&self) -> Result<u64>;
    /// Removes a directory and everything in it.
    fn remove_tree(&self, path: &str) -> Result<()>;
    /// Writes out dirty data, so that this work does not happen in the slice of another target.
    fn settle(&self) -> Result<()>;
    /// Returns the counters of the layers below the file system; empty if there are none.
    fn counted(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Returns whether all data is in this process's memory, which means that no kernel thread
    /// works for this target.
    fn is_in_memory(&self) -> bool {
        false
    }
    /// Returns the host path of the tree's top, if the tree is on the host.
    fn host_path(&self) -> Option<&Path> {
        None
    }
    /// Creates an empty file.
    fn create(&self, path: &str) -> Result<()> {
        self.open(path, How::New).map(drop)
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// For reading.
    Read,
    /// For reading without the host's page cache, if the file system supports that.
    ReadDirect,
    /// For overwriting without the host's page cache, if the file system supports that.
    WriteDirect,
    /// Creates a file for writing; fails if it exists.
    New,
    /// Creates or truncates a file for writing.
    Emptied,
    /// For appending.
    Append,
}

/// An open file; dropping it closes it.
pub trait Opened: Send {
    /// Fills `buf` with the bytes from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes all of `data` at `offset`; appends if the file was opened for that.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Calls fsync(2).
    fn sync(&self) -> Result<()>;
    /// Calls fdatasync(2).
    fn sync_data(&self) -> Result<()>;
    /// Allocates `len` bytes from `offset` on.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;
    /// Sets the size of the file.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Sets the modification time, in seconds since 1970.
    fn set_modified(&self, seconds: i64) -> Result<()>;
    /// Drops the file from the host's page cache, so that the next read reaches the file system.
    fn forget_cached(&self) -> Result<()>;
}
