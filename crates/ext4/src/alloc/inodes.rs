//! Claims, allocates and frees inodes.

use crate::alloc::caller::Caller;
use crate::alloc::choose::{Asks, Attempt, Candidates, Goal, Wait, choose};
use crate::alloc::claim::InodeClaim;
use crate::alloc::groups::{Changes, Groups};
use crate::alloc::read::damage;
use crate::alloc::region;
use crate::alloc::tally::Count;
use crate::alloc::visit::{Visit, Worker};
use crate::alloc::work_place::WorkPlace;
use crate::volume::reader::BlockReader;
use lanefs_ondisk::bitmap::Cause;
use lanefs_ondisk::{FileType, Group, Ino};
use lanefs_plan::Error;

/// A directory in which an inode is created.
pub(crate) struct Parent<'a> {
    pub ino: Ino,
    pub place: &'a WorkPlace,
    /// A number that determines the group of a new subdirectory. It differs for each subdirectory.
    pub before: u32,
    /// Whether the subdirectories of this directory are the tops of unrelated trees: true for the
    /// root, and for directories with the flag `T` of chattr(1).
    pub is_top: bool,
}

impl Groups {
    /// Claims an inode number. A file's number is in the group where its directory places files. If
    /// a directory [is a top](Parent::is_top), its subdirectories are placed far from each other.
    /// Otherwise they are placed in the groups after the directory's own group, each in the next
    /// group. If several callers work in the group or in the parent at the same time, each caller
    /// gets a group in its own region. May sleep.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no free inode; damage or an I/O error in a bitmap.
    pub(crate) fn claim_inode(
        &self,
        read: &dyn BlockReader,
        kind: FileType,
        parent: &Parent<'_>,
    ) -> Result<InodeClaim<'_>, Error> {
        self.count(Count::InodeSearches, 1);
        let caller = Caller::current();
        let region = self.region_of(caller);
        let spreads = self.allocation.spreads();
        let start = match kind {
            FileType::Directory if spreads => self.group_of_directory(parent, caller),
            _ => self.group_of_file(parent, caller),
        };
        let if_busy = if spreads { region.start } else { start + 1 };
        let goal = Goal { group: start, if_busy, if_lacking: start + 1 };
        // A directory needs room for the files that will be created in it.
        let first = if kind == FileType::Directory { Room::ForFiles } else { Room::Any };
        let asks = Asks { at_goal: first, passes: std::iter::once(first), last: Room::Any };
        let by = match kind {
            FileType::Directory => None,
            _ => self.worker(caller, parent.ino, start),
        };
        let groups = InodeSearch { groups: self, read, by: by.as_ref() };
        let found = choose(&groups, goal, asks, self.allocation.busy_group())?;
        if let Some(group) = by.and_then(|by| self.escape(&by)) {
            parent.place.move_to(group);
        }
        let (group, index) = found.ok_or_else(|| Error::NoSpace)?;
        if kind == FileType::Directory {
            self.shared.summaries.set_directory(group.0);
        }
        let ino =
            self.shared.format.geometry().ino_at(group, index).ok_or_else(|| Error::NoSpace)?;
        Ok(InodeClaim::new(&self.shared, ino, group, index))
    }

    fn group_of_file(&self, parent: &Parent<'_>, caller: Option<Caller>) -> u32 {
        let place = parent.place.moved().or_else(|| self.own_group(parent.ino));
        let spreads = self.allocation.spreads();
        match place {
            Some(group) if spreads && parent.place.is_shared(caller) => self.near(group).0,
            Some(group) => group.0,
            None => self.region_of(caller).start,
        }
    }

    fn group_of_directory(&self, parent: &Parent<'_>, caller: Option<Caller>) -> u32 {
        let groups = self.shared.summaries.groups();
        let own = match (parent.place.moved(), parent.place.is_shared(caller)) {
            (None, false) => self.own_group(parent.ino),
            _ => None,
        };
        match own {
            _ if parent.is_top && own.is_some() => {
                self.empty_from(region::top(parent.before, groups), 0..groups)
            }
            Some(group) => region::below(group.0, parent.before, groups),
            // If every group of the region has a directory, the groups outside of the region are
            // tried too. (If there are few groups, regions overlap, so another caller may have made
            // the directories in this region.)
            None => self.empty_from(self.next_in_region(caller).0, 0..groups),
        }
    }

    fn own_group(&self, ino: Ino) -> Option<Group> {
        self.shared.format.geometry().inode_place(ino).map(|place| place.group)
    }

    /// Apply: allocates the inode of a claim, and uses the claim up.
    pub(crate) fn allocate_inode(
        &self,
        handle: &mut impl Changes,
        claim: InodeClaim<'_>,
        kind: FileType,
    ) {
        let (group, index) = claim.into_place();
        let directories = u32::from(kind == FileType::Directory);
        let dirtied = self.shared.state(group).allocate_inode(handle.tid(), index, directories);
        self.note(handle, group, dirtied);
        self.free_inodes.add(-1);
    }

    /// Apply: frees an inode that has no references left. The inode can be claimed again at once.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the inode is free already.
    ///
    /// # Panics
    /// If [`Bitmaps::load`] was not called before.
    pub(crate) fn free_inode(
        &self,
        handle: &mut impl Changes,
        ino: Ino,
        kind: FileType,
    ) -> Result<(), Error> {
        let place = self.shared.format.geometry().inode_place(ino);
        let Some(place) = place.filter(|_| ino >= self.shared.format.geometry().first_ino()) else {
            return Err(damage(Group(0), Cause::BeyondEnd { start: ino.0, len: 1 }));
        };
        let (group, index) = (place.group, place.index);
        let directories = u32::from(kind == FileType::Directory);
        let mut state = self.shared.state(group);
        let dirtied = state.free_inode(handle.tid(), index, directories);
        let open = state.ready().inodes.open;
        let Some(dirtied) = dirtied else {
            return Err(damage(group, Cause::AlreadyClear { bit: index }));
        };
        self.shared.summaries.set_open_inodes(group.0, open);
        drop(state);
        self.note(handle, group, dirtied);
        self.free_inodes.add(1);
        Ok(())
    }
}

/// The room that a group must have in addition to a free inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Any,
    /// Free blocks.
    ForFiles,
}

/// The [`Candidates`] of a search for inode numbers.
struct InodeSearch<'a> {
    groups: &'a Groups,
    read: &'a dyn BlockReader,
    by: Option<&'a Worker>,
}

impl Candidates for InodeSearch<'_> {
    type Ask = Room;
    /// The group, and the inode's index in it.
    type Claim = (Group, u32);
    type Error = Error;

    fn groups(&self) -> u32 {
        self.groups.shared.summaries.groups()
    }

    fn has_any(&self, group: u32) -> bool {
        self.groups.shared.summaries.has_inodes(group)
    }

    fn next(&self, _: &Room, from: u32) -> Option<u32> {
        self.groups.allocation.next_with_inodes(&self.groups.shared.summaries, from)
    }

    fn attempt(&self, group: u32, room: &Room, wait: Wait) -> Result<Attempt<(Group, u32)>, Error> {
        let summaries = &self.groups.shared.summaries;
        let has_room = *room == Room::Any || summaries.has_blocks(group);
        if !has_room || !self.has_any(group) {
            return Ok(Attempt::Lacking);
        }
        self.groups.count(Count::GroupsTried, 1);
        let visit =
            Visit { bitmaps: &self.groups.bitmaps, read: self.read, group, wait, by: self.by };
        Ok(self.groups.allocation.claim_inode(&visit)?.map(|index| (Group(group), index)))
    }
}
