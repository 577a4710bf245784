//! Random sequences of steps: what one thread does to its own part of a tree, and now and then to a
//! part that all threads share.

use crate::conditions::Handles;
use crate::model::{Model, Openness};
use crate::step::{File, Kind, Path, Step, Tree, join};
use fastrand::Rng;
use lanefs_ext4::{Fallocate, Rename, SetXattr, SyncMode};
use lanefs_ondisk::Time;
use std::collections::VecDeque;

/// The mix of steps in a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Much data in few files.
    FewLarge,
    /// Many files with little in them, in directories that grow.
    ManySmall,
}

/// Directories where each thread has its own names beside those of the others.
pub const SHARED: [&[u8]; 2] = [b"shared/a", b"shared/b"];
/// The directory where threads use the same names: outcomes there cannot be predicted.
pub const RACE: &[u8] = b"race";

/// The directory of thread `n`.
pub fn home(n: usize) -> Path {
    format!("t{n}").into_bytes()
}

/// The steps that must have been done before any thread of `threads` starts.
pub fn stage(threads: usize) -> Vec<Step> {
    let dirs = [b"shared", SHARED[0], SHARED[1], RACE].into_iter().map(<[u8]>::to_vec);
    dirs.chain((0..threads).map(home)).map(|path| create(path, Kind::Directory)).collect()
}

fn create(path: Path, kind: Kind) -> Step {
    Step::Create { path, kind, permissions: 0o755, uid: 0, gid: 0 }
}

/// True if the outcome of a step depends on other threads.
pub fn is_race(step: &Step) -> bool {
    let path = match step {
        Step::Create { path, .. }
        | Step::Unlink { path }
        | Step::Rename { path, .. }
        | Step::List { path }
        | Step::Rmdir { path }
        | Step::Read { file: File::At(path), .. }
        | Step::Link { file: File::At(path), .. }
        | Step::Truncate { file: File::At(path), .. }
        | Step::Write { file: File::At(path), .. } => path,
        _ => return false,
    };
    path.starts_with(RACE)
}

/// Makes sequences of steps.
pub struct Author {
    rng: Rng,
    mood: Mood,
    home: Path,
    /// The prefix of its names in shared directories.
    prefix: String,
    model: Model,
    names: u32,
    /// Returns to files that may have left memory since.
    comes_back: bool,
    /// Opens no file.
    opens: bool,
    /// Steps that come next.
    planned: VecDeque<Step>,
}

impl Author {
    /// For thread `n` of a run with this seed.
    pub fn new(seed: u64, n: usize, threads: usize, mood: Mood) -> Author {
        let rng = Rng::with_seed(seed.wrapping_mul(1000).wrapping_add(n as u64));
        let mut model = Model::new();
        for step in stage(threads) {
            model.apply(&step).expect("the stage is set in an empty tree");
        }
        let (home, prefix) = (home(n), format!("t{n}."));
        let (comes_back, opens, planned) = (false, true, VecDeque::new());
        Author { rng, mood, home, prefix, model, names: 0, comes_back, opens, planned }
    }

    /// One that truncates files in the middle of a block or changes them, reads many others, and
    /// returns to make them grow or durable. If `handles` says so, it keeps no file open.
    pub fn forgetful(self, handles: Handles) -> Author {
        Author { comes_back: true, opens: handles == Handles::Kept, ..self }
    }

    /// `len` steps.
    pub fn story(mut self, len: usize) -> Vec<Step> {
        let mut steps = Vec::with_capacity(len);
        while steps.len() < len {
            let step = self.step();
            if !is_race(&step) {
                // Steps that fail stay in the sequence: they must fail in the file system under
                // test too.
                let _ = self.model.apply(&step);
            }
            steps.push(step);
        }
        steps
    }

