//! Runs all threads of a target for one slice.

use crate::error::Result;
use crate::latency::Latencies;
use crate::stop::Stop;
use crate::worker::{Operation, Worker};
use lanefs_lanes::sync::thread;
use std::time::{Duration, Instant};

/// What all threads together did in a slice.
pub(crate) struct Raced {
    pub operations: u64,
    /// The time from the start of the first thread to the end of the last one. If there are more
    /// threads than processors, some threads start after others have finished.
    pub time: Duration,
    pub latencies: Latencies,
}

/// What one thread did in a slice.
struct Run {
    operations: u64,
    begun: Instant,
    ended: Instant,
    latencies: Latencies,
}

impl Raced {
    fn of(runs: &[Run]) -> Raced {
        let mut latencies = Latencies::default();
        runs.iter().for_each(|run| latencies.add(&run.latencies));
        let begun = runs.iter().map(|run| run.begun).min();
        let ended = runs.iter().map(|run| run.ended).max();
        let time = begun.zip(ended).map_or(Duration::ZERO, |(begun, ended)| ended - begun);
        Raced { operations: runs.iter().map(|run| run.operations).sum(), time, latencies }
    }
}

/// Runs all threads at the same time for the duration `slice`. If the run is stopped during the
/// slice, this slice has no result.
pub(crate) fn race(
    workers: &mut [Box<dyn Worker + '_>],
    slice: Duration,
    stop: &Stop,
) -> Result<Raced> {
    // All threads sleep until the same point in time, so they start together. A barrier is not
    // used, because all threads would contend for its cache line.
    let start = Instant::now() + Duration::from_millis(2);
    let runs = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(move || work(&mut **worker, start, slice, stop)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(Raced::of(&runs))
}

/// A thread does a batch of operations between two readings of the clock. After a batch that took
/// less than `UNWATCHED_TIME`, the next batch has twice as many operations, but at most
/// `UNWATCHED`. After a slower batch, the next one has one operation.
const UNWATCHED: u64 = 64;
const UNWATCHED_TIME: Duration = Duration::from_micros(50);

/// Works until the slice ends, but does at least one operation. The first operation of each batch
/// is timed separately, as a sample of the latencies.
fn work(worker: &mut dyn Worker, start: Instant, slice: Duration, stop: &Stop) -> Result<Run> {
    thread::sleep(start.saturating_duration_since(Instant::now()));
    let begun = Instant::now();
    let mut done = Run { operations: 0, begun, ended: begun, latencies: Latencies::default() };
    let (mut batch, mut seen) = (1, begun);
    loop {
        for n in 0..batch {
            if worker.operation()? == Operation::NoneLeft {
                done.ended = Instant::now();
                return Ok(done);
            }
            done.operations += 1;
            if n == 0 {
                done.latencies.record(seen.elapsed());
            }
        }
        stop.check()?;
        let now = Instant::now();
        if now >= start + slice {
            done.ended = now;
            return Ok(done);
        }
        // The clock is read once for several operations. An operation may take less than a
        // microsecond, and reading the clock for each one would be a considerable part of that
        // time.
        batch = if now - seen < UNWATCHED_TIME { (batch * 2).min(UNWATCHED) } else { 1 };
        seen = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_run_one_after_the_other_take_as_long_as_both() {
        let begun = Instant::now();
        let run = |from: u64, to: u64| Run {
            operations: 100,
            begun: begun + Duration::from_millis(from),
            ended: begun + Duration::from_millis(to),
            latencies: Latencies::default(),
        };
        let raced = Raced::of(&[run(15, 25), run(0, 10), run(12, 20)]);
        assert_eq!((raced.operations, raced.time), (300, Duration::from_millis(25)));
        assert_eq!(Raced::of(&[]).time, Duration::ZERO);
    }
}
