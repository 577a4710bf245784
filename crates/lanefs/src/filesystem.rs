//! The file system and its operations by path.

use crate::error::{At, Cause, Error, Result};
use crate::file::File;
use crate::metadata::Metadata;
use crate::mounted::{Mounted, Shared};
use crate::options::{FileOptions, OpenOptions, UMASK};
use crate::source::Source;
use lanefs_device::{Device, FileDevice, Pick};
use lanefs_ext4::{InodeRef, NewKind, Rename, StatFs, Statistics};
use lanefs_lanes::LaneArc;
use lanefs_mkfs::{Contents, MkfsOptions as FormatOptions};
use lanefs_vfs::{Credentials, Follow, Last, NewNode, Slash, Vfs};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Ext4Error = lanefs_ext4::Error;

/// An open ext4 file system.
///
/// Paths start at the root of the file system, with or without a leading slash. All methods except
/// [`FileSystem::close`] take `&self`, and threads that work in different directories do not wait
/// for each other.
///
/// **What is not synced is in this process only.** Changes are committed every five seconds
/// ([`OpenOptions::commit_interval`]), and by [`FileSystem::sync`], [`File::sync_all`], and the end
/// of the file system. [`std::process::exit`], a signal and a crash are no such end: they drop
/// nothing, and what was not committed is gone, where files of the host would keep it. So end with
/// [`FileSystem::close`], and sync before an exit that skips it.
///
/// ```
/// use lanefs::{FileSystem, Rename};
///
/// # use lanefs::device::RamDevice;
/// # use lanefs::{FormatOptions, OpenOptions};
/// # let device = std::sync::Arc::new(RamDevice::create(64 << 20).unwrap());
/// # FileSystem::format(&*device, &FormatOptions::default())?;
/// # let fs = FileSystem::open_device(device, &OpenOptions::new())?;
/// fs.create_dir_all("/srv/www")?;
/// fs.write("/srv/www/index.html", "<p>hello")?;
/// fs.set_permissions("/srv/www/index.html", 0o600)?;
/// fs.symlink("www/index.html", "/srv/start")?;
/// assert_eq!(fs.read("/srv/start")?, b"<p>hello");
/// assert_eq!(fs.metadata("/srv/start")?.permissions(), 0o600);
///
/// fs.write("/srv/new", "<p>hello again")?;
/// fs.rename_with("/srv/new", "/srv/www/index.html", Rename::Exchange)?;
/// fs.remove_file("/srv/new")?;
/// fs.close()?;
/// # Ok::<(), lanefs::Error>(())
/// ```
pub struct FileSystem {
    mounted: Shared,
}

impl fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSystem").field("source", &self.mounted.source).finish_non_exhaustive()
    }
}

impl FileSystem {
    /// Creates a sparse image file of `bytes` bytes with a new file system, and opens it. If this
    /// fails, the file is removed again.
    ///
    /// # Errors
    /// [`crate::Cause::Open`] if the file exists already. [`FileSystem::format`] creates a file
    /// system on an existing device.
    pub fn create(
        image: impl AsRef<Path>,
        bytes: u64,
        options: &FormatOptions,
    ) -> Result<FileSystem> {
        let device = Arc::new(FileDevice::create(&image, bytes)?);
        let options = options.clone().contents(Contents::Zeros);
        FileSystem::format(&*device, &options)
            .and_then(|()| FileSystem::open_device(device.clone(), &OpenOptions::new()))
            .inspect_err(|_| device.remove_new(image.as_ref()))
    }

    /// Creates a new file system on `device`. The old contents of the device are lost.
    pub fn format(device: &dyn Device, options: &FormatOptions) -> Result<()> {
        lanefs_mkfs::mkfs(device, options)?;
        Ok(())
    }

    /// Opens the image or block device at `image` for reading and writing. `image` may also be the
    /// name of an array or of a partition, such as `disk.img@2`: see [`Source::open`]. A disk
    /// without the name of a partition stands for its only ext4 file system.
    pub fn open(image: impl AsRef<Path>) -> Result<FileSystem> {
        FileSystem::open_with(image, &OpenOptions::new())
    }

