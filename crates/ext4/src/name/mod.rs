//! Implements directories and changes of names in them.

pub(crate) mod directory;
pub(crate) mod entry_slot;

use crate::alloc::GroupHold;
use crate::attr::now;
use crate::flags;
use crate::name::directory::Directory;
use crate::object::dirty::{Credits, Handle};
use crate::object::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::orphan::Orphans;
use crate::object::state::{Concerns, FastPart};
use crate::volume::Volume;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{ExclusiveHold, Nameless, SharedHold, end_as_only_holder, set_nameless};
use lanefs_ondisk::FileType;
use lanefs_ondisk::inode::MAX_LINKS;
use lanefs_plan::Error;
use lanefs_plan::Expected;

// Maintains link counts when a name changes: the count of the directory that has the name, and the
// count of the inode that the name refers to.

/// Runs `attempt` with directories locked shared, or exclusively if it returns `None`, because the
/// shape of one must change.
#[inline]
pub(crate) fn shared_else_exclusive<T>(
    mut attempt: impl FnMut(DirLocking) -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    match attempt(DirLocking::Shared)? {
        Some(done) => Ok(done),
        None => attempt(DirLocking::Exclusive)?.expected(),
    }
}

/// Describes how a change of one name changes the directory's link count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameChange {
    OneDirectoryMore,
    OneDirectoryLess,
    /// The number of subdirectories stays the same, and so does the link count.
    Uncounted,
}

impl NameChange {
    pub(crate) fn of(new: FileType) -> NameChange {
        match new {
            FileType::Directory => NameChange::OneDirectoryMore,
            _ => NameChange::Uncounted,
        }
    }

    /// Converts a change of the number of subdirectories (1, 0 or -1).
    pub(crate) fn of_directories(more: i32) -> NameChange {
        match more {
            1.. => NameChange::OneDirectoryMore,
            0 => NameChange::Uncounted,
            ..0 => NameChange::OneDirectoryLess,
        }
    }

    /// Returns the number of links added.
    fn links(self) -> i32 {
        match self {
            NameChange::OneDirectoryMore => 1,
            NameChange::OneDirectoryLess => -1,
            NameChange::Uncounted => 0,
        }
    }
}

/// Returns whether the link count is so far below its limit that concurrent changes, which do not
/// see each other, cannot exceed the limit together. Always returns true with
/// [`DirLocking::Exclusive`], and for a change that does not affect the link count.
pub(crate) fn may_count(dir: &Inode, change: NameChange, locking: DirLocking) -> bool {
    let far = || dir.links() < u32::from(MAX_LINKS) / 2;
    locking == DirLocking::Exclusive || change == NameChange::Uncounted || far()
}

/// Fails if `dir` cannot get another name, or if `change` adds a subdirectory and `dir` cannot have
/// more. The caller holds the operation lock of `dir`.
pub(crate) fn check_addable(
    volume: &Volume,
    dir: &InodeRef,
    change: NameChange,
) -> Result<(), Error> {
    if dir.file_type != FileType::Directory {
        return Err(Error::NotDirectory);
    }
    let links = match change {
        NameChange::OneDirectoryMore if !volume.dir_nlink => dir.attr().links,
        _ => dir.links(),
    };
    if links == 0 {
        return Err(Error::NotFound);
    }
    flags::check_not_immutable(&dir.rights())?;
    let full = links >= u32::from(MAX_LINKS) && !volume.dir_nlink;
    match change {
        NameChange::OneDirectoryMore if full => Err(Error::TooManyLinks),
        _ => Ok(()),
    }
}

/// Apply: updates `dir` after one of its names was added, removed or changed.
pub(crate) fn names_changed(handle: &mut Handle<'_>, dir: &Arc<Inode>, change: NameChange) {
    let (tid, now) = (handle.tid(), now());
    dir.deltas.count_subdirectories(change.links());
    if dir.deltas.add(tid, now, change.links()) {
        return;
    }
    // A change that fast commits cannot express is noted when the entry changes, not here.
    dir.change_state(handle, Concerns::Data, FastPart::Record, |state| {
        state.names_changed(1, now);
        state.count_subdirectories(change.links());
        dir.publish_names_changed(&state.disk);
    });
    dir.deltas.listed(tid);
    dir.deltas.meet(&dir.mount.totals, dir.links().saturating_sub(2));
}

/// Fails if the name of `victim` cannot be removed, because `victim` is a directory that is not
/// empty. Otherwise returns how the parent's link count changes. The caller holds the operation
/// lock of `victim` exclusively.
pub(crate) fn check_ended(fs: &Fs, victim: &InodeRef) -> Result<NameChange, Error> {
    let is_directory = victim.file_type == FileType::Directory;
    if is_directory && !Directory::of(fs, victim)?.is_empty()? {
        return Err(Error::NotEmpty);
    }
    Ok(match is_directory {
        true => NameChange::OneDirectoryLess,
        false => NameChange::Uncounted,
    })
}

