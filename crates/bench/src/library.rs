//! Lanefs in this process, without a mount.

use crate::error::{Error, Result};
use crate::target_tree::{How, Opened, TargetTree};
use lanefs_device::{Access, Device, FileDevice, OpenOptions, RamDevice};
use lanefs_ext4::{DirEntry, Fallocate, InodeRef, NewKind, Policies, SetAttr, SetTime, SyncMode};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{FileType, Time};
use lanefs_raid5::{Array, ArrayOptions, OpenArray, Source, StripeWake};
use lanefs_vfs::{Credentials, Follow, NewNode, OpenFile, OpenFlags, Vfs, VfsOptions};
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
    // This field comes first so that it is dropped before `array`, because dropping `vfs` writes to
    // the array.
    vfs: Vfs,
    who: Credentials,
    array: Option<Below>,
    /// Whether the device is in memory, as opposed to a file or device of the host.
    in_memory: bool,
}

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
        options.mount.policies = how.policies;
        if let Some(bytes) = how.cache_bytes {
            options.mount.cache_bytes = bytes;
        }
        let vfs = at(name, Vfs::open(device, options))?;
        Ok(Library { vfs, who: Credentials::superuser(), array: None, in_memory: false })
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
            if device.is_block_device() {
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

    fn walk(&self, path: &str) -> Told<InodeRef> {
        self.vfs.walk(&self.who, self.vfs.root(), path.as_bytes(), Follow::Nothing)
    }

    /// Runs `act` on the parent directory and the last name of `path`.
    fn named<T>(&self, path: &str, act: impl FnOnce(&InodeRef, &[u8]) -> Told<T>) -> Result<T> {
        let parent = at(path, self.vfs.parent(&self.who, self.vfs.root(), path.as_bytes()))?;
        let (name, _) = at(path, parent.name(|| lanefs_ext4::Error::Busy))?;
        at(path, act(&parent.dir, name))
    }

    /// Runs `each` on the entries of `dir`, except "." and "..".
    fn each_entry(&self, dir: InodeRef, mut each: impl FnMut(&DirEntry<'_>)) -> Told<()> {
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let open = self.vfs.open_inode(&self.who, dir, flags)?;
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
        self.each_entry(dir.clone(), |entry| entries.push((entry.name.to_vec(), entry.file_type)))?;
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
        let root = self.vfs.root();
        let open = at(path, self.vfs.open_path(&self.who, root, path.as_bytes(), flags, &FILE))?;
        Ok(Box::new(LibraryFile { library: self, open, path: path.into() }))
    }

    fn stat(&self, path: &str) -> Result<u64> {
        let root = self.vfs.root();
        Ok(at(path, self.vfs.stat(&self.who, root, path.as_bytes(), Follow::Nothing))?.size)
    }

    fn make_unnamed<'a>(&'a self, dir: &str) -> Result<Box<dyn Opened + 'a>> {
        let open = self
            .walk(dir)
            .and_then(|dir| self.vfs.open_unnamed(&self.who, &dir, OpenFlags::WRITE, &FILE));
        Ok(Box::new(LibraryFile { library: self, open: at(dir, open)?, path: dir.into() }))
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.named(path, |dir, name| self.vfs.unlink(&self.who, dir, name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let how = lanefs_ext4::Rename::Replace;
        self.named(from, |source, name| {
            let target = self.vfs.parent(&self.who, self.vfs.root(), to.as_bytes())?;
            let (new_name, _) = target.name(|| lanefs_ext4::Error::Busy)?;
            self.vfs.rename(&self.who, source, name, &target.dir, new_name, how)
        })
    }

    fn list(&self, path: &str) -> Result<u64> {
        let mut entries = 0;
        at(path, self.walk(path).and_then(|dir| self.each_entry(dir, |_| entries += 1)))?;
        Ok(entries)
    }

    fn names(&self, path: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let read = self.walk(path).and_then(|dir| {
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
        at(path, self.walk(path).and_then(|dir| self.empty(&dir)))?;
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
}

impl Drop for LibraryFile<'_> {
    fn drop(&mut self) {
        self.library.vfs.release(&self.open);
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
        let done = at(&self.path, self.library.vfs.read(&self.open, offset, buf))?;
        self.whole(done, wanted)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
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
