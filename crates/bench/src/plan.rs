//! The plan of a run, and how large an image in memory the run needs.

use crate::scale::Scale;
use crate::stop::Stop;
use crate::workload::Workload;
use lanefs_lanes::sync::Arc;
use std::time::Duration;

/// The largest number of files that all threads together create in one slice. It is limited because
/// an image in memory has to hold the files.
const MOST_NEW: u32 = 100_000;
/// How many bytes of an image are planned for each file. The image has one inode for each 8 KiB, so
/// there are more inodes than planned files.
const A_FILE: u64 = 12 << 10;
/// How much space of an image `append`, `seq-write` and `untar` need, as a multiple of the space
/// that their files take. The factor is more than 1, because the space of a truncated or removed
/// file becomes free only after a commit.
const AT_ONCE: u64 = 2;

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The workloads, in the order in which they are measured.
    pub workloads: Vec<Workload>,
    /// Numbers of threads, each measured separately.
    pub threads: Vec<u32>,
    /// Number of slices for each target.
    pub slices: u32,
    /// Length of a slice.
    pub slice: Duration,
    /// Sizes of files and directories.
    pub scale: Scale,
    /// Ends the run early.
    pub stop: Arc<Stop>,
}

/// Returns how many new files each of `threads` may create in one slice. The result is at most
/// `wanted`.
pub(crate) fn new_files(wanted: u32, threads: u32) -> u32 {
    wanted.min(MOST_NEW / threads.max(1)).max(1)
}

impl Plan {
    /// Returns how many bytes an image must have so that all workloads of the plan can run on it.
    pub fn room(&self) -> u64 {
        let threads = self.threads.iter().copied();
        let each =
            |threads| self.workloads.iter().map(move |workload| self.room_of(*workload, threads));
        let most = threads.flat_map(each).max().unwrap_or(0);
        // A quarter is added for the journal, for inode tables, and for free extents that are too
        // short for a file.
        (most + most / 4).next_multiple_of(1 << 20)
    }

    fn room_of(&self, workload: Workload, threads: u32) -> u64 {
        let (scale, all) = (&self.scale, u64::from(threads));
        let new = u64::from(new_files(scale.new_files, threads)) * all;
        match workload {
            Workload::Create | Workload::Remove => new * A_FILE,
            Workload::Fsync => new * (A_FILE + scale.access_bytes),
            Workload::Untar => {
                let files = u64::from(scale.tree.files()).max(1);
                // On average, half of a file's last block is unused; `A_FILE` is more than enough
                // for this half.
                let a_file = scale.tree.bytes() / files + A_FILE;
                // The files of one whole tree per thread are added, so that the estimate is never
                // too small.
                (new + files * all).min(AT_ONCE * crate::workloads::untar::COPIES * files * all)
                    * a_file
            }
            Workload::DirectRead | Workload::DirectWrite => scale.file_bytes,
            Workload::SeqRead => scale.file_bytes * all,
            Workload::SeqWrite => AT_ONCE * scale.file_bytes * all,
            Workload::Append => {
                AT_ONCE * crate::workloads::data::APPENDED.max(scale.access_bytes) * all
            }
            Workload::Mix => scale.mix.workloads().map(|part| self.room_of(part, threads)).sum(),
            other if other.looks_at_files() => u64::from(scale.files) * all * A_FILE,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn room(workload: Workload, threads: u32) -> u64 {
        let plan = Plan {
            workloads: vec![Workload::Statfs, workload],
            threads: vec![1, threads],
            slices: 1,
            slice: Duration::ZERO,
            scale: Scale::full(Tree::made_up(100)),
            stop: lanefs_lanes::sync::Arc::default(),
        };
        plan.room()
    }

    #[test]
    fn many_threads_make_no_more_files_than_there_is_room_for() {
        assert_eq!(new_files(20_000, 1), 20_000);
        assert_eq!(new_files(20_000, 64), 1562);
        assert_eq!(new_files(20_000, 1_000_000), 1);
        // The image has one inode for each 8 KiB.
        for threads in [1, 5, 64, 1024] {
            let inodes = room(Workload::Create, threads) >> 13;
            assert!(inodes > u64::from(new_files(20_000, threads) * threads), "{threads}");
        }
        assert!(room(Workload::SeqWrite, 64) > 2 * 64 * (64 << 20));
        assert!(room(Workload::Stat, 64) >> 13 > 64_000);
        assert_eq!(room(Workload::Statfs, 64), 0);
        assert!(room(Workload::Mix, 64) > room(Workload::Stat, 64) + room(Workload::Append, 64));
    }
}
