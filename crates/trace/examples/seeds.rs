//! Counts what the workloads S1 and S2 cost with each policy. S1 creates, stats and removes files.
//! S2 adds space to a file by fallocate, and then empties the file. For one worker, counts the
//! instructions and cache lines of the median operation, by single-stepping. For two workers,
//! counts the blocks that a commit logs. Load on the machine does not change these counts.
//!
//! For S1 also runs several workers at the same time, and counts the bitmap bits that they lose. A
//! worker loses a bit if it finds the bit free, and another worker takes the bit first. The number
//! of lost bits depends on how the workers are scheduled.
//!
//! ```sh
//! cargo run --profile stress -p lanefs-trace --example seeds
//! ```

use lanefs::{File, FileOptions, FileSystem, FormatOptions, OpenOptions, Policies};
use lanefs_ext4::mkfs::Contents;
use lanefs_trace::{Granule, Recorder};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// The heap that the command uses.
#[global_allocator]
static HEAP: lanefs_lanes::LineHeap = lanefs_lanes::LineHeap;

/// The number of files in a round of S1. The benchmark of the same workload uses 1,000.
const FILES: usize = 100;
/// The sizes of S2, as in the benchmark: the bytes that each fallocate adds, and the size at which
/// the file is emptied.
const ADDED: u64 = 8 << 10;
const FULL: u64 = 1 << 20;

/// One in this many operations is traced.
const STRIDE: usize = 7;

/// Numbers of workers that create files at the same time, and the number of rounds that each worker
/// runs.
const WORKERS: [usize; 3] = [2, 8, 64];
const ROUNDS: usize = 50;

const CLAIMS: [(&str, &str); 3] = [
    ("two-step", "placement=shared+busy_group=wait+inode_claim=two-step"),
    ("one-step", "placement=shared+busy_group=wait"),
    ("lanes", "after"),
];
const SEARCHES: [(&str, &str); 6] = [
    ("wait", "placement=shared+busy_group=wait+stream_goal=global+group_search=scan"),
    ("skip", "placement=shared+stream_goal=global+group_search=scan"),
    ("hashed", "placement=shared+stream_goal=hashed+group_search=scan"),
    ("goals", "placement=shared+group_search=scan"),
    ("index", "placement=shared"),
    ("lanes", "after"),
];

type AnyError = Box<dyn Error>;
/// Runs one step of a round: the step with the given number.
type Step<'a> = Box<dyn FnMut(usize) + 'a>;

fn main() -> Result<(), AnyError> {
    if !lanefs_trace::is_supported() {
        println!("skipped: {}", lanefs_trace::Unsupported);
        return Ok(());
    }
    let mut recorder = Recorder::new()?;
    println!("instructions (and lines) of the median operation; blocks that the commit logs");
    for (name, policies) in CLAIMS {
        measure(&CREATE_STAT_REMOVE, name, policies, &mut recorder)?;
    }
    for (name, policies) in SEARCHES {
        measure(&FALLOCATE2, name, policies, &mut recorder)?;
    }
    for (name, policies) in CLAIMS {
        for workers in WORKERS {
            count_lost_bits(name, policies, workers)?;
        }
    }
    Ok(())
}

/// Creates a file system that has these policies and commits only on request.
fn file_system(policies: &str) -> Result<FileSystem, AnyError> {
    let device = Arc::new(lanefs_device::RamDevice::create(64 << 30)?);
    let options = FormatOptions { contents: Contents::Zeros, ..FormatOptions::default() };
    FileSystem::format(&*device, &options)?;
    let policies: Policies = policies.parse()?;
    let options = OpenOptions::new().commit_interval(Duration::from_secs(3600)).policies(policies);
    Ok(FileSystem::open_device(device, &options)?)
}

/// Prints how many bits the workers lose to one another while all of them run rounds of S1 at the
/// same time. A lost bit is a free inode that another thread took between search and claim.
fn count_lost_bits(name: &str, policies: &str, workers: usize) -> Result<(), AnyError> {
    let fs = file_system(policies)?;
    std::thread::scope(|s| {
        for me in 0..workers {
            let fs = &fs;
            s.spawn(move || {
                let mut step = create_stat_remove(fs, me);
                let steps = CREATE_STAT_REMOVE.steps;
                (0..ROUNDS * steps).for_each(|n| step(n % steps));
            });
        }
    });
    let lost = fs.statistics().alloc.bits_lost;
    let creates = workers * ROUNDS * FILES;
    println!("S1 {workers:>2} workers  {name:<10}{lost} bits lost in {creates} creates");
    Ok(fs.close()?)
}