    /// Opens the image or block device at `image` with `options`.
    pub fn open_with(image: impl AsRef<Path>, options: &OpenOptions) -> Result<FileSystem> {
        let (offset, len) = (options.offset, options.len);
        let part = lanefs_device::OpenOptions { offset, len, pick: Pick::OnlyExt4 };
        let source = Source::open(image, options.access(), part)?;
        FileSystem::open_source(source, options)
    }

    /// Opens the file system on `source`; the offset and the length in `options` are ignored.
    pub fn open_source(source: Source, options: &OpenOptions) -> Result<FileSystem> {
        FileSystem::mount(source.device(), Some(source), options)
    }

    /// Opens the file system on any device; the offset and the length in `options` are ignored.
    pub fn open_device(device: Arc<dyn Device>, options: &OpenOptions) -> Result<FileSystem> {
        FileSystem::mount(device, None, options)
    }

    fn mount(
        device: Arc<dyn Device>,
        source: Option<Source>,
        options: &OpenOptions,
    ) -> Result<FileSystem> {
        let vfs = Vfs::open(device, options.settings()?)?;
        let credentials = options.credentials.clone();
        Ok(FileSystem { mounted: LaneArc::new(Mounted { vfs, credentials, source }) })
    }

    /// Writes all changes in place and marks the file system clean. Dropping the file system does
    /// the same, but cannot report an error.
    ///
    /// # Errors
    /// [`Cause::FilesOpen`] if a [`File`], [`ReadDir`](crate::ReadDir) or
    /// [`DirEntry`](crate::DirEntry) of this file system still exists. All changes are durable
    /// then, as after [`FileSystem::sync`], and the file system stays mounted until the last of
    /// them is dropped. To unmount here and learn of errors, drop them first.
    pub fn close(self) -> Result<()> {
        let last = LaneArc::try_unwrap(self.mounted).or_else(|shared| {
            shared.vfs.sync()?;
            // Another thread may have dropped its last file meanwhile.
            LaneArc::try_unwrap(shared).map_err(|_| Error::from(Cause::FilesOpen))
        });
        let mounted = last?;
        mounted.vfs.close()?;
        // The caches are dropped now, so the heap's free memory is given back to the system. This
        // does nothing if the program's allocator is not `LineHeap`.
        lanefs_lanes::LineHeap::trim_excess();
        mounted.source.map_or(Ok(()), Source::close)
    }

    /// Returns the layer below this type. That layer works on inodes and names instead of paths,
    /// and its callers pass the credentials.
    pub fn vfs(&self) -> &Vfs {
        &self.mounted.vfs
    }

    /// Returns the image, device or array, if the file system was opened from a [`Source`].
    pub fn source(&self) -> Option<&Source> {
        self.mounted.source.as_ref()
    }

    /// Returns the credentials with which all operations run. Their user owns new files.
    pub fn credentials(&self) -> &Credentials {
        &self.mounted.credentials
    }

    /// Returns the numbers of used and free blocks and inodes.
    pub fn space(&self) -> StatFs {
        self.vfs().stat_fs()
    }

    /// Returns counters: waits for locks, commits, cache sizes. `lanefs stats` shows the same
    /// counters for a mount.
    pub fn statistics(&self) -> Statistics {
        self.vfs().fs().statistics()
    }

    /// Makes all earlier changes of this file system durable, as syncfs(2) does.
    pub fn sync(&self) -> Result<()> {
        Ok(self.vfs().sync()?)
    }

    pub(crate) fn mounted(&self) -> &Shared {
        &self.mounted
    }

    pub(crate) fn find(&self, path: &Path, follow: Follow) -> Result<InodeRef> {
        self.vfs().walk(self.credentials(), self.vfs().root(), bytes(path), follow).at(path)
    }

    pub(crate) fn stat(&self, path: &Path, follow: Follow) -> Result<Metadata> {
        // Only an error is passed through `at`. If the attributes were passed through `at` too,
        // they would be copied once more.
        match self.vfs().stat(self.credentials(), self.vfs().root(), bytes(path), follow) {
            Ok(attr) => Ok(attr.into()),
            Err(error) => Err(error).at(path),
        }
    }

