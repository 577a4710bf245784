//! Walks a large tree with small caches, and measures the process's memory and the speed of the
//! walk.
//!
//! ```sh
//! cargo run --release -p lanefs --example reclaim -- 1000000 64 4   # files, MiB of caches, threads
//! ```
//!
//! Each thread stats every file of a tree that only this thread uses, directory by directory. Then
//! several rounds are measured, each of three walks. The first walk of a round uses small caches,
//! like the initial walk, and stats the same files. The second walk uses large caches: it stats as
//! many files as the small caches hold, and all of them are already cached. The third walk begins
//! with empty large caches, so it reads each file for the first time. Memory is measured as the
//! heap in use, and as the process's anonymous memory (which excludes the device, a file in
//! memory).

use lanefs::device::RamDevice;
use lanefs::{FileSystem, FormatOptions, LineHeap, OpenOptions};
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: LineHeap = LineHeap;

/// The number of files in a directory.
const FILES: usize = 500;

const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let &[files, cap, threads] = &arguments[..] else {
        return Err("files, MiB of caches, threads".into());
    };
    let directories = files / threads / FILES;
    let device = Arc::new(RamDevice::create((files as u64) << 16)?);
    FileSystem::format(&*device, &FormatOptions::default())?;
    let options = |mib: usize| OpenOptions::new().cache_bytes((mib as u64) << 20);
    let fs = FileSystem::open_device(device.clone(), &options(cap))?;
    make(&fs, threads, directories)?;
    fs.close()?;
    // The heap may still have memory from the creation of the tree. That memory is measured here,
    // so that it can be subtracted from the memory of the walk.
    let (heap, anonymous) = (LineHeap::in_use(), anonymous_kib());
    println!("made {files} files; in use {} KiB, anonymous {anonymous} KiB", heap / 1024);

    let open = |mib: usize| FileSystem::open_device(device.clone(), &options(mib).read_only());
    let capped = open(cap)?;
    let all = Walk { threads, directories, times: 1 };
    let most = all.go(&capped, |seconds| {
        let used = LineHeap::in_use().saturating_sub(heap);
        println!(
            "{seconds:>6.1} s  heap {:>7} KiB  of a cap of {} KiB  anonymous {:>7} KiB  caches {:>7} KiB",
            used / 1024,
            cap * 1024,
            anonymous_kib(),
            capped.statistics().cached_bytes / 1024,
        );
    })?;
    println!("{} KiB at most", most.heap.saturating_sub(heap) / 1024);

    let fits = capped.statistics().cached_inodes as usize;
    let part = (fits / threads / FILES).clamp(1, directories);
    let uncapped = open(16 << 10)?;
    Walk { threads, directories: part, times: 2 }.go(&uncapped, |_| ())?;
    let found = Walk { threads, directories: part, times: (directories / part).max(1) };
    let first = Walk { threads, directories: (directories / 8).max(part), times: 1 };
    let mut slices = Slices::default();
    for _ in 0..ROUNDS {
        let walked = all.go(&capped, |_| ())?;
        slices.add(&walked, &found.go(&uncapped, |_| ())?, &first.go(&open(16 << 10)?, |_| ())?);
    }
    println!("{ROUNDS} rounds in turn; medians (smallest..largest)");
    println!("{:>44}  {} files/s", format!("with {cap} MiB, {files} files"), slices.capped);
    let part = part * threads * FILES;
    let what = format!("uncapped, {part} files, which fit, in memory");
    println!("{what:>44}  {} files/s, {} times the capped walk", slices.found, slices.found_times);
    let what = "uncapped, read for the first time";
    println!("{what:>44}  {} files/s, {} times the capped walk", slices.first, slices.first_times);
    Ok(())
}

/// The measurements of all rounds.
#[derive(Default)]
struct Slices {
    capped: Spread,
    found: Spread,
    found_times: Spread,
    first: Spread,
    first_times: Spread,
}

impl Slices {
    fn add(&mut self, capped: &Walked, found: &Walked, first: &Walked) {
        self.capped.0.push(capped.speed);
        self.found.0.push(found.speed);
        self.found_times.0.push(found.speed / capped.speed);
        self.first.0.push(first.speed);
        self.first_times.0.push(first.speed / capped.speed);
    }
}

/// The values of one measurement, one for each round.
#[derive(Default)]
struct Spread(Vec<f64>);

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = self.0.clone();
        all.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (all.first(), all.last()) else { return Ok(()) };
        let digits = if *most < 100.0 { 2 } else { 0 };
        let median = all[all.len() / 2];
        write!(f, "{median:.digits$} ({least:.digits$}..{most:.digits$})")
    }
}

fn make(fs: &FileSystem, threads: usize, directories: usize) -> Result<(), lanefs::Error> {
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..threads)
            .map(|t| {
                scope.spawn(move || {
                    fs.create_dir(format!("/{t}"))?;
                    for d in 0..directories {
                        fs.create_dir(format!("/{t}/{d}"))?;
                        for f in 0..FILES {
                            drop(fs.create_file(format!("/{t}/{d}/file{f}"))?);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        makers.into_iter().try_for_each(|maker| maker.join().expect("no panic"))
    })
}

/// A walk: each of `threads` threads visits `directories` directories of its tree, `times` times.
struct Walk {
    threads: usize,
    directories: usize,
    times: usize,
}

struct Walked {
    /// The number of files that all threads together visit per second.
    speed: f64,
    /// The largest number of bytes in the heap.
    heap: usize,
}

impl Walk {
    fn go(&self, fs: &FileSystem, sample: impl Fn(f64) + Sync) -> Result<Walked, lanefs::Error> {
        let &Walk { threads, directories, times } = self;
        let most = AtomicUsize::new(0);
        let over = AtomicBool::new(false);
        let begun = Instant::now();
        let seconds = std::thread::scope(|scope| {
            let walkers: Vec<_> = (0..threads)
                .map(|t| {
                    let most = &most;
                    scope.spawn(move || {
                        for d in (0..times).flat_map(|_| 0..directories) {
                            for f in 0..FILES {
                                fs.symlink_metadata(format!("/{t}/{d}/file{f}"))?;
                            }
                            most.fetch_max(LineHeap::in_use(), Ordering::Relaxed);
                        }
                        Ok(())
                    })
                })
                .collect();
            let watcher = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    sample(begun.elapsed().as_secs_f64());
                    std::thread::park_timeout(Duration::from_millis(500));
                }
            });
            let done: Result<(), lanefs::Error> =
                walkers.into_iter().try_for_each(|walker| walker.join().expect("no panic"));
            let seconds = begun.elapsed().as_secs_f64();
            over.store(true, Ordering::Relaxed);
            watcher.thread().unpark();
            done.map(|()| seconds)
        })?;
        let files = (threads * directories * FILES * times) as f64;
        Ok(Walked { speed: files / seconds, heap: most.into_inner() })
    }
}

/// Returns the process's anonymous memory in KiB.
fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}
