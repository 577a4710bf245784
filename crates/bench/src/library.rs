//! Lanefs in this process, without a mount.

use crate::error::{Error, Result};
use crate::older::{NameCachePolicy, OneLock, Overwrite, Policies};
use crate::target_tree::{How, Opened, TargetTree};
use lanefs_device::{Access, Device, FileDevice, OpenOptions, RamDevice};
use lanefs_ext4::{
    DirEntry, DirId, Fallocate, InodeRef, Mount, NewKind, SetAttr, SetTime, SyncMode, names_within,
};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Rank, RwLock};
use lanefs_ondisk::{FileType, Ino, Time};
use lanefs_raid5::{Array, ArrayOptions, OpenArray, Source, StripeWake};
use lanefs_vfs::{Credentials, Follow, NewNode, OpenFile, OpenFlags, Vfs, VfsOptions};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

/// The mount options of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mounting {
    /// The locking policies: those of Lanefs or, for comparison, those of older kernels.
    pub policies: Policies,
    /// Limit of the cache memory in bytes; `None` means the default.
    pub cache_bytes: Option<u64>,
    /// Which waiting threads are woken when the array below the file system has room for another
    /// row. Without an array, this option has no effect.
    pub stripe_wake: StripeWake,
}

/// An image that this process has open.
pub struct Library {
    // The fields are dropped in this order: inodes before the mount, and the mount before the
    // array, because dropping `vfs` writes to the array.
    one_lock: Option<Front>,
    vfs: Vfs,
    who: Credentials,
    array: Option<Below>,
    /// Whether the device is in memory, as opposed to a file or device of the host.
    in_memory: bool,
    /// With [`Overwrite::Exclusive`], the lock of each file that was opened. [rank Topology]
    exclusive: Option<Mutex<HashMap<Ino, FileLock>>>,
}

/// A lock that reads of a file take shared, and writes exclusively.
type FileLock = Arc<RwLock<()>>;

/// The names and inodes with [`NameCachePolicy::Global`], which drops the inodes before the mount
/// ends.
struct Front(Arc<OneLock>);

impl Drop for Front {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// The number of names and inodes behind one lock, if memory is not limited.
const NAMES: usize = 1 << 16;
/// The bytes that an inode behind one lock takes, approximately.
const INODE: u64 = 2048;

/// The array below the file system. Its counters show how many member reads and writes an operation
/// causes.
enum Below {
    InMemory(Arc<Array>),
    OfMembers(Arc<OpenArray>),
}

impl Below {
    fn array(&self) -> &Array {
        match self {
            Below::InMemory(array) => array,
            Below::OfMembers(array) => array.array(),
        }
    }
}

type Told<T> = std::result::Result<T, lanefs_ext4::Error>;

fn at<T>(path: &str, result: Told<T>) -> Result<T> {
    result.map_err(|source| Error::Lanefs { path: path.into(), source })
}

impl Library {
    /// Opens the file system on `device`, with the policies and the cache limit of `how`. Messages
    /// call the file system `name`.
    ///
    /// # Errors
    /// If the file system cannot be mounted.
    pub fn on(name: &str, device: Arc<dyn Device>, how: Mounting) -> Result<Library> {
        let mut options = VfsOptions::default();
        options.mount.allocation = how.policies.allocation();
        if let Some(bytes) = how.cache_bytes {
            options.mount.cache_bytes = bytes;
        }
        let (vfs, one_lock) = match how.policies.name_cache {
            NameCachePolicy::Lanes => (Vfs::open(device, options), None),
            NameCachePolicy::Global => {
                let bytes = options.mount.cache_bytes;
                let room = names_within(bytes).min((bytes / INODE) as usize).min(NAMES);
                let table = Arc::new(OneLock::new(room));
                options.mount.names = table.clone();
                let mount = Mount::open(device, options.mount);
                (mount.and_then(Vfs::without_names), Some(Front(table)))
            }
        };
        let exclusive = (how.policies.overwrite == Overwrite::Exclusive)
            .then(|| Mutex::new(Rank::Topology, HashMap::new()));
        let who = Credentials::superuser();
        Ok(Library { one_lock, vfs: at(name, vfs)?, who, array: None, in_memory: false, exclusive })
    }

    /// Does the same as [`Library::on`], for an array in memory.
    ///
    /// # Errors
    /// If the file system on the array cannot be mounted.
    pub fn on_array(name: &str, array: Arc<Array>, how: Mounting) -> Result<Library> {
        let library = Library::on(name, array.clone(), how)?;
        Ok(Library { array: Some(Below::InMemory(array)), in_memory: true, ..library })
    }

    /// Does the same as [`Library::on`], for a device in this process's memory.
    ///
    /// # Errors
    /// If the image in memory cannot be mounted.
    pub fn on_memory(name: &str, device: Arc<RamDevice>, how: Mounting) -> Result<Library> {
        Ok(Library { in_memory: true, ..Library::on(name, device, how)? })
    }

