//! The workload before the crash.

use super::history::{History, Promise};
use super::recorder::Recorder;
use crate::conditions::{self, Handles, Paced};
use crate::image::Mappings;
use crate::library::Library;
use crate::model::{LARGEST_INSIDE, Model};
use crate::op::{File, IN_PLACE, Kind, Op, Path, join};
use fastrand::Rng;
use lanefs_device::{Device, OverlayDevice, RecordingDevice};
use lanefs_ext4::{Atime, Fallocate, Mount, MountOptions, Rename, SetXattr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The images, each given by its options for mke2fs and its size. The logs are small, so that they
/// wrap and are checkpointed.
pub const OPTIONS: [(&str, &str); 7] = [
    ("-b 1024 -J size=1 -N 600", "14M"),
    ("-b 4096 -J size=4 -N 600", "20M"),
    ("-b 1024 -J size=1 -N 600 -O ^orphan_file,^metadata_csum_seed", "14M"),
    ("-b 1024 -J size=1 -N 600 -O ^metadata_csum,^orphan_file,^64bit", "14M"),
    ("-b 1024 -J size=1 -N 900 -O ea_inode,large_dir,inline_data", "14M"),
    ("-t ext3 -b 1024 -J size=1 -N 600", "14M"),
    ("-b 1024 -J size=1 -N 600 -I 256 -O quota,project", "14M"),
];

/// Returns the options and the size of the image for a seed.
pub fn options_of(seed: u64) -> (&'static str, &'static str) {
    OPTIONS[(seed % OPTIONS.len() as u64) as usize]
}

/// Chooses operations at random.
struct Workload<'a> {
    rng: Rng,
    mappings: Mappings,
    recorder: Recorder<'a>,
    /// Regular files, oldest first.
    files: Vec<Path>,
    dirs: Vec<Path>,
    /// Files that may have an attribute whose value is in a separate inode.
    valued: BTreeSet<u64>,
    names: u32,
    handles: Handles,
}

/// All offsets and lengths are multiples of this number. Therefore no write covers a part of a
/// word, and only a crash of the device can tear a word.
const ALIGN: u64 = 64;

/// Runs `ops` operations on `image`, which mke2fs made with `options`. The file system uses the
/// device that `wrap` returns; tests use `wrap` to plant a fault that the checks must find.
///
/// # Errors
/// Returns the failure of an operation. No crash is simulated here.
pub fn record(
    image: OverlayDevice,
    options: &str,
    seed: u64,
    ops: usize,
    wrap: &dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>,
) -> Result<History, String> {
    let conditions = conditions::of_seed(seed, Some(Duration::from_millis(30)));
    let base = image.fork();
    // The recording device is above the device with the slow flushes. If the recording device were
    // below that device, a recorded flush would also cover writes that are made while the flush
    // waits.
    let paced = Paced::new(Arc::new(image), conditions.pace);
    let device = Arc::new(RecordingDevice::since(base, paced.device.clone()));
    let mounted = MountOptions { atime: Atime::Noatime, ..conditions.mount };
    let mount = Mount::open(wrap(device.clone()), mounted).map_err(|e| e.to_string())?;
    let mappings = Mappings::of(options);
    let model = Model::of(options);
    let history = History {
        image: options.into(),
        forgetful: conditions.pace.is_some(),
        recording: device.recording(),
        ops: vec!["mount".into()],
        begun: vec![0],
        shapes: vec![model.shape()],
        ids: vec![model.ids()],
        changes: BTreeMap::new(),
        promises: Vec::new(),
    };
    let mut workload = Workload {
        rng: Rng::with_seed(seed),
        mappings,
        recorder: Recorder {
            device: device.clone(),
            fs: mount.fs().clone(),
            library: Library::new(mount.fs()),
            model,
            history,
            touched: BTreeMap::new(),
            paced: &paced,
        },
        files: Vec::new(),
        dirs: vec![Path::new()],
        valued: BTreeSet::new(),
        names: 0,
        handles: conditions.handles,
    };
    let worked = workload.work(ops);
    let mut history = workload.recorder.into_history();
    let closed = mount.close().map_err(|e| format!("close: {e}"));
    worked?;
    closed?;
    let last = history.ops.len() - 1;
    history.promises.push(Promise { mark: device.mark(), tree: last, data: (None, last) });
    history.recording = device.recording();
    Ok(history)
}

