//! Which requests are expected to be slow: those of a kind that was slow lately. A cold read is followed
//! by others, and so is an fsync; on memory neither is slow.

use std::time::Duration;

/// A request that takes longer was slow: longer than it takes to wake another thread.
const SLOW: Duration = Duration::from_micros(100);
/// What a slow request adds; a quick one takes 1 away. One alone proves nothing: the thread may have
/// lost its processor meanwhile.
const STEP: u8 = 16;
/// From here on requests of a kind are expected to be slow: two in 16.
const EXPECTED: u8 = 2 * STEP;
const MOST: u8 = 2 * EXPECTED;
/// Opcodes told apart; more share a place.
const KINDS: usize = 64;

/// What one thread has seen of each kind of request.
pub struct Pace {
    seen: [u8; KINDS],
}

impl Pace {
    /// Of a thread that has served nothing: the first request of each kind is expected to be slow, since
    /// threads are started when requests are.
    pub fn new() -> Pace {
        Pace { seen: [EXPECTED; KINDS] }
    }

    /// Whether a request of this kind is expected to be slow.
    pub fn is_slow(&self, opcode: u32) -> bool {
        self.seen[opcode as usize % KINDS] >= EXPECTED
    }

    /// Whether a request of this kind was slow lately, though it need not be expected.
    pub fn is_suspect(&self, opcode: u32) -> bool {
        self.seen[opcode as usize % KINDS] > 0
    }

    /// A request of this kind took so long.
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
        assert!(!pace.is_slow(read) && !pace.is_suspect(read));
        pace.took(read, slow);
        assert!(pace.is_suspect(read));
        assert!(!pace.is_slow(read), "one alone");
        (0..8).for_each(|_| pace.took(read, quick));
        pace.took(read, slow);
        pace.took(read, slow);
        assert!(pace.is_slow(read));
        (0..300).for_each(|_| pace.took(read, slow));
        (0..33).for_each(|_| pace.took(read, quick));
        assert!(!pace.is_slow(read));
        assert!(pace.is_slow(16), "other kinds are for themselves");
    }
}
