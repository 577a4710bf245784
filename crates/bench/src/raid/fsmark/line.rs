//! The results of fsmark: as text, and as chapters, like the results of the other workloads.

use crate::cpu::Cpu;
use crate::figures::{Count, Figures, Measured, Outcome};
use crate::latency::Latencies;
use crate::record::Chapter;
use crate::statistics::Summary;
use lanefs_raid5::{Statistics, StripeWake};
use std::fmt::Write;
use std::time::Duration;

/// The results of one policy with one array and one number of workers, over all slices.
#[derive(Debug, Clone)]
pub struct FsMarkLine {
    /// The number of members of the array.
    pub members: usize,
    /// The latency of a member's operation.
    pub latency: Duration,
    /// The number of workers.
    pub threads: u32,
    /// The policy.
    pub wake: StripeWake,
    /// Files per second, by slice.
    pub rates: Vec<f64>,
    /// The number of files in all slices.
    pub files: u64,
    /// CPU time of the process in user mode.
    pub user: Duration,
    /// CPU time of the process in the kernel.
    pub system: Duration,
    /// The number of context switches of the workers, both voluntary and involuntary.
    pub switches: u64,
    /// The times from one file's close to the next file's close by the same worker.
    pub latencies: Latencies,
    /// The array's counters.
    pub counted: Statistics,
}

impl FsMarkLine {
    pub(super) fn new(
        members: usize,
        latency: Duration,
        threads: u32,
        wake: StripeWake,
    ) -> FsMarkLine {
        FsMarkLine {
            members,
            latency,
            threads,
            wake,
            rates: Vec::new(),
            files: 0,
            user: Duration::ZERO,
            system: Duration::ZERO,
            switches: 0,
            latencies: Latencies::default(),
            counted: Statistics::default(),
        }
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &'static str {
        match self.wake {
            StripeWake::All => "all",
            StripeWake::One => "one",
        }
    }

    /// Returns the number of waits per released unit of the row budget. A thread takes one unit of
    /// the budget for each row that it works on.
    fn waits_per_unit(&self) -> f64 {
        self.counted.budget_waits as f64 / self.counted.units_freed.max(1) as f64
    }

    /// Returns the number of wake-ups per released unit of the row budget.
    pub fn wakes_per_unit(&self) -> f64 {
        self.counted.budget_wake_ups as f64 / self.counted.units_freed.max(1) as f64
    }

    /// Returns the line of the table.
    pub fn text(&self) -> String {
        let rate = Summary::of(self.rates.iter().copied());
        let of_rate = |part: fn(Summary) -> f64| rate.map_or(0.0, part);
        let (least, most) = (of_rate(|rate| rate.min), of_rate(|rate| rate.max));
        let files = self.files.max(1) as f64;
        let millis = |time: Duration| time.as_secs_f64() * 1e3 / files;
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{:>8} {:>8} {:>8} {:<6}{:>9.1}{:>20}{:>12.3}{:>12.3}{:>12.2}{:>12.4}{:>10.4}",
            self.members,
            self.latency.as_micros(),
            self.threads,
            self.policy(),
            of_rate(|rate| rate.median),
            format!("({least:.1}..{most:.1})"),
            millis(self.user),
            millis(self.system),
            self.switches as f64 / files,
            self.waits_per_unit(),
            self.wakes_per_unit()
        );
        text
    }

    fn figures(&self) -> Figures {
        let each = |name, value| Count { name, value };
        Figures {
            rates: self.rates.clone(),
            operations: self.files,
            cpu: Some(Cpu { processes: self.user + self.system, ..Cpu::default() }),
            latencies: self.latencies.clone(),
            counts: vec![
                each("context_switches_per_file", self.switches as f64 / self.files.max(1) as f64),
                each("waits_per_row", self.waits_per_unit()),
                each("wake_ups_per_row", self.wakes_per_unit()),
            ],
            ..Figures::default()
        }
    }

    /// Returns the name of the array on which the workload ran.
    fn array(&self) -> String {
        let latency = match self.latency.as_micros() {
            0 => "that answer at once".into(),
            micros => format!("that take {micros} us longer"),
        };
        format!("S4 fsmark: {} members {latency}", self.members)
    }

    /// Returns the results, with one heading for each array. Each policy appears as a target.
    pub fn chapters(lines: &[FsMarkLine]) -> Vec<Chapter> {
        let mut chapters: Vec<Chapter> = Vec::new();
        for line in lines {
            let title = line.array();
            let at = match chapters.iter().position(|chapter| chapter.title == title) {
                Some(at) => at,
                None => {
                    chapters.push(Chapter { title, measured: Vec::new() });
                    chapters.len() - 1
                }
            };
            let measured = &mut chapters[at].measured;
            if measured.last().is_none_or(|last| last.threads != line.threads) {
                measured.push(Measured {
                    workload: "fsmark",
                    unit: "files/s",
                    threads: line.threads,
                    outcomes: Vec::new(),
                });
            }
            if let Some(last) = measured.last_mut() {
                let outcome = Outcome::Ran(Box::new(line.figures()));
                last.outcomes.push((format!("wake {}", line.policy()), outcome));
            }
        }
        chapters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_array_is_a_chapter_and_each_policy_a_target() {
        let mut lines = Vec::new();
        for (members, micros) in [(4, 0), (9, 0), (4, 20)] {
            for threads in [1, 64] {
                for wake in [StripeWake::All, StripeWake::One] {
                    let latency = Duration::from_micros(micros);
                    let mut line = FsMarkLine::new(members, latency, threads, wake);
                    (line.files, line.rates) = (10, vec![5.0]);
                    line.counted.budget_waits = 3;
                    line.counted.units_freed = 4;
                    lines.push(line);
                }
            }
        }
        let chapters = FsMarkLine::chapters(&lines);
        let titles: Vec<&str> = chapters.iter().map(|chapter| chapter.title.as_str()).collect();
        assert_eq!(titles[0], "S4 fsmark: 4 members that answer at once");
        assert_eq!(titles[2], "S4 fsmark: 4 members that take 20 us longer");
        for Chapter { measured, .. } in &chapters {
            assert_eq!(measured.iter().map(|m| m.threads).collect::<Vec<_>>(), [1, 64]);
            for one in measured {
                let names: Vec<&str> = one.outcomes.iter().map(|(name, _)| name.as_str()).collect();
                assert_eq!(names, ["wake all", "wake one"]);
                let figures = one.outcomes[0].1.figures().unwrap();
                assert_eq!(figures.counts[1], Count { name: "waits_per_row", value: 0.75 });
            }
        }
    }
}
