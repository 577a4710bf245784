//! Runs scenarios on whole file systems under many thread schedules. Each schedule uses its own
//! disk, which is checked at the end.
//!
//! `LANEFS_SCHEDULES` is the number of schedules for each scenario, and `LANEFS_SEED` selects the
//! first schedule.

pub mod disk;
pub mod remembered;
pub mod tree;
pub mod words;

use disk::Disk;
use lanefs_ext4::allocation::{Allocation, Wait};
use lanefs_ext4::{Error, Fs, InodeRef, Mount, MountOptions, NewInode, NewKind, Privilege};
use lanefs_lanes::sync::unscheduled::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::unscheduled::{LazyLock, Mutex, Once};
use lanefs_lanes::sync::{Arc, thread};
use remembered::Remembered;
use shuttle::rand::{Rng, RngCore, thread_rng};
use shuttle::scheduler::{
    DfsScheduler, PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId,
};
use std::process::Command;
use tree::{Totals, Tree};

/// The default number of schedules of a scenario.
const SCHEDULES: usize = 150;
/// e2fsck checks one of this many resulting disks.
const JUDGED: u64 = 50;
/// The number of steps after which a schedule counts as endless. If all threads except the
/// committer wait for ever, the checker reports no deadlock, because the committer's timed waits
/// still end.
const ENDLESS: usize = 400_000;

/// The number of schedules that this process ran.
static RUN: AtomicU64 = AtomicU64::new(0);

/// The initial state of a scenario.
pub struct Start {
    image: Arc<Vec<u8>>,
    totals: Totals,
}

/// A mounted file system, in one schedule.
pub struct World {
    pub mount: Arc<Mount>,
    pub fs: Arc<Fs>,
    pub disk: Arc<Disk>,
    /// The name cache in which `fs` publishes names.
    pub names: Arc<Remembered>,
}

fn number(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(otherwise, |given| given.parse().expect("a number"))
}

/// An empty file system with small groups and the smallest log. Free space is filled with bytes
/// that no file may contain.
pub static EMPTY: LazyLock<Start> = LazyLock::new(|| Start::prepared("orphan_file", leave_junk));

/// The same as [`EMPTY`], but without an orphan file, so that orphans are in the legacy list.
pub static LISTING: LazyLock<Start> = LazyLock::new(|| Start::prepared("^orphan_file", leave_junk));

fn leave_junk(world: &World) {
    let root = world.fs.root().unwrap();
    let junk = world.file(&root, "junk");
    let piece = vec![words::JUNK; 1 << 16];
    while world.fs.append(&junk, &piece, Privilege::Root).is_ok_and(|(_, n)| n > 0) {}
    drop(junk);
    world.fs.sync().unwrap();
    world.fs.unlink(&root, b"junk").unwrap();
}

/// A file system like [`EMPTY`], but with a file `/filler` that leaves only a few free blocks, and
/// with zeros in the free space.
pub static FULL: LazyLock<Start> = LazyLock::new(|| {
    Start::prepared("orphan_file", |world| fill(world, world.fs.stat_fs().blocks_available - 12))
});

/// Like [`FULL`], but all free blocks are reserved for privileged callers, and there are only 30,
/// so that freed blocks are soon reused.
pub static TIGHT: LazyLock<Start> = LazyLock::new(|| {
    Start::prepared("orphan_file", |world| fill(world, world.fs.stat_fs().blocks_free - 30))
});

fn fill(world: &World, blocks: u64) {
    let filler = world.file(&world.fs.root().unwrap(), "filler");
    let contents = words::of(9, 0, blocks as usize * 1024);
    assert_eq!(world.fs.write_at(&filler, 0, &contents, Privilege::Root).unwrap(), contents.len());
}

/// A file system like [`EMPTY`], but with a directory `/all` of several leaves, and with zeros in
/// the free space. The directory contains the names `long(0)` to `long(11)`, which no thread
/// changes.
pub static INDEXED: LazyLock<Start> = LazyLock::new(|| {
    Start::prepared("orphan_file", |world| {
        let all = world.directory(&world.fs.root().unwrap(), "all");
        (0..STAYING).for_each(|n| drop(world.file(&all, &long(n))));
    })
});

/// The number of names in [`INDEXED`] that stay.
pub const STAYING: u32 = 12;

