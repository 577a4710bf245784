//! A place: the tree of files that a workload works on.

use crate::error::Result;
use std::path::Path;

/// A tree of files. Paths are relative to its top.
pub trait Place: Send + Sync {
    /// Makes a directory.
    fn make_dir(&self, path: &str) -> Result<()>;
    /// Opens a file.
    fn open<'a>(&'a self, path: &str, how: How) -> Result<Box<dyn Opened + 'a>>;
    /// The size of a file in bytes; symbolic links are not followed.
    fn stat(&self, path: &str) -> Result<u64>;
    /// Makes a file without a name in the directory `dir` (O_TMPFILE), for writing.
    fn make_unnamed<'a>(&'a self, dir: &str) -> Result<Box<dyn Opened + 'a>>;
    /// Removes the name of a file.
    fn remove(&self, path: &str) -> Result<()>;
    /// Moves a file.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Lists a directory. Returns the number of entries without "." and "..".
    fn list(&self, path: &str) -> Result<u64>;
    /// The names in a directory, "." and ".." left out.
    fn names(&self, path: &str) -> Result<Vec<String>>;
    /// Free blocks: the cheapest request that the kernel never answers from a cache.
    fn free_blocks(&self) -> Result<u64>;
    /// Removes a directory and all below it.
    fn remove_tree(&self, path: &str) -> Result<()>;
    /// Writes out dirty data, so that this work does not fall into the slice of another target.
    fn settle(&self) -> Result<()>;
    /// The counters of the layers below up to now; empty if there are none.
    fn counted(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Whether all of it is in this process's memory, so that no kernel thread serves it.
    fn is_in_memory(&self) -> bool {
        false
    }
    /// The path of the top for programs of the host, if there is one.
    fn host_path(&self) -> Option<&Path> {
        None
    }
    /// Makes an empty file.
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
    /// Makes a new file for writing; fails if it exists.
    New,
    /// Makes or truncates a file for writing.
    Emptied,
    /// For writing at the end.
    Append,
}

/// An open file; dropping it closes it.
pub trait Opened: Send {
    /// Fills `buf` from `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes all of `data` at `offset`, or at the end.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// fsync(2).
    fn sync(&self) -> Result<()>;
    /// fdatasync(2).
    fn sync_data(&self) -> Result<()>;
    /// Allocates `len` bytes from `offset`.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;
    /// Sets the size.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Sets the time of the last change, in seconds since 1970.
    fn set_modified(&self, seconds: i64) -> Result<()>;
    /// Lets the host's page cache forget the file, so that the next read asks the file system.
    fn forget_cached(&self) -> Result<()>;
}