    /// Runs `act` on the last component of `path` and the directory that contains it.
    fn in_parent<T>(
        &self,
        path: &Path,
        act: impl FnOnce(&InodeRef, &Last<'_>) -> std::result::Result<T, Ext4Error>,
    ) -> Result<T> {
        let parent =
            self.vfs().parent(self.credentials(), self.vfs().root(), bytes(path)).at(path)?;
        act(&parent.dir, &parent.last).at(path)
    }

    /// Runs `act` on the directory and the name of a new file; `slash` says whether a slash may
    /// follow the name.
    pub(crate) fn with_new_name<T>(
        &self,
        path: &Path,
        slash: Slash,
        act: impl FnOnce(&InodeRef, &[u8]) -> std::result::Result<T, Ext4Error>,
    ) -> Result<T> {
        self.in_parent(path, |dir, last| match last {
            // A path that ends in a slash refers to a directory, but the new file is not a
            // directory.
            Last::Name(name, Slash::Trailing) if slash == Slash::None => {
                Err(match self.vfs().lookup(self.credentials(), dir, name) {
                    Ok(_) => Ext4Error::Exists,
                    Err(error) => error,
                })
            }
            Last::Name(name, _) => act(dir, name),
            Last::Dot | Last::DotDot | Last::Root => Err(Ext4Error::Exists),
        })
    }

    /// Opens a file for reading.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_file_with(path, &FileOptions::new().read(true))
    }

