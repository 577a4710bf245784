//! Takes the operation locks for an operation on names.

use crate::object::inode::InodeRef;
use lanefs_lanes::{ExclusiveHold, SharedHold};

/// Selects how the operation locks of the directories are held while a name changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirLocking {
    /// Shared, so that other threads can change other names meanwhile.
    Shared,
    /// Exclusively, so that the directory's shape can change.
    Exclusive,
}

/// A held operation lock.
pub(crate) enum OperationHold<'i> {
    Shared(#[expect(dead_code, reason = "held for its drop")] SharedHold<'i>),
    Exclusive(#[expect(dead_code, reason = "held for its drop")] ExclusiveHold<'i>),
}

impl DirLocking {
    /// Takes the operation lock of `inode`.
    pub(crate) fn lock(self, inode: &InodeRef) -> OperationHold<'_> {
        match self {
            DirLocking::Shared => OperationHold::Shared(inode.op.shared()),
            DirLocking::Exclusive => OperationHold::Exclusive(inode.op.exclusive()),
        }
    }
}

/// Locks the inodes in ascending order of their numbers, each shared or exclusively according to
/// its [`DirLocking`]. An inode that occurs twice is locked once. Returns `None` if the same inode
/// occurs with both values of [`DirLocking`].
pub(crate) fn lock_for_names<'i, const N: usize>(
    mut inodes: [Option<(&'i InodeRef, DirLocking)>; N],
) -> Option<[Option<OperationHold<'i>>; N]> {
    inodes.sort_unstable_by_key(|one| one.map(|(inode, _)| inode.ino));
    let mut held = [const { None }; N];
    let mut last = None;
    for (place, (inode, how)) in held.iter_mut().zip(inodes.into_iter().flatten()) {
        match last.replace((inode.ino, how)) {
            Some((ino, its)) if ino == inode.ino && its == how => {}
            Some((ino, _)) if ino == inode.ino => return None,
            _ => *place = Some(how.lock(inode)),
        }
    }
    Some(held)
}