/// Loads the group that [`drop_link`] needs if it deletes `victim`, and holds it. May sleep. The
/// caller holds the operation lock of `victim` exclusively, so its links do not change.
pub(crate) fn prepare_drop_link<'o>(
    fs: &'o Fs,
    victim: &Inode,
) -> Result<Option<GroupHold<'o>>, Error> {
    if links_left(victim) > 0 {
        return Ok(None);
    }
    fs.groups.bitmaps.load(fs, fs.volume.inode_place(victim.ino)?.group).map(Some)
}

/// Returns the number of links that `victim` has after it lost a name.
fn links_left(victim: &Inode) -> u32 {
    match victim.file_type {
        FileType::Directory => 0,
        _ => victim.links().saturating_sub(1),
    }
}

/// The credits of [`drop_link`]. The inode is deleted, or becomes an orphan.
pub(crate) const DROP_LINK: Credits = Credits::INODE.and(Credits::OLD_NUMBER.or(Orphans::RECORD));

/// Apply: removes one link of `victim`, or all links of a directory. An inode without remaining
/// links is deleted now if the caller has the only hold, and the inode owns nothing except its
/// number. Otherwise such an inode becomes an orphan, and the thread that drops the last hold
/// deletes it.
pub(crate) fn drop_link(fs: &Fs, handle: &mut Handle<'_>, victim: &Arc<Inode>) {
    let now = now();
    let left = links_left(victim);
    let concerns = Concerns::Attributes;
    let ended = victim.change_state(handle, concerns, FastPart::None, |state| {
        state.disk.links = left as u16;
        state.disk.ctime = now;
        // The inode becomes dead only after all threads can see that its link count is zero: a
        // thread that finds the inode dead must see that the file is deleted, and must not load it
        // again.
        victim.publish_names_changed(&state.disk);
        let may_end = left == 0 && state.owns_nothing(fs.volume.geometry());
        let ended = may_end && end_as_only_holder(victim);
        if ended {
            state.end(now);
        }
        ended
    });
    if ended {
        free_number(fs, handle, victim);
    } else if left == 0 {
        fs.orphans.add(handle, victim);
        set_nameless(victim, Nameless::Yes);
    }
}

/// The credits of [`end_inode`].
pub(crate) const END_INODE: Credits = Credits::INODE.and(Credits::OLD_NUMBER);

/// Apply: frees an inode's number. The inode owns no blocks any more, and no thread can take a hold
/// on it. The caller has loaded the inode's group. Uses [`END_INODE`].
pub(crate) fn end_inode(fs: &Fs, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
    let now = now();
    inode.change(handle, Concerns::Attributes, |state| state.end(now));
    free_number(fs, handle, inode);
}

fn free_number(fs: &Fs, handle: &mut Handle<'_>, inode: &Inode) {
    if let Err(error) = fs.groups.free_inode(handle, inode.ino, inode.file_type) {
        fs.note_error(&error);
    }
}

// Follows the parents of a directory up to the root. Damage may have turned this path into a ring.

/// Detects that a path through parent directories never reaches the root. It remembers one
/// directory of the path, and replaces that directory by the current one after 1, 2, 4, … steps
/// (Brent's cycle detection). So a ring of n directories is detected within 3 n steps after the
/// path enters it, in constant memory.
#[derive(Debug, Clone)]
pub struct Ascent<D> {
    passed: D,
    steps: u64,
}

/// The error for a path that reaches the same directory twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IsRing;

impl<D: PartialEq + Clone> Ascent<D> {
    /// Starts the path at `dir`.
    pub fn new(dir: D) -> Ascent<D> {
        Ascent { passed: dir, steps: 0 }
    }

    /// Takes the next step, to `dir`.
    ///
    /// # Errors
    /// [`IsRing`] if the path is found to be a ring.
    pub fn step(&mut self, dir: &D) -> Result<(), IsRing> {
        if *dir == self.passed {
            return Err(IsRing);
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.passed = dir.clone();
        }
        Ok(())
    }
}

// Takes the operation locks for an operation on names.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_noticed_wherever_the_way_enters_it() {
        for tail in [0, 1, 2, 5, 100] {
            for ring in [1, 2, 3, 7, 64, 1000] {
                let mut ascent = Ascent::new(0);
                let mut at = 0;
                let steps = (1..).find(|_| {
                    at = if at == tail + ring - 1 { tail } else { at + 1 };
                    ascent.step(&at).is_err()
                });
                assert!(steps.unwrap() <= 2 * tail + 3 * ring, "{tail} {ring}: {steps:?}");
            }
        }
        let mut straight = Ascent::new(0);
        assert!((1..10_000).all(|dir| straight.step(&dir).is_ok()));
    }
}
