//! A request to end a run early.

use crate::error::{Error, Result};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};

/// A flag that one thread sets and all threads check. Measuring then ends soon and removes its files.
#[derive(Debug, Default)]
pub struct Stop {
    asked: AtomicBool,
}

impl Stop {
    /// Asks the run to end.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// True once it was asked for.
    pub fn is_asked(&self) -> bool {
        // Relaxed: the flag publishes no other data, and a short delay does not matter.
        self.asked.load(Ordering::Relaxed)
    }

    /// Checks the flag in the middle of long work.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once it was asked for.
    pub fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
