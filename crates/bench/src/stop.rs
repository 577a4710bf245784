//! A request to end a run early.

use crate::error::{Error, Result};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};

/// A flag that one thread sets and all threads check. The run then stops soon and removes its
/// files.
#[derive(Debug, Default)]
pub struct Stop {
    asked: AtomicBool,
}

impl Stop {
    /// Asks the run to end.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether the run was asked to end.
    pub fn is_asked(&self) -> bool {
        // Relaxed suffices, because the flag publishes no other data and a short delay does not
        // matter.
        self.asked.load(Ordering::Relaxed)
    }

    /// Checks whether the run was asked to end. Called repeatedly during long work.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the run was asked to end.
    pub fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
