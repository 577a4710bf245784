//! Claims free blocks for a moment, so that they can be discarded.

use crate::alloc::claim::Claim;
use crate::alloc::groups::Groups;
use crate::alloc::runs;
use crate::alloc::space::{Draw, Drawn, Privilege};
use crate::volume::reader::BlockReader;
use lanefs_ondisk::Group;
use lanefs_plan::Error;
use std::ops::Range;

/// The largest number of clusters that one claim takes. The number is limited because other threads
/// cannot use these clusters until the claim ends.
const MOST: u32 = 8192;

/// A run of free blocks, and a claim on its first clusters: as many as possible, up to `MOST`.
///
/// The claim is under way until this value is dropped. So a writer that finds no free block waits
/// for the blocks to come back, instead of being refused.
pub(crate) struct FreeRun<'g> {
    /// `None` if claims of other threads take up all free blocks of the file system, or if another
    /// thread has claimed the start of the run since the run was found.
    pub(crate) claim: Option<Claim>,
    /// This field is declared after `claim`, so that the blocks come back before the claim ends.
    _drawn: Option<Drawn<'g>>,
    /// The bit at which the next search starts: the end of the run, but at most `MOST` bits after
    /// its start.
    pub(crate) next: u32,
    /// The first bit after the run.
    pub(crate) end: u32,
}

impl Groups {
    /// Finds the first free run of at least `least` clusters within the bits `range` of a group,
    /// and claims its start. Returns `None` if there is no such run. May sleep.
    ///
    /// # Errors
    /// Damage or an I/O error in a bitmap.
    pub(crate) fn claim_free_run(
        &self,
        read: &dyn BlockReader,
        group: Group,
        range: Range<u32>,
        least: u32,
    ) -> Result<Option<FreeRun<'_>>, Error> {
        let _hold = self.bitmaps.load(read, group)?;
        let shared = &self.shared;
        let Some(found) = self.free_run(group, range, least) else { return Ok(None) };
        let want = (found.end - found.start).min(MOST);
        let next = found.start + want;
        let draw = Draw { want, ahead: 0, privilege: Privilege::Root };
        let Some(mut drawn) = shared.space.draw(&draw, None) else {
            return Ok(Some(FreeRun { claim: None, _drawn: None, next, end: found.end }));
        };
        let mut state = shared.state(group);
        let blocks = &mut state.ready().blocks;
        // Other threads may have claimed some blocks of the run since `free_run` returned it.
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
        Ok(Some(FreeRun { claim, _drawn: Some(drawn), next, end: found.end }))
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
