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
/// `None` if an inode would be locked both shared and exclusively. There are at most [`LOCKED`].
pub(crate) fn lock_for_names<'i>(
    dirs: &[&'i InodeRef],
    inodes: &[&'i InodeRef],
    locking: DirLocking,
) -> Option<[Option<OperationHold<'i>>; LOCKED]> {
    debug_assert!(dirs.len() + inodes.len() <= LOCKED);
    let mut all: [Option<(&'i InodeRef, DirLocking)>; LOCKED] = [None; LOCKED];
    let dirs = dirs.iter().map(|dir| (*dir, locking));
    let inodes = inodes.iter().map(|inode| (*inode, DirLocking::Exclusive));
    for (inode, how) in dirs.chain(inodes) {
        let is_here = |one: &Option<(&InodeRef, _)>| one.is_none_or(|(it, _)| it.ino >= inode.ino);
        let at = all.iter().position(is_here)?;
        match all[at] {
            Some((same, its)) if same.ino == inode.ino && how == its => {}
            Some((same, _)) if same.ino == inode.ino => return None,
            _ => {
                all.copy_within(at..LOCKED - 1, at + 1);
                all[at] = Some((inode, how));
            }
        }
    }
    let mut held = [const { None }; LOCKED];
    for (place, one) in held.iter_mut().zip(&all) {
        let Some((inode, how)) = one else { break };
        *place = Some(match how {
            DirLocking::Shared => OperationHold::Shared(inode.op.shared()),
            DirLocking::Exclusive => OperationHold::Exclusive(inode.op.exclusive()),
        });
    }
    Some(held)
}
