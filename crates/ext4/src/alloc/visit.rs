//! A search's visit to one group.

use super::caller::Caller;
use super::choose::{Attempt, Wait};
use super::group::{Maps, Ready};
use super::load::Bitmaps;
use super::tally::Count;
use crate::error::Error;
use crate::volume::reader::BlockReader;
use lanefs_ondisk::{Group, Ino};
use std::cell::Cell;

/// A group that a search tries.
pub(super) struct Visit<'a> {
    pub bitmaps: &'a Bitmaps,
    pub read: &'a dyn BlockReader,
    pub group: u32,
    pub wait: Wait,
    /// The caller that claims, if the group is to note it (`meetings.rs`).
    pub by: Option<&'a Worker>,
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

    /// Takes an inode under the guard; false if it is taken already.
    pub(super) fn take_inode(&self, ready: &mut Ready, index: u32) -> bool {
        let free = ready.take_inode(index);
        if free {
            self.bitmaps.shared.summaries.set_open_inodes(self.group, ready.inodes.open);
        }
        free
    }
}
