//! Preallocation windows: blocks claimed ahead for files that grow, and the inodes that have one.

use crate::alloc::Claim;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::{Lane, LaneArc, Mutex, PerLane, Rank};
use lanefs_ondisk::Ino;
use std::collections::BTreeSet;

/// Blocks claimed ahead: `claim` begins at the block that file block `next` would use.
pub(crate) struct Window {
    next: u32,
    claim: Claim,
    _listed: Listed,
}

impl Window {
    /// For inode `ino`, which is listed in `windows` from now on.
    pub(crate) fn new(
        windows: &LaneArc<Windows>,
        ino: Ino,
        next: u32,
        claim: Claim,
    ) -> Box<Window> {
        Box::new(Window { next, claim, _listed: Listed::new(windows, ino) })
    }
}

/// Where an inode keeps its window.
pub(crate) struct WindowSlot {
    /// In a box: few inodes have one.
    window: Mutex<Option<Box<Window>>>,
    /// Whether there is one. Closing a file looks here first, and mostly takes no lock.
    is_there: AtomicBool,
}

impl WindowSlot {
    pub(crate) fn new() -> WindowSlot {
        WindowSlot { window: Mutex::new(Rank::Window, None), is_there: AtomicBool::new(false) }
    }

    /// Claims up to `len` blocks of the window, if it continues at `at`; otherwise gives it back.
    /// All under its lock: blocks are in the window, claimed or free, for all who take it.
    pub(crate) fn claim(&self, at: u32, len: u32) -> Option<Claim> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        let mut slot = self.window.lock();
        if let Some(window) = &mut *slot
            && window.next == at
            && window.claim.len() > len
        {
            window.next += len;
            return Some(window.claim.split_front(len));
        }
        self.is_there.store(false, Ordering::Relaxed);
        slot.take().filter(|window| window.next == at).map(|window| window.claim)
    }

    /// Gives the window back.
    pub(crate) fn give_back(&self) {
        // One that is put here at this moment is its owner's, which puts it under the operation lock.
        if self.is_there.load(Ordering::Acquire) {
            let mut slot = self.window.lock();
            *slot = None;
            // Only now: a thread that sees it puts the next window on the list, from which the old one
            // is gone.
            self.is_there.store(false, Ordering::Release);
        }
    }

    /// Puts a new window where there is none; the operation lock is held exclusively.
    pub(crate) fn put(&self, new: Box<Window>) {
        let mut window = self.window.lock();
        debug_assert!(window.is_none(), "the new one would be listed no more");
        *window = Some(new);
        self.is_there.store(true, Ordering::Release);
    }
}

/// The inodes that have a window, on the lists of the lanes that claimed it: when space is short,
/// no other inode is looked at.
pub(crate) struct Windows {
    /// [rank LaneList]
    lists: PerLane<Mutex<BTreeSet<Ino>>>,
}

impl Windows {
    pub(crate) fn new() -> LaneArc<Windows> {
        let lists = PerLane::new(|_| Mutex::new(Rank::LaneList, BTreeSet::new()));
        LaneArc::new(Windows { lists })
    }

    /// All of them.
    pub(crate) fn listed(&self) -> Vec<Ino> {
        let mut all = Vec::new();
        for list in self.lists.iter() {
            all.extend(list.lock().iter());
        }
        all
    }
}

/// A window's place on a list, for as long as there is the window.
struct Listed {
    windows: LaneArc<Windows>,
    lane: Lane,
    ino: Ino,
}

impl Listed {
    fn new(windows: &LaneArc<Windows>, ino: Ino) -> Listed {
        let lane = Lane::current();
        windows.lists.of(lane).lock().insert(ino);
        Listed { windows: windows.clone(), lane, ino }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.windows.lists.of(self.lane).lock().remove(&self.ino);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
