//! Tracks whether the array is recorded as active, that is, being written.
//!
//! Four states are distinguished, so that writers need no lock although the array may become clean
//! at any time:
//!
//! - *on*: active;
//! - *resting*: recorded as active, but without a write since the last check;
//! - *off*: clean;
//! - *unsure*: the array was about to be recorded as clean, but a member could not be written.
//!
//! A writer takes its unit of the row budget, issues a memory fence, and reads the state. If the
//! state is *resting*, the writer exchanges it for *on*; if it is *off* or *unsure*, the writer
//! first records the array as active. The thread that makes the array clean first sets *resting*.
//! Later, when all units are released and everything is flushed, that thread exchanges *resting*
//! for *off*. If a writer set *on* in between, this exchange fails. A writer that comes after the
//! exchange finds the state *off*.

use lanefs_lanes::Padded;
use lanefs_lanes::sync::atomic::{AtomicU8, Ordering};

const OFF: u8 = 0;
const ON: u8 = 1;
const RESTING: u8 = 2;
const UNSURE: u8 = 3;

/// The result of [`Activity::rest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The state is *off*.
    Off,
    /// The state was *on*, and is now *resting*: there was a write since the last call.
    Began,
    /// The state was *resting* or *unsure* before the call, so there was no write since the last
    /// call, or since the start.
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

    /// Returns whether a write may continue; sets the state *resting* back to *on*.
    pub(crate) fn is_on(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            ON => true,
            RESTING => self.exchange(RESTING, ON) || self.0.load(Ordering::Acquire) == ON,
            _ => false,
        }
    }

    /// Sets the state to on. The caller has recorded the array as active.
    pub(crate) fn turn_on(&self) {
        self.0.store(ON, Ordering::Release);
    }

    /// Changes the state *on* to *resting*.
    pub(crate) fn rest(&self) -> Rest {
        if self.exchange(ON, RESTING) {
            return Rest::Began;
        }
        if self.0.load(Ordering::Acquire) == OFF { Rest::Off } else { Rest::Lasted }
    }

    /// Sets the state to off if there was no write since [`Activity::rest`], or if the state is
    /// unsure. Returns whether the state was set.
    pub(crate) fn clean(&self) -> bool {
        self.exchange(RESTING, OFF) || self.exchange(UNSURE, OFF)
    }

    /// Sets the state to unsure: the array could not be recorded as clean on all members. The next
    /// write must record the array as active. Until then, `Array::settle` and `Array::stop` try
    /// again to record the array as clean.
    ///
    /// # Locking
    /// The caller has held the lock of the array's state since [`Activity::clean`], so no writer
    /// can have set the state to on since then.
    pub(crate) fn unclean(&self) {
        self.0.store(UNSURE, Ordering::Release);
    }

    fn exchange(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}
