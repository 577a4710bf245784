//! The mounted file system, with its name cache.

use crate::names::{Known, NameCache};
use lanefs_device::Device;
use lanefs_ext4::{DirId, Error, Fs, Inode, InodeRef, Mount, MountOptions, Named, StatFs};
use std::sync::Arc;

/// The options of a mount and of its name cache.
#[derive(Clone, Default)]
pub struct VfsOptions {
    /// The options of ext4. The field `names` of these options is ignored, and replaced by the name
    /// cache of the mount.
    pub mount: MountOptions,
    /// The approximate number of names in the cache; `None` chooses 65,536, or fewer if the memory
    /// for cached names is too small for that number.
    pub names: Option<usize>,
}

/// The default number of cached names, if memory allows.
const NAMES: usize = 1 << 16;

/// A mounted file system: paths, names, permissions and open files.
///
/// *Invariants*: `root` is a reference to inode 2 as long as the file system is mounted. It is
/// declared first, so that it is dropped before the mount.
pub struct Vfs {
    root: InodeRef,
    /// `None` if the caller caches names itself.
    names: Option<Arc<NameCache>>,
    mount: Mount,
}

/// An inode, or `None` if the name does not exist.
pub(crate) type Child = Result<Option<InodeRef>, Error>;

/// How often a name is looked up again because its inode was deleted meanwhile. If the limit is
/// reached, the entry probably refers to a free inode.
const RETRIES: u32 = 16;

impl Vfs {
    /// Mounts the file system on `device`.
    pub fn open(device: Arc<dyn Device>, options: VfsOptions) -> Result<Vfs, Error> {
        let within = lanefs_ext4::names_within(options.mount.cache_bytes);
        let count = options.names.unwrap_or(NAMES.min(within));
        let names = Arc::new(NameCache::new(count));
        let mount = Mount::open(device, MountOptions { names: names.clone(), ..options.mount })?;
        let root = mount.fs().root()?;
        Ok(Vfs { root, names: Some(names), mount })
    }

    /// Creates a `Vfs` without a name cache from a mount, for a caller that caches names itself,
    /// like the server of a mount, whose kernel does.
    pub fn without_names(mount: Mount) -> Result<Vfs, Error> {
        let root = mount.fs().root()?;
        Ok(Vfs { root, names: None, mount })
    }

    /// Unmounts: writes all changes in place and marks the file system clean.
    pub fn close(self) -> Result<(), Error> {
        let Vfs { root, mount, .. } = self;
        // The reference to the root must be dropped before the mount.
        drop(root);
        mount.close()
    }

    /// Returns the ext4 file system below, which checks no permissions.
    pub fn fs(&self) -> &Fs {
        self.mount.fs()
    }

    /// Returns the mount, by which the file system can be made read-only or writable.
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Returns the root directory.
    pub fn root(&self) -> &InodeRef {
        &self.root
    }

    #[inline]
    pub(crate) fn names(&self) -> Option<&NameCache> {
        self.names.as_deref()
    }

    /// Returns the numbers of free and used blocks and inodes.
    pub fn stat_fs(&self) -> StatFs {
        self.fs().stat_fs()
    }

    /// Makes all changes durable that were made before the call.
    pub fn sync(&self) -> Result<(), Error> {
        self.fs().sync()
    }

    /// Returns the inode that `name` in `dir` refers to, or `None`. Checks no permissions.
    ///
    /// After the name is read, and before a reference to the inode is taken, the name may be
    /// removed and the inode's number freed and reused. So the name is read again after the
    /// reference has been taken. The number of a referenced inode is not reused, so if the name
    /// still refers to that number, it refers to this inode.
    pub(crate) fn child(&self, dir: &InodeRef, name: &[u8]) -> Child {
        let id = DirId { ino: dir.ino(), generation: dir.generation() };
        // ".." is not in the cache: its target changes when a directory moves, but that change is
        // never published. The names of a directory that ignores case are not in the cache either,
        // since the cache compares names byte by byte.
        if name != b".."
            && !self.is_uncached(dir)
            && let Some(found) = self.child_cached(id, name)
        {
            return Ok(found);
        }
        for _ in 0..RETRIES {
            let Some(named) = self.named(id, dir, name)? else { return Ok(None) };
            match self.fs().get(named.ino, None) {
                Ok(inode) => {
                    if self.named(id, dir, name)?.is_some_and(|again| again.ino == named.ino) {
                        return Ok(Some(inode));
                    }
                }
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        // Either other threads change the name all the time, or it refers to a free inode and the
        // image is damaged.
        self.fs().find(dir, name)
    }

    /// Returns whether the names in `dir` are kept out of the name cache. This is so if `dir`
    /// ignores case or is encrypted.
    #[inline]
    pub(crate) fn is_uncached(&self, dir: &Inode) -> bool {
        self.fs().is_uncached(dir)
    }

    fn named(&self, id: DirId, dir: &InodeRef, name: &[u8]) -> Result<Option<Named>, Error> {
        if name == b".." || self.is_uncached(dir) {
            return self.fs().lookup(dir, name);
        }
        match self.names().map_or(Known::Unknown, |names| names.find(id, name)) {
            Known::Entry(named) => Ok(Some(named)),
            Known::Absent => Ok(None),
            Known::Unknown => self.fs().lookup(dir, name),
        }
    }
}
