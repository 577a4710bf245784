//! Random sequences of operations: each thread works in its own part of a tree, and sometimes in a
//! part that all threads share.

use crate::conditions::Handles;
use crate::limits::Limits;
use crate::model::{LARGEST_INSIDE, Model, Openness};
use crate::op::{File, Kind, Op, Path, Tree, join};
use fastrand::Rng;
use lanefs_ext4::{Fallocate, Rename, SetXattr, SyncMode};
use lanefs_ondisk::Time;
use std::collections::VecDeque;

/// The mix of operations in a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// A lot of data in few files.
    FewLarge,
    /// Many files with little data, in directories that grow.
    ManySmall,
}

/// Directories that all threads share. In these directories each thread uses only names of its own.
pub const SHARED: [&[u8]; 2] = [b"shared/a", b"shared/b"];
/// The directory in which threads use the same names, so that the outcomes of operations cannot be
/// predicted.
pub const RACE: &[u8] = b"race";

/// Returns the directory of thread `n`.
pub fn home(n: usize) -> Path {
    format!("t{n}").into_bytes()
}

/// Returns the operations that must be done before the first of `threads` threads starts.
pub fn stage(threads: usize) -> Vec<Op> {
    let dirs = [b"shared", SHARED[0], SHARED[1], RACE].into_iter().map(<[u8]>::to_vec);
    dirs.chain((0..threads).map(home)).map(|path| create(path, Kind::Directory)).collect()
}

fn create(path: Path, kind: Kind) -> Op {
    Op::Create { path, kind, permissions: 0o755, uid: 0, gid: 0 }
}

/// Returns whether other threads can affect the outcome of an operation.
pub fn is_race(op: &Op) -> bool {
    let path = match op {
        Op::Create { path, .. }
        | Op::Unlink { path }
        | Op::Rename { path, .. }
        | Op::List { path }
        | Op::Rmdir { path }
        | Op::Read { file: File::At(path), .. }
        | Op::Link { file: File::At(path), .. }
        | Op::Truncate { file: File::At(path), .. }
        | Op::Write { file: File::At(path), .. } => path,
        _ => return false,
    };
    path.starts_with(RACE)
}

/// Generates sequences of operations.
pub struct Generator {
    rng: Rng,
    mix: Mix,
    home: Path,
    /// The prefix of this thread's names in shared directories.
    prefix: String,
    model: Model,
    limits: Limits,
    names: u32,
    /// Whether the sequence returns to files that may have left memory.
    comes_back: bool,
    /// Whether the sequence has operations that open files.
    opens: bool,
    /// Whether the sequence sets attributes whose values do not fit into a block.
    large_values: bool,
    /// The operations that come next, because an earlier operation planned them.
    planned: VecDeque<Op>,
}

impl Generator {
    /// Creates the generator for thread `n` of a run with this seed, on an image that mke2fs makes
    /// with `options`.
    pub fn new(seed: u64, n: usize, threads: usize, mix: Mix, options: &str) -> Generator {
        let rng = Rng::with_seed(seed.wrapping_mul(1000).wrapping_add(n as u64));
        let (mut model, limits) = (Model::of(options), Limits::of(options));
        for op in stage(threads) {
            model.apply(&op).expect("the stage is set in an empty tree");
        }
        let (home, prefix) = (home(n), format!("t{n}."));
        Generator {
            rng,
            mix,
            home,
            prefix,
            model,
            limits,
            names: 0,
            comes_back: false,
            opens: true,
            large_values: false,
            planned: VecDeque::new(),
        }
    }

    /// Makes some of the attribute values too large for a block of 1 KiB.
    pub fn with_large_values(self) -> Generator {
        Generator { large_values: true, ..self }
    }

    /// Makes the generator return to files: it truncates a file, reads many others, and then writes
    /// to the first file or makes it durable. With `Handles::None` the sequence keeps no file open.
    pub fn forgetful(self, handles: Handles) -> Generator {
        Generator { comes_back: true, opens: handles == Handles::Kept, ..self }
    }

    /// Returns `len` operations.
    pub fn operations(mut self, len: usize) -> Vec<Op> {
        let mut ops = Vec::with_capacity(len);
        while ops.len() < len {
            let op = self.op();
            if !is_race(&op) {
                // Operations that fail stay in the sequence, because they must fail in the file
                // system under test too.
                let _ = self.model.apply(&op);
            }
            ops.push(op);
        }
        ops
    }

    fn op(&mut self) -> Op {
        if let Some(op) = self.planned.pop_front() {
            return op;
        }
        if self.comes_back && self.rng.u32(..20) == 0 {
            return self.come_back();
        }
        let data = match self.mix {
            Mix::FewLarge => 60,
            Mix::ManySmall => 25,
        };
        match self.rng.u32(..200) {
            0..10 => self.race(),
            10..20 if self.opens => self.open_or_close(),
            20..30 => self.xattr(),
            30..38 => self.attributes(),
            38..42 => Op::List { path: self.some_dir() },
            42..46 => self.sync(),
            46..76 => self.rename(),
            76..86 => self.link(),
            86..110 => self.remove(),
            n if n < 110 + data => self.data(),
            _ => self.create(),
        }
    }

