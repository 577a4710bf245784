//! Measures one sequential writer with several requests in flight. Counts how many member reads
//! each row needs for its parity.

use super::distant::Distant;
use crate::error::{Error, Result};
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::atomic::{AtomicU64, Ordering};
use lanefs_raid5::{Array, Consistency, Member, Policies, Setup, Statistics, Unrecorded};
use std::time::{Duration, Instant};

/// How many bytes of data are written.
const LEN: u64 = 96 << 20;

/// A writer's plan.
#[derive(Debug, Clone)]
pub struct SequentialPlan {
    /// The number of members of the array. A chunk is 512 KiB.
    pub members: usize,
    /// The size of a request in bytes.
    pub request: u64,
    /// The number of requests in flight.
    pub depth: usize,
    /// The latency of each member operation, without the time for copying data.
    pub latency: Duration,
    /// How the array restores parity after a crash.
    pub consistency: Consistency,
}

/// The result of a sequential writer.
#[derive(Debug, Clone, Copy)]
pub struct Sequential {
    /// The number of rows written.
    pub rows: u64,
    /// Bytes of data per second.
    pub rate: f64,
    /// The array's counters.
    pub counted: Statistics,
}

/// Writes an array once from its start to its end. Each thread takes the next request when its
/// previous one is done.
///
/// # Errors
/// If memory is short, or a write fails.
pub fn sequential(plan: &SequentialPlan) -> Result<Sequential> {
    let shape = super::array::shape(plan.members, 512 << 10, LEN)?;
    let failed = |e: std::io::Error| Error::host("an array in memory", e);
    let member = |_| -> Result<Option<Member>> {
        let mut member = Member::in_memory(&shape, u64::MAX).map_err(failed)?;
        let below = member.device.clone();
        member.device = Arc::new(Distant { below, latency: plan.latency });
        Ok(Some(member))
    };
    let array = Array::start(Setup {
        geometry: shape,
        members: (0..plan.members).map(member).collect::<Result<_>>()?,
        record: Arc::new(Unrecorded),
        consistency: plan.consistency.clone(),
        active: true,
        unsynced_from: u64::MAX,
        policies: Policies::default(),
    });
    let array = array.map_err(|e| failed(std::io::Error::other(e)))?;
    let (next, begun) = (AtomicU64::new(0), Instant::now());
    let write = || -> Result<()> {
        let bytes = vec![1; plan.request as usize];
        loop {
            let offset = next.fetch_add(plan.request, Ordering::Relaxed);
            if offset >= array.len() {
                return Ok(());
            }
            let len = plan.request.min(array.len() - offset);
            array.write_at(offset, &bytes[..len as usize])?;
        }
    };
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..plan.depth).map(|_| s.spawn(write)).collect();
        writers.into_iter().try_for_each(|w| w.join().expect("a writer does not panic"))
    })?;
    let rate = array.len() as f64 / begun.elapsed().as_secs_f64();
    Ok(Sequential { rows: shape.rows(), rate, counted: array.statistics() })
}
