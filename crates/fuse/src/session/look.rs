//! How long a reader looks for the next request before it sleeps.
//!
//! A client usually sends its next request a few microseconds after a reply. If the reader sleeps
//! until then, its wake-up, often on another processor, takes longer than serving a request. So a
//! single reader *looks*: for a while it checks repeatedly for a request. It yields the processor
//! after each check, since the client possibly runs on the same processor. The reader stops looking
//! if requests do not come so soon, or if other programs need the processor.

use std::time::{Duration, Instant};

/// The longest time for which a reader looks for a request.
const PATIENCE: Duration = Duration::from_micros(30);
/// The maximum number of successful looks that are remembered.
const MOST: u8 = 16;
/// A look without a request cancels this many successful looks.
const STEP: u8 = 4;
/// A reader that has stopped looking serves this number of requests and then looks once. If it
/// finds no request, the number doubles, up to [`SELDOM`], because on a busy machine a look takes
/// processor time from other programs.
const AGAIN: u16 = 32;
const SELDOM: u16 = 4096;

/// Decides whether a look is worth its cost.
pub struct Look {
    hope: u8,
    skipped: u16,
    again: u16,
}

impl Look {
    /// Creates the state of a reader that has not looked yet.
    pub fn new() -> Look {
        Look { hope: STEP, skipped: 0, again: AGAIN }
    }

    /// If a look is worth its cost, looks for a request by calling `is_there` repeatedly.
    pub fn look(&mut self, is_there: impl Fn() -> bool) {
        let is_trial = self.hope == 0;
        if is_trial && self.skipped < self.again {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        let (begun, mut looked) = (Instant::now(), 0);
        while !is_there() {
            let passed = begun.elapsed();
            if passed > PATIENCE {
                // If the time ran out after one or two checks, other programs got the processor.
                let cost = if looked > 1 { STEP } else { MOST };
                self.hope = self.hope.saturating_sub(cost);
                self.again = if is_trial { (2 * self.again).min(SELDOM) } else { AGAIN };
                return;
            }
            looked += 1;
            std::thread::yield_now();
        }
        self.hope = (self.hope + 1).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_reader_that_finds_no_request_stops_polling_and_tries_again_later() {
        let mut look = Look::new();
        (0..100).for_each(|_| look.look(|| true));
        let looks = Cell::new(0);
        let in_vain = |look: &mut Look| {
            let before = looks.get();
            look.look(|| {
                looks.set(looks.get() + 1);
                false
            });
            looks.get() > before
        };
        let first: Vec<bool> = (0..MOST).map(|_| in_vain(&mut look)).collect();
        assert!(first[0] && !first[usize::from(MOST / STEP)], "{first:?}");
        let later = |look: &mut Look, n| (0..n).filter(|_| in_vain(look)).count();
        assert_eq!(later(&mut look, AGAIN), 1);
        assert_eq!(later(&mut look, 2 * AGAIN + 1), 1, "more seldom");
        (0..usize::from(4 * AGAIN) + 1).for_each(|_| look.look(|| true));
        assert!(in_vain(&mut look), "and always while requests come soon");
    }
}
