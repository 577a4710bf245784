//! The model suite: four threads run random operations on one file system. Each thread works mostly
//! in its own part of the tree, where all outcomes can be predicted. At the end, the tree must be
//! as predicted, before and after a remount, and e2fsck must find the image clean.

use crate::conditions::{self, Paced};
use crate::home;
use crate::image::Image;
use crate::library::Library;
use crate::listing::{self, Listing, library_names};
use crate::model::Model;
use crate::op::{Op, Outcome, Path, Tree, show};
use crate::sequence::{Generator, Mix, RACE, SHARED, is_race, stage};
use lanefs_device::{Device, OverlayDevice, RamDevice};
use lanefs_ext4::{Atime, Error, Fs, InodeRef, Mount, MountOptions, Privilege};
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_lanes::sync::unscheduled::atomic::{AtomicBool, AtomicU64, Ordering};
use lanefs_ondisk::FileType;
use std::sync::Arc;
use std::time::Duration;

/// The number of threads. Each runs a separate sequence.
pub const THREADS: usize = 4;

/// The input of a run: the image, the policies and the operations of each thread.
#[derive(Clone)]
pub struct Scenario {
    /// The options for mke2fs.
    pub options: &'static str,
    /// The size of the image.
    pub size: &'static str,
    /// The seed, which chooses the policies.
    pub seed: u64,
    /// The operations of each thread.
    pub sequences: Vec<Vec<Op>>,
}

/// Returns the scenario of a seed, with `len` operations for each thread.
pub fn scenario(seed: u64, len: usize) -> Scenario {
    const OPTIONS: [&str; 7] = [
        "-b 1024",
        "-b 4096",
        "-b 4096 -O ^orphan_file,^metadata_csum_seed,mmp",
        "-b 1024 -O ^metadata_csum,uninit_bg,^64bit",
        "-b 1024 -O ea_inode,large_dir,inline_data",
        "-t ext3 -b 1024",
        "-b 1024 -I 256 -O quota,project",
    ];
    let sets = OPTIONS.len() as u64;
    let mix = if (seed / sets).is_multiple_of(2) { Mix::ManySmall } else { Mix::FewLarge };
    scenario_on((OPTIONS[(seed % sets) as usize], "96M"), mix, seed, len)
}

/// Returns the scenario of a seed with these options for mke2fs, this image size and this mix of
/// operations.
pub fn scenario_on(
    (options, size): (&'static str, &'static str),
    mix: Mix,
    seed: u64,
    len: usize,
) -> Scenario {
    let handles = conditions::of_seed(seed, None).handles;
    let forgetful = conditions::is_forgetful(seed);
    let generator = |n| {
        let generator = Generator::new(seed, n, THREADS, mix, options);
        let generator = match options.contains("ea_inode") {
            true => generator.with_large_values(),
            false => generator,
        };
        if forgetful { generator.forgetful(handles) } else { generator }
    };
    let sequences = (0..THREADS).map(|n| generator(n).operations(len)).collect();
    Scenario { options, size, seed, sequences }
}

/// Fresh images by options and size. Each image is made once and never changes, because runs write
/// to overlays.
#[derive(Default)]
pub struct Bases(Mutex<std::collections::HashMap<String, Arc<RamDevice>>>);

impl Bases {
    /// Returns a writable view of a fresh image; returns `None` and prints the reason if mke2fs is
    /// missing.
    pub fn fresh(&self, options: &str, size: &str) -> Option<OverlayDevice> {
        let mut bases = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let key = format!("{options} {size}");
        if !bases.contains_key(&key) {
            let image = Image::make(options, size)?;
            let ram = RamDevice::from_file(image.path()).expect("the image is read");
            bases.insert(key.clone(), Arc::new(ram));
        }
        Some(OverlayDevice::new(bases[&key].clone(), u64::MAX))
    }
}

