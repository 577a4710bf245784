//! The suite of fast commits runs a workload with many fsyncs on a recording device, on a file
//! system with `fast_commit`, and looks at crash states.
//!
//! An fsync promises only its own file, so after a crash each file is judged alone. It must be as
//! it was after one of its own changes: the last one that was promised, the last one that had
//! started, or one between them. Its words are those of such changes, or zeros. No other file is
//! there. Three programs replay: Lanefs, e2fsck, and the kernel.

use crate::crash::checker::{clean, has_torn_superblock, mount, sound};
use crate::crash::{words, writer};
use crate::image::Scratch;
use crate::library::Library;
use crate::listing::library_names;
use crate::op::{File, Kind, Op, Path, join, show, split};
use crate::together::Bases;
use fastrand::Rng;
use lanefs_device::{Device, Kept, OverlayDevice, RecordingDevice};
use lanefs_ext4::{
    Atime, Fallocate, FastCommitting, Fs, InodeRef, Mount, MountOptions, Privilege, Rename,
    SyncMode,
};
use lanefs_ondisk::{FileType, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The options for mke2fs and the sizes.
pub const OPTIONS: [(&str, &str); 4] = [
    ("-b 1024 -J size=2 -N 400 -O fast_commit", "14M"),
    ("-b 4096 -J size=6 -N 400 -O fast_commit,^orphan_file", "24M"),
    ("-b 4096 -J size=6 -N 400 -O fast_commit -I 128", "24M"),
    ("-b 1024 -J size=2 -N 400 -O fast_commit,^metadata_csum,^64bit,^orphan_file -I 128", "14M"),
];

/// The bytes of a file are multiples of this.
const ALIGN: u64 = 64;

/// A file after one of its changes.
#[derive(Debug, Clone)]
struct Version {
    /// The number of events before the operation.
    begun: usize,
    op: usize,
    /// Its names; none if it was removed.
    paths: BTreeSet<Path>,
    mode: u16,
    bytes: Vec<u8>,
    /// What changed: an fsync of the file does not promise the names of its directories.
    what: Changed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Changed {
    File,
    Directory,
}

/// A promise that a crash at event `mark` or later keeps version `version`.
#[derive(Debug, Clone, Copy)]
struct Promise {
    mark: usize,
    version: usize,
}

/// All versions of a file, oldest first.
#[derive(Debug, Default)]
struct Story {
    versions: Vec<Version>,
    promises: Vec<Promise>,
}

/// What the checked states were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Fast commits of the workload.
    pub fast_commits: u64,
    /// Commits of the workload.
    pub commits: u64,
    /// The fsyncs that committed, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// The states that Lanefs recovered.
    pub states: u64,
    /// Those with fast commits to replay.
    pub with_fast_commits: u64,
    /// Those that e2fsck replayed.
    pub by_e2fsck: u64,
    /// Those that the kernel replayed.
    pub by_kernel: u64,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} fast commits, {} commits; {} states, {} of them with fast commits; {} by e2fsck, \
             {} by the kernel",
            self.fast_commits,
            self.commits,
            self.states,
            self.with_fast_commits,
            self.by_e2fsck,
            self.by_kernel
        )
    }
}

/// A workload and its record.
struct Workload {
    rng: Rng,
    device: Arc<RecordingDevice>,
    fs: Arc<Fs>,
    library: Library,
    stories: BTreeMap<u64, Story>,
    dirs: Vec<Path>,
    ops: Vec<String>,
    names: u32,
    ids: u64,
}

/// Wraps the device under the file system.
pub type Wrap<'w> = &'w dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>;

/// Runs `ops` operations and checks about `cuts` crash states; `wrap` may add a planted fault.
///
/// # Errors
/// Returns the first state in which a check fails.
pub fn check(seed: u64, ops: usize, cuts: usize, wrap: Wrap<'_>) -> Result<Findings, String> {
    let (options, size) = OPTIONS[(seed % OPTIONS.len() as u64) as usize];
    let told = |why| format!("seed {seed} ({options}): {why}");
    let Some(image) = Bases::default().fresh(options, size) else {
        return Ok(Findings::default());
    };
    let image = with_directories(image).map_err(told)?;
    let base = image.fork();
    let device = Arc::new(RecordingDevice::since(base, Arc::new(image)));
    let mut found = Findings::default();
    let workload = work(seed, ops, &device, wrap, &mut found).map_err(told)?;
    judge(seed, &workload, cuts, &mut found).map_err(told)?;
    Ok(found)
}

