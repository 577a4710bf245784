//! The workload before the crash.

use super::file_history::{Changed, FileHistory, Promise, Record, Version};
use super::findings::Findings;
use crate::crash::checker::mount;
use crate::crash::words;
use crate::library::Library;
use crate::op::{File, Kind, Op, Path, join, show, split};
use fastrand::Rng;
use lanefs_device::{Device, OverlayDevice, RecordingDevice};
use lanefs_ext4::{
    Atime, Fallocate, FastCommitting, Fs, Mount, MountOptions, Privilege, Rename, SyncMode,
};
use lanefs_ondisk::Ino;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The unit of offsets and lengths of writes, in bytes.
const ALIGN: u64 = 64;

/// Wraps the device under the file system.
pub type Wrap<'w> = &'w dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>;

/// A workload and its record.
pub(super) struct Workload {
    rng: Rng,
    pub(super) device: Arc<RecordingDevice>,
    fs: Arc<Fs>,
    library: Library,
    pub(super) record: Record,
    dirs: Vec<Path>,
    names: u32,
    ids: u64,
}

/// Makes directories, so that the root gets an index. Then removes a few directories whose inodes
/// are in the same inode table block as the journal's inode. The next new files get the freed inode
/// numbers.
pub(super) fn with_directories(image: OverlayDevice) -> Result<OverlayDevice, String> {
    let image = Arc::new(image);
    let mount = mount(image.clone())?;
    let (mut library, mut unwanted) = (Library::new(mount.fs()), Vec::new());
    let geometry = mount.fs().superblock().geometry();
    let block = |ino| geometry.inode_place(ino).map(|place| (place.group, place.table_block));
    for n in 0..70 {
        let (path, kind) = (format!("{n:060}").into_bytes(), Kind::Directory);
        let op = Op::Create { path: path.clone(), kind, permissions: 0o755, uid: 0, gid: 0 };
        library.act(&op).map_err(|e| format!("{op:?}: {e}"))?;
        let ino = library.resolve(&path).map_err(|e| e.to_string())?.ino();
        if block(ino) == block(Ino::JOURNAL) && unwanted.len() < 5 {
            unwanted.push(path);
        }
    }
    for path in unwanted {
        library.act(&Op::Rmdir { path }).map_err(|e| e.to_string())?;
    }
    drop(library);
    mount.close().map_err(|e| e.to_string())?;
    Ok(image.fork())
}

/// Runs `ops` operations.
pub(super) fn work(
    seed: u64,
    ops: usize,
    device: &Arc<RecordingDevice>,
    wrap: Wrap<'_>,
    found: &mut Findings,
) -> Result<Workload, String> {
    // The commit interval is so long that no timed commit runs. Therefore most fsyncs can write
    // fast commits.
    let commit_interval = Duration::from_secs(3600);
    let fast_commits = FastCommitting::IfPossible;
    let options = MountOptions { commit_interval, fast_commits, ..MountOptions::default() };
    let options = MountOptions { atime: Atime::Noatime, ..options };
    let mount = Mount::open(wrap(device.clone()), options).map_err(|e| e.to_string())?;
    let mut workload = Workload {
        rng: Rng::with_seed(seed),
        device: device.clone(),
        fs: mount.fs().clone(),
        library: Library::new(mount.fs()),
        record: Record::default(),
        dirs: vec![Path::new()],
        names: 0,
        ids: 0,
    };
    for _ in 0..3 {
        workload.directory()?;
    }
    workload.sync()?;
    while workload.record.ops.len() < ops {
        workload.next()?;
    }
    let statistics = mount.fs().statistics();
    found.fast_commits = statistics.journal.fast_commits;
    found.commits = statistics.journal.commits;
    found.refused = statistics.fast_refused;
    drop(mount);
    Ok(workload)
}

impl Workload {
    fn act(&mut self, op: Op) -> Result<(), String> {
        self.record.ops.push(format!("{op:?}"));
        self.library.act(&op).map(drop).map_err(|e| format!("{op:?}: {e}"))
    }

    fn living(&self) -> Vec<u64> {
        let lives =
            |history: &FileHistory| history.versions.last().is_some_and(|v| !v.paths.is_empty());
        self.record
            .histories
            .iter()
            .filter(|(_, history)| lives(history))
            .map(|(id, _)| *id)
            .collect()
    }

    fn some(&mut self) -> Result<u64, String> {
        let living = self.living();
        match self.rng.choice(living) {
            Some(id) => Ok(id),
            None => self.create(),
        }
    }

    fn last(&self, id: u64) -> &Version {
        self.record.histories[&id].versions.last().expect("a version")
    }

    fn path(&mut self, id: u64) -> Path {
        let paths: Vec<Path> = self.last(id).paths.iter().cloned().collect();
        self.rng.choice(paths).expect("a file that has a name")
    }