    /// Opens the image, or the array `md:MEMBER,...`, that `path` names. Data on a block device
    /// bypasses the host's page cache, as on a mount.
    ///
    /// # Errors
    /// If the image cannot be opened or mounted.
    pub fn open(path: &Path, how: Mounting) -> Result<Library> {
        let name = path.display().to_string();
        let Some(array) = Source::parse(path.as_os_str()) else {
            let mut device = FileDevice::open(path, Access::ReadWrite, OpenOptions::default())?;
            if !device.is_file() {
                let direct = device.with_direct_io(path);
                direct.map_err(|source| Error::Host { path: name.clone(), source })?;
            }
            return Library::on(&name, Arc::new(device), how);
        };
        let mut options = ArrayOptions::new(Access::ReadWrite);
        options.policies.stripe_wake = how.stripe_wake;
        let array = Arc::new(array.open(options)?);
        let library = Library::on(&name, array.clone(), how)?;
        Ok(Library { array: Some(Below::OfMembers(array)), ..library })
    }

    /// Runs `act` on the inode to which `path` leads.
    fn at_end<T>(&self, path: &str, act: impl FnOnce(&InodeRef) -> Told<T>) -> Told<T> {
        let Some(Front(table)) = &self.one_lock else {
            let (root, path) = (self.vfs.root(), path.as_bytes());
            return act(&self.vfs.walk(&self.who, root, path, Follow::Nothing)?);
        };
        let mut dir = None;
        for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
            let at: &InodeRef = dir.as_deref().unwrap_or(self.vfs.root());
            let id = DirId { ino: at.ino(), generation: at.generation() };
            dir = match table.hold(id, name.as_bytes()) {
                Some(inode) => Some(inode),
                None => {
                    let inode = Arc::new(self.vfs.lookup(&self.who, at, name.as_bytes())?);
                    table.keep(inode.clone());
                    Some(inode)
                }
            };
        }
        act(dir.as_deref().unwrap_or(self.vfs.root()))
    }

    /// Runs `act` on the parent directory and the last name of `path`.
    fn named<T>(&self, path: &str, act: impl FnOnce(&InodeRef, &[u8]) -> Told<T>) -> Result<T> {
        at(path, self.in_parent(path, act))
    }

    fn in_parent<T>(&self, path: &str, act: impl FnOnce(&InodeRef, &[u8]) -> Told<T>) -> Told<T> {
        let Some(Front(table)) = &self.one_lock else {
            let parent = self.vfs.parent(&self.who, self.vfs.root(), path.as_bytes())?;
            let (name, _) = parent.name(|| lanefs_ext4::Error::Busy)?;
            return act(&parent.dir, name);
        };
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let done = self.at_end(dir, |dir| act(dir, name.as_bytes()));
        table.settle();
        done
    }

    fn file(&self, path: &str, open: OpenFile) -> LibraryFile<'_> {
        let lock = |locks: &Mutex<HashMap<Ino, FileLock>>| {
            let new = || Arc::new(RwLock::new(Rank::Topology, ()));
            locks.lock().entry(open.inode().ino()).or_insert_with(new).clone()
        };
        let lock = self.exclusive.as_ref().map(lock);
        LibraryFile { library: self, open, path: path.into(), lock, is_unnamed: false }
    }

    /// Runs `each` on the entries of `dir`, except "." and "..".
    fn each_entry(&self, dir: &InodeRef, mut each: impl FnMut(&DirEntry<'_>)) -> Told<()> {
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let open = self.vfs.open_inode(&self.who, dir.clone(), flags)?;
        let read = self.vfs.read_dir(&open, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                each(entry);
            }
            ControlFlow::Continue(())
        });
        self.vfs.release(&open);
        read
    }

    fn empty(&self, dir: &InodeRef) -> Told<()> {
        let mut entries = Vec::new();
        self.each_entry(dir, |entry| entries.push((entry.name.to_vec(), entry.file_type)))?;
        for (name, kind) in entries {
            if kind == Some(FileType::Directory) {
                let inner = self.vfs.lookup(&self.who, dir, &name)?;
                self.empty(&inner)?;
                drop(inner);
                self.vfs.rmdir(&self.who, dir, &name)?;
            } else {
                self.vfs.unlink(&self.who, dir, &name)?;
            }
        }
        Ok(())
    }
}

const DIRECTORY: NewNode<'_> = NewNode { kind: NewKind::Directory, permissions: 0o755, umask: 0 };
const FILE: NewNode<'_> = NewNode { kind: NewKind::Regular, permissions: 0o644, umask: 0 };

impl TargetTree for Library {
    fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    fn make_dir(&self, path: &str) -> Result<()> {
        self.named(path, |dir, name| self.vfs.make(&self.who, dir, name, &DIRECTORY).map(drop))
    }

