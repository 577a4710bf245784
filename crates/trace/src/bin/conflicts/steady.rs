//! Traces many operations of each thread in turn, and counts every line that moves.

use crate::matrix::operations;
use crate::operations::Operation;
use crate::reason::{Reason, Reasons};
use crate::rounds::Session;
use crate::setting::Setting;
use crate::stage::Stage;
use lanefs_trace::{Bus, Conflict, Footprint, Granule, Line, Site, Touch};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The number of untraced operations that each thread runs before the traced ones. After them,
/// freed memory is used again, and the lists of retired values have their usual lengths.
const WARM: usize = 512;

/// The largest number of reasons in one row.
const REASONS: usize = 8;

/// The lines that an operation moves in a steady state.
#[derive(Debug, Serialize)]
pub struct SteadyRow {
    pub setting: Setting,
    pub operation: &'static str,
    pub threads: usize,
    /// The number of traced operations of each thread, and of untraced ones before each of them.
    pub each: usize,
    pub between: usize,
    /// The number of commits meanwhile.
    pub commits: u64,
    pub instructions: u64,
    /// Moves of cache lines between threads, per operation.
    pub transfers: f64,
    /// The share of the operations that move a line.
    pub moving: f64,
    /// Moves of cache lines that the preparation of an operation causes. The preparation removes
    /// the names of the previous operation and creates what this operation needs.
    pub preparation: f64,
    /// The commonest reasons for the moves of the operation, each with its moves per operation.
    pub reasons: Vec<(f64, Reason)>,
}

impl fmt::Display for SteadyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SteadyRow { operation, threads, instructions, transfers, preparation, .. } = self;
        let (share, commits) = (self.moving, self.commits);
        write!(f, "{operation:>28} {threads:>7} {instructions:>6} {transfers:>9.2} ")?;
        write!(f, "{preparation:>11.2} {share:>6.2} {commits:>7}")
    }
}

/// Traces the operations that `only` selects. The first `threads` threads run each of these
/// operations, and each thread runs it `each` times traced, each time after `between` untraced ones.
pub fn trace(
    session: &Session<'_, '_>,
    reasons: &mut Reasons,
    setting: Setting,
    only: &[String],
    threads: usize,
    (each, between): (usize, usize),
    mut report: impl FnMut(&SteadyRow),
) -> Vec<SteadyRow> {
    session.enter(setting);
    let mut rows = Vec::new();
    for operation in operations(setting, only).filter(|op| threads <= op.most_threads) {
        session.warm(operation, threads, WARM);
        session.stagger(operation, threads);
        let mut run = Run { session, reasons, operation, threads, machine: Machine::default() };
        let row = run.row(setting, each, between);
        report(&row);
        rows.push(row);
    }
    rows
}

/// The traces of one operation.
struct Run<'r, 'c, 'fs> {
    session: &'r Session<'c, 'fs>,
    reasons: &'r mut Reasons,
    operation: &'static Operation,
    threads: usize,
    machine: Machine,
}

impl Run<'_, '_, '_> {
    fn row(&mut self, setting: Setting, each: usize, between: usize) -> SteadyRow {
        let (mut instructions, mut moves, mut moving, mut preparation) = (0, 0, 0, 0);
        let commits_before = self.session.fs.statistics().journal.commits;
        let mut by_reason: BTreeMap<Reason, u64> = BTreeMap::new();
        let (prepare, act) = (self.operation.prepare, self.operation.act);
        for _ in 0..each {
            self.session.untraced(self.operation, self.threads, between);
            for thread in 0..self.threads {
                let clear = self.session.trace(thread, |stage| stage.clear());
                preparation += self.machine.run(thread, &clear).len();
                self.session.workers.on(thread, Stage::name);
                let prepared = self.session.trace(thread, prepare);
                preparation += self.machine.run(thread, &prepared).len();
            }
            for thread in 0..self.threads {
                let done = self.session.trace(thread, act);
                instructions += done.instructions();
                let moved = self.machine.run(thread, &done);
                moves += moved.len();
                moving += u64::from(!moved.is_empty());
                for Moved { line, mine, theirs } in moved {
                    let (first, second) = (as_touch(mine), as_touch(theirs));
                    let conflict = Conflict { line, first: &first, second: &second };
                    let reason = self.reasons.explain(&conflict, Granule::Line);
                    *by_reason.entry(reason).or_default() += 1;
                }
            }
        }
        let operations = (each * self.threads) as f64;
        let per_operation = |moves: u64| moves as f64 / operations;
        let mut commonest: Vec<(u64, Reason)> =
            by_reason.into_iter().map(|(reason, moves)| (moves, reason)).collect();
        commonest.sort_by_key(|(moves, _)| std::cmp::Reverse(*moves));
        let reasons = commonest.into_iter().take(REASONS);
        SteadyRow {
            setting,
            operation: self.operation.name,
            threads: self.threads,
            each,
            between,
            commits: self.session.fs.statistics().journal.commits - commits_before,
            instructions: instructions / (each * self.threads) as u64,
            transfers: per_operation(moves as u64),
            moving: per_operation(moving),
            preparation: per_operation(preparation as u64),
            reasons: reasons.map(|(moves, reason)| (per_operation(moves), reason)).collect(),
        }
    }
}

/// The bus, and for each line the last access by each of the two threads that used it last.
#[derive(Default)]
struct Machine {
    bus: Bus,
    last: HashMap<Line, [Option<Access>; 2]>,
}

#[derive(Clone)]
struct Access {
    thread: usize,
    site: Site,
    written: bool,
}

/// A line that moved, with the access that moved it and the last access of another thread.
struct Moved {
    line: Line,
    mine: Access,
    theirs: Access,
}

impl Machine {
    fn run(&mut self, thread: usize, footprint: &Footprint) -> Vec<Moved> {
        let lines = self.bus.moves(thread, footprint);
        let moved = lines.into_iter().filter_map(|line| {
            let mine = access(thread, footprint.lines().get(&line)?)?;
            let others = self.last.get(&line)?.iter().flatten();
            let theirs =
                others.filter(|last| last.thread != thread).max_by_key(|last| last.written);
            Some(Moved { line, mine, theirs: theirs?.clone() })
        });
        let moved = moved.collect();
        for (line, touch) in footprint.lines() {
            let Some(new) = access(thread, touch) else { continue };
            let last = self.last.entry(*line).or_default();
            if last[0].as_ref().is_none_or(|last| last.thread != thread) {
                last.swap(0, 1);
            }
            last[0] = Some(new);
        }
        moved
    }
}

fn access(thread: usize, touch: &Touch) -> Option<Access> {
    let site = touch.writes.first().or(touch.reads.first())?.clone();
    Some(Access { thread, site, written: touch.is_written() })
}

fn as_touch(access: Access) -> Touch {
    let mut touch = Touch::default();
    match access.written {
        true => touch.writes.push(access.site),
        false => touch.reads.push(access.site),
    }
    touch
}
