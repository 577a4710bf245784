//! Where a directory's new inodes and a file's first blocks are placed.

use super::caller::Caller;
use super::meetings::Meetings;
use lanefs_lanes::sync::atomic::{AtomicU32, Ordering};
use lanefs_ondisk::{Group, Ino};

/// The group for new inodes of a directory or the first blocks of a file. It is the inode's own
/// group until several callers claim in that group at the same time. The choice is kept only in
/// memory, so an inode that is loaded again starts with its own group.
#[derive(Debug, Default)]
pub(crate) struct WorkPlace {
    /// The number of the group plus one; 0 for the inode's own group.
    moved: AtomicU32,
    /// The callers that create files in this directory.
    callers: Meetings,
}

impl WorkPlace {
    /// Returns the group, unless it is the inode's own.
    pub(crate) fn moved(&self) -> Option<Group> {
        self.moved.load(Ordering::Relaxed).checked_sub(1).map(Group)
    }

    /// Selects another group.
    pub(crate) fn move_to(&self, group: Group) {
        self.moved.store(group.0 + 1, Ordering::Relaxed);
    }

    /// Notes that `caller` creates a file in this directory. Returns whether several callers create
    /// files in the directory, in which case each needs its own group.
    pub(super) fn is_shared(&self, caller: Option<Caller>) -> bool {
        // After the directory has become shared, this function writes nothing any more.
        self.callers.are_many()
            || caller.is_some_and(|caller| {
                // `Meetings` counts the return of a caller only if both the caller and the owner
                // differ from those of the previous call. All callers work in the same directory,
                // so the directory cannot serve as the owner. The caller's number serves instead.
                self.callers.note(caller, Ino(caller.index() + 1))
            })
    }
}
