//! Runs the workload of fsmark on arrays. Many threads write files of 4 MiB and call fsync before
//! close. Only a few rows may be under way at the same time.
//!
//! A policy determines which threads are woken when a row becomes free. The policies alternate in
//! one run, on arrays in memory with the same geometry.
//!
//! A Lanefs writer writes on its own thread, and holds its row until the write is done. On devices
//! in memory the write is so short that other threads never wait, so the policy does not matter.
//! md, in contrast, holds its stripes while it hands work to another thread, or during disk I/O. So
//! that threads do wait, each array is measured a second time, with members on which each operation
//! takes 20 us (plus the error of the host's timer), like a fast SSD. With the default chunk size
//! of this benchmark, a Lanefs row has 64 KiB on each member, whereas md's stripe has 4 KiB. So for
//! the same data, md waits sixteen times as often.

mod line;

pub use line::FsMarkLine;

use super::distant::Distant;
use crate::error::{Error, Result};
use crate::latency::Latencies;
use crate::stop::Stop;
use lanefs_device::Device;
use lanefs_ext4::{Fs, Mount, MountOptions, NewInode, NewKind, Privilege, SyncMode};
use lanefs_lanes::sync::Arc;
use lanefs_mkfs::{MkfsOptions, mkfs};
use lanefs_raid5::{Array, Consistency, Member, Policies, Setup, StripeWake, Unrecorded};
use std::time::{Duration, Instant};

/// The size of a file and of one write, in bytes.
const FILE: usize = 4 << 20;
const WRITE: usize = 512 << 10;

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct FsMarkPlan {
    /// The numbers of members. Arrays are measured with each combination of a number of members and
    /// a latency.
    pub members: Vec<usize>,
    /// The latencies of one member operation, without the time for copying data.
    pub latencies: Vec<Duration>,
    /// The numbers of workers, each measured separately.
    pub threads: Vec<u32>,
    /// The chunk size in bytes.
    pub chunk: u64,
    /// How many rows may be under way at once.
    pub rows: usize,
    /// The number of slices of each policy.
    pub slices: u32,
    /// The length of a slice.
    pub slice: Duration,
    /// The size of each file system in bytes.
    pub image: u64,
    /// Ends the run early.
    pub stop: Arc<Stop>,
}

impl FsMarkPlan {
    /// The shortest useful slice. In a shorter slice, some of 64 workers would not complete a file.
    pub const LEAST_SLICE: Duration = Duration::from_millis(500);
}

impl Default for FsMarkPlan {
    fn default() -> FsMarkPlan {
        FsMarkPlan {
            members: vec![4, 9],
            threads: vec![1, 64],
            latencies: vec![Duration::ZERO, Duration::from_micros(20)],
            chunk: 64 << 10,
            rows: 4,
            slices: 5,
            slice: Duration::from_secs(2),
            image: 1 << 30,
            stop: Arc::default(),
        }
    }
}

/// A file system on an array, for one policy.
struct Target {
    wake: StripeWake,
    array: Arc<Array>,
    mount: Mount,
}

/// The workload.
pub struct FsMark;

impl FsMark {
    /// Runs the plan, and calls `each` with every complete line. If the run is stopped, returns the
    /// results of the complete slices.
    ///
    /// # Errors
    /// If a file system cannot be created, or an operation fails.
    pub fn run(plan: &FsMarkPlan, mut each: impl FnMut(&FsMarkLine)) -> Result<Vec<FsMarkLine>> {
        let mut all = Vec::new();
        let arrays = plan.latencies.iter().flat_map(|l| plan.members.iter().map(|m| (*m, *l)));
        for (members, latency) in arrays {
            if plan.stop.is_asked() {
                break;
            }
            let targets = [StripeWake::All, StripeWake::One]
                .map(|wake| Target::new(members, latency, wake, plan))
                .into_iter()
                .collect::<Result<Vec<_>>>()?;
            for &threads in &plan.threads {
                let line = |t: &Target| FsMarkLine::new(members, latency, threads, t.wake);
                let mut lines: Vec<FsMarkLine> = targets.iter().map(line).collect();
                take_turns(plan, &targets, &mut lines)?;
                lines.retain(|line| !line.rates.is_empty());
                lines.iter().for_each(&mut each);
                all.extend(lines);
            }
            for target in targets {
                lanefs(target.mount.close())?;
            }
        }
        Ok(all)
    }

