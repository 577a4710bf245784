//! A walk of a large tree with small caches: what the process has in memory, and how fast it goes.
//!
//! ```sh
//! cargo run --release -p lanefs --example reclaim -- 1000000 64 4   # files, MiB of caches, threads
//! ```
//!
//! Each thread asks for every file of a tree of its own, directory by directory. The same tree then
//! with caches for all of it: the first walk of the part that fits into the cap, which reads as the
//! other does, and the second, which finds everything. Memory is what the heap has given out, and
//! the process's anonymous memory (the device is a file in memory, and not in that).

use lanefs::device::RamDevice;
use lanefs::{FileSystem, FormatOptions, LineHeap, OpenOptions};
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: LineHeap = LineHeap;

const FILES: usize = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let &[files, cap, threads] = &arguments[..] else {
        return Err("files, MiB of caches, threads".into());
    };
    let directories = files / threads / FILES;
    let device = Arc::new(RamDevice::create((files as u64) << 16)?);
    FileSystem::format(&*device, &FormatOptions::default())?;
    let open = |mib: usize| {
        let options = OpenOptions::new().cache_bytes((mib as u64) << 20);
        FileSystem::open_device(device.clone(), &options)
    };
    let fs = open(cap)?;
    make(&fs, threads, directories)?;
    fs.close()?;
    // What the making needed stays with the heap: it is not the walk's.
    let (heap, anonymous) = (LineHeap::in_use(), anonymous_kib());
    println!("made {files} files; in use {} KiB, anonymous {anonymous} KiB", heap / 1024);

    let fs = open(cap)?;
    let capped = walk(&fs, threads, directories, |seconds| {
        let used = LineHeap::in_use().saturating_sub(heap);
        println!(
            "{seconds:>6.1} s  heap {:>7} KiB  of a cap of {} KiB  anonymous {:>7} KiB  caches {:>7} KiB",
            used / 1024,
            cap * 1024,
            anonymous_kib(),
            fs.statistics().cached_bytes / 1024,
        );
    })?;
    capped.tell(&format!("with {cap} MiB"), &capped);
    println!("{} KiB at most", capped.most.saturating_sub(heap) / 1024);
    let fits = fs.statistics().cached_inodes as usize;
    fs.close()?;

    let fs = open(16 << 10)?;
    let part = (fits / threads / FILES).clamp(1, directories);
    let fitting = format!("uncapped, {} files, which fit", part * threads * FILES);
    walk(&fs, threads, part, |_| ())?.tell(&fitting, &capped);
    walk(&fs, threads, part, |_| ())?.tell("the same again, in memory", &capped);
    walk(&fs, threads, directories, |_| ())?.tell("uncapped, all", &capped);
    fs.close()?;
    Ok(())
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

struct Walked {
    /// Files in a second, of all threads.
    speed: f64,
    /// Microseconds of the process's CPU time for each file.
    cpu: f64,
    /// Bytes of the heap.
    most: usize,
}

fn walk(
    fs: &FileSystem,
    threads: usize,
    directories: usize,
    sample: impl Fn(f64) + Sync,
) -> Result<Walked, lanefs::Error> {
    let most = AtomicUsize::new(0);
    let over = AtomicBool::new(false);
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let seconds = std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..threads)
            .map(|t| {
                let most = &most;
                scope.spawn(move || {
                    for d in 0..directories {
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
    let files = (threads * directories * FILES) as f64;
    let cpu = (cpu_seconds() - cpu) * 1e6 / files;
    Ok(Walked { speed: files / seconds, cpu, most: most.into_inner() })
}

impl Walked {
    fn tell(&self, what: &str, capped: &Walked) {
        println!(
            "{what:>32}: {:>8.0} files/s, {:.2} us of CPU time each; {:.2} times the capped walk, \
             {:.2} by CPU time",
            self.speed,
            self.cpu,
            self.speed / capped.speed,
            capped.cpu / self.cpu
        );
    }
}

/// CPU time of the process, in user and system mode: on a busy machine it says more than the clock.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    // Fields 14 and 15, the third being the first behind the name; in hundredths (proc(5)).
    let ticks: f64 = words.skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// The process's anonymous memory.
fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}
