//! Takes the operation locks for an operation on names.

use crate::object::inode::InodeRef;
use lanefs_lanes::{ExclusiveHold, SharedHold};

/// Selects how the operation locks of the directories are held while a name changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirLocking {
    /// Shared: other threads may change other names meanwhile.
    Shared,
    /// Exclusively, so that the directory's shape can change.
    Exclusive,
}

/// A held operation lock.
pub(crate) enum OperationHold<'i> {
    Shared(#[expect(dead_code, reason = "held for its drop")] SharedHold<'i>),
    Exclusive(#[expect(dead_code, reason = "held for its drop")] ExclusiveHold<'i>),
}

/// The largest number of inodes that a change of names locks: two directories, and the inodes
/// that two names refer to.
const LOCKED: usize = 4;

/// Locks directories as `locking` selects, and other inodes exclusively, in ascending number.
/// `None` if an inode would be locked both shared and exclusively.
pub(crate) fn lock_for_names<'i>(
    dirs: &[&'i InodeRef],
    inodes: &[&'i InodeRef],
    locking: DirLocking,
) -> Option<[Option<OperationHold<'i>>; LOCKED]> {
    let mut all: [Option<(&'i InodeRef, DirLocking)>; LOCKED] = [None; LOCKED];
    let dirs = dirs.iter().map(|dir| (*dir, locking));
    let inodes = inodes.iter().map(|inode| (*inode, DirLocking::Exclusive));
    for (at, one) in dirs.chain(inodes).enumerate() {
        *all.get_mut(at)? = Some(one);
    }
    // `None` sorts first.
    all.sort_unstable_by_key(|one| one.map(|(inode, _)| inode.ino));
    for at in 1..LOCKED {
        if let (Some((inode, how)), Some((before, its))) = (all[at], all[at - 1])
            && inode.ino == before.ino
        {
            if how != its {
                return None;
            }
            all[at - 1] = None;
        }
    }
    Some(all.map(|one| {
        one.map(|(inode, how)| match how {
            DirLocking::Shared => OperationHold::Shared(inode.op.shared()),
            DirLocking::Exclusive => OperationHold::Exclusive(inode.op.exclusive()),
        })
    }))
}
