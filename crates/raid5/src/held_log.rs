//! Before a log moves to another member, holds back new headers until all entries of the log are
//! finished.

use crate::parity_log::{LogLocation, ParityLog, Turn};
use lanefs_device::DeviceError;

impl ParityLog {
    /// Holds back all headers until the guard is dropped.
    pub(crate) fn hold(&self) -> HeldLog<'_> {
        self.state.lock().held = true;
        HeldLog(self)
    }
}

/// A log that is held back: no header is written to it.
pub(crate) struct HeldLog<'l>(&'l ParityLog);

/// What must still be done so that a held log has no unfinished entry.
pub(crate) enum Left {
    /// Nothing: no entry is unfinished, and none can become unfinished.
    Nothing,
    /// A flush of the array: the writes of all entries have ended, but are not durable yet.
    Unflushed,
    /// Unknown: the state changed, and the caller must check again.
    Changed,
}

impl HeldLog<'_> {
    /// Returns what must still be done so that no entry is unfinished. If only other threads can do
    /// it, the call waits for a change of the log's state and returns [`Left::Changed`].
    ///
    /// # Errors
    /// The errors of `check`. The log's lock is held from `check` to the start of the wait. So if
    /// the result of `check` changes in between, the wake-up that reports the change is not lost.
    pub(crate) fn left(
        &self,
        check: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<Left, DeviceError> {
        let mut state = self.0.state.lock();
        check()?;
        if state.turn != Turn::Taken && state.unfinished.is_empty() {
            return Ok(Left::Nothing);
        }
        if state.turn != Turn::Taken && state.under_way() == 0 {
            return Ok(Left::Unflushed);
        }
        self.0.idle.wait(&mut state);
        Ok(Left::Changed)
    }

    /// Moves the log to the slot's new member, on which waiting writes are then logged.
    pub(crate) fn move_to(&self, location: Option<LogLocation>) {
        let mut state = self.0.state.lock();
        let at_rest = state.unfinished.is_empty() && state.turn != Turn::Taken;
        debug_assert!(at_rest, "a header is to be written, or an entry unfinished");
        state.location = location;
        state.at = 0;
    }
}

impl Drop for HeldLog<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.held = false;
        let wakes = state.all_look();
        drop(state);
        wakes.wake();
    }
}
