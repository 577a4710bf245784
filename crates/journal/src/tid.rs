//! Transaction numbers.

use lanefs_ondisk::jbd2::Sequence;
use std::fmt;

/// The 64-bit number of a transaction, never 0. Each transaction has a higher number than the one
/// before. The low 32 bits are the transaction's number in the log, which wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u64);

impl Tid {
    /// Returns the first transaction of a journal whose log continues at `sequence`.
    pub(crate) fn first(sequence: Sequence) -> Tid {
        // For any sequence, neither this number nor the previous one is 0.
        Tid((1 << 32) | u64::from(sequence.0))
    }

    /// Returns the number used in the log.
    pub fn sequence(self) -> Sequence {
        Sequence(self.0 as u32)
    }

    /// Returns the transaction after this one.
    pub fn next(self) -> Tid {
        Tid(self.0 + 1)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sequence().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_in_the_log_wraps_and_the_tid_does_not() {
        let last = Tid::first(Sequence(u32::MAX));
        assert_eq!(last.next().sequence(), Sequence(0));
        assert!(last.next() > last);
        assert_ne!(Tid::first(Sequence(0)), Tid(0));
    }
}
