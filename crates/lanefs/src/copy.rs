//! Whole files and trees: reading, copying, exchange with the host.

use crate::directory::Step;
use crate::error::{At, Cause, Error, Result};
use crate::file::File;
use crate::filesystem::FileSystem;
use crate::host::{HostTree, KEPT};
use crate::metadata::{FileTimes, Metadata};
use crate::options::FileOptions;
use lanefs_ext4::{Error as Ext4Error, InodeRef, NewKind, Rdev, SetAttr};
use lanefs_ondisk::FileType;
use lanefs_vfs::{Follow, NewNode, OpenFlags, Slash};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// The number of bytes that are copied at once.
const PIECE: usize = 1 << 20;

impl FileSystem {
    /// Returns the contents of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let file = self.open_file(path)?;
        let mut data = Vec::new();
        // One byte more shows whether the file has grown.
        let size = usize::try_from(file.metadata().len()).unwrap_or(usize::MAX).saturating_add(1);
        data.try_reserve_exact(size).map_err(|_| Error::new(path, Cause::OutOfMemory))?;
        loop {
            let at = data.len();
            let room = match data.capacity() - at {
                0 => 1 << 12, // the file has grown
                room => room.min(PIECE),
            };
            data.resize(at + room, 0);
            let read = file.read_at(data.get_mut(at..).unwrap_or_default(), at as u64)?;
            data.truncate(at + read);
            if read == 0 {
                return Ok(data);
            }
        }
    }

    /// Returns the contents of a file as text.
    ///
    /// # Errors
    /// [`Cause::NotUtf8`] if the file has other bytes than UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|_| Error::new(path, Cause::NotUtf8))
    }

    /// Replaces the contents of a file by `data`. Creates the file if it does not exist. The new
    /// contents are in memory: [`FileSystem::sync`], [`File::sync_all`] or [`FileSystem::close`]
    /// makes them durable.
    pub fn write(&self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> Result<()> {
        let options = FileOptions::new().write(true).create(true).truncate(true);
        self.open_file_with(path, &options)?.write_all_at(data.as_ref(), 0)
    }

    /// Copies the contents and the permissions of a file; holes stay holes. Creates `to`, or
    /// replaces its contents. Returns the size in bytes.
    ///
    /// # Errors
    /// `EINVAL` if `from` is not a regular file, or if both are the same file, which then stays as
    /// it is.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let regular = |found: Metadata| match found.is_file() {
            true => Ok(found),
            false => Err(Error::new(from, Cause::Invalid("not a regular file"))),
        };
        regular(self.metadata(from)?)?; // a pipe cannot be opened
        let source = self.open_file(from)?;
        let found = regular(source.metadata())?;
        let options = FileOptions::new().write(true).create(true).permissions(found.permissions());
        let target = self.open_file_with(to, &options)?;
        if target.metadata().ino() == found.ino() {
            return Err(Error::new(to, Cause::Invalid("it is the file to copy")));
        }
        target.set_len(0)?;
        let mut buffer = vec![0; PIECE];
        each_piece(&source, &mut buffer, |piece, at| target.write_all_at(piece, at))?;
        target.set_len(found.len())?;
        target.set_permissions(found.permissions())?;
        Ok(found.len())
    }

    /// Returns the path of a file without symbolic links, "." and "..".
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.metadata(path)?; // the walk checks the path
        let (mut found, mut links) = (PathBuf::from("/"), 0);
        let backwards = |path: &Path| {
            let names: Vec<_> = path.components().map(|name| name.as_os_str().to_owned()).collect();
            names.into_iter().rev()
        };
        let mut left: Vec<_> = backwards(path).collect();
        while let Some(name) = left.pop() {
            match Path::new(&name).components().next() {
                Some(Component::ParentDir) => drop(found.pop()),
                Some(Component::RootDir) => found = "/".into(),
                Some(Component::Normal(_)) => {
                    let next = found.join(&name);
                    if self.symlink_metadata(&next)?.is_symlink() {
                        links += 1;
                        if links > lanefs_vfs::MAX_SYMLINKS {
                            return Err(Error::at(path, Ext4Error::Loop));
                        }
                        left.extend(backwards(&self.read_link(&next)?));
                    } else {
                        found = next;
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Copies a file or a tree of the host to `path`. If both are directories, the entries of
    /// `host` come into `path`, which stays as it is. Files of every type are made, with their
    /// permissions and their times; without owners, and so without set-ID bits, and without
    /// extended attributes and hard links (`lanefs cp -a` copies all of them).
    ///
    /// # Errors
    /// [`Cause::Host`] if something of the host cannot be read, or was replaced by something else
    /// while it was copied: no symbolic link is followed. `EMFILE` if there are more levels of
    /// directories than the process may open files. `EEXIST` if a name below `path` exists. What
    /// was copied before stays.
    ///
    /// ```no_run
    /// # let fs = lanefs::FileSystem::open("disk.img")?;
    /// fs.copy_from_host("www", "/srv/www")?;
    /// fs.copy_to_host("/etc", "etc-of-image")?;
    /// # Ok::<(), lanefs::Error>(())
    /// ```
    pub fn copy_from_host(&self, host: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let (host, mut path) = (host.as_ref().as_os_str(), path.as_ref().to_owned());
        let (mut tree, mut buffer) = (HostTree::default(), vec![0; PIECE]);
        let mut levels = Vec::new();
        let found = tree.find(host)?;
        if found.metadata.is_dir() && self.metadata(&path).is_ok_and(|there| there.is_dir()) {
            tree.enter(host, &found)?;
            let (dir, left) = (self.find(&path, Follow::Links)?, tree.names()?);
            levels.push(Level { dir, left, set: None });
        } else {
            let slash = if found.metadata.is_dir() { Slash::Trailing } else { Slash::None };
            let with_name = |dir: &InodeRef, name: &[u8]| Ok((dir.clone(), name.to_owned()));
            let (dir, name) = self.with_new_name(&path, slash, with_name)?;
            let to = (&dir, &*name);
            levels.extend(self.one_from_host(&mut tree, host, to, &path, &mut buffer)?);
        }
        while let Some(Level { dir, left, set }) = levels.last_mut() {
            if let Some(name) = left.pop() {
                path.push(&name);
                let to = (&*dir, name.as_bytes());
                match self.one_from_host(&mut tree, &name, to, &path, &mut buffer)? {
                    Some(below) => levels.push(below),
                    None => drop(path.pop()),
                }
                continue;
            }
            // Last, since new entries change the times, and permissions may forbid them.
            if let Some(set) = set {
                self.mounted().set_attr(dir, set).at(&path)?;
            }
            levels.pop();
            path.pop();
            tree.leave(None)?;
        }
        Ok(())
    }

    /// Copies `host` to a new name in a directory, `to`, whose path is `path`. Enters a directory,
    /// and returns what is left to do in it.
    fn one_from_host(
        &self,
        tree: &mut HostTree,
        host: &OsStr,
        to: (&InodeRef, &[u8]),
        path: &Path,
        buffer: &mut [u8],
    ) -> Result<Option<Level>> {
        let (vfs, who, (dir, name)) = (self.vfs(), self.credentials(), to);
        let found = tree.find(host)?;
        let (mode, rdev) = (found.metadata.mode() as u16, found.metadata.rdev());
        let number = Rdev { major: rustix::fs::major(rdev), minor: rustix::fs::minor(rdev) };
        let node = |kind, permissions| NewNode { kind, permissions, umask: 0 };
        let make = |kind| vfs.make(who, dir, name, &node(kind, mode & KEPT)).at(path);
        let mut set =
            SetAttr { permissions: Some(mode & KEPT), ..times_of(&found.metadata).into() };
        let made = match FileType::from_mode(mode) {
            Some(FileType::Directory) => {
                // Closed to others until it has its own permissions.
                let dir = vfs.make(who, dir, name, &node(NewKind::Directory, 0o700)).at(path)?;
                tree.enter(host, &found)?;
                return Ok(Some(Level { dir, left: tree.names()?, set: Some(set) }));
            }
            Some(FileType::Symlink) => {
                set.permissions = None;
                make(NewKind::Symlink(tree.read_link(host, &found)?.as_bytes()))?
            }
            Some(FileType::CharDevice) => make(NewKind::CharDevice(number))?,
            Some(FileType::BlockDevice) => make(NewKind::BlockDevice(number))?,
            Some(FileType::Fifo) => make(NewKind::Fifo)?,
            Some(FileType::Socket) => make(NewKind::Socket)?,
            Some(FileType::Regular) | None => {
                let mut from = tree.open_found(host, &found)?;
                let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
                let new = node(NewKind::Regular, 0o600);
                let open = vfs.open_at(who, dir, name, flags, &new).at(path)?;
                let (file, mut at) = (File::new(self.mounted().clone(), open, path), 0);
                loop {
                    let read = tree.on(host, from.read(buffer))?;
                    let piece = buffer.get(..read).unwrap_or_default();
                    if piece.is_empty() {
                        break;
                    }
                    if piece.iter().any(|byte| *byte != 0) {
                        file.write_all_at(piece, at)?;
                    }
                    at += read as u64;
                }
                file.set_len(at)?;
                file.as_open_file().inode().clone()
            }
        };
        self.mounted().set_attr(&made, &set).at(path)?;
        Ok(None)
    }

    /// Copies a file or a tree to the host, as [`FileSystem::copy_from_host`] does in the other
    /// direction. Devices, pipes and sockets are left out.
    ///
    /// # Errors
    /// [`Cause::Host`] if the host refuses something, or if a name below `host` exists. So nothing
    /// is replaced, and no symbolic link of a hostile image leads out of `host`.
    pub fn copy_to_host(&self, path: impl AsRef<Path>, host: impl AsRef<Path>) -> Result<()> {
        let (path, host) = (path.as_ref(), host.as_ref().as_os_str());
        let (mut tree, mut buffer) = (HostTree::default(), vec![0; PIECE]);
        let top = self.find(path, Follow::Nothing)?;
        if !top.file_type().is_dir() {
            return self.one_to_host(&top, path, &tree, host, &mut buffer);
        }
        let mut walk = self.walk_dir(path)?;
        let mut dirs = vec![tree.make_dir(host)?.then(|| top.attr())];
        while let Some(step) = walk.step() {
            let Step::Entry(entry) = step? else {
                tree.leave(dirs.pop().flatten().as_ref())?;
                continue;
            };
            let found = entry.find()?;
            if entry.file_type()?.is_dir() {
                tree.make_dir(entry.file_name())?;
                dirs.push(Some(found.attr()));
            } else {
                self.one_to_host(&found, &entry.path(), &tree, entry.file_name(), &mut buffer)?;
            }
        }
        Ok(())
    }

    fn one_to_host(
        &self,
        found: &InodeRef,
        from: &Path,
        tree: &HostTree,
        to: &OsStr,
        buffer: &mut [u8],
    ) -> Result<()> {
        let attr = found.attr();
        match attr.file_type {
            FileType::Symlink => tree.make_link(to, &self.vfs().read_link(found).at(from)?, &attr),
            FileType::Regular => {
                let open =
                    self.vfs().open_inode(self.credentials(), found.clone(), OpenFlags::READ);
                let source = File::new(self.mounted().clone(), open.at(from)?, from);
                let target = tree.make_file(to)?;
                each_piece(&source, buffer, |piece, at| {
                    tree.on(to, target.write_all_at(piece, at))
                })?;
                tree.on(to, target.set_len(attr.size))?;
                tree.settle(to, &target, &attr)
            }
            FileType::Directory => Err(Error::at(from, Ext4Error::IsDirectory)),
            _ => Ok(()),
        }
    }
}

/// A directory whose entries are copied.
struct Level {
    dir: InodeRef,
    /// The names of the host that are left to copy.
    left: Vec<OsString>,
    /// What the directory gets at the end.
    set: Option<SetAttr>,
}

/// Calls `write` with the data of a file and its offset, without the holes. Data that is written
/// meanwhile may be missing.
fn each_piece(
    file: &File,
    buffer: &mut [u8],
    mut write: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while let Some(start) = file.seek_data(at)? {
        let end = file.seek_hole(start)?.unwrap_or(start);
        at = start;
        while at < end {
            let len = usize::try_from(end - at).map_or(buffer.len(), |len| len.min(buffer.len()));
            let read = file.read_at(buffer.get_mut(..len).unwrap_or_default(), at)?;
            if read == 0 {
                return Ok(());
            }
            write(buffer.get(..read).unwrap_or_default(), at)?;
            at += read as u64;
        }
    }
    Ok(())
}

fn times_of(found: &fs::Metadata) -> FileTimes {
    let (accessed, modified) = (found.accessed(), found.modified());
    let times = accessed.map_or(FileTimes::new(), |time| FileTimes::new().accessed(time));
    modified.map_or(times, |time| times.modified(time))
}
