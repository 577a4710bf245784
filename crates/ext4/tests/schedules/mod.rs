//! Schedules of whole file systems: each on a disk of its own, judged when nobody uses it any more.
//!
//! `LANEFS_SCHEDULES` is how many each scenario runs, `LANEFS_SEED` where they begin.

pub mod disk;
pub mod remembered;
pub mod tree;
pub mod words;

use disk::Disk;
use lanefs_ext4::{
    Error, Fs, InodeRef, Mount, MountOptions, NewInode, NewKind, Policies, Privilege,
};
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

/// Schedules that a scenario runs unless told otherwise.
const SCHEDULES: usize = 150;
/// Of how many results one is shown to e2fsck.
const JUDGED: u64 = 50;
/// Steps after which a schedule counts as one that never ends: what waits for ever leaves the
/// committer alone with its clock, which the checker does not count as a deadlock.
const ENDLESS: usize = 400_000;

/// Schedules that this process ran.
static RUN: AtomicU64 = AtomicU64::new(0);

/// What a scenario starts from.
pub struct Start {
    image: Arc<Vec<u8>>,
    totals: Totals,
}

/// A mounted file system, in one schedule.
pub struct World {
    pub fs: Arc<Fs>,
    pub disk: Arc<Disk>,
    /// What `fs` publishes.
    pub names: Arc<Remembered>,
}

fn number(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(otherwise, |given| given.parse().expect("a number"))
}

/// An empty file system of small groups and the smallest log; free space holds what no file may
/// show.
pub static EMPTY: LazyLock<Start> = LazyLock::new(|| Start::prepared("orphan_file", leave_junk));

/// As [`EMPTY`], with the orphans in a list.
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

/// As [`EMPTY`], with a file `/filler` that leaves a few blocks to everybody.
pub static FULL: LazyLock<Start> = LazyLock::new(|| {
    Start::prepared("orphan_file", |world| fill(world, world.fs.stat_fs().blocks_available - 12))
});

/// As [`FULL`], with a few blocks for the privileged only: what is freed is soon used again.
pub static TIGHT: LazyLock<Start> = LazyLock::new(|| {
    Start::prepared("orphan_file", |world| fill(world, world.fs.stat_fs().blocks_free - 30))
});

fn fill(world: &World, blocks: u64) {
    let filler = world.file(&world.fs.root().unwrap(), "filler");
    let contents = words::of(9, 0, blocks as usize * 1024);
    assert_eq!(world.fs.write_at(&filler, 0, &contents, Privilege::Root).unwrap(), contents.len());
}

/// As [`EMPTY`], with a directory `/all` of several leaves: names of [`long`] of 0 to 11, which
/// nobody changes.
pub static INDEXED: LazyLock<Start> = LazyLock::new(|| {
    Start::prepared("orphan_file", |world| {
        let all = world.directory(&world.fs.root().unwrap(), "all");
        (0..STAYING).for_each(|n| drop(world.file(&all, &long(n))));
    })
});

/// How many names of [`INDEXED`] stay.
pub const STAYING: u32 = 12;

/// A name so long that few fit into a block.
pub fn long(n: u32) -> String {
    format!("{n:0>180}")
}

impl Start {
    /// What `prepare` makes of a new file system.
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
            let mount = Mount::open(disk.clone(), options).unwrap();
            let world = World { fs: mount.fs().clone(), disk: disk.clone(), names };
            prepare(&world);
            drop(world);
            mount.close().unwrap();
            let image = Arc::new(disk.contents());
            let mount = Mount::open(Arc::new(Disk::new(image.clone())), read_only()).unwrap();
            let totals = Tree::of(mount.fs()).totals(mount.fs());
            *out.lock().unwrap() = Some(Start { image, totals });
        };
        // One thread at a time for as long as it can: a step that is left out is to be noticed by the
        // scenario, not by what comes before it.
        shuttle::Runner::new(DfsScheduler::new(Some(1), true), config(None)).run(once);
        let prepared = start.lock().unwrap().take();
        prepared.expect("prepared")
    }
}

