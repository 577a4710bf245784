//! A run that is to end before its time.

use crate::error::{Error, Result};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};

/// Asked by one thread and seen by all: what is measured ends soon, and takes down what it made.
#[derive(Debug, Default)]
pub struct Stop {
    asked: AtomicBool,
}

impl Stop {
    /// Lets the run end.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// True once it was asked for.
    pub fn is_asked(&self) -> bool {
        // Nothing else is published by it, and to see it a moment later is soon enough.
        self.asked.load(Ordering::Relaxed)
    }

    /// For what would otherwise go on for long.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once it was asked for.
    pub fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