    /// Returns the paths that belong to this thread.
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
        let from = match self.mix {
            Mix::FewLarge => paths.len().saturating_sub(8),
            Mix::ManySmall => 0,
        };
        self.rng.choice(&paths[from..]).cloned()
    }

    fn some_dir(&mut self) -> Path {
        let mut dirs = self.own(|kind| *kind == Kind::Directory);
        dirs.push(self.home.clone());
        // The first directories are chosen more often, so that some directories grow large.
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

    /// Returns any path, mostly one that exists.
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

    fn create(&mut self) -> Op {
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
        Op::Create { path, kind, permissions, uid, gid }
    }

    fn place(&mut self, file: &File) -> u64 {
        let size = self.model.size_of(file);
        match self.rng.u32(..10) {
            0 => self.rng.u64(..=size.saturating_add(100_000)),
            1 => size,
            2 if self.mix == Mix::FewLarge => self.rng.u64(..self.limits.largest),
            3 if self.mix == Mix::FewLarge => self.limits.near(&mut self.rng),
            4 if self.mix == Mix::FewLarge => size.saturating_sub(1),
            3 => self.rng.u64(..64) * 4096,
            _ => self.rng.u64(..=size),
        }
    }

    fn len(&mut self) -> usize {
        match (self.mix, self.rng.u32(..8)) {
            (_, 0) => 4096 * self.rng.usize(1..6),
            (Mix::FewLarge, 1..4) => self.rng.usize(1..150_000),
            (_, _) => self.rng.usize(1..6000),
        }
    }

    fn data(&mut self) -> Op {
        let Some(file) = self.some_file() else { return self.create() };
        let (offset, len, seed) = (self.place(&file), self.len(), self.rng.u64(..));
        match self.rng.u32(..20) {
            0..7 => Op::Write { file, offset, len, seed },
            7..10 => Op::Append { file, len, seed },
            10..14 => Op::Read { file, offset: offset.saturating_sub(500), len },
            14..17 => {
                let size = if self.rng.u32(..3) == 0 { 0 } else { offset };
                Op::Truncate { file, size }
            }
            17 => self.shift(file),
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
                Op::Fallocate { file, how, offset, len: len as u64 }
            }
        }
    }

    /// Collapses or inserts a range, mostly of whole blocks inside the file.
    fn shift(&mut self, file: File) -> Op {
        let block = self.model.cluster_size();
        let size = self.model.size_of(&file);
        if size + 100 * block > self.limits.largest {
            // The blocks of the old tree may not fit behind the end of so large a file.
            return Op::Truncate { file, size: size - self.rng.u64(..100 * block) };
        }
        let blocks = (size / block).max(1);
        let odd = if self.rng.u32(..8) == 0 { 512 } else { 0 };
        let offset = self.rng.u64(..blocks) * block + odd;
        let len = self.rng.u64(1..9) * block;
        let how = if self.rng.bool() { Fallocate::CollapseRange } else { Fallocate::InsertRange };
        Op::Fallocate { file, how, offset, len }
    }

    /// Truncates a file. Reads other files, so that the first file may be evicted. Then writes to
    /// the first file or makes it durable, and reads it.
    fn come_back(&mut self) -> Op {
        let files = self.own(|kind| *kind == Kind::Regular);
        let Some(file) = self.pick(&files).map(File::At) else { return self.create() };
        let size = self.model.size_of(&file).min(1 << 20);
        let cut = self.rng.u64(..=size);
        for _ in 0..self.rng.u32(1..30) {
            if let Some(path) = self.rng.choice(&files).cloned() {
                self.planned.push_back(Op::Read { file: File::At(path), offset: 0, len: 1 });
            }
        }
        let (len, seed) = (self.rng.usize(1..3000), self.rng.u64(..));
        self.planned.push_back(match self.rng.u32(..3) {
            0 => Op::Fsync { file: file.clone(), mode: SyncMode::Full },
            1 => Op::Write { file: file.clone(), offset: cut, len, seed },
            _ => Op::Append { file: file.clone(), len, seed },
        });
        self.planned.push_back(Op::Read { file: file.clone(), offset: cut, len: 3000 });
        Op::Truncate { file, size: cut }
    }

    fn rename(&mut self) -> Op {
        let path = self.any_path();
        let new = if self.rng.bool() { self.new_path() } else { self.any_path() };
        let how = match self.rng.u32(..9) {
            0 => Rename::NoReplace,
            1..4 => Rename::Exchange,
            4 => Rename::Whiteout { uid: 0, gid: 0 },
            5 => Rename::WhiteoutNoReplace { uid: 0, gid: 0 },
            _ => Rename::Replace,
        };
        let new = if how == Rename::Exchange { self.any_path() } else { new };
        Op::Rename { path, new, how }
    }

    fn link(&mut self) -> Op {
        let new = self.new_path();
        let open = self.model.open_slots();
        if self.rng.u32(..3) == 0
            && let Some((slot, _)) = open.iter().find(|(_, o)| *o == Openness::Regular)
        {
            return Op::Link { file: File::Open(*slot), new };
        }
        let paths = self.own(|kind| *kind != Kind::Directory);
        match self.pick(&paths) {
            Some(path) => Op::Link { file: File::At(path), new },
            None => self.create(),
        }
    }

    fn remove(&mut self) -> Op {
        let dirs = self.own(|kind| *kind == Kind::Directory);
        if self.rng.u32(..4) == 0
            && let Some(path) = self.pick(&dirs)
        {
            return Op::Rmdir { path };
        }
        let others = self.own(|kind| *kind != Kind::Directory);
        match self.pick(&others) {
            Some(path) => Op::Unlink { path },
            None => self.create(),
        }
    }

    fn open_or_close(&mut self) -> Op {
        let slot = self.rng.u8(..6);
        let open = self.model.open_slots().iter().any(|(used, _)| *used == slot);
        let files = self.own(|kind| *kind == Kind::Regular);
        match (open, self.rng.u32(..3), self.pick(&files)) {
            (true, ..) => Op::Close { slot },
            (false, 1.., Some(path)) => Op::Open { path, slot },
            _ => Op::Unnamed { dir: self.some_dir(), slot },
        }
    }

    fn xattr(&mut self) -> Op {
        let paths = self.own(|kind| matches!(kind, Kind::Regular | Kind::Directory));
        let Some(path) = self.pick(&paths) else { return self.create() };
        let there = self.model.xattr_names(&path);
        let fresh = format!("user.{}", "n".repeat(self.rng.usize(1..20))).into_bytes();
        let name = match self.rng.choice(there) {
            Some(name) if self.rng.bool() => name,
            _ => fresh,
        };
        if self.rng.u32(..3) == 0 {
            return Op::RemoveXattr { path, name };
        }
        // Except for large values, the length is chosen such that all attributes of the file fit
        // into the inode and one block of 1 KiB.
        let room = 600usize.saturating_sub(self.model.xattr_bytes(&path) + name.len() + 20);
        let len = match self.large_values && self.rng.u32(..3) == 0 {
            true => self.rng.usize(LARGEST_INSIDE + 1..9000),
            false => self.rng.usize(..room.max(1)),
        };
        let value = vec![self.rng.u8(..); len];
        let how = match self.rng.u32(..6) {
            0 => SetXattr::Create,
            1 => SetXattr::Replace,
            _ => SetXattr::Any,
        };
        if room == 0 {
            Op::RemoveXattr { path, name }
        } else {
            Op::SetXattr { path, name, value, how }
        }
    }

    fn attributes(&mut self) -> Op {
        let paths = self.own(|kind| !matches!(kind, Kind::Symlink(_)));
        let Some(path) = self.pick(&paths) else { return self.create() };
        let mut time = || Time {
            secs: self.rng.i64(-(1 << 31)..(1 << 34) - (1 << 31)),
            nanos: self.rng.u32(..1_000_000_000),
        };
        let (atime, mtime) = (time(), time());
        match self.rng.u32(..3) {
            0 => Op::Chmod { path, permissions: self.rng.u16(..0o10000) },
            1 => Op::Chown { path, uid: self.rng.u32(..u32::MAX), gid: self.rng.u32(..100) },
            _ => Op::Times { path, atime, mtime },
        }
    }

    fn sync(&mut self) -> Op {
        let mode = if self.rng.bool() { SyncMode::Full } else { SyncMode::Data };
        match self.some_file() {
            Some(file) if self.rng.u32(..8) > 0 => Op::Fsync { file, mode },
            _ => Op::Sync,
        }
    }

    fn race(&mut self) -> Op {
        let mut path = || join(RACE, format!("r{}", self.rng.u32(..6)).as_bytes());
        let (path, new) = (path(), path());
        let file = File::At(path.clone());
        match self.rng.u32(..9) {
            0 | 1 => create(path, Kind::Regular),
            2 => create(path, Kind::Directory),
            3 => Op::Unlink { path },
            4 => Op::Rmdir { path },
            5 => {
                let how = if self.rng.bool() { Rename::Replace } else { Rename::Exchange };
                Op::Rename { path, new, how }
            }
            6 => Op::Write { file, offset: self.rng.u64(..20_000), len: 3000, seed: 7 },
            7 => Op::Link { file, new },
            _ => Op::Truncate { file, size: self.rng.u64(..9000) },
        }
    }
}
