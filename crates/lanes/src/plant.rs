//! Planted bugs: what a model-checking test leaves out to show that it would be missed.
//!
//! Outside of `loom` tests and of `shuttle` every function here is the plain thing, inlined. Under
//! shuttle the crates above leave steps out too, to see that their scenarios notice.

use crate::sync::atomic::{self, Ordering};
use crate::world;

/// A step of a protocol that a test can leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Between entering a lane's slot and looking at the state.
    JoinFence,
    /// Between leaving a lane's slot and looking at the state.
    LeaveFence,
    /// Between closing the state and looking at the slots.
    CloseFence,
    /// Telling the closer about an undone entry.
    UndoIsALeave,
    /// Between making a cell's sequence odd and storing its words.
    CellWriteFence,
    /// Between loading a cell's words and looking at its sequence again.
    CellReadFence,
    /// Between a reader's slot and its second look at the bias.
    SharedFence,
    /// Between taking the bias away and looking at the slots.
    RevokeFence,
    /// Waking the writer that marked a slot.
    ReleaseWakes,
    /// Giving the bias back when trying found a reader.
    BiasGivenBack,
    /// Between writing the owner's pin and looking at the epoch again.
    PinFence,
    /// Between counting a guest's pin and looking at the epoch again.
    GuestFence,
    /// Writing the owner's pin by an update, which passes on the end of the one before.
    PinUpdates,
    /// Looking at the owner's pin before the next epoch begins.
    OwnerCounts,
    /// Looking at the guests' pins before the next epoch begins.
    GuestsCount,
    /// Between unlinking a value and reading the epoch it is retired in.
    RetireFence,
    /// Between reading the epoch and looking at the pins of the one before.
    AdvanceFence,
    /// Waiting for the second epoch after the retirement.
    SecondEpoch,
    /// The hold that a fold itself has while it counts.
    FoldHolds,
    /// The Release with which a map's node becomes reachable.
    NodeRelease,
    /// Counting a change of a word that is read twice.
    WordVersion,
    /// The Release with which a map's bucket is marked as moved.
    MarkRelease,
    /// Between joining a wait queue and trying once more.
    WaitFence,
    /// Between freeing a resource and looking for waiters.
    WakeFence,
    /// Passing on a wake-up that was not needed.
    PassOn,
    /// Looking at every queue for somebody who can have a unit of a budget.
    AllQueues,
    /// Giving a unit of a budget back before looking for waiters.
    UnitFirst,
    /// Between putting a number into a word and looking at the bit above.
    InsertFence,
    /// Between taking the bit above away and looking at the word again.
    RemoveFence,
    /// Taking the mark of who was woken away before sleeping again.
    #[cfg(not(shuttle))]
    MarkTakenAway,
    /// Waking who reserved a lock, and nobody else.
    #[cfg(not(shuttle))]
    ReservedIsWoken,
    /// Looking for sleepers that came while a lock's word was marked for one that there was not.
    #[cfg(not(shuttle))]
    LookAgainForSleepers,
}

/// A fence, unless the test left `step` out.
#[inline(always)]
pub(crate) fn fence(step: Step, ordering: Ordering) {
    if !left_out(step) {
        atomic::fence(ordering);
    }
}

/// A sequentially consistent fence that directly follows an atomic read-modify-write of the same
/// thread, unless the test left `step` out.
#[inline(always)]
pub(crate) fn fence_after_update(step: Step) {
    if !left_out(step) {
        world::fence_after_update();
    }
}

/// The ordering of an access, unless the test left `step` out.
#[inline(always)]
pub(crate) fn ordering(step: Step, ordering: Ordering) -> Ordering {
    if left_out(step) { Ordering::Relaxed } else { ordering }
}

/// Whether the running test left `step` out.
#[cfg(not(any(all(test, loom), shuttle)))]
#[inline(always)]
pub(crate) fn left_out(_step: Step) -> bool {
    false
}

#[cfg(any(all(test, loom), shuttle))]
pub(crate) use planted::left_out;
#[cfg(all(test, loom))]
pub(crate) use planted::{check, finds_missing};

#[cfg(any(all(test, loom), shuttle))]
mod planted {
    use super::Step;
    use crate::sync::unscheduled::LazyLock;
    #[cfg(all(test, loom))]
    use crate::sync::unscheduled::atomic::{AtomicU64, Ordering};
    #[cfg(all(test, loom))]
    use std::process::Command;

    const VARIABLE: &str = "LANES_LEAVE_OUT";
    static LEFT_OUT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(VARIABLE).ok());

    pub(crate) fn left_out(step: Step) -> bool {
        LEFT_OUT.as_ref().is_some_and(|left_out| *left_out == format!("{step:?}"))
    }

    /// Explores all schedules of `model` with so many preemptions at most, and says how many there were;
    /// where a step is left out it numbers them, for [`finds_missing`] to tell the one that failed.
    #[cfg(all(test, loom))]
    pub(crate) fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let schedules = std::sync::Arc::new(AtomicU64::new(0));
        let counted = schedules.clone();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(move || {
            let n = counted.fetch_add(1, Ordering::Relaxed) + 1;
            if LEFT_OUT.is_some() {
                println!("schedule {n}");
            }
            model();
        });
        println!("{} schedules", schedules.load(Ordering::Relaxed));
    }

    /// Runs `test` (its full name) without `step` and asserts that it fails, saying one of
    /// `verdicts`. In a process of its own, since loom aborts when unwinding meets a second panic.
    #[cfg(all(test, loom))]
    pub(crate) fn finds_missing(step: Step, test: &str, verdicts: &[&str]) {
        let output = Command::new(std::env::current_exe().expect("a path"))
            .args([test, "--exact", "--nocapture"])
            .env(VARIABLE, format!("{step:?}"))
            .env("RUST_BACKTRACE", "0")
            .output()
            .expect("the test program runs");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("running 1 test"), "there is no test {test}");
        assert!(!output.status.success(), "{test} passes without {step:?}");
        if let Some(last) = said.lines().rfind(|line| line.starts_with("schedule ")) {
            println!("without {step:?}: found at {last}");
        }
        assert!(verdicts.iter().any(|v| said.contains(v)), "{test} without {step:?} said:\n{said}");
    }
}
