//! The file system and its operations by path.

use crate::directory::ReadDir;
use crate::error::{At, Cause, Error, Result};
use crate::file::File;
use crate::metadata::Metadata;
use crate::mounted::{Mounted, Shared};
use crate::options::{FileOptions, OpenOptions, UMASK};
use crate::source::Source;
use lanefs_device::{Device, FileDevice};
use lanefs_ext4::{InodeRef, NewKind, Rename, StatFs, Statistics};
use lanefs_lanes::LaneArc;
use lanefs_mkfs::{Contents, MkfsOptions as FormatOptions};
use lanefs_ondisk::FileType;
use lanefs_vfs::{Credentials, Follow, Last, NewNode, OpenFlags, Slash, Vfs};
use std::ffi::OsString;
use std::fmt;
use std::io::{Read, Write};
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
        let options = FormatOptions { contents: Contents::Zeros, ..options.clone() };
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
    /// name of an array: see [`Source::open`].
    pub fn open(image: impl AsRef<Path>) -> Result<FileSystem> {
        FileSystem::open_with(image, &OpenOptions::new())
    }

    /// Opens the image or block device at `image` with `options`.
    pub fn open_with(image: impl AsRef<Path>, options: &OpenOptions) -> Result<FileSystem> {
        let part = lanefs_device::OpenOptions { offset: options.offset, len: options.len };
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
    /// [`Cause::FilesOpen`] if a [`File`] or a [`ReadDir`] of this file system still exists. The
    /// file system then stays mounted until the last of them is dropped. To unmount here and learn
    /// of errors, drop them first.
    pub fn close(self) -> Result<()> {
        let Some(mounted) = LaneArc::into_inner(self.mounted) else {
            return Err(Cause::FilesOpen.into());
        };
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
    fn with_new_name<T>(
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
        self.open_file_with(path, &FileOptions::new().read())
    }

    /// Opens a file for reading and writing. Creates it, or truncates it if it exists.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_file_with(path, &FileOptions::new().read().write().create().truncate())
    }

    /// Opens a file with `options`.
    pub fn open_file_with(&self, path: impl AsRef<Path>, options: &FileOptions) -> Result<File> {
        let path = path.as_ref();
        let FileOptions { permissions, umask, .. } = *options;
        let umask = umask.unwrap_or(UMASK);
        let new = NewNode { kind: NewKind::Regular, permissions, umask };
        let root = self.vfs().root();
        let open = self
            .vfs()
            .open_path(self.credentials(), root, bytes(path), options.flags, &new)
            .at(path)?;
        Ok(File::new(self.mounted.clone(), open, path.into()))
    }

    /// Returns the contents of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let mut data = Vec::new();
        let mut file = self.open_file(path)?;
        match file.read_to_end(&mut data) {
            Ok(_) => Ok(data),
            Err(error) => Err(from_io(path, error)),
        }
    }

    /// Replaces the contents of a file by `data`. Creates the file if it does not exist.
    pub fn write(&self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let options = FileOptions::new().write().create().truncate();
        let mut file = self.open_file_with(path, &options)?;
        file.write_all(data.as_ref()).map_err(|error| from_io(path, error))
    }

    /// Returns the entries of a directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let dir = self.find(path, Follow::Links)?;
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let open = self.vfs().open_inode(self.credentials(), dir, flags).at(path)?;
        Ok(ReadDir::new(self.mounted.clone(), open, path.into()))
    }

    /// Creates a directory with permissions 0777 and the umask 022: 0755, or what the default access
    /// control list of the parent gives.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_node(
            path,
            &NewNode { kind: NewKind::Directory, permissions: 0o777, umask: UMASK },
        )
    }

    /// Creates a directory and its missing parents.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.create_dir(path) {
            Err(error) if error.is_exists() => {
                if self.metadata(path)?.is_dir() {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            Err(error) if error.is_not_found() => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                self.create_dir_all(parent.ok_or(error)?)?;
                match self.create_dir(path) {
                    Err(error) if error.is_exists() && self.metadata(path)?.is_dir() => Ok(()),
                    done => done,
                }
            }
            done => done,
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
                let is_dir = victim.attr().file_type == FileType::Directory;
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
            if victim.attr().file_type != FileType::Directory {
                return Err(Error::at(path, Ext4Error::NotDirectory));
            }
        }
        crate::remove::remove_tree(self.vfs(), self.credentials(), &parent.dir, name).at(path)
    }

    /// Moves `from` to `to`. An existing file or empty directory at `to` is replaced.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, Rename::Replace)
    }

    /// Moves `from` to `to`. If `to` exists, `how` selects what happens: `from` replaces `to`, the
    /// two are exchanged, or the call fails.
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
        let (name, slash) = source.name(|| Ext4Error::Busy).at(from)?;
        let (new_name, new_slash) = target.name(|| Ext4Error::Busy).at(to)?;
        if slash.follows() || new_slash.follows() {
            let moved = self.vfs().lookup(self.credentials(), &source.dir, name).at(from)?;
            match self.vfs().lookup(self.credentials(), &target.dir, new_name) {
                Ok(_) | Err(Ext4Error::NotFound) => {}
                Err(error) => return Err(Error::at(to, error)),
            }
            if moved.attr().file_type != FileType::Directory {
                return Err(Error::at(from, Ext4Error::NotDirectory));
            }
        }
        self.vfs()
            .rename(self.credentials(), &source.dir, name, &target.dir, new_name, how)
            .at(from)
    }
}

/// Returns a path as bytes, the form that the file system uses.
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Returns the [`Error`] inside an error of [`std::io`].
fn from_io(path: &Path, error: std::io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(_) => Error::at(path, Ext4Error::NoSpace),
    }
}
