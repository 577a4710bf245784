//! Finds out whether several callers work in one place at the same time.

use super::caller::Caller;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use lanefs_ondisk::Ino;

/// The number of returns (see [`Meetings`]) after which callers count as working at the same time.
const MANY: u32 = if cfg!(shuttle) { 1 } else { 8 };

/// Counts how often a caller *returns* to a place after another caller worked there for another
/// owner. Callers that come one after another, like the commands of a script, never return.
///
/// If several threads update the counts at once, updates may be lost, which only delays the result.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    /// The last owner in the upper half, and the index of the last caller, plus one, in the lower
    /// half.
    last: AtomicU64,
    /// Bit `n` is set when the caller with number `n` works in this place.
    seen: AtomicU64,
    returns: AtomicU32,
}

impl Meetings {
    /// Notes that `caller` works in this place for `owner`. Returns whether several callers work
    /// here at the same time.
    pub(crate) fn note(&self, caller: Caller, owner: Ino) -> bool {
        let new = u64::from(owner.0) << 32 | u64::from(caller.index() + 1);
        let last = self.last.load(Ordering::Relaxed);
        let returns = self.returns.load(Ordering::Relaxed);
        if last == new {
            return returns >= MANY;
        }
        self.last.store(new, Ordering::Relaxed);
        let is_other = (last ^ new) as u32 != 0 && last >> 32 != new >> 32;
        let (seen, bit) = (self.seen.load(Ordering::Relaxed), 1 << (caller.index() % 64));
        if seen & bit == 0 {
            // If all bits were set, every new caller would seem to have been here before. So when
            // the bit of this caller would fill the set, all other bits are cleared instead.
            self.seen
                .store(if seen | bit == u64::MAX { bit } else { seen | bit }, Ordering::Relaxed);
        } else if last != 0 && is_other && returns < MANY {
            self.returns.store(returns + 1, Ordering::Relaxed);
            return returns + 1 >= MANY;
        }
        returns >= MANY
    }

    /// Returns whether several callers work here at the same time.
    pub(crate) fn are_many(&self) -> bool {
        self.returns.load(Ordering::Relaxed) >= MANY
    }

    /// Resets the count of returns to zero, because one of the callers leaves.
    pub(crate) fn forget(&self) {
        self.returns.store(0, Ordering::Relaxed);
    }
}
