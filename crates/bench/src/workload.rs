//! The workloads by name, and the requirements of each.

use crate::target_tree::TargetTree;
use std::fmt::{self, Display};
use std::str::FromStr;

/// A workload: an operation that is repeated and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Creates empty files, each thread in its own directory.
    Create,
    /// Reads the attributes of one of many files.
    Stat,
    /// Removes empty files.
    Remove,
    /// Opens one of many files, and closes it.
    OpenClose,
    /// Opens and closes one of the thread's own files. The files of all threads are in one
    /// directory.
    OpenCloseShared,
    /// Creates an empty file and removes it.
    CreateUnlink,
    /// Creates files in a separate directory for each thread, then reads the attributes of each
    /// file, then removes each file, as mdtest -F -C -r -u does.
    CreateStatRemove,
    /// Creates an empty file and removes it. All threads work in one directory.
    CreateUnlinkShared,
    /// Creates an unnamed file and closes it.
    Anonymous,
    /// Reads the attributes of every file of a tree, one tree per thread, as `git diff` does.
    TreeDiff,
    /// Lists the directories of a tree, one tree per thread, and reads the attributes of every
    /// file.
    ReaddirStat,
    /// Allocates 8 KiB at the end of a file. Truncates the file when it has reached 1 MiB.
    Fallocate2,
    /// Moves a file to another name and back.
    Rename,
    /// Lists a directory.
    Readdir,
    /// Reads 4 KiB, or [`crate::scale::Scale::access_bytes`], at a random offset of one file that
    /// all threads share, without the page cache.
    DirectRead,
    /// Overwrites part of one file that all threads share, at a random offset, without the page
    /// cache. Each write is as long as a read in direct-read.
    DirectWrite,
    /// Reads a file in sequence, 1 MiB at a time, after it was dropped from the page cache.
    SeqRead,
    /// Writes a new file in sequence, 1 MiB at a time. The time includes an fdatasync at the end.
    SeqWrite,
    /// Appends to a file. Each write has the size of a read in direct-read, 4 KiB by default.
    Append,
    /// Creates a file, writes as many bytes as one direct-read operation reads, and calls fsync.
    Fsync,
    /// Creates the next entry of a source tree. The entry is a directory, or a file with contents
    /// and times.
    Untar,
    /// `git status` of a source tree.
    GitStatus,
    /// Reads the number of free blocks: one FUSE request with almost no work in the server.
    Statfs,
    /// A random mixture of other workloads. [`crate::scale::Scale::mix`] states their shares.
    Mix,
}

impl Workload {
    /// All workloads, in the order of the tables.
    pub const ALL: [Workload; 24] = [
        Workload::Create,
        Workload::Stat,
        Workload::Remove,
        Workload::OpenClose,
        Workload::OpenCloseShared,
        Workload::CreateUnlink,
        Workload::CreateStatRemove,
        Workload::CreateUnlinkShared,
        Workload::Anonymous,
        Workload::TreeDiff,
        Workload::ReaddirStat,
        Workload::Fallocate2,
        Workload::Rename,
        Workload::Readdir,
        Workload::DirectRead,
        Workload::DirectWrite,
        Workload::SeqRead,
        Workload::SeqWrite,
        Workload::Append,
        Workload::Fsync,
        Workload::Untar,
        Workload::GitStatus,
        Workload::Statfs,
        Workload::Mix,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Create => "create",
            Workload::Stat => "stat",
            Workload::Remove => "remove",
            Workload::OpenClose => "open-close",
            Workload::OpenCloseShared => "open-close-shared",
            Workload::CreateUnlink => "create-unlink",
            Workload::CreateStatRemove => "create-stat-remove",
            Workload::CreateUnlinkShared => "create-unlink-shared",
            Workload::Anonymous => "anonymous",
            Workload::TreeDiff => "tree-diff",
            Workload::ReaddirStat => "readdir-stat",
            Workload::Fallocate2 => "fallocate2",
            Workload::Rename => "rename",
            Workload::Readdir => "readdir",
            Workload::DirectRead => "direct-read",
            Workload::DirectWrite => "direct-write",
            Workload::SeqRead => "seq-read",
            Workload::SeqWrite => "seq-write",
            Workload::Append => "append",
            Workload::Fsync => "fsync",
            Workload::Untar => "untar",
            Workload::GitStatus => "git-status",
            Workload::Statfs => "statfs",
            Workload::Mix => "mix",
        }
    }

    /// Returns the unit of the rate.
    pub fn unit(self) -> &'static str {
        match self {
            Workload::SeqRead | Workload::SeqWrite => "MiB/s",
            Workload::Readdir | Workload::ReaddirStat => "lists/s",
            Workload::Untar => "entries/s",
            _ => "ops/s",
        }
    }

    /// Returns whether [`crate::scale::Scale::files`] determines how many files the workload's
    /// directory or tree has.
    pub fn looks_at_files(self) -> bool {
        use Workload::{OpenClose, OpenCloseShared, Readdir, ReaddirStat, Stat, TreeDiff};
        matches!(self, Stat | OpenClose | OpenCloseShared | TreeDiff | ReaddirStat | Readdir)
    }

    /// Returns whether the workload uses files of [`crate::scale::Scale::file_bytes`].
    pub fn moves_data(self) -> bool {
        use Workload::{DirectRead, DirectWrite, SeqRead, SeqWrite};
        matches!(self, DirectRead | DirectWrite | SeqRead | SeqWrite)
    }

    /// Returns whether each operation reads or writes [`crate::scale::Scale::access_bytes`] bytes.
    pub fn accesses(self) -> bool {
        use Workload::{Append, DirectRead, DirectWrite, Fsync};
        matches!(self, DirectRead | DirectWrite | Append | Fsync)
    }

    /// Returns whether the workload can be a part of [`Workload::Mix`]. This requires that the
    /// number of its operations is not limited.
    pub fn can_be_mixed(self) -> bool {
        use Workload::{Create, Fsync, GitStatus, Mix, Remove, SeqRead, SeqWrite, Untar};
        !matches!(self, Create | Fsync | GitStatus | Mix | Remove | SeqRead | SeqWrite | Untar)
    }

    /// Returns whether the workload uses [`crate::scale::Scale::tree`].
    pub fn needs_tree(self) -> bool {
        matches!(self, Workload::Untar | Workload::GitStatus)
    }

    /// Returns whether the workload can run on this target. A workload of an external program needs
    /// a directory of the host.
    pub fn fits(self, place: &dyn TargetTree) -> bool {
        self != Workload::GitStatus || place.host_path().is_some()
    }
}

impl Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Workload, String> {
        // Some workloads have other names in other tools and in `docs/seeds.md`.
        let name = match text {
            "overwrite" | "randwrite" => Workload::DirectWrite.name(),
            "randread" => Workload::DirectRead.name(),
            other => other,
        };
        let found = Workload::ALL.into_iter().find(|workload| workload.name() == name);
        found.ok_or_else(|| {
            let names = Workload::ALL.map(Workload::name).join(", ");
            format!("no such workload; there are: {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_found_by_its_name() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
        }
        assert_eq!("overwrite".parse(), Ok(Workload::DirectWrite));
        assert_eq!("randread".parse(), Ok(Workload::DirectRead));
        let error = "crate".parse::<Workload>().unwrap_err();
        assert!(error.contains("create, stat"), "{error}");
    }
}