    /// Returns the heading above the lines.
    pub fn head(plan: &FsMarkPlan) -> String {
        format!(
            "S4 fsmark: files of {} MiB in writes of {} KiB, fsync before close, at most {} rows at once; \
             {} slices of {:?} in turn\n\
             {:>8} {:>8} {:>8} {:<6}{:>9}{:>20}{:>12}{:>12}{:>12}{:>12}{:>10}\n",
            FILE >> 20,
            WRITE >> 10,
            plan.rows,
            plan.slices,
            plan.slice,
            "members",
            "+ us/io",
            "workers",
            "wake",
            "files/s",
            "(least..most)",
            "user ms/f",
            "sys ms/f",
            "switches/f",
            "waits/row",
            "wakes/row"
        )
    }
}

/// Runs one slice of each target in turn, until the plan is done or stopped.
fn take_turns(plan: &FsMarkPlan, targets: &[Target], lines: &mut [FsMarkLine]) -> Result<()> {
    for _ in 0..plan.slices {
        for (target, line) in targets.iter().zip(&mut *lines) {
            match target.turn(plan, line) {
                Err(Error::Interrupted) => return Ok(()),
                done => done?,
            }
        }
    }
    Ok(())
}

/// Creates an array and touches all its memory, so that no policy's results include the time in
/// which the host zeroes pages.
fn array(
    members: usize,
    latency: Duration,
    plan: &FsMarkPlan,
    policies: Policies,
) -> Result<Arc<Array>> {
    let shape = super::array::shape(members, plan.chunk, plan.image)?;
    let failed = |e: std::io::Error| Error::host("an array in memory", e);
    let zeros = vec![0; 1 << 20];
    let member = |_| -> Result<Option<Member>> {
        let mut member = Member::in_memory(&shape, u64::MAX).map_err(failed)?;
        for at in (0..member.device.len()).step_by(zeros.len()) {
            let rest = (member.device.len() - at).min(zeros.len() as u64);
            member.device.write_at(at, &zeros[..rest as usize])?;
        }
        if !latency.is_zero() {
            member.device = Arc::new(Distant { below: member.device.clone(), latency });
        }
        Ok(Some(member))
    };
    let array = Array::start(Setup {
        geometry: shape,
        members: (0..members).map(member).collect::<Result<_>>()?,
        record: Arc::new(Unrecorded),
        consistency: Consistency::Resync,
        active: false,
        unsynced_from: u64::MAX,
        policies,
    });
    Ok(Arc::new(array.map_err(|e| failed(std::io::Error::other(e)))?))
}

fn lanefs<T>(result: std::result::Result<T, lanefs_ext4::Error>) -> Result<T> {
    result.map_err(|source| Error::Lanefs { path: "fsmark".into(), source })
}

impl Target {
    fn new(
        members: usize,
        latency: Duration,
        wake: StripeWake,
        plan: &FsMarkPlan,
    ) -> Result<Target> {
        let policies = Policies { stripe_wake: wake, rows: plan.rows, ..Policies::default() };
        let array = array(members, latency, plan, policies)?;
        let made = mkfs(&*array, &MkfsOptions::default());
        made.map_err(|e| Error::host("a file system", std::io::Error::other(e)))?;
        let device: Arc<dyn Device> = array.clone();
        let mount = lanefs(Mount::open(device, MountOptions::default()))?;
        let (fs, root) = (mount.fs(), lanefs(mount.fs().root())?);
        // Each possible worker gets a directory, as in fsmark.
        for worker in 0..plan.threads.iter().copied().max().unwrap_or(1) {
            let new =
                NewInode { kind: NewKind::Directory, permissions: 0o755, umask: 0, uid: 0, gid: 0 };
            lanefs(fs.create(&root, format!("{worker}").as_bytes(), &new))?;
        }
        drop(root);
        Ok(Target { wake, array, mount })
    }