/// How runs are set up and checked.
pub struct Runner<'a> {
    /// The source of fresh images.
    pub bases: &'a Bases,
    /// Wraps the device, to plant faults.
    pub wrap: &'a (dyn Fn(Arc<dyn Device>) -> Arc<dyn Device> + Sync),
}

impl Runner<'_> {
    /// Runs a scenario.
    pub fn run(&self, scenario: &Scenario) -> Result<(), String> {
        let ops = AtomicU64::new(0);
        let run = self.run_counting(scenario, &ops);
        run.map_err(|why| format!("after {} operations: {why}", ops.load(Ordering::Relaxed)))
    }

    fn run_counting(&self, scenario: &Scenario, ops: &AtomicU64) -> Result<(), String> {
        let Some(overlay) = self.bases.fresh(scenario.options, scenario.size) else {
            return Ok(());
        };
        let overlay = Arc::new(overlay);
        let pace = conditions::of_seed(scenario.seed, None).pace;
        let paced = Paced::new((self.wrap)(overlay.clone()), pace);
        let mount = open(paced.device.clone(), scenario.seed)?;
        let mut stager = Library::new(mount.fs());
        for op in stage(THREADS) {
            stager.apply(&op).map_err(|e| format!("{op:?}: error {e}"))?;
        }
        let ended = AtomicBool::new(false);
        let told: Vec<Result<Model, String>> = std::thread::scope(|scope| {
            let looker = pace.map(|_| scope.spawn(|| look_until(&ended, mount.fs())));
            let tellers: Vec<_> = scenario
                .sequences
                .iter()
                .enumerate()
                .map(|(n, sequence)| {
                    let library = Library::new(mount.fs());
                    let done = || {
                        ops.fetch_add(1, Ordering::Relaxed);
                        paced.op();
                    };
                    let model = Model::of(scenario.options);
                    scope.spawn(move || run_thread(library, model, n, sequence, &done))
                })
                .collect();
            let broken = |_| Err("a thread panicked".to_string());
            let mut told: Vec<_> =
                tellers.into_iter().map(|teller| teller.join().unwrap_or_else(broken)).collect();
            ended.store(true, Ordering::Relaxed);
            if let Some(Err(why)) =
                looker.map(|looker| looker.join().unwrap_or_else(|_| Err("a look panicked".into())))
            {
                told.push(Err(why));
            }
            told
        });
        let models = told.into_iter().collect::<Result<Vec<_>, _>>()?;
        drop(stager);
        let before = library_listing(&mount)?;
        compare_models(&models, &before, "before the unmount")?;
        mount.close().map_err(|e| format!("close: {e}"))?;

        let image = Image::empty();
        overlay.to_file(image.path()).map_err(|e| e.to_string())?;
        let verdict = image.check();
        if verdict.status != 0 {
            return Err(format!("e2fsck -fn: {}", verdict.text));
        }
        let mount = open(paced.device, scenario.seed)?;
        let after = library_listing(&mount)?;
        let found = before.differences(&after);
        if !found.is_empty() {
            return Err(format!("changed by a remount: {}", found.join("\n  ")));
        }
        compare_models(&models, &after, "after the remount")?;
        mount.close().map_err(|e| format!("close: {e}"))
    }

    /// Runs the scenario of a seed; if it fails, looks for a shorter scenario that still fails.
    pub fn check_seed(&self, seed: u64, len: usize) -> Result<(), String> {
        self.check(scenario(seed, len))
    }

    /// Runs a scenario; if it fails, looks for a shorter scenario that still fails.
    pub fn check(&self, scenario: Scenario) -> Result<(), String> {
        let seed = scenario.seed;
        let Err(first) = self.run(&scenario) else { return Ok(()) };
        let (short, why) = self.shrink(scenario, first.clone());
        let (options, sequence) = (short.options, short.describe());
        Err(format!("seed {seed}: {first}\nshortest found ({options}): {why}\n{sequence}"))
    }

    /// Returns a shorter scenario that fails too, with its error.
    pub fn shrink(&self, mut scenario: Scenario, mut why: String) -> (Scenario, String) {
        let mut tries = 150;
        let mut fails = |candidate: &Scenario| {
            if tries == 0 {
                return None;
            }
            tries -= 1;
            // Each candidate is tried twice, because a fault may appear only with some
            // interleavings of the threads.
            (0..2).find_map(|_| self.run(candidate).err())
        };
        for n in 0..scenario.sequences.len() {
            let mut candidate = scenario.clone();
            candidate.sequences[n].clear();
            if let Some(reason) = fails(&candidate) {
                (scenario, why) = (candidate, reason);
            }
        }
        let mut piece = scenario.sequences.iter().map(Vec::len).max().unwrap_or(0) / 2;
        while piece > 0 {
            for n in 0..scenario.sequences.len() {
                let mut end = scenario.sequences[n].len();
                while end > 0 {
                    let start = end.saturating_sub(piece);
                    let mut candidate = scenario.clone();
                    candidate.sequences[n].drain(start..end);
                    if let Some(reason) = fails(&candidate) {
                        (scenario, why) = (candidate, reason);
                    }
                    end = start;
                }
            }
            piece /= 2;
        }
        (scenario, why)
    }
}