/// Makes directories, so that the root gets an index, and removes a few whose inodes are in the
/// same block of the table as the journal's: the next files get these numbers.
fn with_directories(image: OverlayDevice) -> Result<OverlayDevice, String> {
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

fn work(
    seed: u64,
    ops: usize,
    device: &Arc<RecordingDevice>,
    wrap: Wrap<'_>,
    found: &mut Findings,
) -> Result<Workload, String> {
    // Only the workload commits, so that there are many fast commits.
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
        stories: BTreeMap::new(),
        dirs: vec![Path::new()],
        ops: Vec::new(),
        names: 0,
        ids: 0,
    };
    for _ in 0..3 {
        workload.directory()?;
    }
    workload.sync()?;
    while workload.ops.len() < ops {
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
        self.ops.push(format!("{op:?}"));
        self.library.act(&op).map(drop).map_err(|e| format!("{op:?}: {e}"))
    }

    fn living(&self) -> Vec<u64> {
        let lives = |story: &Story| story.versions.last().is_some_and(|v| !v.paths.is_empty());
        self.stories.iter().filter(|(_, story)| lives(story)).map(|(id, _)| *id).collect()
    }

    fn some(&mut self) -> Result<u64, String> {
        let living = self.living();
        match self.rng.choice(living) {
            Some(id) => Ok(id),
            None => self.create(),
        }
    }

    fn last(&self, id: u64) -> &Version {
        self.stories[&id].versions.last().expect("a version")
    }

    fn path(&mut self, id: u64) -> Path {
        let paths: Vec<Path> = self.last(id).paths.iter().cloned().collect();
        self.rng.choice(paths).expect("a file that has a name")
    }

    /// Runs `op`, which makes a new version of some files.
    fn change(&mut self, op: Op, ids: &[u64], change: impl Fn(&mut Version)) -> Result<(), String> {
        let begun = self.device.mark();
        // The versions are known before the operation ends, as a crash may come in the middle.
        let number = self.ops.len() + 1;
        for id in ids {
            let mut next = self.last(*id).clone();
            (next.begun, next.op, next.what) = (begun, number, Changed::File);
            change(&mut next);
            self.stories.get_mut(id).expect("a file").versions.push(next);
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
        let (begun, op) = (self.device.mark(), self.ops.len() + 1);
        let (paths, what) = (BTreeSet::from([path.clone()]), Changed::File);
        let version = Version { begun, op, paths, mode: 0o644, bytes: Vec::new(), what };
        self.stories.entry(self.ids).or_default().versions.push(version);
        let kind = Kind::Regular;
        self.act(Op::Create { path, kind, permissions: 0o644, uid: 0, gid: 0 })?;
        Ok(self.ids)
    }

    fn write(&mut self, id: u64, offset: u64) -> Result<(), String> {
        let most = if self.rng.u32(..8) == 0 { 40_000 } else { 5_000 };
        let len = (self.rng.u64(..most / ALIGN) * ALIGN + ALIGN) as usize;
        let path = self.path(id);
        let op = self.ops.len() + 1;
        let data = words(id, op, offset, len);
        let mut next = self.last(id).clone();
        (next.begun, next.op, next.what) = (self.device.mark(), op, Changed::File);
        let (start, end) = (offset as usize, offset as usize + len);
        next.bytes.resize(next.bytes.len().max(end), 0);
        next.bytes[start..end].copy_from_slice(&data);
        self.stories.get_mut(&id).expect("a file").versions.push(next);
        self.ops.push(format!("write {} {offset}+{len}", show(&path)));
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
        // Attributes that fdatasync(2) leaves out make its promise hard to say.
        if is_whole {
            self.promise(id, |version| version.what == Changed::File);
        }
        Ok(())
    }

    /// Promises the last version that `counts`.
    fn promise(&mut self, id: u64, counts: impl Fn(&Version) -> bool) {
        let mark = self.device.mark();
        let story = self.stories.get_mut(&id).expect("a file");
        let version = story.versions.iter().rposition(counts).expect("the first version");
        story.promises.push(Promise { mark, version });
    }

    fn sync(&mut self) -> Result<(), String> {
        self.act(Op::Sync)?;
        let ids: Vec<u64> = self.stories.keys().copied().collect();
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
            86..89 => {
                let id = self.some()?;
                let (file, how) = (File::At(self.path(id)), Fallocate::Allocate);
                let (offset, len) = (self.rng.u64(..100) * ALIGN, 20_000 / ALIGN * ALIGN);
                self.change(Op::Fallocate { file, how, offset, len }, &[id], |v| {
                    v.bytes.resize(v.bytes.len().max((offset + len) as usize), 0);
                })
            }
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

    fn remove(&mut self) -> Result<(), String> {
        let id = self.some()?;
        let path = self.path(id);
        self.change(Op::Unlink { path: path.clone() }, &[id], |v| {
            v.paths.remove(&path);
        })?;
        // The name and the number are soon used again.
        if self.rng.bool() {
            let new = self.create_at(path)?;
            self.write(new, 0)?;
            self.fsync(new)?;
        }
        Ok(())
    }

    /// Renames a file, over another one or not.
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

/// A tree as some program shows it: modes and contents of the regular files.
type View = BTreeMap<Path, (u16, Vec<u8>)>;

fn judge(seed: u64, workload: &Workload, cuts: usize, found: &mut Findings) -> Result<(), String> {
    let recording = workload.device.recording();
    let events = recording.events().len();
    // Only one of the files is mounted: a loop device may keep it for a while.
    let new = || Scratch::new(recording.base()).map_err(|e| e.to_string());
    let scratch = [new()?, new()?];
    let mut replay = recording.replay();
    let every = (events / cuts).max(1);
    let mut rng = Rng::with_seed(seed);
    for cut in (rng.usize(..every)..=events).step_by(every) {
        for kept in [
            Kept::Unended { seed: rng.u64(..) },
            Kept::Some { seed: rng.u64(..) },
            Kept::Torn { seed: rng.u64(..) },
        ] {
            let state = replay.state(cut, kept);
            if has_torn_superblock(&state) {
                continue;
            }
            let ended = match kept {
                Kept::Unended { .. } => cut.saturating_sub(1),
                _ => cut,
            };
            let at = Moment { cut, ended };
            let checked = check_state(workload, at, &state, &scratch, &mut rng, found);
            checked.map_err(|why| format!("cut {cut} of {events}, {kept:?}: {why}"))?;
        }
    }
    Ok(())
}

/// The first event that had not started, and the first that had not ended.
#[derive(Clone, Copy)]
struct Moment {
    cut: usize,
    ended: usize,
}

fn check_state(
    workload: &Workload,
    at: Moment,
    state: &OverlayDevice,
    [plain, mounted]: &[Scratch; 2],
    rng: &mut Rng,
    found: &mut Findings,
) -> Result<(), String> {
    let fast = lanefs_offline::look(&(Arc::new(state.fork()) as Arc<dyn Device>))
        .map_err(|e| format!("a look: {e}"))?
        .fast_commits;
    let recovered = Arc::new(state.fork());
    let view = through_lanefs(recovered.clone())?;
    compare(workload, at, &view).map_err(|why| format!("Lanefs, {fast} fast commits: {why}"))?;
    sound(recovered.clone())?;
    found.states += 1;
    found.with_fast_commits += u64::from(fast > 0);
    if rng.u32(..8) == 0 {
        clean(plain.put(&recovered).map_err(|e| e.to_string())?, "recovered by Lanefs")?;
    }
    // e2fsck (1.47.0) drops the whole log if the area has only fast commits of an older
    // transaction.
    if fast > 0 && rng.u32(..6) == 0 {
        let image = plain.put(state).map_err(|e| e.to_string())?;
        let said = image.repair().text;
        clean(image, "replayed by e2fsck").map_err(|why| format!("{why}\nbefore: {said}"))?;
        let view = through_lanefs(image.device())?;
        compare(workload, at, &view)
            .map_err(|why| format!("e2fsck, {fast} fast commits: {why}\n{said}"))?;
        found.by_e2fsck += 1;
    }
    if rng.u32(..6) == 0 {
        let image = mounted.put(state).map_err(|e| e.to_string())?;
        let Some(mounted) = image.kernel_mount("") else { return Ok(()) };
        let mut view = View::new();
        of_host(mounted.path(), &Path::new(), &mut view).map_err(|e| e.to_string())?;
        mounted.unmount();
        compare(workload, at, &view)
            .map_err(|why| format!("the kernel, {fast} fast commits: {why}"))?;
        clean(image, "replayed by the kernel")?;
        found.by_kernel += 1;
    }
    Ok(())
}

fn through_lanefs(device: Arc<dyn Device>) -> Result<View, String> {
    let mount = mount(device)?;
    let mut view = View::new();
    let seen = mount.fs().root().and_then(|root| of_library(mount.fs(), &root, b"", &mut view));
    seen.map_err(|e| format!("Lanefs cannot read it: {e}"))?;
    mount.close().map_err(|e| format!("unmount: {e}"))?;
    Ok(view)
}

fn of_library(
    fs: &Fs,
    dir: &InodeRef,
    at: &[u8],
    view: &mut View,
) -> Result<(), lanefs_ext4::Error> {
    for (name, ino) in library_names(fs, dir)? {
        let (inode, path) = (fs.get(ino, None)?, join(at, &name));
        let attr = inode.attr();
        match attr.file_type {
            FileType::Directory => of_library(fs, &inode, &path, view)?,
            _ => {
                let mut bytes = vec![0; attr.size as usize];
                let n = fs.read_at(&inode, 0, &mut bytes)?;
                bytes.truncate(n);
                view.insert(path, (attr.permissions, bytes));
            }
        }
    }
    Ok(())
}

fn of_host(dir: &std::path::Path, at: &Path, view: &mut View) -> std::io::Result<()> {
    use std::os::unix::{ffi::OsStrExt, fs::PermissionsExt};
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let (path, meta) = (join(at, entry.file_name().as_bytes()), entry.metadata()?);
        match meta.is_dir() {
            true => of_host(&entry.path(), &path, view)?,
            false => {
                let mode = meta.permissions().mode() as u16 & 0xfff;
                view.insert(path, (mode, std::fs::read(entry.path())?));
            }
        }
    }
    Ok(())
}

/// Checks that each file is one of its allowed versions.
fn compare(workload: &Workload, at: Moment, view: &View) -> Result<(), String> {
    let mut left: BTreeSet<&Path> = view.keys().collect();
    for (id, story) in &workload.stories {
        let kept = story.promises.iter().filter(|promise| promise.mark <= at.ended);
        let sure = kept.map(|promise| promise.version).max();
        let begun = story.versions.iter().rposition(|version| version.begun < at.cut);
        // An operation without a write can make its promise at the very event.
        let Some(last) = begun.max(sure) else { continue };
        let allowed = &story.versions[sure.unwrap_or(0)..=last];
        // An empty file can be one of several versions: its new name may have belonged to another.
        let fits = |version: &&Version| is_version(*id, version, allowed, view);
        let fitting: Vec<&Version> = allowed.iter().filter(fits).collect();
        if fitting.is_empty() {
            if sure.is_none() && allowed.iter().all(|version| !is_there(*id, version, view)) {
                continue;
            }
            return Err(format!("file {id} is none of {}", describe(workload, allowed, view)));
        }
        left.retain(|path| !fitting.iter().any(|version| version.paths.contains(*path)));
    }
    match left.first() {
        None => Ok(()),
        Some(path) => {
            let had = |version: &Version| version.paths.contains(*path);
            let versions = workload.stories.values().flat_map(|story| &story.versions);
            let versions: Vec<Version> = versions.filter(|version| had(version)).cloned().collect();
            let stories = describe(workload, &versions, view);
            Err(format!("{}: no file that may be there{stories}", show(path)))
        }
    }
}

/// Returns whether the names of a version have words of this file.
fn is_there(id: u64, version: &Version, view: &View) -> bool {
    let own = |bytes: &[u8]| {
        (0..).zip(bytes.chunks_exact(8)).any(|(n, word)| {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            word != 0 && writer(word, id, n * 8).is_some()
        })
    };
    version.paths.iter().any(|path| view.get(path).is_some_and(|(_, bytes)| own(bytes)))
}

fn is_version(id: u64, version: &Version, allowed: &[Version], view: &View) -> bool {
    let everywhere: BTreeSet<&Path> = allowed.iter().flat_map(|v| &v.paths).collect();
    let gone = everywhere.into_iter().filter(|path| !version.paths.contains(*path));
    let mut gone = gone.map(|path| Version { paths: [path.clone()].into(), ..version.clone() });
    version.paths.iter().all(|path| {
        view.get(path).is_some_and(|(mode, bytes)| {
            *mode == version.mode
                && bytes.len() == version.bytes.len()
                && (0..bytes.len()).step_by(8).all(|at| {
                    let word = bytes.get(at..at + 8);
                    let of = |v: &Version| {
                        v.bytes.get(at..at + 8).map_or(word == Some(&[0; 8]), |w| word == Some(w))
                    };
                    allowed.iter().any(of)
                })
        })
    }) && !gone.any(|other| is_there(id, &other, view))
}

fn describe(workload: &Workload, allowed: &[Version], view: &View) -> String {
    let mut text = String::new();
    for version in allowed.iter().rev().take(6) {
        let paths: Vec<String> = version.paths.iter().map(|path| show(path)).collect();
        let (op, len) = (version.op, version.bytes.len());
        let words = workload.ops.get(op.saturating_sub(1)).cloned().unwrap_or_default();
        text += &format!(
            "\n  after operation {op} ({words}): {paths:?}, {len} bytes, mode {:o}",
            version.mode
        );
        for path in &version.paths {
            let found = view.get(path).map(|(mode, bytes)| {
                let first = bytes.chunks_exact(8).zip(version.bytes.chunks_exact(8));
                let differs = first.enumerate().find(|(_, (a, b))| a != b).map(|(n, (a, _))| {
                    (n * 8, u64::from_le_bytes(a.try_into().expect("eight bytes")))
                });
                (format!("{mode:o}"), bytes.len(), differs)
            });
            text += &format!("; found {found:x?}");
        }
    }
    text
}
