//! A search's visit to one group.

use crate::alloc::caller::Caller;
use crate::alloc::choose::{Attempt, Wait};
use crate::alloc::group::{Maps, Ready};
use crate::alloc::load::Bitmaps;
use crate::alloc::tally::Count;
use crate::volume::reader::BlockReader;
use lanefs_ondisk::{Group, Ino};
use lanefs_plan::Error;
use std::cell::Cell;

/// A group that a search for an inode or for blocks tries.
pub struct Visit<'a> {
    pub(super) bitmaps: &'a Bitmaps,
    pub(super) read: &'a dyn BlockReader,
    pub(super) group: u32,
    pub(super) wait: Wait,
    /// The caller that claims, if the group is to note it (`meetings.rs`).
    pub(super) by: Option<&'a Worker>,
}

/// A caller that claims blocks or inodes for an inode. `met` is set if several callers claim in one
/// group at the same time (`meetings.rs`).
pub(super) struct Worker {
    pub caller: Caller,
    /// The directory of a new inode, or the file that gets blocks.
    pub owner: Ino,
    /// The group in which the search begins. Only this group notes the caller.
    pub group: u32,
    pub met: Cell<bool>,
}

impl Visit<'_> {
    /// Reads the group's bitmaps if necessary, and calls `claim` with them, under the group's
    /// guard. Returns [`Attempt::Lacking`] if the group is damaged or `claim` returns `None`.
    ///
    /// # Errors
    /// Damage to the bitmaps, or an I/O error when they are read.
    pub(super) fn enter<T>(
        &self,
        mut claim: impl FnMut(&mut Ready) -> Option<T>,
    ) -> Result<Attempt<T>, Error> {
        let cell = &self.bitmaps.shared.cells[self.group as usize];
        let mut _hold = None;
        loop {
            let guard = match self.wait {
                Wait::Wait => Some(cell.state.lock()),
                Wait::Skip => cell.state.try_lock(),
            };
            let Some(mut state) = guard else {
                self.bitmaps.shared.tally.add(Count::GroupsBusy, 1);
                return Ok(Attempt::Busy);
            };
            match &mut state.maps {
                Maps::Ready(ready) => {
                    self.note(ready);
                    return Ok(claim(ready).map_or(Attempt::Lacking, Attempt::Taken));
                }
                Maps::Damaged(_) => return Ok(Attempt::Lacking),
                Maps::Unread => drop(state),
            }
            _hold = Some(self.bitmaps.load(self.read, Group(self.group))?);
        }
    }

    /// Notes the caller in the group's `meetings`, if the caller's search began in this group.
    fn note(&self, ready: &Ready) {
        if let Some(by) = self.by.filter(|by| by.group == self.group)
            && ready.meetings.note(by.caller, by.owner)
        {
            by.met.set(true);
        }
    }

    /// Finds and claims a free inode under one hold of the group's guard (S1 in `docs/seeds.md`).
    pub(super) fn claim_inode(&self) -> Result<Attempt<u32>, Error> {
        self.enter(|ready| {
            let index = ready.find_inode(0)?;
            self.take(ready, index)
        })
    }

    /// Finds a free inode with the index `from` or a higher one. Does not claim it.
    ///
    /// # Errors
    /// Damage to the group's bitmaps, or an I/O error when they are read.
    pub fn find_inode(&self, from: u32) -> Result<Attempt<u32>, Error> {
        self.enter(|ready| ready.find_inode(from))
    }

    /// Claims the inode with this index. [`Attempt::Lacking`] if it is taken.
    ///
    /// # Errors
    /// Damage to the group's bitmaps, or an I/O error when they are read.
    pub fn take_inode(&self, index: u32) -> Result<Attempt<u32>, Error> {
        self.enter(|ready| self.take(ready, index))
    }

    fn take(&self, ready: &mut Ready, index: u32) -> Option<u32> {
        ready.take_inode(index).then(|| {
            self.bitmaps.shared.summaries.set_open_inodes(self.group, ready.inodes.open);
            index
        })
    }
}