    fn turn(&self, plan: &FsMarkPlan, line: &mut FsMarkLine) -> Result<()> {
        let (before, cpu) = (self.array.statistics(), process_cpu());
        let begun = Instant::now();
        let end = begun + plan.slice;
        let done: Vec<Result<Made>> = std::thread::scope(|s| {
            let (fs, stop) = (self.mount.fs(), &*plan.stop);
            let workers: Vec<_> =
                (0..line.threads).map(|w| s.spawn(move || work(fs, w, end, stop))).collect();
            workers
                .into_iter()
                .map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let seconds = begun.elapsed().as_secs_f64();
        let mut files = 0;
        for worker in done {
            let made = worker?;
            files += made.files;
            line.switches += made.switches;
            line.latencies.add(&made.latencies);
        }
        let spent = process_cpu();
        line.user += spent.0.saturating_sub(cpu.0);
        line.system += spent.1.saturating_sub(cpu.1);
        line.files += files;
        line.rates.push(files as f64 / seconds);
        line.counted = line.counted.plus(&self.array.statistics().since(&before));
        Ok(())
    }
}

/// What one worker did.
#[derive(Default)]
struct Made {
    files: u64,
    /// The number of context switches of the worker's thread.
    switches: u64,
    latencies: Latencies,
}

/// Creates files until the slice ends.
fn work(fs: &Arc<Fs>, worker: u32, end: Instant, stop: &Stop) -> Result<Made> {
    let data = vec![worker as u8 + 1; WRITE];
    let root = lanefs(fs.root())?;
    let dir = lanefs(fs.lookup(&root, format!("{worker}").as_bytes()))?;
    let dir = dir.ok_or(lanefs_ext4::Error::NotFound);
    let dir = lanefs(dir.and_then(|named| fs.get(named.ino, None)))?;
    let mut made = Made::default();
    let mut now = Instant::now();
    while now < end {
        stop.check()?;
        // Two names alternate, so the image never has more than two files of a worker.
        let name = format!("file{}", made.files % 2);
        if made.files >= 2 || lanefs(fs.lookup(&dir, name.as_bytes()))?.is_some() {
            lanefs(fs.unlink(&dir, name.as_bytes()))?;
        }
        let new = NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 };
        let file = lanefs(fs.create(&dir, name.as_bytes(), &new))?;
        for at in (0..FILE).step_by(WRITE) {
            lanefs(fs.write_at(&file, at as u64, &data, Privilege::Root))?;
        }
        lanefs(fs.fsync(&file, SyncMode::Full))?;
        fs.release(&file);
        made.files += 1;
        let begun = std::mem::replace(&mut now, Instant::now());
        made.latencies.record(now - begun);
    }
    made.switches = switches();
    Ok(made)
}

/// Returns the number of context switches of the calling thread (see proc(5)).
pub(super) fn switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let count = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    status.lines().filter(|line| line.contains("ctxt_switches")).filter_map(count).sum()
}

/// Returns the process's CPU time in user mode and in the kernel: fields 14 and 15 of
/// `/proc/self/stat` (see proc(5)).
pub(super) fn process_cpu() -> (Duration, Duration) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let tick = Duration::from_secs(1) / rustix::param::clock_ticks_per_second().max(1) as u32;
    let mut ticks = fields.split_ascii_whitespace().skip(11).map(|f| f.parse::<u32>().unwrap_or(0));
    let (user, system) = (ticks.next().unwrap_or(0), ticks.next().unwrap_or(0));
    (tick * user, tick * system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_policies_are_measured_in_turn_and_one_wakes_at_most_one() {
        let plan = FsMarkPlan {
            members: vec![4],
            threads: vec![1, 8],
            latencies: vec![Duration::ZERO],
            chunk: 64 << 10,
            rows: 1,
            slices: 2,
            slice: Duration::from_millis(60),
            image: 256 << 20,
            stop: Arc::default(),
        };
        let lines = FsMark::run(&plan, |line| println!("{}", line.text())).expect("it runs");
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.files > 0 && line.rates.len() == 2));
        let one = lines.iter().filter(|line| line.wake == StripeWake::One);
        assert!(one.into_iter().all(|line| line.wakes_per_unit() <= 1.0), "{lines:?}");
    }
}
