//! The state of one group, protected by the group's guard. This module takes no locks.

use crate::alloc::choose::Ask;
use crate::alloc::regions::Meetings;
use crate::alloc::runs;
use crate::alloc::runs::{Found, Rows};
use lanefs_journal::{Tid, Tracked};
use lanefs_ondisk::Corruption;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use std::ops::Range;
use std::sync::Arc;

/// A group's state, protected by its guard.
#[derive(Debug)]
pub(crate) struct GroupState {
    /// The descriptor as a commit would write it now; the bitmaps' checksums are those of the last
    /// capture.
    pub desc: GroupDesc,
    pub maps: Maps,
}

/// The bitmaps of a group.
#[derive(Debug)]
pub(crate) enum Maps {
    /// The bitmaps were not read yet.
    Unread,
    /// The bitmaps or the descriptor are damaged; the value describes the damage. Nothing is
    /// allocated in this group.
    Damaged(Box<Corruption>),
    /// The bitmaps are in memory. They stay there while they are held or needed (see `resident`).
    Ready(Box<Ready>),
}

/// A bitmap as a commit would write it (`allocated`), and the bits that cannot be claimed
/// (`taken`): allocated bits, claimed bits, and bits whose freeing is not durable yet.
#[derive(Debug)]
pub(crate) struct Pair {
    pub allocated: Bitmap,
    pub taken: Bitmap,
    /// Number of bits that are clear in `taken`.
    pub open: u32,
}

/// A group whose bitmaps are in memory.
#[derive(Debug)]
pub(crate) struct Ready {
    pub blocks: Pair,
    pub inodes: Pair,
    /// Blocks that were allocated in the transaction `born_in`.
    born: Option<Bitmap>,
    born_in: Option<Tid>,
    /// Every inode below this index is taken.
    next_inode: u32,
    /// The bit at which the last search without a goal stopped.
    next_block: u32,
    tracked: Tracked<RawImage>,
    /// The bitmaps that the running transaction changed.
    changed: Changed,
    /// Numbers of free blocks and inodes as of the last capture.
    captured: (u32, u32),
    /// The transaction of the last capture.
    imaged: Option<Tid>,
    /// Set when the group is used; eviction clears it.
    used: bool,
    pub meetings: Meetings,
}

/// Tells which bitmaps of a group a change concerns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub blocks: bool,
    pub inodes: bool,
}

/// A group as of one transaction.
#[derive(Debug)]
pub(crate) struct RawImage {
    pub desc: GroupDesc,
    pub blocks: Option<Bitmap>,
    pub inodes: Option<Bitmap>,
}

/// The parts of a group that a commit writes: the descriptor, and the bitmaps that changed, as
/// blocks.
#[derive(Debug, Clone)]
pub(crate) struct GroupImage {
    /// The descriptor, not yet encoded into its block of descriptors.
    pub desc: GroupDesc,
    /// The contents of the block bitmap's block; `desc` has the block's number.
    pub block_bitmap: Option<Arc<[u8]>>,
    /// The contents of the inode bitmap's block; `desc` has the block's number.
    pub inode_bitmap: Option<Arc<[u8]>>,
}

/// What a change to a group adds to the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dirtied {
    /// True if this is the transaction's first change to the group.
    pub newly: bool,
    /// Number of bitmaps that this change added to the transaction.
    pub bitmaps: u32,
    /// The bitmaps that were changed.
    pub changed: Changed,
}

/// The result of freeing a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    /// Blocks that the freeing transaction itself had allocated. They can be claimed again at once.
    pub at_once: Vec<Range<u32>>,
    /// Blocks that can be claimed again once the freeing transaction is durable.
    pub later: Vec<Range<u32>>,
    /// The first bit that was free already, if there was one. Such a bit means that the image is
    /// damaged.
    pub wrong: Option<u32>,
}

impl Pair {
    fn new(allocated: Bitmap) -> Pair {
        let (taken, open) = (allocated.clone(), allocated.count_clear());
        Pair { allocated, taken, open }
    }

    /// Marks bits as taken. They must be claimable.
    pub(crate) fn take(&mut self, range: Range<u32>) {
        debug_assert_eq!(self.taken.next_set(range.clone()), None, "{range:?} is taken");
        self.open -= range.end - range.start;
        self.taken.fill(range);
    }