    fn step(&mut self) -> Step {
        if let Some(step) = self.planned.pop_front() {
            return step;
        }
        if self.comes_back && self.rng.u32(..20) == 0 {
            return self.come_back();
        }
        let data = match self.mood {
            Mood::FewLarge => 60,
            Mood::ManySmall => 25,
        };
        match self.rng.u32(..200) {
            0..10 => self.race(),
            10..20 if self.opens => self.open_or_close(),
            20..30 => self.xattr(),
            30..38 => self.attributes(),
            38..42 => Step::List { path: self.some_dir() },
            42..46 => self.sync(),
            46..76 => self.rename(),
            76..86 => self.link(),
            86..110 => self.remove(),
            n if n < 110 + data => self.data(),
            _ => self.create(),
        }
    }

    /// The paths that belong to this thread.
    fn own(&self, wanted: impl Fn(&Kind) -> bool + Copy) -> Vec<Path> {
        let mut paths = self.model.paths(&self.home, wanted);
        paths.retain(|path| *path != self.home);
        for dir in SHARED {
            let all = self.model.paths(dir, wanted);
            paths.extend(all.into_iter().filter(|path| path != dir));
        }
        paths
    }

    fn pick(&mut self, paths: &[Path]) -> Option<Path> {
        let from = match self.mood {
            Mood::FewLarge => paths.len().saturating_sub(8),
            Mood::ManySmall => 0,
        };
        self.rng.choice(&paths[from..]).cloned()
    }

    fn some_dir(&mut self) -> Path {
        let mut dirs = self.own(|kind| *kind == Kind::Directory);
        dirs.push(self.home.clone());
        // Old directories get more, so that some grow large.
        let most = if self.rng.bool() { dirs.len() } else { 2.min(dirs.len()) };
        dirs[self.rng.usize(..most)].clone()
    }

    fn new_path(&mut self) -> Path {
        self.names += 1;
        let mut name = format!("{}{:x}", self.prefix, self.names);
        match self.rng.u32(..12) {
            0 => name.extend(std::iter::repeat_n('l', 255 - name.len())),
            1..4 => name.push_str(&"-".repeat(self.rng.usize(..120))),
            _ => {}
        }
        let dir = match self.rng.u32(..8) {
            0 => SHARED[self.rng.usize(..2)].to_vec(),
            _ => self.some_dir(),
        };
        join(&dir, name.as_bytes())
    }

    /// Any path: mostly one that exists, sometimes one that does not.
    fn any_path(&mut self) -> Path {
        let paths = self.own(|_| true);
        match self.pick(&paths) {
            Some(path) if self.rng.u32(..20) > 0 => path,
            Some(path) => join(&path, b"nothing"),
            None => self.new_path(),
        }
    }

    fn some_file(&mut self) -> Option<File> {
        let open = self.model.open_slots();
        let open: Vec<_> = open.into_iter().filter(|(_, o)| *o != Openness::Other).collect();
        if !open.is_empty() && self.rng.u32(..4) == 0 {
            return self.rng.choice(open).map(|(slot, _)| File::Open(slot));
        }
        let files = self.own(|kind| *kind == Kind::Regular);
        self.pick(&files).map(File::At)
    }

    fn create(&mut self) -> Step {
        let kind = match self.rng.u32(..40) {
            0..6 => Kind::Directory,
            6..8 => Kind::Symlink(vec![b'x'; self.rng.usize(1..60)]),
            8 => Kind::Symlink(vec![b'y'; self.rng.usize(60..1000)]),
            9 => Kind::Fifo,
            10 => Kind::Socket,
            11 => Kind::CharDevice(self.rng.u32(..300), self.rng.u32(..70_000)),
            12 => Kind::BlockDevice(self.rng.u32(..4000), self.rng.u32(..0xf_ffff)),
            _ => Kind::Regular,
        };
        let path = if self.rng.u32(..30) == 0 { self.any_path() } else { self.new_path() };
        let permissions = self.rng.u16(..0o10000);
        let owner = |rng: &mut Rng| if rng.bool() { 0 } else { rng.u32(..u32::MAX) };
        let (uid, gid) = (owner(&mut self.rng), owner(&mut self.rng));
        Step::Create { path, kind, permissions, uid, gid }
    }

