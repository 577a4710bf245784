//! Results as text tables and as JSON.

use crate::figures::{Figures, Measured, Outcome};
use crate::machine::Machine;
use crate::record::{Ending, Record};
use crate::statistics::Summary;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// Returns the heading of the table for these targets.
pub fn table_head(targets: &[&str]) -> String {
    let width = widest(targets.iter().copied());
    format!(
        "{:20} {:>7}  {:width$}  {:>9} {:9}  {:20}  {:22}  {:16}  {:8}  CPU time of one\n",
        "workload",
        "threads",
        "target",
        "median",
        "",
        "slices",
        if targets.len() > 1 { "times the first" } else { "" },
        "latency",
        "memory",
    )
}

/// Returns the text below the table. It explains the star, if the table has one.
pub fn table_foot(threads: &[u32]) -> String {
    let processors = Machine::processors();
    if threads.iter().all(|threads| *threads as usize <= processors) {
        return String::new();
    }
    format!(
        "* more threads than the {processors} processors: they take turns, so that none can be faster than \
         with {processors}\n"
    )
}

fn widest<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.chain(["target"]).map(|name| name.chars().count()).max().unwrap_or(0)
}

/// Returns a line for each target: the rate (median, smallest and largest of the slices), the ratio
/// to the first target if there are several, and the CPU time per operation. A star marks lines
/// with more threads than processors.
pub fn table(measured: &Measured) -> String {
    let Measured { workload, unit, threads, outcomes } = measured;
    let mut text = String::new();
    let first = outcomes.first().filter(|_| outcomes.len() > 1).map(|(_, outcome)| outcome);
    let width = widest(outcomes.iter().map(|(name, _)| name.as_str()));
    let oversubscribed = if *threads as usize > Machine::processors() { "*" } else { " " };
    for (name, outcome) in outcomes {
        let figures = match outcome {
            Outcome::Failed(why) => format!("failed: {why}"),
            Outcome::NotThere => "-".into(),
            Outcome::Interrupted => "interrupted".into(),
            Outcome::Ran(measured) => {
                let ratio = first.and_then(|first| outcome.ratio_to(first));
                line(measured, unit, ratio)
            }
        };
        // Writing to a string does not fail.
        let _ =
            writeln!(text, "{workload:20} {threads:>6}{oversubscribed}  {name:width$}  {figures}");
    }
    text
}

fn line(measured: &Figures, unit: &str, ratio: Option<Summary>) -> String {
    let rate = Summary::of(measured.rates.iter().copied());
    let Some(rate) = rate else { return "nothing was done in the time".into() };
    let spread = format!("{}..{}", short(rate.min), short(rate.max));
    let ratio = ratio.map_or(String::new(), |ratio| {
        format!("x{} ({}..{})", factor(ratio.median), factor(ratio.min), factor(ratio.max))
    });
    let micros = |time: Duration| short(time.as_nanos() as f64 / 1000.0);
    let cpu = measured.cpu_per_op().map_or(String::new(), |cpu| {
        let apart = match cpu.loop_devices {
            Duration::ZERO => String::new(),
            part => format!(", {} of it loop device", micros(part)),
        };
        format!("{} us CPU{apart}", micros(cpu.total()))
    });
    let memory = measured.memory.map_or(String::new(), |bytes| format!("{} MiB", bytes >> 20));
    let late = measured.latencies.percentile(0.99);
    let late = late.map_or(String::new(), |late| format!("99 % < {} us", micros(late)));
    format!(
        "{:>9} {unit:9}  {spread:20}  {ratio:22}  {late:16}  {memory:8}  {cpu}",
        short(rate.median)
    )
}