    fn open<'a>(&'a self, path: &str, how: How) -> Result<Box<dyn Opened + 'a>> {
        let flags = match how {
            How::Read | How::ReadDirect => OpenFlags::READ,
            How::WriteDirect => OpenFlags::WRITE,
            How::New => OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE,
            How::Emptied => OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE,
            How::Append => OpenFlags::WRITE | OpenFlags::APPEND,
        };
        let open = match &self.one_lock {
            None => {
                let root = self.vfs.root();
                self.vfs.open_path(&self.who, root, path.as_bytes(), flags, &FILE)
            }
            Some(_) if flags.contains(OpenFlags::CREATE) => self
                .in_parent(path, |dir, name| self.vfs.open_at(&self.who, dir, name, flags, &FILE)),
            Some(_) => {
                self.at_end(path, |inode| self.vfs.open_inode(&self.who, inode.clone(), flags))
            }
        };
        Ok(Box::new(self.file(path, at(path, open)?)))
    }

    fn stat(&self, path: &str) -> Result<u64> {
        let attr = match &self.one_lock {
            None => self.vfs.stat(&self.who, self.vfs.root(), path.as_bytes(), Follow::Nothing),
            Some(_) => self.at_end(path, |inode| Ok(self.vfs.fs().stat(inode))),
        };
        Ok(at(path, attr)?.size)
    }

    fn make_unnamed<'a>(&'a self, dir: &str) -> Result<Box<dyn Opened + 'a>> {
        let open =
            self.at_end(dir, |dir| self.vfs.open_unnamed(&self.who, dir, OpenFlags::WRITE, &FILE));
        let open = at(dir, open)?;
        if let Some(Front(table)) = &self.one_lock {
            table.keep(Arc::new(open.inode().clone()));
        }
        let mut file = self.file(dir, open);
        file.is_unnamed = true;
        Ok(Box::new(file))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.named(path, |dir, name| self.vfs.unlink(&self.who, dir, name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let how = lanefs_ext4::Rename::Replace;
        self.named(from, |source, name| {
            self.in_parent(to, |target, new_name| {
                self.vfs.rename(&self.who, source, name, target, new_name, how)
            })
        })
    }

    fn list(&self, path: &str) -> Result<u64> {
        let mut entries = 0;
        at(path, self.at_end(path, |dir| self.each_entry(dir, |_| entries += 1)))?;
        Ok(entries)
    }

    fn names(&self, path: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let read = self.at_end(path, |dir| {
            self.each_entry(dir, |entry| {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
            })
        });
        at(path, read)?;
        Ok(names)
    }

    fn free_blocks(&self) -> Result<u64> {
        Ok(self.vfs.stat_fs().blocks_free)
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        at(path, self.at_end(path, |dir| self.empty(dir)))?;
        self.named(path, |dir, name| self.vfs.rmdir(&self.who, dir, name))
    }

    fn settle(&self) -> Result<()> {
        at("/", self.vfs.sync())
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        self.array.as_ref().map_or(Vec::new(), |below| below.array().statistics().named())
    }
}

struct LibraryFile<'a> {
    library: &'a Library,
    open: OpenFile,
    path: String,
    lock: Option<FileLock>,
    is_unnamed: bool,
}

impl Drop for LibraryFile<'_> {
    fn drop(&mut self) {
        self.library.vfs.release(&self.open);
        if let (true, Some(Front(table))) = (self.is_unnamed, &self.library.one_lock) {
            table.drop_inode(self.open.inode().ino());
        }
    }
}

impl LibraryFile<'_> {
    fn whole(&self, done: usize, wanted: usize) -> Result<()> {
        if done == wanted {
            return Ok(());
        }
        Err(Error::Short { path: self.path.clone(), done, wanted })
    }
}

impl Opened for LibraryFile<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let wanted = buf.len();
        let _shared = self.lock.as_ref().map(|lock| lock.read());
        let done = at(&self.path, self.library.vfs.read(&self.open, offset, buf))?;
        self.whole(done, wanted)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let _exclusive = self.lock.as_ref().map(|lock| lock.write());
        let (_, done) = at(&self.path, self.library.vfs.write(&self.open, offset, data))?;
        self.whole(done, data.len())
    }

    fn sync(&self) -> Result<()> {
        at(&self.path, self.library.vfs.fsync(&self.open, SyncMode::Full))
    }

    fn sync_data(&self) -> Result<()> {
        at(&self.path, self.library.vfs.fsync(&self.open, SyncMode::Data))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let vfs = &self.library.vfs;
        at(&self.path, vfs.fallocate(&self.open, Fallocate::Allocate, offset, len))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        at(&self.path, self.library.vfs.set_len(&self.open, len)).map(drop)
    }

    fn set_modified(&self, seconds: i64) -> Result<()> {
        let time = Some(SetTime::At(Time { secs: seconds, nanos: 0 }));
        let set = SetAttr { atime: time, mtime: time, ..SetAttr::default() };
        let library = self.library;
        at(&self.path, library.vfs.set_attr(&library.who, self.open.inode(), &set)).map(drop)
    }

    /// There is nothing to drop, because Lanefs has no cache of file data.
    fn forget_cached(&self) -> Result<()> {
        Ok(())
    }
}
