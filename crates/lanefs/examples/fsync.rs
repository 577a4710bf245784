//! Measures how many fsyncs share a flush, and what a single fsync costs. The device is in memory,
//! and each of its flushes takes a given time.
//!
//! ```sh
//! cargo run --release -p lanefs --example fsync [-- MICROSECONDS [SECONDS]]
//! ```

use lanefs::device::{Device, DeviceError, GatedDevice, Pace, RamDevice, WriteKind, forward};
use lanefs::{FileOptions, FileSystem, FormatOptions, OpenOptions};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts the operations that reach the device.
struct Counting {
    inner: GatedDevice,
    writes: AtomicU64,
    flushes: AtomicU64,
    durable: AtomicU64,
}

impl Counting {
    fn counts(&self) -> [u64; 3] {
        [&self.writes, &self.flushes, &self.durable].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Device for Counting {
    forward!(inner: len, is_read_only, read, discard);
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let count = if kind.is_durable() { &self.durable } else { &self.writes };
        count.fetch_add(1, Ordering::Relaxed);
        self.inner.write(offset, bufs, kind)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flush()
    }
}

/// What each thread does before each fsync.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// The thread appends 4 KiB to its file.
    Append,
    /// The thread overwrites 4 KiB of its file.
    Overwrite,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let flush = Duration::from_micros(arguments.next().map_or(Ok(1000), |us| us.parse())?);
    let time = Duration::from_secs_f64(arguments.next().map_or(Ok(1.0), |s| s.parse())?);
    println!(
        "a flush or durable write takes {flush:?}; per fsync, each thread on a file of its own"
    );
    println!("work      threads   fsyncs/s   writes  flushes  durable  fsyncs per flush");
    for work in [Work::Append, Work::Overwrite] {
        for threads in [1, 2, 8, 64] {
            run(work, threads, flush, time)?;
        }
    }
    Ok(())
}

fn run(
    work: Work,
    threads: usize,
    flush: Duration,
    time: Duration,
) -> Result<(), Box<dyn std::error::Error>> {
    let ram = Arc::new(RamDevice::create(2 << 30)?);
    FileSystem::format(&*ram, &FormatOptions::default())?;
    let device = Arc::new(Counting {
        inner: GatedDevice::new(ram, Pace::Time(flush)),
        writes: AtomicU64::new(0),
        flushes: AtomicU64::new(0),
        durable: AtomicU64::new(0),
    });
    let fs = FileSystem::open_device(device.clone(), &OpenOptions::new())?;
    for thread in 0..threads {
        fs.create_dir(format!("/{thread}"))?;
        fs.write(format!("/{thread}/file"), [1; 4096])?;
    }
    fs.sync()?;
    let before = device.counts();
    let begun = Instant::now();
    let fsyncs: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || -> Result<u64, lanefs::Error> {
                    let path = format!("/{thread}/file");
                    let file = fs.open_file_with(path, &FileOptions::new().write(true))?;
                    let mut done = 0;
                    while begun.elapsed() < time {
                        let at = match work {
                            Work::Append => 4096 * (done + 1),
                            Work::Overwrite => 0,
                        };
                        file.write_all_at(&[2; 4096], at)?;
                        file.sync_all()?;
                        done += 1;
                    }
                    Ok(done)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).sum::<Result<u64, _>>()
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let [writes, flushes, durable] = device.counts();
    let each = |now: u64, before: u64| (now - before) as f64 / fsyncs as f64;
    let (flushed, durable) = (each(flushes, before[1]), each(durable, before[2]));
    println!(
        "{:<10}{threads:>6}{:>11.0}{:>9.2}{flushed:>9.3}{durable:>9.3}{:>18.1}",
        format!("{work:?}").to_lowercase(),
        fsyncs as f64 / seconds,
        each(writes, before[0]),
        1.0 / (flushed + durable),
    );
    fs.close()?;
    Ok(())
}
