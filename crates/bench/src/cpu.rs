//! CPU time of processes, of the kernel's own threads, and of the whole machine.

use std::collections::HashMap;
use std::fs;
use std::ops::{AddAssign, Sub};
use std::time::Duration;

/// The CPU time of a measurement, with one part for each place where it was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cpu {
    /// CPU time of this process, its terminated children, and the target's server process, if there
    /// is one.
    pub processes: Duration,
    /// CPU time of the kernel's own threads, such as those for the journal and writeback, but not
    /// those of loop devices.
    pub kernel: Duration,
    /// CPU time of the kernel's threads that served loop devices.
    pub loop_devices: Duration,
    /// CPU time of all processes on all processors, including unrelated ones.
    pub machine: Duration,
}

impl Cpu {
    /// Returns the CPU time of processes and kernel threads. All kernel threads count, because on
    /// an otherwise idle machine they work only for the measured target.
    pub fn total(&self) -> Duration {
        self.processes + self.kernel + self.loop_devices
    }

    /// Returns the CPU time per operation.
    pub fn per(&self, operations: u64) -> Option<Cpu> {
        let per = |time: Duration| -> Option<Duration> {
            let nanos = time.as_nanos().checked_div(u128::from(operations))?;
            Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
        };
        Some(Cpu {
            processes: per(self.processes)?,
            kernel: per(self.kernel)?,
            loop_devices: per(self.loop_devices)?,
            machine: per(self.machine)?,
        })
    }
}

impl AddAssign for Cpu {
    fn add_assign(&mut self, other: Cpu) {
        self.processes += other.processes;
        self.kernel += other.kernel;
        self.loop_devices += other.loop_devices;
        self.machine += other.machine;
    }
}

/// A reading of all CPU clocks.
pub(crate) struct Reading {
    processes: Duration,
    threads: HashMap<u32, KernelThread>,
    machine: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KernelThread {
    time: Duration,
    serves_loop: bool,
}

impl Reading {
    /// Reads the clocks before a measurement. This process's clock is read last, so that the CPU
    /// time for reading the other clocks is not measured.
    pub(crate) fn before(server: Option<u32>) -> Option<Reading> {
        let (threads, machine) = (kernel_threads(), machine()?);
        Some(Reading { threads, machine, processes: processes(server)? })
    }

    /// Reads the clocks after a measurement. This process's clock is read first, for the same
    /// reason as in [`Reading::before`].
    pub(crate) fn after(server: Option<u32>) -> Option<Reading> {
        let processes = processes(server)?;
        let machine = machine()?;
        Some(Reading { processes, machine, threads: kernel_threads() })
    }
}

impl Sub for &Reading {
    type Output = Cpu;
    fn sub(self, before: &Reading) -> Cpu {
        let mut spent = Cpu {
            processes: self.processes.saturating_sub(before.processes),
            machine: self.machine.saturating_sub(before.machine),
            ..Cpu::default()
        };
        for (id, now) in &self.threads {
            let then = before.threads.get(id);
            let time = now.time.saturating_sub(then.map_or(Duration::ZERO, |then| then.time));
            // The kernel names a worker thread after its latest work. The CPU time of a worker
            // counts as time for loop devices if, before or after the measurement, its name said
            // that it served one.
            if now.serves_loop || then.is_some_and(|then| then.serves_loop) {
                spent.loop_devices += time;
            } else {
                spent.kernel += time;
            }
        }
        spent
    }
}

/// Returns the CPU time of this process, its terminated children, and the process `server`.
fn processes(server: Option<u32>) -> Option<Duration> {
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let own = Duration::new(own.tv_sec.try_into().ok()?, own.tv_nsec.try_into().ok()?);
    let children = Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?)?.children;
    let served = match server {
        Some(pid) => Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.time,
        None => Duration::ZERO,
    };
    Some(own + children + served)
}

