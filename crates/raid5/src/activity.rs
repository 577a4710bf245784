//! Whether the metadata says that the array is being written.
//!
//! Four states, so that going clean needs no lock of writers: *on*, *resting* (the metadata still
//! says active, but nobody wrote since it was looked at), *off*, and *unsure*: the metadata was to
//! become clean and could not be written everywhere. A writer takes its unit of the row budget,
//! fences, and looks: resting goes back to on by one exchange, off and unsure are recorded as
//! active first. Who goes clean makes it resting, and later, with all units at home and everything
//! flushed, tries resting to off: a writer who came in between makes that fail, or finds off.

use lanefs_lanes::Padded;
use lanefs_lanes::sync::atomic::{AtomicU8, Ordering};

const OFF: u8 = 0;
const ON: u8 = 1;
const RESTING: u8 = 2;
const UNSURE: u8 = 3;

/// What [`Activity::rest`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It is off.
    Off,
    /// Somebody wrote since the last call.
    Began,
    /// Nobody did.
    Lasted,
}

#[derive(Debug)]
pub(crate) struct Activity(Padded<AtomicU8>);

impl Activity {
    pub(crate) fn new(active: bool) -> Activity {
        Activity(Padded(AtomicU8::new(if active { RESTING } else { OFF })))
    }

    pub(crate) fn is_active(&self) -> bool {
        self.0.load(Ordering::Relaxed) != OFF
    }

    /// Whether a write may go on; makes a resting array on again.
    pub(crate) fn is_on(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            ON => true,
            RESTING => self.exchange(RESTING, ON) || self.0.load(Ordering::Acquire) == ON,
            _ => false,
        }
    }

    /// The metadata says active now.
    pub(crate) fn turn_on(&self) {
        self.0.store(ON, Ordering::Release);
    }

    /// Makes it resting.
    pub(crate) fn rest(&self) -> Rest {
        if self.exchange(ON, RESTING) {
            return Rest::Began;
        }
        if self.0.load(Ordering::Acquire) == OFF { Rest::Off } else { Rest::Lasted }
    }

    /// Off, if nobody wrote since [`Activity::rest`].
    pub(crate) fn clean(&self) -> bool {
        self.exchange(RESTING, OFF) || self.exchange(UNSURE, OFF)
    }

    /// The metadata could not be made clean: some of it may be, so the next write has to say that it
    /// is not, and the next rest tries again.
    ///
    /// # Locking
    /// The caller holds the array's state since [`Activity::clean`], so nobody turned it on.
    pub(crate) fn unclean(&self) {
        self.0.store(UNSURE, Ordering::Release);
    }

    fn exchange(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}
