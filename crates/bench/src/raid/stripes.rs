//! Measures how fast rows are written in memory, and which member operations small writes cause.

use crate::error::Result;
use lanefs_device::{Device, RamDevice};
use lanefs_lanes::xor;
use lanefs_raid5::{Consistency, Policies, Statistics};
use std::time::{Duration, Instant};

/// The write rate that memory and XOR would permit. It is measured by a loop over all rows. The
/// loop computes the parity of a row and then copies the row, so that the copy finds the row in the
/// processor's caches.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Seconds to copy one row's data and parity into devices in memory.
    pub copy: f64,
    /// Seconds to compute one row's parity.
    pub xor: f64,
    /// Bytes of data in a row.
    pub row: u64,
}

impl Bound {
    /// Returns the throughput, in bytes of data per second, that would be possible if there were no
    /// work besides computing parity and copying.
    pub fn rate(&self) -> f64 {
        self.row as f64 / (self.copy + self.xor)
    }
}

/// The result of writing full rows in sequence.
#[derive(Debug, Clone)]
pub struct Streaming {
    /// Members of the array.
    pub members: usize,
    /// Bytes of data per second, by slice.
    pub rates: Vec<f64>,
    /// The bound of each slice, measured directly before the slice.
    pub bounds: Vec<Bound>,
    /// The array's counters.
    pub counted: Statistics,
}

impl Streaming {
    /// Divides the rate of each slice by its bound, and returns the median of these ratios.
    pub fn share(&self) -> f64 {
        let mut shares: Vec<f64> =
            self.rates.iter().zip(&self.bounds).map(|(rate, bound)| rate / bound.rate()).collect();
        shares.sort_by(f64::total_cmp);
        shares.get(shares.len() / 2).copied().unwrap_or(0.0)
    }
}

/// Alternates between writing full rows in sequence and measuring the bound.
///
/// # Errors
/// If memory is short, or a write fails.
pub fn streaming(members: usize, len: u64, turns: u32) -> Result<Streaming> {
    let array = super::array::array(members, len, Consistency::Resync, Policies::default())?;
    let shape = *array.geometry();
    let row: Vec<u8> = (0..shape.row_len()).map(|at| (at % 251) as u8).collect();
    let write_all = || -> Result<Duration> {
        let begun = Instant::now();
        for at in 0..shape.rows() {
            array.write_at(at * shape.row_len(), &row)?;
        }
        Ok(begun.elapsed())
    };
    // The first pass is not measured, because it is slow: the host has to provide the memory.
    write_all()?;
    let chunk = shape.chunk();
    let rams: Vec<RamDevice> = (0..members)
        .map(|_| RamDevice::create(shape.member_len()))
        .collect::<std::io::Result<_>>()
        .map_err(|e| crate::error::Error::host("devices in memory", e))?;
    let mut parity = vec![0; chunk as usize];
    let mut bound = || -> Result<Bound> {
        let parts: Vec<&[u8]> = row.chunks(chunk as usize).collect();
        let (mut copied, mut summed) = (Duration::ZERO, Duration::ZERO);
        for at in 0..shape.rows() {
            let begun = Instant::now();
            xor(&mut parity, &parts);
            std::hint::black_box(&parity);
            let middle = Instant::now();
            for (ram, part) in rams.iter().zip(parts.iter().copied().chain([&parity[..]])) {
                ram.write_at(at * chunk, part)?;
            }
            summed += middle - begun;
            copied += middle.elapsed();
        }
        let rows = shape.rows() as f64;
        let row = shape.row_len();
        Ok(Bound { copy: copied.as_secs_f64() / rows, xor: summed.as_secs_f64() / rows, row })
    };
    bound()?;
    let before = array.statistics();
    let (mut rates, mut bounds) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        bounds.push(bound()?);
        rates.push(shape.len() as f64 / write_all()?.as_secs_f64());
    }
    Ok(Streaming { members, rates, bounds, counted: array.statistics().since(&before) })
}

/// The result of writes of 4 KiB at random offsets.
#[derive(Debug, Clone)]
pub struct SmallWrites {
    /// Members of the array.
    pub members: usize,
    /// Workers.
    pub threads: u32,
    /// How the array restores parity after a crash.
    pub consistency: &'static str,
    /// Writes per second.
    pub rate: f64,
    /// The number of writes.
    pub writes: u64,
    /// The number of context switches of the workers, up to their last write.
    pub switches: u64,
    /// The process's CPU time, user and system. It is a multiple of the kernel's clock tick.
    pub cpu: Duration,
    /// The array's counters.
    pub counted: Statistics,
}

/// Writes 4 KiB at random offsets on `threads` threads for `time`; no two threads write the same
/// blocks.
///
/// # Errors
/// If memory is short, or a write fails.
pub fn small_writes(
    members: usize,
    threads: u32,
    consistency: (&'static str, Consistency),
    time: Duration,
) -> Result<SmallWrites> {
    const LEN: u64 = 256 << 20;
    let (name, consistency) = consistency;
    let array = super::array::array(members, LEN, consistency, Policies::default())?;
    let blocks = array.geometry().len() / 4096;
    let row = vec![1; array.geometry().row_len() as usize];
    for at in 0..array.geometry().rows() {
        array.write_at(at * row.len() as u64, &row)?;
    }
    let before = array.statistics();
    let (begun, spent) = (Instant::now(), super::fsmark::process_cpu());
    let done: Vec<Result<(u64, u64)>> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let array = &array;
                s.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(worker.into());
                    let (mut writes, data) = (0, [worker as u8; 4096]);
                    while begun.elapsed() < time {
                        for _ in 0..16 {
                            let block = rng.u64(..blocks / u64::from(threads));
                            let block = block * u64::from(threads) + u64::from(worker);
                            array.write_at(block * 4096, &data)?;
                            writes += 1;
                        }
                    }
                    Ok((writes, super::fsmark::switches()))
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let now = super::fsmark::process_cpu();
    let done: Vec<(u64, u64)> = done.into_iter().collect::<Result<_>>()?;
    let writes = done.iter().map(|(writes, _)| writes).sum();
    let switches = done.iter().map(|(_, switches)| switches).sum();
    let counted = array.statistics().since(&before);
    Ok(SmallWrites {
        members,
        threads,
        consistency: name,
        rate: writes as f64 / seconds,
        writes,
        switches,
        cpu: (now.0 + now.1).saturating_sub(spent.0 + spent.1),
        counted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_rows_cost_a_write_of_each_member_and_nothing_else() {
        let done = streaming(4, 16 << 20, 1).expect("memory");
        assert_eq!(done.counted.data_writes, 3 * done.counted.parity_writes);
        assert_eq!(done.counted.data_reads + done.counted.parity_reads, 0);
        assert!(done.share() > 0.0);
    }

    #[test]
    fn small_writes_cost_two_reads_and_two_writes() {
        let time = Duration::from_millis(20);
        let done = small_writes(9, 2, ("resync", Consistency::Resync), time).expect("memory");
        let c = done.counted;
        assert_eq!((c.data_reads, c.parity_reads), (done.writes, done.writes));
        assert_eq!((c.data_writes, c.parity_writes), (done.writes, done.writes));
    }
}