    fn place(&mut self, file: &File) -> u64 {
        let size = self.model.size_of(file);
        match self.rng.u32(..10) {
            0 => self.rng.u64(..=size.saturating_add(100_000)),
            1 => size,
            2 if self.mood == Mood::FewLarge => self.rng.u64(..1 << 40),
            3 => self.rng.u64(..64) * 4096,
            _ => self.rng.u64(..=size),
        }
    }

    fn len(&mut self) -> usize {
        match (self.mood, self.rng.u32(..8)) {
            (_, 0) => 4096 * self.rng.usize(1..6),
            (Mood::FewLarge, 1..4) => self.rng.usize(1..150_000),
            (_, _) => self.rng.usize(1..6000),
        }
    }

    fn data(&mut self) -> Step {
        let Some(file) = self.some_file() else { return self.create() };
        let (offset, len, seed) = (self.place(&file), self.len(), self.rng.u64(..));
        match self.rng.u32(..20) {
            0..7 => Step::Write { file, offset, len, seed },
            7..10 => Step::Append { file, len, seed },
            10..14 => Step::Read { file, offset: offset.saturating_sub(500), len },
            14..17 => {
                let size = if self.rng.u32(..3) == 0 { 0 } else { offset };
                Step::Truncate { file, size }
            }
            _ => {
                let how = self.rng.choice([
                    Fallocate::Allocate,
                    Fallocate::AllocateKeepSize,
                    Fallocate::PunchHole,
                    Fallocate::PunchHole,
                    Fallocate::ZeroRange,
                    Fallocate::ZeroRangeKeepSize,
                ]);
                let how = how.unwrap_or(Fallocate::Allocate);
                Step::Fallocate { file, how, offset, len: len as u64 }
            }
        }
    }

    /// Truncates a file or adds to it; then reads others, so that it may leave memory; then makes
    /// it grow or makes it durable, and reads it.
    fn come_back(&mut self) -> Step {
        let files = self.own(|kind| *kind == Kind::Regular);
        let Some(file) = self.pick(&files).map(File::At) else { return self.create() };
        let size = self.model.size_of(&file).min(1 << 20);
        let cut = self.rng.u64(..=size);
        for _ in 0..self.rng.u32(1..30) {
            if let Some(path) = self.rng.choice(&files).cloned() {
                self.planned.push_back(Step::Read { file: File::At(path), offset: 0, len: 1 });
            }
        }
        let (len, seed) = (self.rng.usize(1..3000), self.rng.u64(..));
        self.planned.push_back(match self.rng.u32(..3) {
            0 => Step::Fsync { file: file.clone(), mode: SyncMode::Full },
            1 => Step::Write { file: file.clone(), offset: cut, len, seed },
            _ => Step::Append { file: file.clone(), len, seed },
        });
        self.planned.push_back(Step::Read { file: file.clone(), offset: cut, len: 3000 });
        Step::Truncate { file, size: cut }
    }

    fn rename(&mut self) -> Step {
        let path = self.any_path();
        let new = if self.rng.bool() { self.new_path() } else { self.any_path() };
        let how = match self.rng.u32(..6) {
            0 => Rename::NoReplace,
            1 | 2 => Rename::Exchange,
            _ => Rename::Replace,
        };
        let new = if how == Rename::Exchange { self.any_path() } else { new };
        Step::Rename { path, new, how }
    }

    fn link(&mut self) -> Step {
        let new = self.new_path();
        let open = self.model.open_slots();
        if self.rng.u32(..3) == 0
            && let Some((slot, _)) = open.iter().find(|(_, o)| *o == Openness::Regular)
        {
            return Step::Link { file: File::Open(*slot), new };
        }
        let paths = self.own(|kind| *kind != Kind::Directory);
        match self.pick(&paths) {
            Some(path) => Step::Link { file: File::At(path), new },
            None => self.create(),
        }
    }