/// The work of one worker, round after round.
struct Round {
    name: &'static str,
    steps: usize,
    worker: for<'a> fn(&'a FileSystem, usize) -> Step<'a>,
    /// Returns the kind of each step of the round.
    kind: fn(usize) -> &'static str,
}

const CREATE_STAT_REMOVE: Round = Round {
    name: "S1 create-stat-remove",
    steps: 3 * FILES,
    worker: create_stat_remove,
    kind: |n| ["create", "stat", "remove"][n / FILES],
};

const FALLOCATE2: Round = Round {
    name: "S2 fallocate2",
    steps: (FULL / ADDED) as usize + 1,
    worker: fallocate,
    kind: |n| if (n as u64) < FULL / ADDED { "allocate" } else { "empty" },
};

fn measure(
    round: &Round,
    name: &str,
    policies: &str,
    recorder: &mut Recorder,
) -> Result<(), AnyError> {
    let Round { steps, worker, kind, .. } = *round;
    let fs = file_system(policies)?;
    let mut step = worker(&fs, 0);
    // After two rounds the caches are full, and further rounds allocate memory that earlier rounds
    // freed.
    (0..2 * steps).for_each(|n| step(n % steps));
    let mut counted: BTreeMap<&str, Vec<(u64, usize)>> = BTreeMap::new();
    for n in 0..steps {
        // Single-stepping is slow, so only every seventh operation is traced. The last step of S2,
        // which truncates the file, is among the traced ones.
        if n % STRIDE == (steps - 1) % STRIDE {
            let (_, footprint) = recorder.record(|| step(n))?;
            let instructions = footprint.instructions();
            let lines = footprint.in_granules(Granule::Line).lines().len();
            counted.entry(kind(n)).or_default().push((instructions, lines));
        } else {
            step(n);
        }
    }
    // Two workers run concurrently, each on its own lane. Each runs only half a round, so that its
    // files still exist at the commit.
    fs.sync()?;
    let logged = fs.statistics().journal.blocks_logged;
    std::thread::scope(|s| {
        for me in 1..3 {
            let fs = &fs;
            s.spawn(move || {
                let mut step = worker(fs, me);
                (0..steps / 2).for_each(&mut step);
            });
        }
    });
    fs.sync()?;
    let logged = fs.statistics().journal.blocks_logged - logged;
    drop(step);
    print!("{:<24}{name:<10}", round.name);
    for (kind, mut all) in counted {
        // The median is printed, because now and then one operation frees the memory that many
        // others retired.
        all.sort_unstable();
        let (instructions, lines) = all[all.len() / 2];
        print!("{kind} {instructions} ({lines}), ");
    }
    println!("{logged} blocks");
    fs.close()?;
    Ok(())
}

fn create_stat_remove(fs: &FileSystem, me: usize) -> Step<'_> {
    fs.create_dir(format!("/{me}")).expect("room for a directory");
    let files: Vec<String> = (0..FILES).map(|n| format!("/{me}/f{n}")).collect();
    Box::new(move |n| {
        let file = &files[n % FILES];
        match n / FILES {
            0 => drop(fs.create_file(file).expect("room for a file")),
            1 => drop(fs.metadata(file).expect("it was made")),
            _ => fs.remove_file(file).expect("it was made"),
        }
    })
}

fn fallocate(fs: &FileSystem, me: usize) -> Step<'_> {
    fs.create_dir(format!("/{me}")).expect("room for a directory");
    let options = FileOptions::new().read().write().create();
    let file: File = fs.open_file_with(format!("/{me}/grows"), &options).expect("room for a file");
    Box::new(move |n| {
        let at = n as u64 * ADDED;
        if at < FULL {
            file.allocate(at, ADDED).expect("room for blocks");
        } else {
            file.set_len(0).expect("it can be emptied");
        }
    })
}