    /// Makes bits claimable again. They must be taken, but not allocated.
    pub(crate) fn open(&mut self, range: Range<u32>) {
        debug_assert_eq!(self.allocated.next_set(range.clone()), None, "{range:?} is allocated");
        self.open += range.end - range.start;
        clear(&mut self.taken, range);
    }
}

impl RawImage {
    fn of(desc: &GroupDesc, blocks: &Pair, inodes: &Pair, changed: Changed) -> RawImage {
        RawImage {
            desc: *desc,
            blocks: changed.blocks.then(|| blocks.allocated.clone()),
            inodes: changed.inodes.then(|| inodes.allocated.clone()),
        }
    }
}

impl GroupState {
    /// Creates the state of a group whose bitmaps are not read yet.
    pub(crate) fn new(desc: GroupDesc) -> GroupState {
        GroupState { desc, maps: Maps::Unread }
    }

    /// Stores the bitmaps; inodes below `reserved` cannot be claimed.
    pub(crate) fn make_ready(&mut self, blocks: Bitmap, inodes: Bitmap, reserved: u32) {
        let mut inodes = Pair::new(inodes);
        inodes.taken.fill(0..reserved);
        inodes.open = inodes.taken.count_clear();
        self.maps = Maps::Ready(Box::new(Ready {
            blocks: Pair::new(blocks),
            inodes,
            born: None,
            born_in: None,
            next_inode: 0,
            next_block: 0,
            tracked: Tracked::new(),
            changed: Changed::default(),
            captured: (self.desc.free_blocks, self.desc.free_inodes),
            imaged: None,
            used: true,
            meetings: Meetings::default(),
        }));
    }

    /// Returns whether the bitmaps can be dropped and read again unchanged: no transaction waits
    /// for an image of them, the last image is durable, and no bit is claimed or waits to be
    /// released. The first call after the group was used always returns false.
    pub(crate) fn may_go(&mut self, durable: Tid) -> bool {
        let Maps::Ready(ready) = &mut self.maps else { return false };
        let used = std::mem::take(&mut ready.used);
        let found_again = ready.tracked.is_clean() && ready.imaged.is_none_or(|tid| tid <= durable);
        let open = (ready.blocks.open, ready.inodes.open);
        !used && found_again && open == (self.desc.free_blocks, self.desc.free_inodes)
    }

    /// Returns the bitmaps, which were loaded during Prepare.
    ///
    /// # Panics
    /// If the bitmaps are not in memory, because an operation applied a change that it had not
    /// prepared.
    pub(crate) fn ready(&mut self) -> &mut Ready {
        self.parts().1
    }

    fn parts(&mut self) -> (&mut GroupDesc, &mut Ready) {
        match &mut self.maps {
            Maps::Ready(ready) => (&mut self.desc, ready),
            _ => panic!("a group is changed only after its bitmaps were loaded"),
        }
    }

    /// Allocates claimed blocks.
    pub(crate) fn allocate(&mut self, tid: Tid, range: Range<u32>) -> Dirtied {
        let (desc, ready) = self.parts();
        let dirtied = ready.touch(desc, tid, Changed { blocks: true, inodes: false });
        debug_assert_eq!(ready.blocks.allocated.next_set(range.clone()), None);
        desc.free_blocks -= range.end - range.start;
        desc.flags -= GroupFlags::BLOCK_UNINIT;
        let len = ready.blocks.allocated.bits();
        ready.born.get_or_insert_with(|| Bitmap::new(len)).fill(range.clone());
        ready.blocks.allocated.fill(range);
        dirtied
    }

    /// Treats blocks that were allocated in `tid` as if an earlier transaction had allocated them.
    pub(crate) fn forget_birth(&mut self, tid: Tid, range: Range<u32>) {
        let Maps::Ready(ready) = &mut self.maps else { return };
        if ready.born_in != Some(tid) {
            return;
        }
        let Some(born) = &mut ready.born else { return };
        for bit in range.filter(|bit| born.get(*bit)).collect::<Vec<_>>() {
            clear(born, bit..bit + 1);
        }
    }

