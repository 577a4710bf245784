//! Slows long work down on an array that is in use.

use lanefs_raid5::OpenArray;
use std::time::{Duration, Instant};

/// While others use the array, the work takes one part in this many of the time.
const SHARE: u32 = 10;
/// The longest rest after one row. A scrub then still ends, however slow the members are.
const LONGEST: Duration = Duration::from_secs(2);
/// How often a rest checks whether the work is to end.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Makes the scrub of a mounted array rest after each row.
pub struct Pace {
    /// The most bytes of each member to read in a second.
    limit: Option<u64>,
    began: Instant,
    /// Reads and writes of data by all threads before the row.
    accesses: u64,
}

impl Pace {
    /// Creates the pace. The work begins now.
    pub fn new(array: &OpenArray, limit: Option<u64>) -> Pace {
        Pace { limit, began: Instant::now(), accesses: accesses(array) }
    }

    /// Rests after a row. If others have read or written meanwhile, the rest is so long that most
    /// of the time is theirs. Ends the rest early once `ends` returns true.
    pub fn rest(&mut self, array: &OpenArray, mut ends: impl FnMut() -> bool) {
        let (shape, took) = (array.array().geometry(), self.began.elapsed());
        // The work itself has read one chunk of each member with data.
        let own = (array.array().status().members.len() as u64).saturating_sub(1);
        let others = accesses(array).wrapping_sub(self.accesses) > own;
        let aside = if others { took * (SHARE - 1) } else { Duration::ZERO };
        let limited = self.limit.map_or(Duration::ZERO, |limit| {
            Duration::from_secs_f64(shape.chunk() as f64 / limit.max(1) as f64).saturating_sub(took)
        });
        let until = Instant::now() + aside.min(LONGEST).max(limited.min(LONGEST * 30));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || ends() {
                break;
            }
            std::thread::sleep(left.min(LOOK_AGAIN));
        }
        (self.began, self.accesses) = (Instant::now(), accesses(array));
    }
}

fn accesses(array: &OpenArray) -> u64 {
    let counts = array.array().statistics();
    counts.data_reads.wrapping_add(counts.data_writes)
}
