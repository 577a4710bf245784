//! The table of the CPU time per operation, in which the library on a device in memory is compared
//! with the kernel's ext4 on a loop device in memory. The time of kernel threads is included.

use crate::cpu::Cpu;
use crate::figures::Measured;
use crate::machine::Machine;
use crate::report::{factor, short};
use crate::workload::Workload;
use std::fmt::Write;
use std::time::Duration;

/// A workload, and the ratio that the library should reach. The ratio is the library's number of
/// operations per second of CPU time, divided by the kernel's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aim {
    /// The workload.
    pub workload: Workload,
    /// The ratio that the library should reach.
    pub times: f64,
}

/// The ratios that the library should reach, one for each measured workload.
pub const AIMS: [Aim; 7] = [
    Aim { workload: Workload::CreateUnlink, times: 8.0 },
    Aim { workload: Workload::OpenClose, times: 8.0 },
    Aim { workload: Workload::Stat, times: 4.0 },
    Aim { workload: Workload::Fallocate2, times: 8.0 },
    Aim { workload: Workload::DirectWrite, times: 5.0 },
    Aim { workload: Workload::DirectRead, times: 5.0 },
    Aim { workload: Workload::ReaddirStat, times: 4.0 },
];

fn micros(time: Duration) -> String {
    short(time.as_nanos() as f64 / 1000.0)
}

/// Returns the heading of the table.
pub fn efficiency_head() -> String {
    format!(
        "{:<15}{:>8}{:>14}{:>14}{:>14}{:>12}{:>12}{:>8}  {}\n",
        "workload",
        "threads",
        "library us",
        "ext4 us",
        "loop device",
        "times",
        "but loop",
        "aim",
        ""
    )
}

/// Returns the line of one workload. In `measured`, the first outcome must be the library's and the
/// second the kernel's.
pub fn efficiency_line(measured: &Measured) -> String {
    let cpu = |n: usize| -> Option<Cpu> { measured.outcomes.get(n)?.1.figures()?.cpu_per_op() };
    let (workload, threads) = (measured.workload, measured.threads);
    let mut text = String::new();
    let (Some(library), Some(kernel)) = (cpu(0), cpu(1)) else {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{workload:<15}{threads:>8}  not measured");
        return text;
    };
    let ratio = |time: Duration| time.as_secs_f64() / library.total().as_secs_f64().max(1e-12);
    let times = ratio(kernel.total());
    let without_loop = ratio(kernel.processes + kernel.kernel);
    let aim = AIMS.iter().find(|aim| aim.workload.name() == workload).map(|aim| aim.times);
    let verdict = aim.map_or("", |aim| if times >= aim { "reached" } else { "missed" });
    let _ = writeln!(
        text,
        "{workload:<15}{threads:>8}{:>14}{:>14}{:>14}{:>12}{:>12}{:>8}  {verdict}",
        micros(library.total()),
        micros(kernel.total()),
        micros(kernel.loop_devices),
        factor(times),
        factor(without_loop),
        aim.map_or(String::new(), factor),
    );
    text
}

/// Returns the text below the table.
pub fn efficiency_foot() -> String {
    format!(
        "CPU time of one operation: this process and all threads of the kernel (journal, writeback, loop \
         device);\n'times': throughput for each second of it, the library's against the kernel's; 'but loop': as \
         if the loop device cost nothing.\nCPU time of all else on this machine, with {} processors, counts \
         too: let it do nothing else.\n",
        Machine::processors()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Figures, Outcome};

    #[test]
    fn time_of_the_loop_device_is_counted_apart() {
        let ran = |own, loop_devices| {
            let cpu = Cpu {
                processes: Duration::from_micros(own),
                loop_devices: Duration::from_micros(loop_devices),
                ..Cpu::default()
            };
            let figures = Figures { cpu: Some(cpu), operations: 10, ..Figures::default() };
            Outcome::Ran(Box::new(figures))
        };
        let measured = Measured {
            workload: Workload::DirectWrite.name(),
            unit: Workload::DirectWrite.unit(),
            threads: 2,
            outcomes: vec![("library".into(), ran(10, 0)), ("ext4".into(), ran(40, 20))],
        };
        let line = efficiency_line(&measured);
        let words: Vec<&str> = line.split_whitespace().collect();
        let wanted = ["direct-write", "2", "1.00", "6.00", "2.00", "6.00", "4.00", "5.00"];
        assert_eq!(words[..8], wanted);
        assert_eq!(words[8], "reached");
    }
}