    /// Frees blocks. The blocks in [`Freed::later`] stay taken until `tid` is durable; then the
    /// caller makes them claimable.
    pub(crate) fn free(&mut self, tid: Tid, range: Range<u32>) -> (Dirtied, Freed) {
        let (desc, ready) = self.parts();
        let dirtied = ready.touch(desc, tid, Changed { blocks: true, inodes: false });
        let mut freed = Freed::default();
        let mut at = range.start;
        while let Some(bit) = ready.blocks.allocated.next_set(at..range.end) {
            if bit > at {
                freed.wrong.get_or_insert(at);
            }
            at = bit;
            let mut end = ready.blocks.allocated.next_clear(at..range.end).unwrap_or(range.end);
            let born = ready.born.as_ref().is_some_and(|born| born.get(at));
            if let Some(bits) = &ready.born {
                let other = if born { bits.next_clear(at..end) } else { bits.next_set(at..end) };
                end = other.unwrap_or(end);
            }
            desc.free_blocks += end - at;
            clear(&mut ready.blocks.allocated, at..end);
            if born {
                ready.blocks.open(at..end);
                freed.at_once.push(at..end);
            } else {
                freed.later.push(at..end);
            }
            at = end;
        }
        if at < range.end {
            freed.wrong.get_or_insert(at);
        }
        (dirtied, freed)
    }

    /// Adds free blocks at the end, so that the group has `bits` blocks. Returns how many blocks
    /// were added.
    pub(crate) fn extend(&mut self, tid: Tid, bits: u32) -> (Dirtied, u32) {
        let (desc, ready) = self.parts();
        let dirtied = ready.touch(desc, tid, Changed { blocks: true, inodes: false });
        let added = bits.saturating_sub(ready.blocks.allocated.bits());
        desc.free_blocks += added;
        desc.flags -= GroupFlags::BLOCK_UNINIT;
        let Pair { allocated, taken, open } = &mut ready.blocks;
        *open += added;
        for bitmap in [Some(allocated), Some(taken), ready.born.as_mut()].into_iter().flatten() {
            *bitmap = longer(bitmap, bits);
        }
        (dirtied, added)
    }

    /// Allocates a claimed inode.
    pub(crate) fn allocate_inode(&mut self, tid: Tid, index: u32, directories: u32) -> Dirtied {
        let (desc, ready) = self.parts();
        // The allocation that initialises the inode bitmap also initialises the block bitmap, as in
        // the kernel.
        let first = desc.flags.contains(GroupFlags::BLOCK_UNINIT);
        let dirtied = ready.touch(desc, tid, Changed { blocks: first, inodes: true });
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            // Until now no inode of the table was in use, even if the descriptor's count of unused
            // inodes says otherwise.
            desc.itable_unused = ready.inodes.allocated.bits();
        }
        desc.flags -= GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        desc.free_inodes -= 1;
        desc.used_dirs += directories;
        let behind = ready.inodes.allocated.bits() - index - 1;
        desc.itable_unused = desc.itable_unused.min(behind);
        ready.inodes.allocated.fill(index..index + 1);
        dirtied
    }

    /// Frees an inode, which can then be claimed again at once. Returns `None` if it was free
    /// already.
    pub(crate) fn free_inode(&mut self, tid: Tid, index: u32, directories: u32) -> Option<Dirtied> {
        let (desc, ready) = self.parts();
        if !ready.inodes.allocated.get(index) {
            return None;
        }
        let dirtied = ready.touch(desc, tid, Changed { blocks: false, inodes: true });
        desc.free_inodes += 1;
        desc.used_dirs = desc.used_dirs.saturating_sub(directories);
        clear(&mut ready.inodes.allocated, index..index + 1);
        ready.open_inode(index);
        Some(dirtied)
    }

    /// Captures the group as of `tid`. Also returns the changes in its numbers of free blocks and
    /// free inodes since the last capture.
    pub(crate) fn take_image(&mut self, tid: Tid) -> Option<(RawImage, i64, i64)> {
        let Maps::Ready(ready) = &mut self.maps else { return None };
        let Ready { tracked, blocks, inodes, changed, captured, imaged, .. } = &mut **ready;
        let image = tracked.take(tid, || RawImage::of(&self.desc, blocks, inodes, *changed))?;
        *imaged = Some(tid);
        let before = std::mem::replace(captured, (image.desc.free_blocks, image.desc.free_inodes));
        let change = |now: u32, before: u32| i64::from(now) - i64::from(before);
        let (blocks, inodes) =
            (change(image.desc.free_blocks, before.0), change(image.desc.free_inodes, before.1));
        Some((image, blocks, inodes))
    }
}