    /// Opens a file for reading and writing. Creates it, or truncates it if it exists.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_file_with(
            path,
            &FileOptions::new().read(true).write(true).create(true).truncate(true),
        )
    }

    /// Opens a file with `options`.
    pub fn open_file_with(&self, path: impl AsRef<Path>, options: &FileOptions) -> Result<File> {
        let path = path.as_ref();
        let flags = options.all_flags().map_err(|why| Error::new(path, Cause::Invalid(why)))?;
        let FileOptions { permissions, umask, .. } = *options;
        let umask = umask.unwrap_or(UMASK);
        let new = NewNode { kind: NewKind::Regular, permissions, umask };
        let root = self.vfs().root();
        let open =
            self.vfs().open_path(self.credentials(), root, bytes(path), flags, &new).at(path)?;
        Ok(File::new(self.mounted.clone(), open, path))
    }

    /// Creates a directory with permissions 0777 and the umask 022: 0755, or what the default access
    /// control list of the parent gives.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_node(
            path,
            &NewNode { kind: NewKind::Directory, permissions: 0o777, umask: UMASK },
        )
    }

    /// Creates a directory and its missing parents. An empty path stands for the root, which
    /// exists.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let is_there = || self.metadata(path).is_ok_and(|found| found.is_dir());
        let mut made = self.create_dir(path);
        if let (Err(error), Some(parent)) = (&made, path.parent())
            && error.is_not_found()
            && !parent.as_os_str().is_empty()
        {
            self.create_dir_all(parent)?;
            made = self.create_dir(path);
        }
        match made {
            Err(error) if error.is_exists() && is_there() => Ok(()),
            made => made,
        }
    }

    /// Creates a device, pipe, socket, symbolic link, regular file or directory. `new` gives the
    /// type and the permissions.
    pub fn create_node(&self, path: impl AsRef<Path>, new: &NewNode<'_>) -> Result<()> {
        let slash = match new.kind {
            NewKind::Directory => Slash::Trailing,
            _ => Slash::None,
        };
        self.with_new_name(path.as_ref(), slash, |dir, name| {
            self.vfs().make(self.credentials(), dir, name, new).map(drop)
        })
    }

    /// Creates a symbolic link at `path` to `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let kind = NewKind::Symlink(bytes(target.as_ref()));
        self.create_node(path, &NewNode { kind, permissions: 0o777, umask: 0 })
    }

    /// Creates `path` as a hard link to the file at `original`. A symbolic link is not followed.
    pub fn hard_link(&self, original: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let inode = self.find(original.as_ref(), Follow::Nothing)?;
        self.with_new_name(path.as_ref(), Slash::None, |dir, name| {
            self.vfs().link(self.credentials(), &inode, dir, name)
        })
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let target = self.vfs().read_link(&self.find(path, Follow::Nothing)?).at(path)?;
        Ok(OsString::from_vec(target).into())
    }

    /// Removes a file of any type except a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.in_parent(path.as_ref(), |dir, last| match last {
            Last::Name(name, Slash::None) => self.vfs().unlink(self.credentials(), dir, name),
            Last::Name(name, Slash::Trailing) => {
                let victim = self.vfs().lookup(self.credentials(), dir, name)?;
                let is_dir = victim.file_type().is_dir();
                Err(if is_dir { Ext4Error::IsDirectory } else { Ext4Error::NotDirectory })
            }
            Last::Dot | Last::DotDot | Last::Root => Err(Ext4Error::IsDirectory),
        })
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.in_parent(path.as_ref(), |dir, last| match last {
            Last::Name(name, _) => self.vfs().rmdir(self.credentials(), dir, name),
            Last::Dot => Err(lanefs_ext4::InvalidArgument::EndsInDot.into()),
            Last::DotDot => Err(Ext4Error::NotEmpty),
            Last::Root => Err(Ext4Error::Busy),
        })
    }

    /// Removes a file, or a directory and everything in it. Symbolic links are not followed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let parent =
            self.vfs().parent(self.credentials(), self.vfs().root(), bytes(path)).at(path)?;
        let Last::Name(name, slash) = &parent.last else {
            return Err(Error::at(path, Ext4Error::Busy));
        };
        if slash.follows() {
            // If `name` is a symbolic link, `name/` refers to the link's target, which cannot be
            // removed by this name.
            let victim = self.vfs().lookup(self.credentials(), &parent.dir, name).at(path)?;
            if !victim.file_type().is_dir() {
                return Err(Error::at(path, Ext4Error::NotDirectory));
            }
        }
        self.remove_tree(&parent.dir, name, path)
    }

    /// Moves `from` to `to`. An existing file or empty directory at `to` is replaced.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, Rename::Replace)
    }

    /// Moves `from` to `to`. If `to` exists, `how` selects what happens: `from` replaces `to`, the
    /// two are exchanged, or the call fails. An error has the path that it is about.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        how: Rename,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let root = self.vfs().root();
        let source = self.vfs().parent(self.credentials(), root, bytes(from)).at(from)?;
        let target = self.vfs().parent(self.credentials(), root, bytes(to)).at(to)?;
        let keeps = matches!(how, Rename::NoReplace | Rename::WhiteoutNoReplace { .. });
        let (name, slash) = source.name(|| Ext4Error::Busy).at(from)?;
        let taken = || if keeps { Ext4Error::Exists } else { Ext4Error::Busy };
        let (new_name, new_slash) = target.name(taken).at(to)?;
        if slash.follows() || new_slash.follows() {
            let moved = self.vfs().lookup(self.credentials(), &source.dir, name).at(from)?;
            let found = match self.vfs().lookup(self.credentials(), &target.dir, new_name) {
                Err(Ext4Error::NotFound) => None,
                found => Some(found.at(to)?),
            };
            let is_dir = |inode: &InodeRef| inode.file_type().is_dir();
            let error = match &found {
                Some(_) if keeps => Some((to, Ext4Error::Exists)),
                None if how == Rename::Exchange => Some((to, Ext4Error::NotFound)),
                Some(found) if how == Rename::Exchange && new_slash.follows() && !is_dir(found) => {
                    Some((to, Ext4Error::NotDirectory))
                }
                // Only an exchange gives the new name to something else than what moves there.
                _ if !is_dir(&moved) && (slash.follows() || how != Rename::Exchange) => {
                    Some((from, Ext4Error::NotDirectory))
                }
                _ => None,
            };
            if let Some((path, error)) = error {
                return Err(Error::at(path, error));
            }
        }
        let done =
            self.vfs().rename(self.credentials(), &source.dir, name, &target.dir, new_name, how);
        done.map_err(|error| match error {
            // What is at the new name is in the way.
            Ext4Error::Exists
            | Ext4Error::NotEmpty
            | Ext4Error::IsDirectory
            | Ext4Error::NotDirectory => Error::at(to, error),
            error => Error::at(from, error),
        })
    }
}

/// Returns a path as bytes, the form that the file system uses.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
