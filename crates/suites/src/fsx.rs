//! Runs random operations on one file and compares its bytes after each, as fsx does. The
//! operations include all modes of fallocate, SEEK_DATA, SEEK_HOLE, and remounts.

use crate::conditions::{self, Conditions, Handles, Paced};
use crate::data::Data;
use crate::home;
use crate::image::{Image, Mappings, cluster_size_of};
use crate::op::{IN_PLACE, pattern};
use crate::together::Bases;
use fastrand::Rng;
use lanefs_device::Device;
use lanefs_ext4::{
    Error, Fallocate, InodeRef, Mount, NewInode, NewKind, Privilege, Seek, SetAttr, SyncMode,
};
use std::sync::Arc;

/// The largest size of the file in bytes. It is small enough that operations overlap, and large
/// enough for several extents.
const LIMIT: u64 = 600_000;

/// A forgetful run (see [`conditions`]) has this many files besides the one under test. Its caches
/// cannot hold so many files.
const OTHERS: u32 = 200;

fn other(n: u32) -> Vec<u8> {
    format!("other{n}").into_bytes()
}

/// A run of random operations on one file.
pub struct Fsx {
    seed: u64,
    rng: Rng,
    mappings: Mappings,
    device: Paced,
    handles: Handles,
    mount: Option<Mount>,
    file: Option<InodeRef>,
    data: Data,
    /// The operations so far. A failure reports the last ones.
    log: Vec<String>,
    block: u64,
    /// Collapsed and inserted ranges start and end at multiples of this number of bytes.
    cluster: u64,
}

/// A message that states the error and the last operations.
pub type Failure = String;

/// Runs `count` operations with this seed on a fresh image, and then checks the image with e2fsck.
pub fn check(bases: &Bases, seed: u64, count: u32) -> Result<(), Failure> {
    const OPTIONS: [&str; 4] =
        ["-b 1024", "-b 4096", "-b 2048 -O ^metadata_csum,uninit_bg", "-t ext3 -b 1024"];
    let options = OPTIONS[(seed % OPTIONS.len() as u64) as usize];
    check_on(bases, (options, "32M"), seed, count)
}

/// Works like [`check`], with these options for mke2fs and this size.
pub fn check_on(
    bases: &Bases,
    (options, size): (&str, &str),
    seed: u64,
    count: u32,
) -> Result<(), Failure> {
    let Some(overlay) = bases.fresh(options, size) else { return Ok(()) };
    let overlay = Arc::new(overlay);
    let told = |why| format!("seed {seed} ({options}): {why}");
    let mappings = Mappings::of(options);
    let fsx = Fsx::new(seed, mappings, overlay.clone()).map_err(&told)?;
    fsx.with_clusters_of(cluster_size_of(options)).run(count).map_err(&told)?;
    let image = Image::empty();
    overlay.to_file(image.path()).map_err(|e| e.to_string())?;
    let verdict = image.check();
    if verdict.status == 0 { Ok(()) } else { Err(told(format!("e2fsck -fn: {}", verdict.text))) }
}

impl Fsx {
    /// Mounts the fresh file system on `device`, and creates the file.
    pub fn new(seed: u64, mappings: Mappings, device: Arc<dyn Device>) -> Result<Fsx, Failure> {
        let Conditions { pace, handles, .. } = conditions::of_seed(seed, None);
        let mut fsx = Fsx {
            seed,
            rng: Rng::with_seed(seed),
            mappings,
            device: Paced::new(device, pace),
            handles,
            mount: None,
            file: None,
            data: Data::default(),
            log: Vec::new(),
            block: 0,
            cluster: 0,
        };
        fsx.mount().map_err(|e| e.to_string())?;
        let fs = fsx.fs();
        let kind = NewKind::Regular;
        let new = NewInode { kind, permissions: 0o600, umask: 0, uid: 0, gid: 0 };
        let root = home::of_library(&fs).map_err(|e| e.to_string())?;
        fs.create(&root, b"file", &new).map_err(|e| e.to_string())?;
        if pace.is_some() {
            for n in 0..OTHERS {
                fs.create(&root, &other(n), &new).map_err(|e| e.to_string())?;
            }
        }
        drop(root);
        fsx.reopen().map_err(|e| e.to_string())?;
        fsx.block = fs.stat_fs().block_size.into();
        fsx.cluster = fsx.block;
        Ok(fsx)
    }

    fn with_clusters_of(self, cluster: u64) -> Fsx {
        Fsx { cluster, ..self }
    }

    /// Does `count` operations, then unmounts.
    pub fn run(mut self, count: u32) -> Result<(), Failure> {
        for n in 0..count {
            let stepped = self.op().and_then(|()| self.forget());
            self.device.op();
            if let Err(why) = stepped {
                let from = self.log.len().saturating_sub(25);
                return Err(format!("operation {n}: {why}\n  {}", self.log[from..].join("\n  ")));
            }
        }
        self.compare_all()?;
        self.file = None;
        let closed = self.mount.take().map_or(Ok(()), Mount::close);
        closed.map_err(|e| format!("close: {e}"))
    }

