//! Checks that the size limit of the caches also bounds the process's heap. The heap itself counts
//! its bytes in use.

use lanefs::device::RamDevice;
use lanefs::{FileSystem, FormatOptions, LineHeap, OpenOptions};
use lanefs_lanes::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

#[global_allocator]
static HEAP: LineHeap = LineHeap;

const CAP: usize = 24 << 20;
const THREADS: usize = 3;
const DIRECTORIES: usize = 200;
const FILES: usize = 50;

/// Memory in use in addition to the caches: free blocks that threads keep (the committer is one of
/// these threads), and the memory that every mount needs.
const BESIDE: usize = (THREADS + 2) * (512 << 10) + (4 << 20);

/// While all files are loaded, up to this many bytes of evicted objects may still wait to be freed.
/// On a busy machine, a thread may be preempted during a look-up. Meanwhile its pin keeps objects
/// in memory that other threads evict.
const IN_LIMBO: usize = CAP / 2;

#[test]
fn a_walk_of_a_large_tree_stays_under_the_cap() {
    let device = Arc::new(RamDevice::create(2 << 30).unwrap());
    FileSystem::format(&*device, &FormatOptions::default()).unwrap();
    let options = || OpenOptions::new().cache_bytes(CAP as u64);
    let fs = FileSystem::open_device(device.clone(), &options()).unwrap();
    for thread in 0..THREADS {
        fs.create_dir(format!("/{thread}")).unwrap();
        for d in 0..DIRECTORIES {
            fs.create_dir(format!("/{thread}/{d}")).unwrap();
            for f in 0..FILES {
                drop(fs.create_file(format!("/{thread}/{d}/{f}")).unwrap());
            }
        }
    }
    fs.close().unwrap();

    // When memory is short, a stat does not load the inode, but an open does.
    let looked = walk(device.clone(), &options(), CAP, |fs, path| {
        fs.symlink_metadata(path).unwrap();
    });
    let opened = walk(device.clone(), &options(), CAP + IN_LIMBO, |fs, path| {
        drop(fs.open_file(path).unwrap());
    });
    // A cache that kept nothing would also stay below the cap, so the test requires that it keeps
    // something.
    assert!(looked > CAP as u64 / 8 && opened > CAP as u64 / 8, "{looked} and {opened}");
    hold_and_drop();
}

/// Files of which a program has handles at the same time, and the cap meanwhile.
const HELD: usize = 40_000;
const SMALL_CAP: usize = 8 << 20;

/// Opens many files at once. Fails if more than the cap stays in the heap after they are closed.
fn hold_and_drop() {
    let device = Arc::new(RamDevice::create(2 << 30).unwrap());
    FileSystem::format(&*device, &FormatOptions::default()).unwrap();
    let path = |n: usize| format!("/{}/{n}", n % 100);
    let fs = FileSystem::open_device(device.clone(), &OpenOptions::new()).unwrap();
    (0..100).for_each(|d| fs.create_dir(format!("/{d}")).unwrap());
    (0..HELD).for_each(|n| drop(fs.create_file(path(n)).unwrap()));
    fs.close().unwrap();
    let before = LineHeap::in_use();
    let grown = || LineHeap::in_use().saturating_sub(before);
    let options = OpenOptions::new().cache_bytes(SMALL_CAP as u64);
    let fs = FileSystem::open_device(device, &options).unwrap();
    let held: Vec<_> = (0..HELD).map(|n| fs.open_file(path(n)).unwrap()).collect();
    let most = grown();
    drop(held);
    let at_once = grown();
    // What other threads may still have seen is freed a moment later.
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while grown() >= SMALL_CAP + BESIDE && std::time::Instant::now() < patience {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let after = grown();
    println!("{most} bytes with {HELD} handles, {at_once} after them, then {after}");
    assert!(most > 5 * SMALL_CAP && after < SMALL_CAP + BESIDE, "{most}, then {after} bytes");
    fs.close().unwrap();
}

/// Visits all files. Fails if the heap grows by `cap + BESIDE` bytes or more. Returns the bytes
/// that are cached at the end.
fn walk(
    device: Arc<RamDevice>,
    options: &OpenOptions,
    cap: usize,
    visit: fn(&FileSystem, String),
) -> u64 {
    let before = LineHeap::in_use();
    let fs = FileSystem::open_device(device, options).unwrap();
    let most = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (fs, most) = (&fs, &most);
            scope.spawn(move || {
                for d in 0..DIRECTORIES {
                    (0..FILES).for_each(|f| visit(fs, format!("/{thread}/{d}/{f}")));
                    most.fetch_max(LineHeap::in_use(), Ordering::Relaxed);
                }
            });
        }
    });
    let used = most.into_inner().saturating_sub(before);
    let statistics = fs.statistics();
    println!(
        "{used} bytes at most with a cap of {CAP}; {} inodes, {} blocks of directories and {} of \
         tables at the end: {} bytes",
        statistics.cached_inodes,
        statistics.cached_metadata,
        statistics.cached_tables,
        statistics.cached_bytes
    );
    assert!(used < cap + BESIDE, "{used} bytes");
    fs.close().unwrap();
    statistics.cached_bytes
}
