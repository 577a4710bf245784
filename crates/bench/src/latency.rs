//! A latency histogram of fixed size, so that recording costs only a few instructions.

use std::time::Duration;

/// The number of buckets for each power of two. It keeps the relative error of a latency below one
/// sixteenth.
const PARTS: usize = 16;
const BITS: u32 = PARTS.trailing_zeros();

/// A histogram of how long a sample of the operations took, in nanoseconds.
#[derive(Debug, Clone)]
pub struct Latencies {
    counts: Box<[u32]>,
    total: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: vec![0; PARTS * 64].into(), total: 0 }
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < PARTS as u64 {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - BITS;
    // The shifted value is at least `PARTS`, so the index is above those of the buckets for times
    // below `PARTS`.
    shift as usize * PARTS + (nanos >> shift) as usize
}

/// Returns the largest time that falls into a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let shift = (bucket / PARTS - 1) as u32;
    let mantissa = (bucket % PARTS + PARTS) as u64;
    ((mantissa + 1) << shift).wrapping_sub(1)
}

impl Latencies {
    /// Records the time of one operation.
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let at = bucket(nanos).min(self.counts.len() - 1);
        self.counts[at] = self.counts[at].saturating_add(1);
        self.total += 1;
    }

    /// Adds the samples of another thread or slice.
    pub fn add(&mut self, other: &Latencies) {
        for (sum, more) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*more);
        }
        self.total += other.total;
    }

    /// Returns the percentile at `share` (0 to 1): that share of the sampled operations took at
    /// most this time.
    pub fn percentile(&self, share: f64) -> Option<Duration> {
        let wanted = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return Some(Duration::from_nanos(upper(at)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_sixteenth() {
        let mut all = Latencies::default();
        assert_eq!(all.percentile(0.5), None);
        let mut half = Latencies::default();
        for n in 1..=100_000u64 {
            let part = if n.is_multiple_of(2) { &mut all } else { &mut half };
            part.record(Duration::from_nanos(n));
        }
        all.add(&half);
        for share in [0.001, 0.5, 0.9, 0.99, 1.0] {
            let exact = 100_000.0 * share;
            let estimate = all.percentile(share).unwrap().as_nanos() as f64;
            assert!(estimate >= exact * 0.999 && estimate <= exact * 1.07, "{share}: {estimate}");
        }
        all.record(Duration::MAX);
        assert!(all.percentile(1.0).unwrap() > Duration::from_secs(3600));
    }
}
