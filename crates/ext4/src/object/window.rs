//! Keeps preallocation windows (blocks claimed in advance for growing files) and lists of the
//! inodes that have a window.

use crate::alloc::Claim;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::{Lane, LaneArc, Mutex, PerLane, Rank};
use lanefs_ondisk::Ino;
use std::collections::BTreeSet;

/// Holds blocks claimed in advance: `claim` starts with the block for file block `next`.
pub(crate) struct Window {
    next: u32,
    claim: Claim,
    _listed: Listed,
}

impl Window {
    /// Creates a window for inode `ino`, and lists the inode in `windows`.
    fn new(windows: &LaneArc<Windows>, ino: Ino, next: u32, claim: Claim) -> Box<Window> {
        Box::new(Window { next, claim, _listed: Listed::new(windows, ino) })
    }
}

/// Holds an inode's window, if it has one.
pub(crate) struct WindowSlot {
    /// The window, boxed because few inodes have one.
    window: Mutex<Option<Box<Window>>>,
    /// Is set if there is a window. Closing a file reads this first, and usually takes no lock.
    is_there: AtomicBool,
}

impl WindowSlot {
    pub(crate) fn new() -> WindowSlot {
        WindowSlot { window: Mutex::new(Rank::Window, None), is_there: AtomicBool::new(false) }
    }

    /// Claims up to `len` blocks of the window if the window continues at `at`; otherwise gives the
    /// window back. All of this happens under the window's lock, so a thread that takes the lock
    /// finds each block either in the window, or claimed, or free.
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
        // A window that another thread stores at this moment is not given back, because that thread
        // still writes to the file.
        if self.is_there.load(Ordering::Acquire) {
            let mut slot = self.window.lock();
            *slot = None;
            // The flag is cleared last, because another thread that sees the cleared flag relies on
            // the window having been given back.
            self.is_there.store(false, Ordering::Release);
        }
    }

    /// Stores a new window for inode `ino`, and gives back the window of a concurrent write, if
    /// there is one.
    pub(crate) fn put(&self, windows: &LaneArc<Windows>, ino: Ino, next: u32, claim: Claim) {
        let mut window = self.window.lock();
        // The old window is dropped before the new one is created. A lane lists an inode only once,
        // so dropping the old window later would take the inode off the list.
        *window = None;
        *window = Some(Window::new(windows, ino, next, claim));
        self.is_there.store(true, Ordering::Release);
    }
}

/// Lists the inodes that have a window, by the lane that claimed the window. When space is short,
/// only these inodes are visited.
pub(crate) struct Windows {
    /// [rank LaneList]
    lists: PerLane<Mutex<BTreeSet<Ino>>>,
}

impl Windows {
    pub(crate) fn new() -> LaneArc<Windows> {
        let lists = PerLane::new(|_| Mutex::new(Rank::LaneList, BTreeSet::new()));
        LaneArc::new(Windows { lists })
    }

    /// Returns all listed inodes.
    pub(crate) fn listed(&self) -> Vec<Ino> {
        let mut all = Vec::new();
        for list in self.lists.iter() {
            all.extend(list.lock().iter());
        }
        all
    }
}

/// Keeps the inode of a window on a lane's list for as long as the window exists.
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