impl Workload<'_> {
    fn work(&mut self, ops: usize) -> Result<(), String> {
        let ops = ops + if self.recorder.history.forgetful { 100 } else { 0 };
        while self.recorder.history.forgetful && self.files.len() < 100 {
            self.create()?;
        }
        while self.recorder.history.ops.len() <= ops {
            match self.rng.u32(..6) {
                0 if self.recorder.history.forgetful => self.come_back()?,
                _ => self.next()?,
            }
        }
        Ok(())
    }

    /// Changes or truncates a file, reads other files so that the first file may be evicted, and
    /// then grows the first file or makes it durable.
    fn come_back(&mut self) -> Result<(), String> {
        let path = self.some_file()?;
        let file = File::At(path.clone());
        let size = self.recorder.model.size_of(&file);
        if self.rng.bool() {
            let size = self.aligned(size);
            self.recorder.reshape(&path, Op::Truncate { file: file.clone(), size })?;
        } else {
            let permissions = self.rng.u16(..0o10000);
            self.recorder.op(Op::Chmod { path: path.clone(), permissions })?;
        }
        // Reads other files until a flush is held back: either the flush that makes the change
        // durable, or the flush after that.
        for _ in 0..self.rng.u32(1..3) {
            self.look_at_others(10_000, &|paced| paced.is_holding())?;
            self.look_at_others(400, &|_| false)?;
        }
        if self.rng.bool() {
            return self.recorder.fsync(&path);
        }
        let (size, len) = (self.recorder.model.size_of(&file), self.len());
        self.recorder.write(&path, size, len)
    }

    /// Reads at most `most` other files, and stops when `until` becomes true.
    fn look_at_others(&mut self, most: u32, until: &dyn Fn(&Paced) -> bool) -> Result<(), String> {
        for _ in 0..most {
            if until(self.recorder.paced) {
                break;
            }
            let other = self.some_file()?;
            self.recorder
                .library
                .resolve(&other)
                .map_err(|e| format!("a look at {other:?}: {e}"))?;
        }
        Ok(())
    }

    fn new_path(&mut self) -> Path {
        self.names += 1;
        let dir = self.dirs[self.rng.usize(..self.dirs.len())].clone();
        let long = if self.rng.u32(..4) == 0 { "long".repeat(30) } else { String::new() };
        join(&dir, format!("{:x}{long}", self.names).as_bytes())
    }

    fn create(&mut self) -> Result<Path, String> {
        let path = self.new_path();
        let kind = Kind::Regular;
        self.recorder.op(Op::Create {
            path: path.clone(),
            kind,
            permissions: 0o644,
            uid: 0,
            gid: 0,
        })?;
        self.files.push(path.clone());
        Ok(path)
    }

    fn has_value_inodes(&self) -> bool {
        self.recorder.history.image.contains("ea_inode")
    }

    fn some_file(&mut self) -> Result<Path, String> {
        match self.rng.choice(&self.files).cloned() {
            Some(path) => Ok(path),
            None => self.create(),
        }
    }

    fn aligned(&mut self, most: u64) -> u64 {
        self.rng.u64(..=most / ALIGN) * ALIGN
    }

    /// Returns how far beyond the end of a file a write begins. With block maps, the distance is
    /// sometimes so large that the write needs a double indirect block.
    fn leap(&mut self) -> u64 {
        match self.mappings {
            Mappings::BlockMaps if self.rng.u32(..12) == 0 => 300 << 10,
            _ => 0,
        }
    }

    fn len(&mut self) -> usize {
        let most = if self.rng.u32(..6) == 0 { 60_000 } else { 6_000 };
        (self.aligned(most) + ALIGN) as usize
    }

    fn next(&mut self) -> Result<(), String> {
        // If there are many files, one is removed, so that the image does not become full.
        if self.files.len() > 150 {
            return self.unlink();
        }
        match self.rng.u32(..100) {
            0..18 => {
                let path = self.create()?;
                let len = self.len();
                self.recorder.write(&path, 0, len)
            }
            18..28 => {
                let path = self.some_file()?;
                let size = self.recorder.model.size_of(&File::At(path.clone()));
                let len = self.len();
                self.recorder.write(&path, size, len)
            }
            28..38 => {
                let path = self.some_file()?;
                let size = self.recorder.model.size_of(&File::At(path.clone()));
                let (offset, len) = (self.aligned(size) + self.leap(), self.len());
                self.recorder.write(&path, offset, len)
            }
            38..48 => {
                let path = self.some_file()?;
                self.recorder.fsync(&path)
            }
            48..56 => self.replace(),
            56..66 => self.unlink(),
            66..72 => {
                let path = self.some_file()?;
                let size = self.aligned(20_000);
                self.recorder.reshape(&path, Op::Truncate { file: File::At(path.clone()), size })
            }
            72..77 => self.fallocate(),
            77 => {
                let path = self.some_file()?;
                self.recorder.defragment(&path)
            }
            78..84 => self.directory(),
            84..90 => {
                let path = self.some_file()?;
                let name = format!("user.{}", self.rng.u8(..4)).into_bytes();
                let large = self.has_value_inodes() && self.rng.u32(..3) == 0;
                let len = self.rng.usize(..if large { 5000 } else { 150 });
                let value = vec![self.rng.u8(..); len];
                self.valued.extend(self.recorder.id(&path).filter(|_| len > LARGEST_INSIDE));
                self.recorder.op(Op::SetXattr { path, name, value, how: SetXattr::Any })
            }
            90..93 => {
                let path = self.some_file()?;
                let new = self.new_path();
                self.recorder.op(Op::Link { file: File::At(path), new: new.clone() })?;
                self.files.push(new);
                Ok(())
            }
            93..96 => {
                let path = self.some_file()?;
                let permissions = self.rng.u16(..0o10000);
                self.recorder.op(Op::Chmod { path, permissions })
            }
            96..98 if self.handles == Handles::Kept => self.open_or_close(),
            96..99 if self.rng.u32(..4) == 0 => self.batch(),
            96..99 if self.rng.u32(..4) == 0 => self.truncate_in_steps(),
            _ => self.recorder.sync(),
        }
    }

    /// Allocates, punches or zeroes a range, or moves the bytes after it.
    fn fallocate(&mut self) -> Result<(), String> {
        let path = self.some_file()?;
        let file = File::At(path.clone());
        let moving = [Fallocate::CollapseRange, Fallocate::InsertRange];
        let modes = [&IN_PLACE[..], &moving].concat();
        let (size, unit) = (self.recorder.model.size_of(&file), self.recorder.model.cluster_size());
        let how = match modes[self.rng.usize(..modes.len())] {
            Fallocate::InsertRange if size == 0 => Fallocate::Allocate,
            Fallocate::CollapseRange if size <= unit => Fallocate::Allocate,
            how => how,
        };
        let how = if self.mappings.support(how) { how } else { Fallocate::PunchHole };
        let (offset, len) = match how {
            Fallocate::InsertRange => {
                (self.rng.u64(..size.div_ceil(unit)) * unit, self.rng.u64(1..6) * unit)
            }
            Fallocate::CollapseRange => {
                // The range must end before the end of the file.
                let end = self.rng.u64(1..size.div_ceil(unit));
                let start = self.rng.u64(..end).max(end.saturating_sub(10));
                (start * unit, (end - start) * unit)
            }
            _ => (self.aligned(30_000), self.aligned(30_000) + ALIGN),
        };
        self.recorder.reshape(&path, Op::Fallocate { file: file.clone(), how, offset, len })?;
        if moving.contains(&how) && self.rng.bool() {
            // Overwrites blocks that have moved, before that is durable.
            let size = self.recorder.model.size_of(&file);
            let (offset, len) = (self.aligned(size), self.len());
            self.recorder.write(&path, offset, len)?;
        }
        Ok(())
    }

    /// Renames a new file to the name of an old one.
    fn replace(&mut self) -> Result<(), String> {
        let old = self.some_file()?;
        let path = self.create()?;
        let len = self.len();
        self.recorder.write(&path, 0, len)?;
        if self.rng.bool() {
            self.recorder.fsync(&path)?;
        }
        let how = if self.rng.u32(..5) == 0 { Rename::Exchange } else { Rename::Replace };
        self.recorder.op(Op::Rename { path: path.clone(), new: old, how })?;
        if how == Rename::Replace {
            self.files.retain(|file| *file != path);
        }
        Ok(())
    }

    fn unlink(&mut self) -> Result<(), String> {
        let path = self.some_file()?;
        self.files.retain(|file| *file != path);
        self.recorder.op(Op::Unlink { path })
    }

    fn directory(&mut self) -> Result<(), String> {
        let empty = |dir: &Path| {
            let shape = self.recorder.history.shapes.last();
            let slash = [&dir[..], b"/"].concat();
            shape.is_some_and(|s| !s.entries.keys().any(|path| path.starts_with(&slash)))
        };
        let idle = self.dirs.iter().skip(1).find(|dir| empty(dir)).cloned();
        match idle {
            Some(path) if self.rng.bool() || self.dirs.len() > 12 => {
                self.dirs.retain(|dir| *dir != path);
                self.recorder.op(Op::Rmdir { path })
            }
            _ if self.dirs.len() > 12 => Ok(()),
            _ => {
                let path = self.new_path();
                let (kind, permissions) = (Kind::Directory, 0o755);
                let (uid, gid) = (0, 0);
                self.dirs.push(path.clone());
                self.recorder.op(Op::Create { path, kind, permissions, uid, gid })
            }
        }
    }

    fn open_or_close(&mut self) -> Result<(), String> {
        let slot = self.rng.u8(..3);
        if self.recorder.model.open_slots().iter().any(|(used, _)| *used == slot) {
            return match self.rng.bool() {
                true => self.change_nameless(slot),
                false => self.recorder.op(Op::Close { slot }),
            };
        }
        if self.rng.u32(..3) == 0 {
            let dir = self.dirs[self.rng.usize(..self.dirs.len())].clone();
            self.recorder.op(Op::Unnamed { dir, slot })?;
            return self.change_nameless(slot);
        }
        let path = self.some_file()?;
        // When e2fsck (1.47.0) deletes an orphan, it does not delete the inodes that hold values of
        // the orphan's attributes. Later, it reports these inodes as unattached. Therefore files
        // with such attributes must not become orphans.
        if self.recorder.id(&path).is_some_and(|id| self.valued.contains(&id)) {
            return Ok(());
        }
        self.recorder.op(Op::Open { path: path.clone(), slot })?;
        self.files.retain(|file| *file != path);
        self.recorder.op(Op::Unlink { path })
    }

    /// Writes to a file without a name, and truncates it, in one step or in several. It must stay an
    /// orphan meanwhile.
    fn change_nameless(&mut self, slot: u8) -> Result<(), String> {
        let file = || File::Open(slot);
        let pieces = self.rng.u64(..80);
        for n in 0..pieces {
            let (offset, seed) = (n * 8192, self.rng.u64(..));
            self.recorder.op(Op::Write { file: file(), offset, len: 512, seed })?;
        }
        if self.rng.bool() {
            self.recorder.sync()?;
        }
        let size = self.aligned(pieces * 8192);
        self.recorder.op(Op::Truncate { file: file(), size })
    }

    /// Truncates a file with so many extents that the truncation needs handles in several
    /// transactions. After a crash between these transactions, recovery must complete the
    /// truncation, and no block may leak.
    fn truncate_in_steps(&mut self) -> Result<(), String> {
        let path = self.create()?;
        let pieces = 40 + self.rng.u64(..60);
        for n in 0..pieces {
            self.recorder.write(&path, n * 8192, 512)?;
        }
        if self.rng.bool() {
            self.recorder.fsync(&path)?;
        }
        let size = self.aligned(pieces * 2048);
        self.recorder.reshape(&path, Op::Truncate { file: File::At(path.clone()), size })
    }

    /// Creates and removes many names at once, so that directories gain and lose blocks and
    /// transactions become full.
    fn batch(&mut self) -> Result<(), String> {
        for _ in 0..15 {
            self.create()?;
        }
        for _ in 0..10 {
            self.unlink()?;
        }
        Ok(())
    }
}