impl Scenario {
    /// Describes the operations.
    pub fn describe(&self) -> String {
        let mut words = String::new();
        for (n, sequence) in
            self.sequences.iter().enumerate().filter(|(_, sequence)| !sequence.is_empty())
        {
            words += &format!("thread {n}, {} operations:\n", sequence.len());
            for op in sequence.iter().take(60) {
                words += &format!("  {op:?}\n");
            }
        }
        words
    }
}

fn open(device: Arc<dyn Device>, seed: u64) -> Result<Mount, String> {
    let conditions = conditions::of_seed(seed, Some(Duration::from_millis(50)));
    let options = MountOptions { atime: Atime::Noatime, ..conditions.mount };
    Mount::open(device, options).map_err(|e| format!("mount: {e}"))
}

fn library_listing(mount: &Mount) -> Result<Listing, String> {
    listing::of_library(mount.fs()).map_err(|(path, error)| format!("{}: {error}", show(&path)))
}

/// Loads every inode again and again, so that unused inodes are evicted. Also defragments the
/// files.
fn look_until(ended: &AtomicBool, fs: &Fs) -> Result<(), String> {
    while !ended.load(Ordering::Relaxed) {
        let mut todo = vec![home::of_library(fs).map_err(|e| e.to_string())?];
        while let Some(dir) = todo.pop().filter(|_| !ended.load(Ordering::Relaxed)) {
            let names =
                library_names(fs, &dir).map_err(|e| format!("a look at {}: {e}", dir.ino()))?;
            for (_, ino) in names {
                match fs.get(ino, None) {
                    Ok(inode) if inode.file_type() == FileType::Directory => todo.push(inode),
                    Ok(inode) if inode.file_type() == FileType::Regular => {
                        defragment(fs, &inode).map_err(|e| format!("defragment {ino}: {e}"))?;
                    }
                    // The inode has a type that needs no action, or it was unlinked in the
                    // meantime.
                    Ok(_) | Err(Error::Stale) => {}
                    Err(error) => return Err(format!("a look at {ino}: {error}")),
                }
            }
        }
    }
    Ok(())
}

/// Defragments a file that other threads use.
fn defragment(fs: &Fs, file: &InodeRef) -> Result<(), Error> {
    match fs.defragment(file, Privilege::Root) {
        // These errors are expected for files with block maps or clusters, for append-only files,
        // and on a full file system.
        Err(Error::NotSupported | Error::NotPermitted | Error::NoSpace) => Ok(()),
        done => done,
    }
}

