//! The changes of one inode in the running transaction, for fast commits (`fast_write.rs`).

use lanefs_journal::Tid;
use lanefs_ondisk::Ino;
use std::ops::Range;

/// The part of a fast commit that expresses a change of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FastPart {
    /// No part expresses the change.
    None,
    /// The inode's record. A directory needs no record, since the replay of a name changes the
    /// directory.
    Record,
    /// The record, and mappings that were added for these file blocks. No mapping was removed.
    Mappings(Range<u32>),
    /// The record of a new inode, and its first name ([`Inode::note_first_name`]).
    Birth,
}

/// The changes of a regular file in one transaction.
#[derive(Debug, Clone)]
pub(crate) struct FastTrack {
    pub(super) tid: Tid,
    /// The number of changes, and how many of them are in fast commits.
    pub(super) changes: u64,
    pub(super) written: u64,
    /// A range that includes all file blocks that were mapped since the last fast commit.
    pub(super) mapped: Range<u32>,
    pub(super) birth: Birth,
    /// Why the last attempted fast commit could not contain the changes.
    pub(super) refused: Option<Reason>,
}

/// Whether a fast commit must give the inode a name.
#[derive(Debug, Clone)]
pub(super) enum Birth {
    /// No: the inode has had a name since an earlier transaction, or a fast commit has given it
    /// one.
    Known,
    /// Undecided: the transaction created the inode, which has no name so far.
    Unnamed,
    /// Yes: the transaction created the inode with this name.
    Named { parent: Ino, name: Box<[u8]> },
}

impl FastTrack {
    pub(super) fn new(tid: Tid) -> FastTrack {
        FastTrack { tid, changes: 0, written: 0, mapped: 0..0, birth: Birth::Known, refused: None }
    }

    /// Notes a change in `tid`.
    pub(super) fn note(&mut self, tid: Tid, part: &FastPart) {
        if self.tid != tid {
            *self = FastTrack::new(tid);
        }
        self.changes += 1;
        match part {
            FastPart::None | FastPart::Record => {}
            FastPart::Birth => self.birth = Birth::Unnamed,
            FastPart::Mappings(range) if self.mapped.is_empty() => self.mapped = range.clone(),
            FastPart::Mappings(range) => {
                let Range { start, end } = &mut self.mapped;
                (*start, *end) = ((*start).min(range.start), (*end).max(range.end));
            }
        }
    }
}

/// The reason why an fsync committed the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The transaction was being committed already.
    Committing,
    /// The inode is not a regular file.
    Kind,
    /// The inode shares a block of its table with the journal's inode.
    Table,
    /// The inode has a change that no fast commit expresses.
    Change,
    /// The directory of the inode's name has a change that no fast commit expresses, or a replay
    /// may be unable to add a name to it.
    Directory,
    /// The inode has new mappings, and its extent tree has nodes outside of the inode.
    Nodes,
    /// A directory was renamed, or groups were added.
    Tree,
    /// The log takes no fast commits at present: it is empty, or has no area for fast commits.
    Log,
    /// The log's area for fast commits is full.
    Room,
}

impl Reason {
    pub(super) const ALL: [Reason; 9] = [
        Reason::Committing,
        Reason::Kind,
        Reason::Table,
        Reason::Change,
        Reason::Directory,
        Reason::Nodes,
        Reason::Tree,
        Reason::Log,
        Reason::Room,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Committing => "fast_commit.not.committing",
            Reason::Kind => "fast_commit.not.kind",
            Reason::Table => "fast_commit.not.table",
            Reason::Change => "fast_commit.not.change",
            Reason::Directory => "fast_commit.not.directory",
            Reason::Nodes => "fast_commit.not.nodes",
            Reason::Tree => "fast_commit.not.tree",
            Reason::Log => "fast_commit.not.log",
            Reason::Room => "fast_commit.not.room",
        }
    }
}
