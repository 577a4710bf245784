//! Traces each operation by itself, on many threads.

use crate::matrix::operations;
use crate::reason::Reasons;
use crate::rounds::Session;
use crate::setting::Setting;
use lanefs_trace::{Bus, Footprint, Granule, Transfers, conflicts};
use serde::Serialize;

/// The result for one operation and one number of threads: mainly how many cache lines the
/// operation moves.
#[derive(Debug, Serialize)]
pub struct Row {
    pub setting: Setting,
    pub operation: &'static str,
    pub threads: usize,
    pub instructions: u64,
    pub system_calls: f64,
    /// Line moves per operation: those of all lines, those of the line that moved most, and those
    /// caused by refills and ticks.
    pub transfers: f64,
    pub hottest: f64,
    pub apart: f64,
    /// The reason why one of the moved lines is shared. `None` if no line moved, or if no two
    /// threads share a moved line in the first round.
    pub reason: Option<crate::reason::Reason>,
}

/// Traces the operations with each number of threads in `counts`.
pub fn trace(
    session: &Session<'_, '_>,
    reasons: &mut Reasons,
    setting: Setting,
    granule: Granule,
    only: &[String],
    counts: &[usize],
    mut each: impl FnMut(&Row),
) -> Vec<Row> {
    session.enter(setting);
    let mut rows = Vec::new();
    for operation in operations(setting, only) {
        for &threads in counts.iter().filter(|count| **count <= operation.most_threads) {
            // The first round fills the modelled caches, and only the later rounds are counted.
            // With many threads a second traced round would take too long. In that case a single
            // round is traced, and its copy is used as the second round.
            let rounds = if threads > 8 { 1 } else { 3 };
            let mut traced = session.run(operation, threads, rounds);
            traced.iter_mut().flatten().for_each(|f| *f = f.in_granules(granule));
            if let [once] = &mut *traced {
                let again = once.clone();
                traced.push(again);
            }
            let row = count(&traced, reasons, setting, operation.name, granule);
            each(&row);
            rows.push(row);
        }
    }
    rows
}

fn count(
    rounds: &[Vec<Footprint>],
    reasons: &mut Reasons,
    setting: Setting,
    operation: &'static str,
    granule: Granule,
) -> Row {
    let steady: Vec<Vec<Footprint>> =
        rounds.iter().map(|round| round.iter().map(|f| reasons.steady(f)).collect()).collect();
    let (moved, all) = (transfers(&steady), transfers(rounds));
    let threads = rounds[0].len();
    let counted: Vec<&Footprint> = rounds[1..].iter().flatten().collect();
    let operations = counted.len() as f64;
    let shared = |a: usize, b: usize| {
        conflicts(&steady[0][a], &steady[0][b])
            .into_iter()
            .find(|c| moved.lines.contains_key(&c.line))
    };
    reasons.look_again();
    let reason = (moved.total() > 0)
        .then(|| {
            (0..threads).flat_map(|a| (0..a).map(move |b| (a, b))).find_map(|(a, b)| shared(a, b))
        })
        .flatten()
        .map(|conflict| reasons.explain(&conflict, granule));
    Row {
        setting,
        operation,
        threads,
        instructions: counted.iter().map(|f| f.instructions()).sum::<u64>() / counted.len() as u64,
        system_calls: counted.iter().map(|f| f.system_calls()).sum::<u64>() as f64 / operations,
        transfers: moved.total() as f64 / operations,
        hottest: moved.hottest() as f64 / operations,
        apart: (all.total().saturating_sub(moved.total())) as f64 / operations,
        reason,
    }
}

/// Returns the moves of lines in the rounds after the first. The moves in the first round are not
/// counted, because it fills the caches.
fn transfers(rounds: &[Vec<Footprint>]) -> Transfers {
    let (mut bus, mut cold, mut counted) = (Bus::new(), Transfers::default(), Transfers::default());
    for (round, footprints) in rounds.iter().enumerate() {
        let into = if round == 0 { &mut cold } else { &mut counted };
        footprints.iter().enumerate().for_each(|(thread, f)| bus.run(thread, f, into));
    }
    counted
}
