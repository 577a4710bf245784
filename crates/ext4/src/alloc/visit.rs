//! The visit of a search to one group.

use super::choose::{Attempt, Wait};
use super::group::{Maps, Ready};
use super::load::Bitmaps;
use crate::error::Error;
use crate::volume::reader::BlockReader;
use lanefs_ondisk::Group;

/// A group that a search tries.
pub(super) struct Visit<'a> {
    pub bitmaps: &'a Bitmaps,
    pub read: &'a dyn BlockReader,
    pub group: u32,
    pub wait: Wait,
}

impl Visit<'_> {
    /// Calls `claim` under the group's guard, with the bitmaps, which are read if necessary. The
    /// group is [`Attempt::Lacking`] if it is damaged or `claim` returns `None`.
    ///
    /// # Errors
    /// Damage, or an I/O error, found by reading the bitmaps.
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
            let Some(mut state) = guard else { return Ok(Attempt::Busy) };
            match &mut state.maps {
                Maps::Ready(ready) => {
                    return Ok(claim(ready).map_or(Attempt::Lacking, Attempt::Taken));
                }
                Maps::Damaged(_) => return Ok(Attempt::Lacking),
                Maps::Unread => drop(state),
            }
            _hold = Some(self.bitmaps.load(self.read, Group(self.group))?);
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
