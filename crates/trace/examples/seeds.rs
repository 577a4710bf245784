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

use lanefs_bench::older::{Policies, lost_bits};
use lanefs_ext4::{Fallocate, InodeRef, MountOptions, NewKind};
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};
use lanefs_trace::{Granule, Recorder};
use lanefs_vfs::{Credentials, Follow, NewNode, OpenFlags, Vfs, VfsOptions};
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
fn file_system(policies: &str) -> Result<Vfs, AnyError> {
    let device = Arc::new(lanefs_device::RamDevice::create(64 << 30)?);
    mkfs(&*device, &MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() })?;
    let policies: Policies = policies.parse()?;
    let commit_interval = Duration::from_secs(3600);
    let allocation = policies.allocation();
    let mount = MountOptions { commit_interval, allocation, ..MountOptions::default() };
    Ok(Vfs::open(device, VfsOptions { mount, ..VfsOptions::default() })?)
}

/// Prints how many bits the workers lose to one another while all of them run rounds of S1 at the
/// same time. A lost bit is a free inode that another thread took between search and claim.
fn count_lost_bits(name: &str, policies: &str, workers: usize) -> Result<(), AnyError> {
    let fs = file_system(policies)?;
    let before = lost_bits();
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
    let lost = lost_bits() - before;
    let creates = workers * ROUNDS * FILES;
    println!("S1 {workers:>2} workers  {name:<10}{lost} bits lost in {creates} creates");
    Ok(fs.close()?)
}

/// The work of one worker, round after round.
struct Round {
    name: &'static str,
    steps: usize,
    worker: for<'a> fn(&'a Vfs, usize) -> Step<'a>,
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
    let logged = fs.fs().journal_statistics().blocks_logged;
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
    let logged = fs.fs().journal_statistics().blocks_logged - logged;
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

const DIRECTORY: NewNode<'_> = NewNode { kind: NewKind::Directory, permissions: 0o755, umask: 0 };
const FILE: NewNode<'_> = NewNode { kind: NewKind::Regular, permissions: 0o644, umask: 0 };

/// Creates a directory for the worker `me`.
fn own_directory(fs: &Vfs, who: &Credentials, me: usize) -> InodeRef {
    let made = fs.make(who, fs.root(), me.to_string().as_bytes(), &DIRECTORY);
    made.expect("room for a directory")
}

fn create_stat_remove(fs: &Vfs, me: usize) -> Step<'_> {
    let who = Credentials::superuser();
    drop(own_directory(fs, &who, me));
    let files: Vec<Vec<u8>> = (0..FILES).map(|n| format!("/{me}/f{n}").into_bytes()).collect();
    Box::new(move |n| {
        let file = &files[n % FILES];
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        match n / FILES {
            0 => {
                let open = fs.open_path(&who, fs.root(), file, flags, &FILE);
                fs.release(&open.expect("room for a file"));
            }
            1 => {
                fs.stat(&who, fs.root(), file, Follow::Nothing).expect("it was made");
            }
            _ => {
                let parent = fs.parent(&who, fs.root(), file).expect("it was made");
                let (name, _) = parent.name(|| lanefs_ext4::Error::Busy).expect("a name");
                fs.unlink(&who, &parent.dir, name).expect("it was made");
            }
        }
    })
}

fn fallocate(fs: &Vfs, me: usize) -> Step<'_> {
    let who = Credentials::superuser();
    let dir = own_directory(fs, &who, me);
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let file = fs.open_at(&who, &dir, b"grows", flags, &FILE).expect("room for a file");
    Box::new(move |n| {
        let at = n as u64 * ADDED;
        if at < FULL {
            fs.fallocate(&file, Fallocate::Allocate, at, ADDED).expect("room for blocks");
        } else {
            fs.set_len(&file, 0).expect("it can be emptied");
        }
    })
}