    /// Runs `op`. It makes a new version of each file in `ids`: `change` turns the last version of
    /// the file into the new one.
    fn change(&mut self, op: Op, ids: &[u64], change: impl Fn(&mut Version)) -> Result<(), String> {
        let begun = self.device.mark();
        // The versions are recorded before the operation runs, because a crash may interrupt the
        // operation.
        let number = self.record.ops.len() + 1;
        for id in ids {
            let mut next = self.last(*id).clone();
            (next.begun, next.op, next.what) = (begun, number, Changed::File);
            change(&mut next);
            self.record.histories.get_mut(id).expect("a file").versions.push(next);
        }
        self.act(op)
    }

    fn new_path(&mut self) -> Path {
        self.names += 1;
        let dir = self.dirs[self.rng.usize(..self.dirs.len())].clone();
        let long = if self.rng.u32(..4) == 0 { "long".repeat(20) } else { String::new() };
        join(&dir, format!("{:x}{long}", self.names).as_bytes())
    }

    fn directory(&mut self) -> Result<(), String> {
        let path = self.new_path();
        self.dirs.push(path.clone());
        let kind = Kind::Directory;
        self.act(Op::Create { path, kind, permissions: 0o755, uid: 0, gid: 0 })
    }

    fn create(&mut self) -> Result<u64, String> {
        let path = self.new_path();
        self.create_at(path)
    }

    fn create_at(&mut self, path: Path) -> Result<u64, String> {
        self.ids += 1;
        let (begun, op) = (self.device.mark(), self.record.ops.len() + 1);
        let (paths, what) = (BTreeSet::from([path.clone()]), Changed::File);
        let version = Version { begun, op, paths, mode: 0o644, bytes: Vec::new(), what };
        self.record.histories.entry(self.ids).or_default().versions.push(version);
        let kind = Kind::Regular;
        self.act(Op::Create { path, kind, permissions: 0o644, uid: 0, gid: 0 })?;
        Ok(self.ids)
    }

    fn write(&mut self, id: u64, offset: u64) -> Result<(), String> {
        let most = if self.rng.u32(..8) == 0 { 40_000 } else { 5_000 };
        let len = (self.rng.u64(..most / ALIGN) * ALIGN + ALIGN) as usize;
        let path = self.path(id);
        let op = self.record.ops.len() + 1;
        let data = words(id, op, offset, len);
        let mut next = self.last(id).clone();
        (next.begun, next.op, next.what) = (self.device.mark(), op, Changed::File);
        let (start, end) = (offset as usize, offset as usize + len);
        next.bytes.resize(next.bytes.len().max(end), 0);
        next.bytes[start..end].copy_from_slice(&data);
        self.record.histories.get_mut(&id).expect("a file").versions.push(next);
        self.record.ops.push(format!("write {} {offset}+{len}", show(&path)));
        let inode = self.library.resolve(&path).map_err(|e| e.to_string())?;
        let n = self.fs.write_at(&inode, offset, &data, Privilege::Root);
        match n.map_err(|e| format!("write: {e}"))? == len {
            true => Ok(()),
            false => Err("no space".into()),
        }
    }

    fn fsync(&mut self, id: u64) -> Result<(), String> {
        let file = File::At(self.path(id));
        let mode = if self.rng.u32(..4) == 0 { SyncMode::Data } else { SyncMode::Full };
        let is_whole = mode == SyncMode::Full;
        self.act(Op::Fsync { file, mode })?;
        // An fdatasync(2) need not make all attributes durable, so it is not recorded as a promise.
        if is_whole {
            self.promise(id, |version| version.what == Changed::File);
        }
        Ok(())
    }

    /// Records a promise that covers the last version for which `counts` is true.
    fn promise(&mut self, id: u64, counts: impl Fn(&Version) -> bool) {
        let mark = self.device.mark();
        let history = self.record.histories.get_mut(&id).expect("a file");
        let version = history.versions.iter().rposition(counts).expect("the first version");
        history.promises.push(Promise { mark, version });
    }

    fn sync(&mut self) -> Result<(), String> {
        self.act(Op::Sync)?;
        let ids: Vec<u64> = self.record.histories.keys().copied().collect();
        ids.into_iter().for_each(|id| self.promise(id, |_| true));
        Ok(())
    }

    fn size(&self, id: u64) -> u64 {
        self.last(id).bytes.len() as u64
    }