/// Returns a name so long that few names fit into a block.
pub fn long(n: u32) -> String {
    format!("{n:0>180}")
}

impl Start {
    /// Creates a file system and changes it by `prepare`.
    fn prepared(orphans: &str, prepare: impl Fn(&World) + Send + Sync + 'static) -> Start {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let made = Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-g", "512", "-N", "192"])
            .args(["-m", "0", "-J", "size=1", "-E", "root_owner=0:0", "-O", orphans])
            .arg(&path)
            .arg("4M")
            .output()
            .expect("mke2fs runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let made = Arc::new(std::fs::read(&path).unwrap());
        let start = Arc::new(Mutex::new(None));
        let out = start.clone();
        let once = move || {
            let disk = Arc::new(Disk::new(made.clone()));
            let names = Arc::new(Remembered::new());
            let options = MountOptions { names: names.clone(), ..MountOptions::default() };
            let world = World::on(disk.clone(), options, names);
            prepare(&world);
            world.close();
            let image = Arc::new(disk.contents());
            let mount = Mount::open(Arc::new(Disk::new(image.clone())), read_only()).unwrap();
            let totals = Tree::of(mount.fs()).totals(mount.fs());
            *out.lock().unwrap() = Some(Start { image, totals });
        };
        // The preparation of a scenario is not meant to find missing synchronisation, so here each
        // thread runs as long as it can.
        shuttle::Runner::new(DfsScheduler::new(Some(1), true), config(None)).run(once);
        let prepared = start.lock().unwrap().take();
        prepared.expect("prepared")
    }
}

impl World {
    fn on(disk: Arc<Disk>, options: MountOptions, names: Arc<Remembered>) -> World {
        let mount = Mount::open(disk.clone(), options).unwrap();
        World { fs: mount.fs().clone(), mount: Arc::new(mount), disk, names }
    }

    /// Unmounts, after all threads have ended.
    fn close(self) {
        let World { mount, fs, .. } = self;
        drop(fs);
        Arc::into_inner(mount).expect("no thread has it").close().unwrap();
    }

    /// Creates a file with this name.
    pub fn file(&self, dir: &InodeRef, name: &str) -> InodeRef {
        self.fs.create(dir, name.as_bytes(), &regular()).unwrap()
    }

    /// Creates a directory with this name.
    pub fn directory(&self, dir: &InodeRef, name: &str) -> InodeRef {
        let new = NewInode { kind: NewKind::Directory, ..regular() };
        self.fs.create(dir, name.as_bytes(), &new).unwrap()
    }

    /// Runs each function on its own thread until all have returned.
    pub fn together(&self, threads: Vec<Box<dyn FnOnce(&World) + Send>>) {
        let started: Vec<_> = threads
            .into_iter()
            .map(|run| {
                let (mount, fs) = (self.mount.clone(), self.fs.clone());
                let (disk, names) = (self.disk.clone(), self.names.clone());
                let world = World { mount, fs, disk, names };
                thread::spawn(move || run(&world))
            })
            .collect();
        started.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Returns the properties of a new regular file.
pub fn regular() -> NewInode<'static> {
    NewInode { kind: NewKind::Regular, permissions: 0o755, umask: 0, uid: 0, gid: 0 }
}

/// Returns a number below `end`, chosen by the schedule.
pub fn below(end: u32) -> u32 {
    thread_rng().gen_range(0..end)
}

/// Accepts the errors that concurrent changes may cause, which are those in `MEETING`. All other
/// errors are wrong.
///
/// # Panics
/// If the error is not an accepted one.
pub fn may_fail<T>(result: Result<T, Error>) -> Option<T> {
    /// The accepted errors: ENOENT, EEXIST, ENOTDIR, EISDIR, EINVAL, ENOSPC, EMLINK and ENOTEMPTY.
    const MEETING: [i32; 8] = [2, 17, 20, 21, 22, 28, 31, 39];
    match result {
        Ok(value) => Some(value),
        Err(error) if MEETING.contains(&error.errno()) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// Explores schedules of `scenario`. Half of them are random. The other half rarely switch threads,
/// and do so at random points. This finds errors that need long runs of one thread (PCT, ASPLOS
/// 2010).
pub fn explore(start: &'static LazyLock<Start>, scenario: fn(&World)) {
    LazyLock::force(start);
    let schedules = number("LANEFS_SCHEDULES", SCHEDULES as u64) as usize;
    let seed = number("LANEFS_SEED", fastrand::u64(..1 << 32));
    println!("seed {seed}, {schedules} schedules");
    let whole = move || schedule(start, scenario);
    report_failures();
    let begun = std::time::Instant::now();
    let scheduler = Alternating {
        random: RandomScheduler::new_from_seed(seed, schedules.div_ceil(2)),
        few_changes: PctScheduler::new_from_seed(seed, 3, schedules / 2),
        turn: Turn::FewChanges,
    };
    shuttle::Runner::new(scheduler, config(Some(ENDLESS))).run(whole);
    println!("{schedules} schedules in {:?}", begun.elapsed());
}

/// Alternates between the two schedulers.
struct Alternating {
    random: RandomScheduler,
    few_changes: PctScheduler,
    turn: Turn,
}

#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Random,
    FewChanges,
}

impl Alternating {
    fn now(&mut self) -> &mut dyn Scheduler {
        match self.turn {
            Turn::Random => &mut self.random,
            Turn::FewChanges => &mut self.few_changes,
        }
    }
}

impl Scheduler for Alternating {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.turn = if self.turn == Turn::Random { Turn::FewChanges } else { Turn::Random };
        self.now().new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        self.now().next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.now().next_u64()
    }
}

fn config(endless: Option<usize>) -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 19;
    config.max_steps = endless.map_or(shuttle::MaxSteps::None, shuttle::MaxSteps::FailAfter);
    config.silence_warnings = true;
    // The schedule itself is not printed: the seed describes it more briefly.
    config.failure_persistence = shuttle::FailurePersistence::None;
    config
}

/// Makes each panic print the number of the schedule in which it happens.
fn report_failures() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            eprintln!("in schedule {}:", RUN.load(Ordering::Relaxed));
            before(info);
        }));
    });
}

