//! Claims, allocation and freeing of inodes.

use super::choose::{Asks, Attempt, Candidates, Goal, Wait, choose};
use super::claim::InodeClaim;
use super::groups::{Changes, Groups};
use super::read::damage;
use super::region;
use super::visit::Visit;
use crate::error::Error;
use crate::policy::Placement;
use crate::volume::reader::BlockReader;
use lanefs_lanes::Lane;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::bitmap::Cause;
use lanefs_ondisk::{FileType, Group, Ino};

/// The preferred place of a file's inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Near {
    /// The group of the directory.
    Parent,
    /// The lane's home region, because several lanes create files in the directory.
    Lane,
}

impl Groups {
    /// Claims an inode number: for a file in the group that `at` selects; for a directory in a
    /// group of the lane's home region, the next one each time, so that operations in different
    /// directories use different groups. Sleeps.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; damage or an I/O error in a bitmap.
    pub(crate) fn claim_inode(
        &self,
        read: &dyn BlockReader,
        kind: FileType,
        parent: Ino,
        at: Near,
    ) -> Result<InodeClaim<'_>, Error> {
        let summaries = &self.shared.summaries;
        let groups = summaries.groups();
        let home = region::home(Lane::current(), groups);
        let place = self.shared.format.geometry.inode_place(parent);
        let near = place.map_or(home.start, |place| place.group.0);
        let spreads = self.placement == Placement::Lanes;
        let start = if kind == FileType::Directory && spreads {
            let placed = self.placed.mine().fetch_add(1, Ordering::Relaxed);
            home.start + placed % (home.end - home.start)
        } else if at == Near::Lane {
            self.near(Group(near)).0
        } else {
            near
        };
        let if_busy = if spreads { home.start } else { start + 1 };
        let goal = Goal { group: start, if_busy, if_lacking: start + 1 };
        // A directory needs room for the files that will be created in it.
        let first = if kind == FileType::Directory { Room::ForFiles } else { Room::Any };
        let asks = Asks { at_goal: first, passes: std::iter::once(first), last: Room::Any };
        let groups = InodeSearch { groups: self, read };
        let found = choose(&groups, goal, asks, self.policy.busy_group())?;
        let (group, index) = found.ok_or(Error::NoSpace)?;
        let ino = self.shared.format.geometry.ino_at(group, index).ok_or(Error::NoSpace)?;
        Ok(InodeClaim::new(&self.shared, ino, group, index))
    }

    /// Apply: allocates the inode of a claim, which is used up.
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

    /// Apply: frees an inode to which no reference is left; it can be claimed again at once.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it is free.
    ///
    /// # Panics
    /// If [`Bitmaps::load`] was not called before.
    pub(crate) fn free_inode(
        &self,
        handle: &mut impl Changes,
        ino: Ino,
        kind: FileType,
    ) -> Result<(), Error> {
        let place = self.shared.format.geometry.inode_place(ino);
        let Some(place) = place.filter(|_| ino >= self.shared.format.geometry.first_ino()) else {
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

/// What a group must have in addition to a free inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Any,
    /// Free blocks.
    ForFiles,
}

/// The groups, searched for inode numbers.
struct InodeSearch<'a> {
    groups: &'a Groups,
    read: &'a dyn BlockReader,
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
        self.groups.shared.summaries.open_inodes(group) > 0
    }

    fn next(&self, _: &Room, from: u32) -> Option<u32> {
        self.groups.policy.next_with_inodes(&self.groups.shared.summaries, from)
    }

    fn attempt(&self, group: u32, room: &Room, wait: Wait) -> Result<Attempt<(Group, u32)>, Error> {
        let summaries = &self.groups.shared.summaries;
        let has_room = *room == Room::Any || summaries.open_blocks(group) > 0;
        if !has_room || !self.has_any(group) {
            return Ok(Attempt::Lacking);
        }
        let visit = Visit { bitmaps: &self.groups.bitmaps, read: self.read, group, wait };
        Ok(self.groups.policy.claim_inode(&visit)?.map(|index| (Group(group), index)))
    }
}