    fn remove(&mut self) -> Step {
        let dirs = self.own(|kind| *kind == Kind::Directory);
        if self.rng.u32(..4) == 0
            && let Some(path) = self.pick(&dirs)
        {
            return Step::Rmdir { path };
        }
        let others = self.own(|kind| *kind != Kind::Directory);
        match self.pick(&others) {
            Some(path) => Step::Unlink { path },
            None => self.create(),
        }
    }

    fn open_or_close(&mut self) -> Step {
        let slot = self.rng.u8(..6);
        let open = self.model.open_slots().iter().any(|(used, _)| *used == slot);
        let files = self.own(|kind| *kind == Kind::Regular);
        match (open, self.rng.u32(..3), self.pick(&files)) {
            (true, ..) => Step::Close { slot },
            (false, 1.., Some(path)) => Step::Open { path, slot },
            _ => Step::Unnamed { dir: self.some_dir(), slot },
        }
    }

    fn xattr(&mut self) -> Step {
        let paths = self.own(|kind| matches!(kind, Kind::Regular | Kind::Directory));
        let Some(path) = self.pick(&paths) else { return self.create() };
        let there = self.model.xattr_names(&path);
        let fresh = format!("user.{}", "n".repeat(self.rng.usize(1..20))).into_bytes();
        let name = match self.rng.choice(there) {
            Some(name) if self.rng.bool() => name,
            _ => fresh,
        };
        if self.rng.u32(..3) == 0 {
            return Step::RemoveXattr { path, name };
        }
        // A size that surely fits beside the present attributes, into a block of 1 KiB and the
        // inode.
        let room = 600usize.saturating_sub(self.model.xattr_bytes(&path) + name.len() + 20);
        let value = vec![self.rng.u8(..); self.rng.usize(..room.max(1))];
        let how = match self.rng.u32(..6) {
            0 => SetXattr::Create,
            1 => SetXattr::Replace,
            _ => SetXattr::Any,
        };
        if room == 0 {
            Step::RemoveXattr { path, name }
        } else {
            Step::SetXattr { path, name, value, how }
        }
    }

    fn attributes(&mut self) -> Step {
        let paths = self.own(|kind| !matches!(kind, Kind::Symlink(_)));
        let Some(path) = self.pick(&paths) else { return self.create() };
        let mut time = || Time {
            secs: self.rng.i64(-(1 << 31)..(1 << 34) - (1 << 31)),
            nanos: self.rng.u32(..1_000_000_000),
        };
        let (atime, mtime) = (time(), time());
        match self.rng.u32(..3) {
            0 => Step::Chmod { path, permissions: self.rng.u16(..0o10000) },
            1 => Step::Chown { path, uid: self.rng.u32(..u32::MAX), gid: self.rng.u32(..100) },
            _ => Step::Times { path, atime, mtime },
        }
    }

    fn sync(&mut self) -> Step {
        let mode = if self.rng.bool() { SyncMode::Full } else { SyncMode::Data };
        match self.some_file() {
            Some(file) if self.rng.u32(..8) > 0 => Step::Fsync { file, mode },
            _ => Step::Sync,
        }
    }

    fn race(&mut self) -> Step {
        let mut path = || join(RACE, format!("r{}", self.rng.u32(..6)).as_bytes());
        let (path, new) = (path(), path());
        let file = File::At(path.clone());
        match self.rng.u32(..9) {
            0 | 1 => create(path, Kind::Regular),
            2 => create(path, Kind::Directory),
            3 => Step::Unlink { path },
            4 => Step::Rmdir { path },
            5 => {
                let how = if self.rng.bool() { Rename::Replace } else { Rename::Exchange };
                Step::Rename { path, new, how }
            }
            6 => Step::Write { file, offset: self.rng.u64(..20_000), len: 3000, seed: 7 },
            7 => Step::Link { file, new },
            _ => Step::Truncate { file, size: self.rng.u64(..9000) },
        }
    }
}
