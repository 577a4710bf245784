//! The sizes of files and directories in a benchmark.

use crate::mix::Mix;
use crate::tree::Tree;
use lanefs_lanes::sync::Arc;

/// Sizes of files and directories.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Number of files in a directory that is read.
    pub files: u32,
    /// The largest number of files that one thread creates in one slice. The number is lowered if
    /// all threads together would create more than 100,000 files.
    pub new_files: u32,
    /// The size in bytes of a file whose data is read or written; a multiple of 1 MiB.
    pub file_bytes: u64,
    /// Bytes per read or write at random offsets; a multiple of 4 KiB, and at most `file_bytes`.
    pub access_bytes: u64,
    /// The parts of the workload [`Mix`](crate::workload::Workload::Mix), and their shares.
    pub mix: Mix,
    /// The source tree for untar and git-status.
    pub tree: Arc<Tree>,
}

impl Scale {
    /// Returns the sizes for published figures: directories of 1,000 files, files with 64 MiB of
    /// data, accesses of 4 KiB, and the source tree `tree`.
    pub fn full(tree: Tree) -> Scale {
        Scale {
            files: 1000,
            new_files: 20_000,
            file_bytes: 64 << 20,
            access_bytes: 4 << 10,
            mix: Mix::default(),
            tree: Arc::new(tree),
        }
    }
}
