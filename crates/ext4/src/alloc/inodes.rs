//! Claims, allocation and freeing of inodes.

use super::choose::Wait;
use super::claim::InodeClaim;
use super::group::Maps;
use super::groups::{Changes, Groups};
use super::read::damage;
use super::region;
use crate::error::Error;
use crate::policy::{BusyGroup, GroupSearch, InodeClaiming, Placement};
use crate::volume::reader::BlockReader;
use lanefs_lanes::Lane;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::bitmap::Cause;
use lanefs_ondisk::{FileType, Group, Ino};

/// How many groups are tried before waiting for guards.
const TRIES: usize = 24;

/// The result of trying a group.
enum Attempt {
    Taken(u32),
    Busy,
    Lacking,
}

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
        let spreads = self.policies.placement == Placement::Lanes;
        let start = if kind == FileType::Directory && spreads {
            let placed = self.placed.mine().fetch_add(1, Ordering::Relaxed);
            home.start + placed % (home.end - home.start)
        } else if at == Near::Lane {
            self.near(Group(near)).0
        } else {
            near
        };
        // A directory needs room for the files that will be created in it.
        let roomy = |group: u32| kind != FileType::Directory || summaries.open_blocks(group) > 0;
        let wait = match self.policies.busy_group {
            BusyGroup::Skip => Wait::Skip,
            BusyGroup::Wait => Wait::Wait,
        };
        let mut from = start + 1;
        if summaries.open_inodes(start) > 0 && roomy(start) {
            match self.attempt_inode(read, start, wait)? {
                Attempt::Taken(index) => return self.inode_claim(start, index),
                Attempt::Busy if spreads => from = home.start,
                Attempt::Busy | Attempt::Lacking => {}
            }
        }
        let from = from % groups;
        let next = |from| match self.policies.group_search {
            GroupSearch::Index => summaries.next_with_inodes(from),
            GroupSearch::Scan => summaries.scan_for_inodes(from),
        };
        let mut tries = 0;
        for part in [from..groups, 0..from] {
            let mut at = part.start;
            while let Some(group) = next(at)
                && group < part.end
                && tries < TRIES
            {
                if roomy(group)
                    && let Attempt::Taken(index) = self.attempt_inode(read, group, wait)?
                {
                    return self.inode_claim(group, index);
                }
                at = group + 1;
                tries += 1;
            }
        }
        // The last resort: accepts groups without room for files and waits for guards; first the
        // groups in the index, then all groups, since the index is only a hint.
        for part in [from..groups, 0..from] {
            let mut at = part.start;
            while let Some(group) = next(at)
                && group < part.end
            {
                if let Attempt::Taken(index) = self.attempt_inode(read, group, Wait::Wait)? {
                    return self.inode_claim(group, index);
                }
                at = group + 1;
            }
        }
        for group in (from..groups).chain(0..from) {
            if summaries.open_inodes(group) > 0
                && let Attempt::Taken(index) = self.attempt_inode(read, group, Wait::Wait)?
            {
                return self.inode_claim(group, index);
            }
        }
        Err(Error::NoSpace)
    }

    fn inode_claim(&self, group: u32, index: u32) -> Result<InodeClaim<'_>, Error> {
        let group = Group(group);
        let ino = self.shared.format.geometry.ino_at(group, index).ok_or(Error::NoSpace)?;
        Ok(InodeClaim::new(&self.shared, ino, group, index))
    }

    fn attempt_inode(
        &self,
        read: &dyn BlockReader,
        group: u32,
        wait: Wait,
    ) -> Result<Attempt, Error> {
        let shared = &self.shared;
        let cell = &shared.cells[group as usize];
        // Where the last search found an inode, if another thread took it first.
        let (mut from, mut found) = (0, None);
        let mut _hold = None;
        loop {
            let guard = match wait {
                Wait::Wait => Some(cell.state.lock()),
                Wait::Skip => cell.state.try_lock(),
            };
            let Some(mut state) = guard else { return Ok(Attempt::Busy) };
            let ready = match &mut state.maps {
                Maps::Ready(ready) => ready,
                Maps::Damaged(_) => return Ok(Attempt::Lacking),
                Maps::Unread => {
                    drop(state);
                    _hold = Some(self.load(read, Group(group))?);
                    continue;
                }
            };
            let index = match (found, self.policies.inode_claim) {
                (Some(index), _) => index,
                (None, policy) => {
                    let Some(index) = ready.find_inode(from) else {
                        return Ok(Attempt::Lacking);
                    };
                    if policy == InodeClaiming::TwoStep {
                        found = Some(index);
                        continue;
                    }
                    index
                }
            };
            if ready.take_inode(index) {
                shared.summaries.set_open_inodes(group, ready.inodes.open);
                return Ok(Attempt::Taken(index));
            }
            (from, found) = (index + 1, None);
        }
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
    /// If [`Groups::load`] was not called before.
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
