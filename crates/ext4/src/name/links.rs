//! Counts of links: of the directory that a name is in, and of the inode that it leads to.

use crate::alloc::GroupHold;
use crate::clock::now;
use crate::data::file_data::FileData;
use crate::error::Error;
use crate::flags;
use crate::name::directory::Directory;
use crate::name::locks::Beside;
use crate::object::dirty::Handle;
use crate::object::inode::{Inode, InodeRef};
use crate::object::objects::Objects;
use crate::object::state::{Concerns, MAX_LINKS};
use crate::volume::Volume;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Nameless, end_as_only_holder, set_nameless};
use lanefs_ondisk::FileType;

/// Credits of [`drop_link`]: an inode, and its group or its place among the orphans.
pub(crate) const DROP_LINK_CREDITS: u32 = 8;

/// What a change of one name does to the count of a directory's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameChange {
    OneDirectoryMore,
    OneDirectoryLess,
    /// Of anything that is no directory.
    Uncounted,
}

impl NameChange {
    pub(crate) fn of(new: FileType) -> NameChange {
        match new {
            FileType::Directory => NameChange::OneDirectoryMore,
            _ => NameChange::Uncounted,
        }
    }

    /// Of so many directories more: one, none, or one less.
    pub(crate) fn of_directories(more: i32) -> NameChange {
        match more {
            1.. => NameChange::OneDirectoryMore,
            0 => NameChange::Uncounted,
            ..0 => NameChange::OneDirectoryLess,
        }
    }

    /// Links more.
    fn links(self) -> i32 {
        match self {
            NameChange::OneDirectoryMore => 1,
            NameChange::OneDirectoryLess => -1,
            NameChange::Uncounted => 0,
        }
    }
}

/// Whether the count of links is so far from its limit that all that count now, each knowing
/// of none of the others, stay below it.
pub(crate) fn may_count(dir: &Inode, change: NameChange, beside: Beside) -> bool {
    let far = || dir.links() < u32::from(MAX_LINKS) / 2;
    beside == Beside::Nobody || change == NameChange::Uncounted || far()
}

/// Fails if `dir` takes no new name, or not this one. Its operation lock is held.
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

/// Apply: `dir` has one name more, less, or another one.
pub(crate) fn names_changed(handle: &mut Handle<'_>, dir: &Arc<Inode>, change: NameChange) {
    let (tid, now) = (handle.tid(), now());
    if dir.deltas.add(tid, now, change.links()) {
        return;
    }
    dir.change(handle, Concerns::Data, |state| {
        state.names_changed(1, now);
        state.count_subdirectories(change.links());
    });
    dir.deltas.listed(tid);
    dir.deltas.meet(&dir.mount.totals);
}

/// Fails if `victim` cannot lose the name, for it is a directory that is not empty, or could not
/// be ended; what that does to its parent. Its operation lock is held exclusively.
pub(crate) fn check_ended(objects: &Objects, victim: &InodeRef) -> Result<NameChange, Error> {
    let is_directory = victim.file_type == FileType::Directory;
    if is_directory && !Directory::of(objects, victim)?.is_empty()? {
        return Err(Error::NotEmpty);
    }
    FileData { objects, inode: victim }.check_mapped_by_extents()?;
    Ok(match is_directory {
        true => NameChange::OneDirectoryLess,
        false => NameChange::Uncounted,
    })
}

/// Reads what [`drop_link`] may need, to be held until then. Sleeps.
pub(crate) fn prepare_drop_link<'o>(
    objects: &'o Objects,
    victim: &Inode,
) -> Result<GroupHold<'o>, Error> {
    objects.groups.load(objects, objects.volume.inode_place(victim.ino)?.group)
}

/// Apply: `victim` has lost a name, or all of a directory's. Without one left it is ended: here,
/// if it has nothing to free but its number and the caller's is the only hold; else it is an
/// orphan from now on, for whoever drops the last hold to end.
pub(crate) fn drop_link(objects: &Objects, handle: &mut Handle<'_>, victim: &Arc<Inode>) {
    let now = now();
    let left = match victim.file_type {
        FileType::Directory => 0,
        _ => victim.attr().links.saturating_sub(1),
    };
    let ends = victim.change(handle, Concerns::Attributes, |state| {
        state.disk.links = left as u16;
        state.disk.ctime = now;
        left == 0 && state.owns_nothing()
    });
    if left > 0 {
        return;
    }
    // Not before its links are seen to be none: who finds it dead must know that it is gone for
    // good, and not load it again.
    if ends && end_as_only_holder(victim) {
        end_inode(objects, handle, victim);
        return;
    }
    objects.orphans.add(handle, victim);
    set_nameless(victim, Nameless::Yes);
}

/// Apply: frees the number of an inode that has nothing else any more and that nobody can hold.
/// Its group is loaded. At most 4 credits.
pub(crate) fn end_inode(objects: &Objects, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
    let now = now();
    inode.change(handle, Concerns::Attributes, |state| {
        state.disk.file_acl = None;
        state.disk.links = 0;
        state.disk.size = 0;
        state.disk.dtime = u32::try_from(now.secs).unwrap_or(u32::MAX);
        state.freed = true;
    });
    if let Err(error) = objects.groups.free_inode(handle, inode.ino, inode.file_type) {
        objects.note_error(&error);
    }
}