/// Runs one thread's operations on `library`, and calls `done` after each. Compares each outcome
/// with that of the same operation on `model`. The model must be empty at the start.
fn run_thread(
    mut library: Library,
    mut model: Model,
    n: usize,
    sequence: &[Op],
    done: &dyn Fn(),
) -> Result<Model, String> {
    for op in stage(THREADS) {
        model.apply(&op).map_err(|e| format!("model: {op:?}: error {e}"))?;
    }
    for (at, op) in sequence.iter().enumerate() {
        let got = library.act(op);
        done();
        if is_race(op) {
            check_race(&got).map_err(|why| format!("thread {n}, operation {at}, {op:?}: {why}"))?;
            continue;
        }
        let words = got.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let got = own_names(got.map_err(|error| error.errno()), op, n);
        let want = model.apply(op);
        if got != want && !is_choice(op, &got, &want) {
            let why = format!("gave {got:?} {words}, should give {want:?}");
            return Err(format!("thread {n}, operation {at}, {op:?}: {why}"));
        }
    }
    // The library closes its open files before the unmount, so the model does so too.
    model.close_all();
    Ok(model)
}

/// Returns whether `op` is a rename that both the file system and the model refuse. Their errors
/// may differ, because a rename can be forbidden for several reasons at once.
fn is_choice(op: &Op, got: &Outcome, want: &Outcome) -> bool {
    use rustix::io::Errno;
    let among = [Errno::INVAL, Errno::NOTDIR, Errno::ISDIR, Errno::NOTEMPTY, Errno::EXIST];
    let one = |outcome: &Outcome| {
        outcome.as_ref().is_err_and(|errno| among.iter().any(|e| e.raw_os_error() == *errno))
    };
    matches!(op, Op::Rename { .. }) && one(got) && one(want)
}

/// Removes the names of other threads from a listing of a shared directory.
fn own_names(got: Outcome, op: &Op, n: usize) -> Outcome {
    let Op::List { path } = op else { return got };
    if !SHARED.contains(&&path[..]) {
        return got;
    }
    got.map(|seen| match seen {
        crate::op::Seen::Names(mut names) => {
            names.retain(|name| name.starts_with(format!("t{n}.").as_bytes()));
            crate::op::Seen::Names(names)
        }
        other => other,
    })
}

/// Checks the outcome of an operation in a race. It may be a success or one of the errors that a
/// race can cause, but not, for example, corruption.
fn check_race(got: &Result<crate::op::Seen, lanefs_ext4::Error>) -> Result<(), String> {
    match got {
        Ok(_)
        | Err(
            Error::NotFound
            | Error::Exists
            | Error::IsDirectory
            | Error::NotDirectory
            | Error::NotEmpty
            | Error::InvalidArgument(_)
            | Error::NotPermitted
            | Error::Stale,
        ) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Compares the predictable parts of the tree with the models of all threads taken together.
fn compare_models(models: &[Model], seen: &Listing, when: &str) -> Result<(), String> {
    let mut want = Listing::default();
    for model in models {
        for (path, mut entry) in model.listing().entries {
            if let Some(other) = want.entries.get(&path)
                && *other != entry
            {
                // Each model has only its own part of the shared directories, so the link counts of
                // these directories differ between the models.
                entry.links = None;
            }
            want.entries.insert(path, entry);
        }
    }
    let staged = |path: &Path| path.is_empty() || path == b"shared" || SHARED.contains(&&path[..]);
    for (path, entry) in &mut want.entries {
        if staged(path) {
            entry.links = None;
        }
    }
    let race = join_slash(RACE);
    let seen = seen.clone().filter(|path| path != b"lost+found" && !path.starts_with(&race));
    // The entries in the race directory depend on races, and so does its link count.
    if let Some(entry) = want.entries.get_mut(RACE) {
        entry.links = None;
    }
    let found = want.differences(&seen);
    match found.is_empty() {
        true => Ok(()),
        false => Err(format!("{when}, model / file system:\n  {}", found.join("\n  "))),
    }
}

fn join_slash(path: &[u8]) -> Path {
    [path, b"/"].concat()
}
