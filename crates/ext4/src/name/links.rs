//! Maintains link counts when a name changes: the count of the directory that has the name, and the
//! count of the inode that the name refers to.

use crate::alloc::GroupHold;
use crate::clock::now;
use crate::flags;
use crate::name::directory::Directory;
use crate::name::locks::DirLocking;
use crate::object::dirty::Handle;
use crate::object::fast_track::FastPart;
use crate::object::inode::{Inode, InodeRef};
use crate::object::objects::Objects;
use crate::object::state::Concerns;
use crate::volume::Volume;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Nameless, end_as_only_holder, set_nameless};
use lanefs_ondisk::FileType;
use lanefs_ondisk::inode::MAX_LINKS;
use lanefs_plan::Error;

/// The number of credits that [`drop_link`] needs, for an inode and for its group or its orphan
/// record.
pub(crate) const DROP_LINK_CREDITS: u32 = 8;

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
pub(crate) fn check_ended(objects: &Objects, victim: &InodeRef) -> Result<NameChange, Error> {
    let is_directory = victim.file_type == FileType::Directory;
    if is_directory && !Directory::of(objects, victim)?.is_empty()? {
        return Err(Error::NotEmpty);
    }
    Ok(match is_directory {
        true => NameChange::OneDirectoryLess,
        false => NameChange::Uncounted,
    })
}

/// Loads the group that [`drop_link`] may need, and holds it. May sleep.
pub(crate) fn prepare_drop_link<'o>(
    objects: &'o Objects,
    victim: &Inode,
) -> Result<GroupHold<'o>, Error> {
    objects.groups.bitmaps.load(objects, objects.volume.inode_place(victim.ino)?.group)
}

/// Apply: removes one link of `victim`, or all links of a directory. An inode without remaining
/// links is deleted now if the caller has the only hold, and the inode owns nothing except its
/// number. Otherwise such an inode becomes an orphan, and the thread that drops the last hold
/// deletes it.
pub(crate) fn drop_link(objects: &Objects, handle: &mut Handle<'_>, victim: &Arc<Inode>) {
    let now = now();
    let left = match victim.file_type {
        FileType::Directory => 0,
        _ => victim.links().saturating_sub(1),
    };
    let concerns = Concerns::Attributes;
    let ended = victim.change_state(handle, concerns, FastPart::None, |state| {
        state.disk.links = left as u16;
        state.disk.ctime = now;
        // The inode becomes dead only after all threads can see that its link count is zero: a
        // thread that finds the inode dead must see that the file is deleted, and must not load it
        // again.
        victim.publish_names_changed(&state.disk);
        let may_end = left == 0 && state.owns_nothing(objects.volume.geometry());
        let ended = may_end && end_as_only_holder(victim);
        if ended {
            state.end(now);
        }
        ended
    });
    if ended {
        free_number(objects, handle, victim);
    } else if left == 0 {
        objects.orphans.add(handle, victim);
        set_nameless(victim, Nameless::Yes);
    }
}

/// Apply: frees an inode's number. The inode owns no blocks any more, and no thread can take a hold
/// on it. The caller has loaded the inode's group. Uses at most 4 credits.
pub(crate) fn end_inode(objects: &Objects, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
    let now = now();
    inode.change(handle, Concerns::Attributes, |state| state.end(now));
    free_number(objects, handle, inode);
}

fn free_number(objects: &Objects, handle: &mut Handle<'_>, inode: &Inode) {
    if let Err(error) = objects.groups.free_inode(handle, inode.ino, inode.file_type) {
        objects.note_error(&error);
    }
}