/// Returns the kernel's threads: the children of kthreadd, process 2. The result is empty if /proc
/// hides them.
fn kernel_threads() -> HashMap<u32, KernelThread> {
    let Ok(all) = fs::read_dir("/proc") else { return HashMap::new() };
    let ids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| {
        let stat = Stat::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
        let serves_loop = stat.name.contains("loop");
        (stat.parent == 2).then_some((id, KernelThread { time: stat.time, serves_loop }))
    })
    .collect()
}

/// Returns the CPU time of all processors. Idle time, time spent waiting for I/O, and time that a
/// hypervisor took do not count; see `stat` in proc(5).
fn machine() -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    busy(text.lines().next()?)
}

fn busy(line: &str) -> Option<Duration> {
    let fields = line.strip_prefix("cpu ")?.split_ascii_whitespace();
    // The fields are: user, nice, system, idle, iowait, irq, softirq.
    let fields: Vec<u64> = fields.take(7).map(|f| f.parse().ok()).collect::<Option<_>>()?;
    let [user, nice, system, _, _, irq, softirq] = fields[..] else { return None };
    Some(ticks(user + nice + system + irq + softirq))
}

fn ticks(count: u64) -> Duration {
    let nanos = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(count.saturating_mul(nanos))
}

/// The fields of `/proc/PID/stat` (see proc(5)) that are used here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: u32,
    /// The user and system time of all threads of the process.
    time: Duration,
    /// The CPU time of the terminated children for which the process has waited.
    children: Duration,
}

impl Stat {
    /// Parses a line. The second field is a name in parentheses. The name may contain any
    /// characters, even parentheses. The times are fields 14 to 17, in clock ticks.
    fn parse(line: &str) -> Option<Stat> {
        let (head, fields) = line.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = fields.split_ascii_whitespace().take(15).collect();
        let number = |at: usize| -> Option<u64> { fields.get(at)?.parse().ok() };
        Some(Stat {
            name,
            parent: number(1)?.try_into().ok()?,
            time: ticks(number(11)? + number(12)?),
            children: ticks(number(13)? + number(14)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_a_hostile_name() {
        let line = "42 (a) b (c)) S 2 42 42 0 -1 4194560 100 0 0 0 150 50 7 3 20 0 1 0 5 6 7";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent), ("a) b (c)", 2));
        assert_eq!(stat.time, Duration::from_millis(2000));
        assert_eq!(stat.children, Duration::from_millis(100));
        assert_eq!(Stat::parse("42 (a"), None);
    }

    #[test]
    fn idle_processors_are_not_busy() {
        let line = "cpu  100 20 30 4000 500 6 7 80 9 10";
        assert_eq!(busy(line), Some(Duration::from_millis(1630)));
        assert_eq!(busy("cpu0 1 2 3 4 5 6 7"), None);
    }

    #[test]
    fn work_of_this_process_is_counted() {
        let before = Reading::before(None).unwrap();
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        let spent = &Reading::after(None).unwrap() - &before;
        assert!(spent.processes > Duration::from_millis(1), "{spent:?}");
        assert!(Reading::before(Some(u32::MAX)).is_none());
    }

    #[test]
    fn threads_of_loop_devices_are_counted_apart() {
        let thread =
            |millis, serves_loop| KernelThread { time: Duration::from_millis(millis), serves_loop };
        let reading = |threads: &[(u32, KernelThread)]| Reading {
            processes: Duration::ZERO,
            machine: Duration::ZERO,
            threads: threads.iter().copied().collect(),
        };
        let before = reading(&[(7, thread(10, false)), (8, thread(5, true))]);
        let after =
            reading(&[(7, thread(20, false)), (8, thread(6, false)), (9, thread(40, true))]);
        let spent = &after - &before;
        assert_eq!(spent.kernel, Duration::from_millis(10));
        assert_eq!(spent.loop_devices, Duration::from_millis(41));
    }
}
