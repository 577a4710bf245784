//! Compares every operation on one thread with every operation on another.

use crate::operations::{OPERATIONS, Operation, selects};
use crate::reason::{Reason, Reasons};
use crate::rounds::Session;
use crate::setting::Setting;
use lanefs_trace::{Footprint, Granule, conflicts};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};

/// A pair of operations in a setting.
#[derive(Debug, Serialize)]
pub struct Pair {
    pub setting: Setting,
    pub first: &'static str,
    pub second: &'static str,
    /// The number of shared lines. The pair is compared twice, with a different operation on the
    /// first thread each time; the larger result counts.
    pub lines: usize,
    /// The number of lines that are shared only because of refills and of updates at clock ticks.
    pub apart: usize,
    pub reasons: BTreeSet<Reason>,
}

/// The lines that one operation touched, on each of two threads: `whole` has all lines, `steady`
/// only those that are not due to occasional work.
pub struct Trace {
    name: &'static str,
    steady: [Footprint; 2],
    whole: [Footprint; 2],
}

/// Returns those operations of a setting that one of `only` selects. If `only` is empty, returns
/// all operations of the setting.
pub fn operations(setting: Setting, only: &[String]) -> impl Iterator<Item = &'static Operation> {
    OPERATIONS
        .iter()
        .filter(move |op| setting != Setting::File || op.commutes)
        .filter(move |op| only.is_empty() || only.iter().any(|word| selects(word, op.name)))
}

/// Prints the current operation on a terminal, on a line that is overwritten.
fn progress(name: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{name}");
        // An error is ignored, because this output is only a progress display.
        let _ = std::io::stderr().flush();
    }
}

/// Traces each operation on two threads, and compares all pairs of their traces.
pub fn trace(
    session: &Session<'_, '_>,
    reasons: &mut Reasons,
    setting: Setting,
    granule: Granule,
    only: &[String],
    rounds: usize,
) -> Vec<Pair> {
    session.enter(setting);
    let mut traces = Vec::new();
    for operation in operations(setting, only) {
        progress(operation.name);
        let mut whole = [Footprint::new(), Footprint::new()];
        for round in session.run(operation, 2, rounds) {
            whole.iter_mut().zip(&round).for_each(|(all, one)| all.merge(one));
        }
        traces.push(Trace::new(operation.name, whole, granule, reasons));
    }
    progress("");
    reasons.look_again();
    compare(&traces, reasons, setting, granule)
}

impl Trace {
    /// Creates the trace of the operation `name` from its lines on two threads.
    pub fn new(
        name: &'static str,
        whole: [Footprint; 2],
        granule: Granule,
        reasons: &mut Reasons,
    ) -> Trace {
        let whole = whole.map(|footprint| footprint.in_granules(granule));
        let steady = [reasons.steady(&whole[0]), reasons.steady(&whole[1])];
        Trace { name, steady, whole }
    }
}

/// Compares each trace with itself and with every other trace.
pub fn compare(
    traces: &[Trace],
    reasons: &mut Reasons,
    setting: Setting,
    granule: Granule,
) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (at, first) in traces.iter().enumerate() {
        for second in &traces[at..] {
            let ways = [[0, 1], [1, 0]];
            let count = |of: fn(&Trace) -> &[Footprint; 2]| {
                let shared = |[a, b]: [usize; 2]| conflicts(&of(first)[a], &of(second)[b]).len();
                ways.map(shared).into_iter().max().unwrap_or(0)
            };
            let (lines, all) = (count(|trace| &trace.steady), count(|trace| &trace.whole));
            let explained = ways.iter().flat_map(|[a, b]| {
                conflicts(&first.steady[*a], &second.steady[*b])
                    .into_iter()
                    .map(|conflict| reasons.explain(&conflict, granule))
                    .collect::<Vec<_>>()
            });
            pairs.push(Pair {
                setting,
                first: first.name,
                second: second.name,
                lines,
                apart: all.saturating_sub(lines),
                reasons: explained.collect(),
            });
        }
    }
    pairs
}

/// Prints the triangle of pairs: a dot for a pair without shared lines, otherwise the number of
/// lines.
pub fn print(pairs: &[Pair]) {
    let mut names: Vec<&str> = Vec::new();
    for pair in pairs {
        if !names.contains(&pair.first) {
            names.push(pair.first);
        }
    }
    for (at, second) in names.iter().enumerate() {
        print!("{:>28} {at:>3} ", second);
        for first in &names[..=at] {
            let found = pairs.iter().find(|pair| pair.first == *first && pair.second == *second);
            match found.map(|pair| pair.lines) {
                Some(0) => print!("  ."),
                Some(lines) => print!(" {:>2}", lines.min(99)),
                None => print!("  ?"),
            }
        }
        println!();
    }
    print!("{:33}", "");
    (0..names.len()).for_each(|at| print!(" {at:>2}"));
    println!();
}
