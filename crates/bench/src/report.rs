//! Figures for people and for programs.

use crate::{Machine, Measured, Outcome, Summary};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// A line for each target: the rate (median, smallest and largest of the slices), how many times
/// as fast as the first target, and the CPU time of one operation.
pub fn table(measured: &Measured) -> String {
    let Measured { workload, threads, outcomes } = measured;
    let mut text = String::new();
    let first = outcomes.first().map(|(_, outcome)| outcome);
    let width = outcomes.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, outcome) in outcomes {
        let figures = match outcome {
            Outcome::Failed(why) => format!("failed: {why}"),
            Outcome::NotThere => "-".into(),
            Outcome::Ran { cpu_per_op, .. } => {
                let ratio = first.and_then(|first| outcome.ratio_to(first));
                figures(outcome.rate(), workload.unit(), ratio, *cpu_per_op)
            }
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{workload:13} {threads:>2}  {name:width$}  {figures}");
    }
    text
}

fn figures(
    rate: Option<Summary>,
    unit: &str,
    ratio: Option<Summary>,
    cpu: Option<Duration>,
) -> String {
    let Some(rate) = rate else { return "nothing was done in the time".into() };
    let spread = format!("{}..{}", short(rate.min), short(rate.max));
    let ratio = ratio.map_or(String::new(), |ratio| {
        format!("x{} ({}..{})", factor(ratio.median), factor(ratio.min), factor(ratio.max))
    });
    let cpu = cpu
        .map_or(String::new(), |cpu| format!("{} us CPU", short(cpu.as_nanos() as f64 / 1000.0)));
    format!("{:>9} {unit:9}  {spread:17}  {ratio:22}  {cpu:>13}", short(rate.median))
}

/// Three digits that say something, thousands apart.
fn short(figure: f64) -> String {
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

fn factor(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// All of a run, the figure of each slice too.
pub fn json(before: &Machine, after: &Machine, all: &[Measured]) -> Value {
    let outcome = |(name, outcome): &(String, Outcome)| match outcome {
        Outcome::Failed(why) => json!({"target": name, "failed": why}),
        Outcome::NotThere => json!({"target": name, "failed": "cannot be run there"}),
        Outcome::Ran { rates, cpu_per_op } => {
            let median = outcome.rate().map(|rate| rate.median);
            let cpu = cpu_per_op.map(|cpu| cpu.as_nanos() as u64);
            json!({"target": name, "median": median, "slices": rates, "cpu_ns_per_op": cpu})
        }
    };
    let measured = |measured: &Measured| {
        json!({
            "workload": measured.workload.name(),
            "unit": measured.workload.unit(),
            "threads": measured.threads,
            "targets": measured.outcomes.iter().map(outcome).collect::<Vec<_>>(),
        })
    };
    json!({
        "before": before.json(),
        "after": after.json(),
        "measured": all.iter().map(measured).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    fn measured() -> Measured {
        let ran = |rates: &[f64]| Outcome::Ran {
            rates: rates.to_vec(),
            cpu_per_op: Some(Duration::from_nanos(1500)),
        };
        Measured {
            workload: Workload::Create,
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
    }

    #[test]
    fn programs_get_every_slice() {
        let machine = Machine::now();
        let value = json(&machine, &machine, &[measured()]);
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