fn schedule(start: &Start, scenario: fn(&World)) {
    RUN.fetch_add(1, Ordering::Relaxed);
    let disk = Arc::new(Disk::new(start.image.clone()));
    let names = Arc::new(Remembered::new());
    let known = MountOptions { names: names.clone(), ..options() };
    let world = World::on(disk.clone(), known, names);
    if below(2) == 0 {
        disk.lose_power_at(below(60).into(), thread_rng().next_u64());
    }
    scenario(&world);
    let failure = world.fs.failure();
    assert!(failure.is_none() && !world.fs.is_read_only(), "{failure:?}");
    world.names.check(&world.fs);
    world.close();
    check_unmounted(start, Arc::new(Disk::new(Arc::new(disk.contents()))), &disk.promises());
    if let Some(cut) = disk.cut() {
        let left = Arc::new(disk.after(&cut));
        let mount = Mount::open(left.clone(), options()).unwrap();
        mount.close().unwrap();
        check_unmounted(start, left, &cut.promises);
    }
}

/// Checks the contents of an unmounted disk.
fn check_unmounted(start: &Start, disk: Arc<Disk>, promises: &[(String, Vec<u8>)]) {
    static RESULTS: AtomicU64 = AtomicU64::new(0);
    let mount = Mount::open(disk.clone(), read_only()).unwrap();
    let tree = Tree::of(mount.fs());
    for (path, contents) in promises {
        let found = tree.files.get(path);
        assert!(found == Some(contents), "{path} was promised, of {:?}", tree.files.keys());
    }
    assert_eq!(tree.totals(mount.fs()), start.totals, "free and used together: {tree:?}");
    drop(mount);
    if RESULTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(JUDGED) {
        tree::e2fsck(&disk.contents());
    }
}

fn options() -> MountOptions {
    let cache_bytes = if below(2) == 0 { 0 } else { 1 << 20 };
    let options = MountOptions { cache_bytes, ..MountOptions::default() };
    match below(4) {
        0 => MountOptions { allocation: Arc::new(Waiting), ..options },
        _ => options,
    }
}

/// Threads meet in the same groups, and wait for each other there.
#[derive(Debug)]
struct Waiting;

impl Allocation for Waiting {
    fn busy_group(&self) -> Wait {
        Wait::Wait
    }
    fn spreads(&self) -> bool {
        false
    }
}

fn read_only() -> MountOptions {
    MountOptions { access: lanefs_ext4::Access::ReadOnly, ..MountOptions::default() }
}
