//! Takes the operation locks for an operation on names.

use crate::object::inode::InodeRef;
use lanefs_lanes::{ExclusiveHold, SharedHold};

/// Selects how the operation locks of the directories are held while a name changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Shared: other threads may change other names meanwhile.
    Others,
    /// Exclusively, so that the directory's shape can change.
    Nobody,
}

/// A held operation lock.
pub(crate) enum OperationHold<'i> {
    Shared(#[expect(dead_code, reason = "held for its drop")] SharedHold<'i>),
    Exclusive(#[expect(dead_code, reason = "held for its drop")] ExclusiveHold<'i>),
}

/// The largest number of inodes that a change of names locks: two directories, and the inodes
/// that two names refer to.
const LOCKED: usize = 4;

/// Locks directories as `beside` selects, and other inodes exclusively, in ascending number. `None`
/// if an inode would be locked both shared and exclusively.
pub(crate) fn lock_for_names<'i>(
    dirs: &[&'i InodeRef],
    inodes: &[&'i InodeRef],
    beside: Beside,
) -> Option<[Option<OperationHold<'i>>; LOCKED]> {
    let mut all: [Option<(&'i InodeRef, Beside)>; LOCKED] = [None; LOCKED];
    let dirs = dirs.iter().map(|dir| (*dir, beside));
    let inodes = inodes.iter().map(|inode| (*inode, Beside::Nobody));
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
            Beside::Others => OperationHold::Shared(inode.op.shared()),
            Beside::Nobody => OperationHold::Exclusive(inode.op.exclusive()),
        })
    }))
}