    fn fs(&self) -> Arc<lanefs_ext4::Fs> {
        self.mount.as_ref().expect("mounted between operations").fs().clone()
    }

    fn file(&self) -> InodeRef {
        self.file.clone().expect("open between operations")
    }

    fn mount(&mut self) -> Result<(), Error> {
        // Each mount gets new options, because the options contain the name cache, and mounts must
        // not share a name cache.
        let options = conditions::of_seed(self.seed, None).mount;
        self.mount = Some(Mount::open(self.device.device.clone(), options)?);
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Error> {
        let fs = self.fs();
        if let Some(file) = self.file.take() {
            fs.release(&file);
        }
        let named = fs.lookup(&home::of_library(&fs)?, b"file")?.ok_or(Error::NotFound)?;
        self.file = Some(fs.get(named.ino, None)?);
        Ok(())
    }

    /// Closes the file and opens it again, unless this run keeps the file open. In between,
    /// sometimes reads other files so that this file is evicted.
    fn forget(&mut self) -> Result<(), Failure> {
        if self.handles == Handles::Kept {
            return Ok(());
        }
        self.file = None;
        if self.rng.u32(..4) == 0 {
            self.log.push("look at others".into());
            self.look_at_others().map_err(|e| format!("a look at others: {e}"))?;
        }
        self.reopen().map_err(|e| e.to_string())
    }

    fn look_at_others(&self) -> Result<(), Error> {
        let fs = self.fs();
        let root = home::of_library(&fs)?;
        for n in 0..OTHERS {
            let named = fs.lookup(&root, &other(n))?.ok_or(Error::NotFound)?;
            fs.get(named.ino, None)?;
        }
        Ok(())
    }

    fn remount(&mut self) -> Result<(), Error> {
        self.file = None;
        if let Some(mount) = self.mount.take() {
            mount.close()?;
        }
        self.mount()?;
        self.reopen()
    }

    /// Returns a position and a length: unaligned, aligned to sectors, or aligned to blocks.
    fn range(&mut self, most: u64) -> (u64, u64) {
        let (mut at, mut len) = (self.rng.u64(..most), self.rng.u64(1..=65_536));
        let align = match self.rng.u32(..3) {
            0 => 1,
            1 => 512,
            _ => self.block,
        };
        at -= at % align;
        len = len.next_multiple_of(align).min(LIMIT - at);
        (at, len.max(1))
    }

    fn op(&mut self) -> Result<(), Failure> {
        let fs = self.fs();
        let file = self.file();
        let size = self.data.size();
        let op = self.rng.u32(..100);
        let (at, len) = self.range(if op < 30 { (size + 1).max(1) } else { LIMIT });
        let failed = |e: Error| e.to_string();
        match op {
            0..30 => {
                self.log.push(format!("read {at}+{len}"));
                self.compare(at, len)?;
            }
            30..52 => {
                self.log.push(format!("write {at}+{len}"));
                let bytes = pattern(self.rng.u64(..), len as usize);
                let n = fs.write_at(&file, at, &bytes, Privilege::Root).map_err(failed)?;
                self.all(n, bytes.len())?;
                self.data.write(at, &bytes);
            }
            52..56 => {
                let len = len.min(LIMIT.saturating_sub(size));
                self.log.push(format!("append {len}"));
                let bytes = pattern(self.rng.u64(..), len as usize);
                let (start, n) = fs.append(&file, &bytes, Privilege::Root).map_err(failed)?;
                self.all(n, bytes.len())?;
                if start != size {
                    return Err(format!("appended at {start}, the size was {size}"));
                }
                self.data.write(size, &bytes);
            }
            56..66 => {
                let to = if self.rng.bool() { at } else { at.min(size) };
                self.log.push(format!("truncate {to}"));
                let set = SetAttr { size: Some(to), ..SetAttr::default() };
                fs.set_attr(&file, &set).map_err(failed)?;
                self.data.resize(to);
            }
            66..80 => self.fallocate(at, len)?,
            80..88 => self.shift(at, len)?,
            88..93 => self.copy(at, len)?,
            93..96 => {
                self.log.push("fsync".into());
                fs.fsync(&file, SyncMode::Full).map_err(failed)?;
            }
            96..98 => {
                self.log.push("reopen".into());
                self.reopen().map_err(failed)?;
            }
            98 => {
                self.log.push("seek".into());
                self.compare_seeks()?;
            }
            _ => {
                self.log.push("remount".into());
                drop(file);
                drop(fs);
                self.remount().map_err(failed)?;
                self.compare_all()?;
            }
        }
        match self.file().attr().size {
            size if size == self.data.size() => Ok(()),
            size => Err(format!("the size is {size}, should be {}", self.data.size())),
        }
    }

    fn fallocate(&mut self, at: u64, len: u64) -> Result<(), Failure> {
        let how = IN_PLACE[self.rng.usize(..IN_PLACE.len())];
        self.log.push(format!("{how:?} {at}+{len}"));
        let done = self.fs().fallocate(&self.file(), how, at, len, Privilege::Root);
        if !self.mappings.support(how) {
            return match done {
                Err(Error::NotSupported) => Ok(()),
                other => Err(format!("{how:?} with a block map gave {other:?}")),
            };
        }
        done.map_err(|e| e.to_string())?;
        if !matches!(how, Fallocate::Allocate | Fallocate::AllocateKeepSize) {
            self.data.zero(at, len);
        }
        let grows = matches!(how, Fallocate::Allocate | Fallocate::ZeroRange);
        if grows && at + len > self.data.size() {
            self.data.resize(at + len);
        }
        Ok(())
    }

    /// Collapses or inserts a range of whole clusters.
    fn shift(&mut self, at: u64, len: u64) -> Result<(), Failure> {
        let size = self.data.size();
        let unit = self.cluster;
        let (at, len) = (at / unit * unit, len.next_multiple_of(unit));
        let how = match size + len < LIMIT && self.rng.bool() {
            true => Fallocate::InsertRange,
            false => Fallocate::CollapseRange,
        };
        self.log.push(format!("{how:?} {at}+{len}"));
        let fits = if how == Fallocate::InsertRange { at < size } else { at + len < size };
        match self.fs().fallocate(&self.file(), how, at, len, Privilege::Root) {
            Err(Error::NotSupported) if !self.mappings.support(how) => return Ok(()),
            Err(Error::InvalidArgument(_)) if !fits => return Ok(()),
            done => done.map_err(|e| e.to_string())?,
        }
        if !fits || !self.mappings.support(how) {
            return Err(format!("{how:?} {at}+{len} of {size} bytes was done"));
        }
        match how {
            Fallocate::InsertRange => self.data.insert(at, len),
            _ => self.data.collapse(at, len),
        }
        self.compare_all()
    }

    /// Copies a part of the file to another position in the file, with read and write.
    fn copy(&mut self, from: u64, len: u64) -> Result<(), Failure> {
        let to = self.rng.u64(..LIMIT - len.min(LIMIT - 1));
        self.log.push(format!("copy {from}+{len} to {to}"));
        let want = self.data.read(from, len as usize);
        let mut bytes = vec![0; len as usize];
        let n = self.fs().read_at(&self.file(), from, &mut bytes).map_err(|e| e.to_string())?;
        bytes.truncate(n);
        if bytes != want {
            return Err(difference(from, &bytes, &want));
        }
        let done = self.fs().write_at(&self.file(), to, &bytes, Privilege::Root);
        self.all(done.map_err(|e| e.to_string())?, bytes.len())?;
        self.data.write(to, &bytes);
        Ok(())
    }

    fn all(&self, n: usize, len: usize) -> Result<(), Failure> {
        if n == len { Ok(()) } else { Err(format!("wrote {n} of {len} bytes")) }
    }

    fn compare_all(&self) -> Result<(), Failure> {
        self.compare(0, LIMIT + 10)
    }

    fn compare(&self, at: u64, len: u64) -> Result<(), Failure> {
        let mut got = vec![0xee; len as usize];
        let n = self.fs().read_at(&self.file(), at, &mut got).map_err(|e| e.to_string())?;
        got.truncate(n);
        let want = self.data.read(at, len as usize);
        if got == want { Ok(()) } else { Err(difference(at, &got, &want)) }
    }

    /// Checks that SEEK_DATA and SEEK_HOLE report data and holes in turn, which together cover the
    /// file, and that holes contain only zeros.
    fn compare_seeks(&self) -> Result<(), Failure> {
        let (fs, file, size) = (self.fs(), self.file(), self.data.size());
        let mut at = 0;
        while at < size {
            let data = match fs.seek(&file, Seek::Data, at) {
                Ok(data) => data,
                Err(Error::NoSuchOffset) => size,
                Err(error) => return Err(error.to_string()),
            };
            let hole = self.data.read(at, data.saturating_sub(at) as usize);
            if data < at || hole.iter().any(|b| *b != 0) {
                return Err(format!("SEEK_DATA from {at} gave {data}, with data before it"));
            }
            if data == size {
                return Ok(());
            }
            let end = fs.seek(&file, Seek::Hole, data).map_err(|e| e.to_string())?;
            if end <= data || end > size {
                return Err(format!("SEEK_HOLE from {data} gave {end}, size {size}"));
            }
            at = end;
        }
        Ok(())
    }
}

/// Reports the first difference between two versions of the bytes from `at` on.
fn difference(at: u64, got: &[u8], want: &[u8]) -> Failure {
    let first = got.iter().zip(want).position(|(a, b)| a != b);
    match first {
        Some(i) => {
            let (g, w) = (got[i], want[i]);
            let zeros = got[i..].iter().take_while(|b| **b == 0).count();
            format!("byte {} is {g:#x}, should be {w:#x} ({zeros} zeros there)", at + i as u64)
        }
        None => format!("{} bytes from {at}, should be {}", got.len(), want.len()),
    }
}
