//! Claims free blocks for a moment, so that they can be discarded.

use super::claim::Claim;
use super::groups::Groups;
use super::runs;
use super::space::{Draw, Privilege};
use crate::error::Error;
use crate::volume::reader::BlockReader;
use lanefs_ondisk::Group;
use std::ops::Range;

/// The largest number of clusters that one claim takes. The claim is limited because other threads
/// cannot use its clusters meanwhile.
const MOST: u32 = 8192;

/// A run of free blocks, and a claim on the start of the run that is as long as possible.
pub(crate) struct FreeRun {
    /// `None` if other threads have drawn all remaining blocks, or have claimed the start of the
    /// run meanwhile.
    pub(crate) claim: Option<Claim>,
    /// The bit at which the next search starts: the end of the run, but at most `MOST` bits after
    /// its start.
    pub(crate) next: u32,
    /// The first bit after the run.
    pub(crate) end: u32,
}

impl Groups {
    /// Claims the first free run of at least `least` clusters within the bits `range` of a group;
    /// `None` if there is none. May sleep.
    ///
    /// # Errors
    /// Damage or an I/O error in a bitmap.
    pub(crate) fn claim_free_run(
        &self,
        read: &dyn BlockReader,
        group: Group,
        range: Range<u32>,
        least: u32,
    ) -> Result<Option<FreeRun>, Error> {
        let _hold = self.bitmaps.load(read, group)?;
        let shared = &self.shared;
        let Some(found) = self.free_run(group, range, least) else { return Ok(None) };
        let want = (found.end - found.start).min(MOST);
        let next = found.start + want;
        let draw = Draw { want, ahead: 0, privilege: Privilege::Root };
        let Some(mut drawn) = shared.space.draw(&draw, None) else {
            return Ok(Some(FreeRun { claim: None, next, end: found.end }));
        };
        let mut state = shared.state(group);
        let blocks = &mut state.ready().blocks;
        // Other threads may have claimed some of the blocks meanwhile.
        let len = runs::clear_at(&blocks.taken, found.start, drawn.blocks());
        if len > 0 {
            blocks.take(found.start..found.start + len);
            let open = blocks.open;
            shared.summaries.set_open_blocks(group.0, open);
        }
        drop(state);
        drawn.use_up(len);
        let start = shared.block(group, found.start);
        let len = len << shared.format.geometry().cluster_bits();
        let claim = (len > 0).then(|| Claim::new(self.shared.clone(), start, len));
        Ok(Some(FreeRun { claim, next, end: found.end }))
    }

    fn free_run(&self, group: Group, range: Range<u32>, least: u32) -> Option<Range<u32>> {
        let mut state = self.shared.state(group);
        let taken = &state.ready().blocks.taken;
        let mut at = range.start;
        while let Some(start) = taken.next_clear(at..range.end) {
            let end = taken.next_set(start..range.end).unwrap_or(range.end);
            if end - start >= least {
                return Some(start..end);
            }
            at = end;
        }
        None
    }
}