    fn next(&mut self) -> Result<(), String> {
        if self.living().len() > 60 {
            return self.remove();
        }
        match self.rng.u32(..100) {
            0..26 => {
                let id = self.create()?;
                self.write(id, 0)?;
                self.fsync(id)
            }
            26..46 => {
                let id = self.some()?;
                let size = self.size(id);
                self.write(id, size)?;
                if self.rng.u32(..3) > 0 { self.fsync(id) } else { Ok(()) }
            }
            46..56 => {
                let id = self.some()?;
                for _ in 0..self.rng.u32(1..4) {
                    let place = self.rng.u64(..=self.size(id) / ALIGN + 200) * ALIGN;
                    self.write(id, place)?;
                }
                if self.rng.bool() { self.fsync(id) } else { Ok(()) }
            }
            56..64 => {
                let id = self.some()?;
                self.fsync(id)
            }
            64..70 => {
                let id = self.some()?;
                let (path, permissions) = (self.path(id), self.rng.u16(..0o1000));
                self.change(Op::Chmod { path, permissions }, &[id], |v| v.mode = permissions)?;
                if self.rng.bool() { self.fsync(id) } else { Ok(()) }
            }
            70..74 => self.create().map(drop),
            74..80 => self.remove(),
            80..83 => self.rename(),
            83..86 => {
                let id = self.some()?;
                let (file, size) = (File::At(self.path(id)), self.rng.u64(..200) * ALIGN);
                self.change(Op::Truncate { file, size }, &[id], |v| {
                    v.bytes.resize(size as usize, 0);
                })
            }
            86..88 => self.fallocate(),
            88..89 => self.shift(),
            89..91 => {
                let id = self.some()?;
                let (file, new) = (File::At(self.path(id)), self.new_path());
                self.change(Op::Link { file, new: new.clone() }, &[id], |v| {
                    v.paths.insert(new.clone());
                })
            }
            91..93 if self.dirs.len() < 8 => self.directory(),
            93..94 => self.move_directory(),
            94..96 => self.sync(),
            _ => Ok(()),
        }
    }

    fn fallocate(&mut self) -> Result<(), String> {
        let id = self.some()?;
        let modes = [Fallocate::Allocate, Fallocate::PunchHole, Fallocate::ZeroRange];
        let (file, how) = (File::At(self.path(id)), modes[self.rng.usize(..modes.len())]);
        let (offset, len) = (self.rng.u64(..100) * ALIGN, 20_000 / ALIGN * ALIGN);
        let (start, end) = (offset as usize, (offset + len) as usize);
        self.change(Op::Fallocate { file, how, offset, len }, &[id], |v| {
            let size = v.bytes.len();
            if how != Fallocate::Allocate {
                v.bytes[start.min(size)..end.min(size)].fill(0);
            }
            if how != Fallocate::PunchHole {
                v.bytes.resize(size.max(end), 0);
            }
        })
    }

    /// Collapses or inserts a range, and syncs the file or overwrites a block that has moved.
    fn shift(&mut self) -> Result<(), String> {
        let id = self.some()?;
        let block = self.fs.superblock().geometry().block_size().bytes();
        let blocks = self.last(id).bytes.len().div_ceil(block);
        if blocks < 2 {
            return Ok(());
        }
        let (file, at) = (File::At(self.path(id)), self.rng.usize(..blocks - 1) * block);
        let how = match self.rng.bool() {
            true => Fallocate::CollapseRange,
            false => Fallocate::InsertRange,
        };
        let (offset, len) = (at as u64, block as u64);
        self.change(Op::Fallocate { file, how, offset, len }, &[id], |v| match how {
            Fallocate::CollapseRange => drop(v.bytes.drain(at..at + block)),
            _ => drop(v.bytes.splice(at..at, std::iter::repeat_n(0, block))),
        })?;
        if self.rng.bool() { self.fsync(id) } else { self.write(id, at as u64) }
    }

    fn remove(&mut self) -> Result<(), String> {
        let id = self.some()?;
        let path = self.path(id);
        self.change(Op::Unlink { path: path.clone() }, &[id], |v| {
            v.paths.remove(&path);
        })?;
        // In half of the cases, a new file takes the same name, and often the same inode number,
        // immediately.
        if self.rng.bool() {
            let new = self.create_at(path)?;
            self.write(new, 0)?;
            self.fsync(new)?;
        }
        Ok(())
    }

    /// Renames a file, sometimes to the name of another file, which it replaces.
    fn rename(&mut self) -> Result<(), String> {
        let (id, other) = (self.some()?, self.some()?);
        let (path, over) = (self.path(id), self.path(other));
        let new = if self.rng.bool() && id != other { over } else { self.new_path() };
        let how = Rename::Replace;
        let ids = if id == other { vec![id] } else { vec![id, other] };
        self.change(Op::Rename { path: path.clone(), new: new.clone(), how }, &ids, |v| {
            match v.paths.remove(&path) {
                true => drop(v.paths.insert(new.clone())),
                false => drop(v.paths.remove(&new)),
            }
        })?;
        if self.rng.bool() { self.fsync(id) } else { Ok(()) }
    }

    fn move_directory(&mut self) -> Result<(), String> {
        let at = self.rng.usize(1..self.dirs.len());
        let path = self.dirs[at].clone();
        self.names += 1;
        let new = join(split(&path).0, format!("d{:x}", self.names).as_bytes());
        let below = [&path[..], b"/"].concat();
        let moved = |path: &Path| match path.strip_prefix(&below[..]) {
            Some(rest) => join(&new, rest),
            None => path.clone(),
        };
        self.dirs = self.dirs.iter().map(moved).collect();
        self.dirs[at] = new.clone();
        let (op, ids) =
            (Op::Rename { path, new: new.clone(), how: Rename::Replace }, self.living());
        self.change(op, &ids, |v| {
            let paths = v.paths.iter().map(moved).collect();
            if paths != v.paths {
                (v.paths, v.what) = (paths, Changed::Directory);
            }
        })
    }
}
