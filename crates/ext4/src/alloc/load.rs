//! Reads the bitmaps of groups, and keeps them while operations need them.

use crate::alloc::group::{GroupState, Maps};
use crate::alloc::presence::GroupHold;
use crate::alloc::read::damage;
use crate::alloc::resident::Residents;
use crate::alloc::shared::Shared;
use crate::volume::reader::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::{LaneArc, Mutex, Rank};
use lanefs_ondisk::bitmap::Cause;
use lanefs_ondisk::{Block, Corruption, Group};
use lanefs_plan::Error;

/// The number of locks for reading bitmaps. Several groups share a lock, so their bitmaps are not
/// read at the same time.
const LOADERS: usize = 64;

/// The bitmaps of all groups.
#[derive(Debug)]
pub(crate) struct Bitmaps {
    pub(super) shared: LaneArc<Shared>,
    /// Serialises readers of a group's bitmaps. [rank Load]
    loaders: Box<[Mutex<()>]>,
    pub(super) residents: Residents,
}

impl Bitmaps {
    /// Creates the set, with no bitmap in memory. As long as all bitmaps in memory together take
    /// more than `bytes`, evictable bitmaps are dropped.
    pub(super) fn new(shared: LaneArc<Shared>, bytes: u64) -> Bitmaps {
        let residents = Residents::new(shared.summaries.groups(), bytes, shared.bitmap_bytes());
        let loaders = (0..LOADERS).map(|_| Mutex::new(Rank::Load, ())).collect();
        Bitmaps { shared, loaders, residents }
    }

    /// Loads the bitmaps of `group` to prepare a change, and keeps them in memory while the
    /// returned hold lives. May sleep.
    ///
    /// # Errors
    /// Damage, or an I/O error.
    pub(crate) fn load(
        &self,
        read: &dyn BlockReader,
        group: Group,
    ) -> Result<GroupHold<'_>, Error> {
        if let Some(hold) = self.hold_ready(group) {
            return Ok(hold);
        }
        let hold = self.read_bitmaps(read, group)?;
        self.residents.make_room(&self.shared, read);
        Ok(hold)
    }

    /// Prepare: loads and holds the bitmaps of each group that contains a part of a run of blocks.
    pub(crate) fn load_run<'g>(
        &'g self,
        read: &dyn BlockReader,
        start: Block,
        len: u32,
        holds: &mut Vec<GroupHold<'g>>,
    ) -> Result<(), Error> {
        let geometry = self.shared.format.geometry();
        let (mut at, end) = (start.0, start.0 + u64::from(len));
        while at < end {
            let outside = Error::OutsideFileSystem { block: Block(at) };
            let Some((group, _)) = geometry.group_of(Block(at)) else { return Err(outside) };
            let Some(last) = geometry.group_last_block(group) else { return Err(outside) };
            holds.push(self.load(read, group)?);
            at = last.0 + 1;
        }
        Ok(())
    }

    /// Prepare: loads and holds the bitmaps of a block's group.
    pub(crate) fn load_group_of(
        &self,
        read: &dyn BlockReader,
        block: Block,
    ) -> Result<GroupHold<'_>, Error> {
        match self.shared.format.geometry().group_of(block) {
            Some((group, _)) => self.load(read, group),
            None => Err(Error::OutsideFileSystem { block }),
        }
    }

    /// Holds a group if its bitmaps are in memory.
    fn hold_ready(&self, group: Group) -> Option<GroupHold<'_>> {
        GroupHold::of(&self.shared.cells.get(group.0 as usize)?.presence)
    }

    /// Reads the bitmaps of `group`, unless another thread has read them meanwhile. The bitmaps are
    /// held before the guard is released, so that eviction does not drop them right after the read.
    fn read_bitmaps(&self, read: &dyn BlockReader, group: Group) -> Result<GroupHold<'_>, Error> {
        let Some(cell) = self.shared.cells.get(group.0 as usize) else {
            return Err(damage(group, Cause::NoSuchGroup));
        };
        let is_there = |state: &GroupState| match &state.maps {
            Maps::Ready(_) => Some(Ok(cell.presence.hold_resident())),
            Maps::Damaged(cause) => Some(Err(Error::Corruption(cause.as_ref().clone()))),
            Maps::Unread => None,
        };
        if let Some(known) = is_there(&cell.state.lock()) {
            return known;
        }
        let _loader = self.loaders[group.0 as usize % LOADERS].lock();
        let desc = {
            let state = cell.state.lock();
            if let Some(known) = is_there(&state) {
                return known;
            }
            state.desc
        };
        let format = &self.shared.format;
        let bitmaps = format
            .read_blocks(read, group, &desc)
            .and_then(|blocks| Ok((blocks, format.read_inodes(read, group, &desc)?)));
        match bitmaps {
            Ok((blocks, inodes)) => {
                let geometry = format.geometry();
                // Reserved inodes are in group 0.
                let reserved = if group.0 == 0 { geometry.first_ino().0 - 1 } else { 0 };
                let mut state = cell.state.lock();
                state.make_ready(blocks, inodes, reserved);
                self.shared.set_hints(group, &mut state);
                self.residents.note_arrival(&self.shared, group.0);
                Ok(cell.presence.hold_resident())
            }
            Err(error) => {
                if let Error::Corruption(cause) = &error {
                    self.give_up(group, cause.clone());
                    read.damaged(&error);
                }
                Err(error)
            }
        }
    }

    /// Marks a group as damaged: nothing is allocated in it any more.
    fn give_up(&self, group: Group, cause: Corruption) {
        let mut state = self.shared.state(group);
        state.maps = Maps::Damaged(Box::new(cause));
        let summaries = &self.shared.summaries;
        summaries.set_open_blocks(group.0, 0);
        summaries.set_open_inodes(group.0, 0);
        summaries.set_longest(group.0, 0);
        let lost = state.desc.free_blocks;
        drop(state);
        self.shared.space.lose(lost);
    }

    /// Committer: notes that `tid` is durable and that the blocks freed in it are released.
    pub(crate) fn committed(&self, tid: Tid) {
        self.residents.committed(&self.shared, tid);
    }

    /// Returns how many bytes the bitmaps in memory take.
    pub(crate) fn bytes(&self) -> u64 {
        self.residents.count() as u64 * self.shared.bitmap_bytes()
    }
}