impl World {
    /// A new file of this name.
    pub fn file(&self, dir: &InodeRef, name: &str) -> InodeRef {
        self.fs.create(dir, name.as_bytes(), &regular()).unwrap()
    }

    /// A new directory of this name.
    pub fn directory(&self, dir: &InodeRef, name: &str) -> InodeRef {
        let new = NewInode { kind: NewKind::Directory, ..regular() };
        self.fs.create(dir, name.as_bytes(), &new).unwrap()
    }

    /// Runs each on a thread of its own until all have ended.
    pub fn together(&self, threads: Vec<Box<dyn FnOnce(&World) + Send>>) {
        let started: Vec<_> = threads
            .into_iter()
            .map(|run| {
                let (fs, disk) = (self.fs.clone(), self.disk.clone());
                let world = World { fs, disk, names: self.names.clone() };
                thread::spawn(move || run(&world))
            })
            .collect();
        started.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// What a new file is made of.
pub fn regular() -> NewInode<'static> {
    NewInode { kind: NewKind::Regular, permissions: 0o755, umask: 0, uid: 0, gid: 0 }
}

/// A number below `end`, chosen by the schedule.
pub fn below(end: u32) -> u32 {
    thread_rng().gen_range(0..end)
}

/// Threads that meet change what each other finds: these answers are right, all others are not.
///
/// # Panics
/// If it is another.
pub fn may_fail<T>(result: Result<T, Error>) -> Option<T> {
    /// ENOENT, EEXIST, ENOTDIR, EISDIR, EINVAL, ENOSPC, EMLINK, ENOTEMPTY.
    const MEETING: [i32; 8] = [2, 17, 20, 21, 22, 28, 31, 39];
    match result {
        Ok(value) => Some(value),
        Err(error) if MEETING.contains(&error.errno()) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// Explores schedules of `scenario`, half of them at random, half with few changes of thread at
/// places chosen at random, which finds what takes long runs of one thread (PCT, ASPLOS 2010).
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

/// Two schedulers in turns.
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
    // The seed says as much, in fewer words.
    config.failure_persistence = shuttle::FailurePersistence::None;
    config
}

/// Says after how many schedules the first thing went wrong.
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
    let mount = Mount::open(disk.clone(), known).unwrap();
    let world = World { fs: mount.fs().clone(), disk: disk.clone(), names };
    if below(2) == 0 {
        disk.lose_power_at(below(60).into(), thread_rng().next_u64());
    }
    scenario(&world);
    let failure = world.fs.failure();
    assert!(failure.is_none() && !world.fs.is_read_only(), "{failure:?}");
    world.names.judge(&world.fs);
    drop(world);
    mount.close().unwrap();
    judge(start, Arc::new(Disk::new(Arc::new(disk.contents()))), &disk.promises());
    if let Some(cut) = disk.cut() {
        let left = Arc::new(disk.after(&cut));
        let mount = Mount::open(left.clone(), options()).unwrap();
        mount.close().unwrap();
        judge(start, left, &cut.promises);
    }
}

/// What is on an unmounted disk is whole.
fn judge(start: &Start, disk: Arc<Disk>, promises: &[(String, Vec<u8>)]) {
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
    let policies = match below(4) {
        0 => Policies::before(),
        1 => mixed(),
        _ => Policies::default(),
    };
    let cache_bytes = if below(2) == 0 { 0 } else { 1 << 20 };
    MountOptions { policies, cache_bytes, ..MountOptions::default() }
}

/// Each as it was before or as it is now: what none of the sets has together may meet too.
fn mixed() -> Policies {
    let mut mixed = Policies::default();
    for (name, values) in [
        ("inode_claim", &["one-step", "two-step"][..]),
        ("placement", &["lanes", "shared"]),
        ("busy_group", &["skip", "wait"]),
        ("stream_goal", &["inode", "global", "hashed"]),
        ("group_search", &["index", "scan"]),
        ("overwrite", &["shared", "exclusive"]),
    ] {
        mixed.set(name, values[below(values.len() as u32) as usize]).unwrap();
    }
    mixed
}

fn read_only() -> MountOptions {
    MountOptions { access: lanefs_ext4::Access::ReadOnly, ..MountOptions::default() }
}