impl Ready {
    /// Must be called before `tid` changes the bitmaps that `what` selects.
    fn touch(&mut self, desc: &GroupDesc, tid: Tid, what: Changed) -> Dirtied {
        self.used = true;
        let Ready { tracked, blocks, inodes, changed, .. } = self;
        let newly = tracked.touch(tid, || RawImage::of(desc, blocks, inodes, *changed));
        if newly {
            *changed = Changed::default();
        }
        if self.born_in != Some(tid) {
            (self.born, self.born_in) = (None, Some(tid));
        }
        let bitmaps =
            u32::from(what.blocks && !changed.blocks) + u32::from(what.inodes && !changed.inodes);
        changed.blocks |= what.blocks;
        changed.inodes |= what.inodes;
        Dirtied { newly, bitmaps, changed: what }
    }

    /// Claims a run that fits `ask`, or returns the length of the longest run. The caller knows
    /// from earlier searches that no run is longer than `bound`, so a search that is certain to
    /// fail is skipped. A run that is at least as long as a RAID row is claimed at the start of a
    /// row, if enough blocks are free there. A run that starts at `ask.from` need not start at the
    /// start of a row.
    pub(crate) fn claim_run(
        &mut self,
        ask: &Ask,
        bound: u32,
        rows: Rows,
    ) -> Result<Range<u32>, u32> {
        let taken = &self.blocks.taken;
        let anywhere = if ask.from == 0 { self.next_block } else { ask.from };
        let on_rows = || runs::find_on_rows(taken, anywhere, ask.want, rows);
        let may_fit = rows.suit(ask.want) && bound >= ask.want;
        let here = runs::clear_at(taken, ask.from, ask.want);
        let run = if ask.from == 0
            && may_fit
            && let Some(start) = on_rows()
        {
            start..start + ask.want
        } else if here > 0 && here >= ask.least_at_goal {
            ask.from..ask.from + here
        } else if bound < ask.least {
            return Err(bound);
        } else if may_fit && let Some(start) = on_rows() {
            start..start + ask.want
        } else {
            match runs::find(taken, anywhere, ask.want) {
                Found::Fit(start) => start..start + ask.want,
                Found::Longest { start, len } if len > 0 && len >= ask.least => start..start + len,
                Found::Longest { len, .. } => return Err(len),
            }
        };
        (self.next_block, self.used) = (run.end, true);
        self.blocks.take(run.clone());
        Ok(run)
    }

    /// Returns the first inode at `from` or later that is not taken.
    pub(crate) fn find_inode(&mut self, from: u32) -> Option<u32> {
        let bits = self.inodes.taken.bits();
        let found = self.inodes.taken.next_clear(from.max(self.next_inode)..bits);
        if from <= self.next_inode {
            self.next_inode = found.unwrap_or(bits);
        }
        found
    }

    /// Takes an inode; false if it is taken already.
    pub(crate) fn take_inode(&mut self, index: u32) -> bool {
        let free = !self.inodes.taken.get(index);
        if free {
            self.inodes.take(index..index + 1);
        }
        free
    }

    /// Makes an inode claimable again.
    pub(crate) fn open_inode(&mut self, index: u32) {
        self.inodes.open(index..index + 1);
        self.next_inode = self.next_inode.min(index);
    }
}

/// Returns a copy of the bitmap, extended with clear bits to `bits` bits.
fn longer(bitmap: &Bitmap, bits: u32) -> Bitmap {
    let mut longer = Bitmap::new(bits.max(bitmap.bits()));
    let mut at = 0;
    while let Some(start) = bitmap.next_set(at..bitmap.bits()) {
        let end = bitmap.next_clear(start..bitmap.bits()).unwrap_or(bitmap.bits());
        longer.fill(start..end);
        at = end;
    }
    longer
}

/// Clears bits that the caller knows to be set.
fn clear(bitmap: &mut Bitmap, range: Range<u32>) {
    let cleared = bitmap.clear(range.start, range.end - range.start);
    assert_eq!(cleared, Ok(()), "bits that were set are cleared once");
}