/// Formats a number with three significant digits and separated thousands.
pub(crate) fn short(figure: f64) -> String {
    match figure {
        f if f < 10.0 => format!("{f:.2}"),
        f if f < 100.0 => format!("{f:.1}"),
        f => {
            let whole = format!("{:.0}", f);
            let mut grouped = String::new();
            for (index, digit) in whole.chars().enumerate() {
                if index > 0 && (whole.len() - index).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
    }
}

pub(crate) fn factor(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// Returns all results of a run as JSON, including the figures of each slice.
pub fn json(record: &Record) -> Value {
    let outcome = |(name, outcome): &(String, Outcome)| match outcome {
        Outcome::Failed(why) => json!({"target": name, "failed": why}),
        Outcome::NotThere => json!({"target": name, "failed": "cannot be run there"}),
        Outcome::Interrupted => json!({"target": name, "failed": "interrupted"}),
        Outcome::Ran(figures) => {
            let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let cpu = figures.cpu_per_op();
            let late = |share| figures.latencies.percentile(share).map(nanos);
            let waits = figures.waits.iter().map(
                |of| json!({"lock": format!("{:?}", of.rank), "waits": of.waits, "ns": of.nanos}),
            );
            let counts = figures.counts.iter().map(|of| (of.name.to_owned(), json!(of.value)));
            json!({
                "target": name,
                "median": outcome.rate().map(|rate| rate.median),
                "slices": figures.rates,
                "operations": figures.operations,
                "memory_bytes": figures.memory,
                "cpu_ns_per_op": cpu.map(|cpu| nanos(cpu.total())),
                "cpu_ns_per_op_loop_device": cpu.map(|cpu| nanos(cpu.loop_devices)),
                "cpu_ns_per_op_kernel_threads": cpu.map(|cpu| nanos(cpu.kernel)),
                "cpu_ns_per_op_whole_machine": cpu.map(|cpu| nanos(cpu.machine)),
                "latency_ns": {"50%": late(0.5), "90%": late(0.9), "99%": late(0.99), "99.9%": late(0.999)},
                "lock_waits": waits.collect::<Vec<_>>(),
                "counts": counts.collect::<serde_json::Map<_, _>>(),
            })
        }
    };
    let measured = |title: &str, measured: &Measured| {
        json!({
            "chapter": title,
            "workload": measured.workload,
            "unit": measured.unit,
            "threads": measured.threads,
            "targets": measured.outcomes.iter().map(outcome).collect::<Vec<_>>(),
        })
    };
    let all = record
        .chapters
        .iter()
        .flat_map(|chapter| chapter.measured.iter().map(move |one| measured(&chapter.title, one)));
    json!({
        "command": record.command,
        "interrupted": record.ending == Ending::Interrupted,
        "before": record.before.json(),
        "after": record.after.json(),
        "measured": all.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use crate::record::chapters;
    use crate::workload::Workload;

    fn measured() -> Measured {
        let ran = |rates: &[f64]| {
            let cpu = Cpu { processes: Duration::from_micros(15), ..Cpu::default() };
            let figures = Figures { cpu: Some(cpu), operations: 10, ..Figures::default() };
            Outcome::Ran(Box::new(Figures { rates: rates.to_vec(), ..figures }))
        };
        Measured {
            workload: Workload::Create.name(),
            unit: Workload::Create.unit(),
            threads: 2,
            outcomes: vec![
                ("first".into(), ran(&[1000.0, 2000.0, 3000.0])),
                ("second".into(), ran(&[500.0, 1000.0, 1500.0])),
                ("third".into(), Outcome::Failed("no space".into())),
            ],
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_target() {
        let text = table(&measured());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("2,000 ops/s") && lines[0].contains("1,000..3,000"), "{text}");
        assert!(lines[1].contains("x0.50 (0.50..0.50)"), "{text}");
        assert!(lines[1].contains("1.50 us CPU"), "{text}");
        assert!(lines[2].contains("failed: no space"), "{text}");
        let head = table_head(&["first", "second", "third"]);
        for (column, cell) in [("target", "first"), ("slices", "1,000..3,000"), ("CPU", "1.50")] {
            assert_eq!(head.find(column), lines[0].find(cell), "{head}{text}");
        }
    }

    #[test]
    fn a_target_alone_is_compared_with_nothing_and_a_star_says_what_it_means() {
        let mut alone = measured();
        (alone.outcomes, alone.threads) = (alone.outcomes.drain(..1).collect(), 100_000);
        assert!(!table(&alone).contains(" x1.00") && table(&alone).contains("100000*"));
        assert!(table_foot(&[1, 100_000]).starts_with("* more threads than"));
        assert_eq!(table_foot(&[1]), "");
    }

    #[test]
    fn programs_get_every_slice() {
        let machine = Machine::now();
        let value = json(&Record {
            command: "lanefs bench create".into(),
            before: machine.clone(),
            after: machine,
            ending: Ending::Complete,
            chapters: chapters(vec![measured()]),
        });
        assert_eq!(value["interrupted"], false);
        assert_eq!(value["measured"][0]["targets"][0]["slices"][2], 3000.0);
        assert_eq!(value["measured"][0]["targets"][2]["failed"], "no space");
        assert_eq!(value["before"]["cpus"], value["after"]["cpus"]);
    }

    #[test]
    fn figures_are_short() {
        let shown = [0.123, 12.34, 123.4, 1234.5, 1234567.0].map(short);
        assert_eq!(shown, ["0.12", "12.3", "123", "1,234", "1,234,567"]);
    }
}
