//! What a workload works on: a tree of files, wherever it is.

use crate::error::Result;
use std::path::Path;

/// A tree of files. Paths are relative to its top.
pub trait Place: Send + Sync {
    /// Makes a directory.
    fn make_dir(&self, path: &str) -> Result<()>;
    /// Opens a file.
    fn open<'a>(&'a self, path: &str, how: How) -> Result<Box<dyn Opened + 'a>>;
    /// The size of what is there, in bytes; symbolic links are not followed.
    fn stat(&self, path: &str) -> Result<u64>;
    /// Makes a file without a name, as if in the directory `dir`, to be written.
    fn make_unnamed<'a>(&'a self, dir: &str) -> Result<Box<dyn Opened + 'a>>;
    /// Takes the name of a file away.
    fn remove(&self, path: &str) -> Result<()>;
    /// Moves a file.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Lists a directory: how many entries it has, "." and ".." not counted.
    fn list(&self, path: &str) -> Result<u64>;
    /// The names in a directory, "." and ".." left out.
    fn names(&self, path: &str) -> Result<Vec<String>>;
    /// Free blocks: the cheapest question that a mounted file system is really asked each time.
    fn free_blocks(&self) -> Result<u64>;
    /// Removes a directory and all below it.
    fn remove_tree(&self, path: &str) -> Result<()>;
    /// Forces out what is waiting to be written, so that it does not fall into another's slice.
    fn settle(&self) -> Result<()>;
    /// How often what lies below did what, until now; nothing where nobody counts.
    fn counted(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Whether all of it is in this process's memory: no thread of the kernel serves it.
    fn is_in_memory(&self) -> bool {
        false
    }
    /// Where the host's programs find the top, if they can.
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
    /// To be read.
    Read,
    /// To be read without the host's page cache, where the file system can.
    ReadDirect,
    /// To be overwritten without the host's page cache, where the file system can.
    WriteDirect,
    /// Made, which it must not be yet, to be written.
    New,
    /// Made or emptied, to be written.
    Emptied,
    /// To be written at its end.
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
