//! Predicts which requests will be slow: those of a kind that was slow recently. After a cold read
//! or an fsync, others of the same kind usually follow. A fixed list of slow kinds would be wrong
//! for some devices: on a RAM device neither a cold read nor an fsync is slow.

use std::time::Duration;

/// The time above which a request counts as slow: more than waking another thread takes.
const SLOW: Duration = Duration::from_micros(100);
/// The number that a slow request adds to the score. A quick request subtracts 1. A single slow
/// request proves nothing, because the thread may have lost its processor while it served the
/// request.
const STEP: u8 = 16;
/// From this score on, requests of a kind are expected to be slow. Two slow requests in a row give
/// this score.
const EXPECTED: u8 = 2 * STEP;
const MOST: u8 = 2 * EXPECTED;
/// The number of scores; higher opcodes share the scores of lower ones.
const KINDS: usize = 64;

/// One thread's scores: one for each kind of request.
pub struct Pace {
    seen: [u8; KINDS],
}

impl Pace {
    /// Creates the scores of a new thread. These scores make the thread expect its first request of
    /// each kind to be slow. A thread is started only when requests are waiting, so slow requests
    /// are likely then.
    pub fn new() -> Pace {
        Pace { seen: [EXPECTED; KINDS] }
    }

    /// Returns whether a request of this kind is expected to be slow.
    pub fn is_slow(&self, opcode: u32) -> bool {
        self.seen[opcode as usize % KINDS] >= EXPECTED
    }

    /// Records the service time of a request of this kind.
    pub fn took(&mut self, opcode: u32, time: Duration) {
        let seen = &mut self.seen[opcode as usize % KINDS];
        *seen = if time > SLOW { (*seen + STEP).min(MOST) } else { seen.saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_slow_requests_of_a_kind_make_the_next_expected_to_be_slow() {
        let (read, quick, slow) = (15, Duration::ZERO, Duration::from_millis(1));
        let mut pace = Pace::new();
        assert!(pace.is_slow(read) && pace.is_slow(u32::MAX), "nothing is known yet");
        (0..64).for_each(|_| pace.took(read, quick));
        assert!(!pace.is_slow(read));
        pace.took(read, slow);
        assert!(!pace.is_slow(read), "one alone");
        (0..8).for_each(|_| pace.took(read, quick));
        pace.took(read, slow);
        pace.took(read, slow);
        assert!(pace.is_slow(read));
        (0..300).for_each(|_| pace.took(read, slow));
        (0..33).for_each(|_| pace.took(read, quick));
        assert!(!pace.is_slow(read));
        assert!(pace.is_slow(16), "other kinds have their own scores");
    }
}
