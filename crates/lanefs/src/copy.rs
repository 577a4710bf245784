//! Whole files and trees: reading, copying, exchange with the host.

use crate::error::{Cause, Error, Result};
use crate::file::File;
use crate::filesystem::{FileSystem, bytes};
use crate::metadata::{FileTimes, Metadata};
use crate::options::FileOptions;
use lanefs_ext4::{Error as Ext4Error, NewKind, Rdev};
use lanefs_ondisk::FileType;
use lanefs_vfs::NewNode;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::path::{Component, Path, PathBuf};

/// The number of bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// The permissions that a copy from or to the host keeps: its owner is another one.
const KEPT: u32 = 0o1777;

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
        let source = self.open_file(from)?;
        let found = source.metadata();
        if !found.is_file() {
            return Err(Error::new(from, Cause::Invalid("not a regular file")));
        }
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
    /// [`Cause::Host`] if something of the host cannot be read; `EEXIST` if a name below `path`
    /// exists. What was copied before stays.
    ///
    /// ```no_run
    /// # let fs = lanefs::FileSystem::open("disk.img")?;
    /// fs.copy_from_host("www", "/srv/www")?;
    /// fs.copy_to_host("/etc", "etc-of-image")?;
    /// # Ok::<(), lanefs::Error>(())
    /// ```
    pub fn copy_from_host(&self, host: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let mut left = vec![(host.as_ref().to_owned(), path.as_ref().to_owned())];
        let (mut dirs, mut buffer, mut is_top) = (Vec::new(), vec![0; PIECE], true);
        while let Some((host, path)) = left.pop() {
            let found = on_host(&host, fs::symlink_metadata(&host))?;
            let permissions = (found.mode() & KEPT) as u16;
            let node = |kind| self.create_node(&path, &NewNode { kind, permissions, umask: 0 });
            let (file_type, number) = (found.file_type(), device_number(found.rdev()));
            if file_type.is_dir() {
                // Closed to others until it has its own permissions.
                let (kind, permissions) = (NewKind::Directory, 0o700);
                match self.create_node(&path, &NewNode { kind, permissions, umask: 0 }) {
                    Err(error) if is_top && error.is_exists() && self.metadata(&path)?.is_dir() => {
                    }
                    made => {
                        made?;
                        dirs.push((path.clone(), found));
                    }
                }
                is_top = false;
                for entry in on_host(&host, fs::read_dir(&host))? {
                    let name = on_host(&host, entry)?.file_name();
                    left.push((host.join(&name), path.join(&name)));
                }
                continue;
            } else if file_type.is_symlink() {
                node(NewKind::Symlink(bytes(&on_host(&host, fs::read_link(&host))?)))?;
            } else if file_type.is_char_device() {
                node(NewKind::CharDevice(number))?;
            } else if file_type.is_block_device() {
                node(NewKind::BlockDevice(number))?;
            } else if file_type.is_fifo() {
                node(NewKind::Fifo)?;
            } else if file_type.is_socket() {
                node(NewKind::Socket)?;
            } else {
                self.fill_from_host(&host, &path, permissions, &mut buffer)?;
            }
            self.set_symlink_times(&path, times_of(&found))?;
        }
        // Last, since new entries change the times, and permissions may forbid them.
        for (path, found) in dirs.into_iter().rev() {
            self.set_permissions(&path, (found.mode() & KEPT) as u16)?;
            self.set_times(&path, times_of(&found))?;
        }
        Ok(())
    }

    fn fill_from_host(
        &self,
        host: &Path,
        path: &Path,
        permissions: u16,
        buffer: &mut [u8],
    ) -> Result<()> {
        let mut from = on_host(host, fs::File::open(host))?;
        let options = FileOptions::new().write(true).create_new(true).permissions(permissions);
        let (to, mut at) = (self.open_file_with(path, &options)?, 0);
        loop {
            let read = on_host(host, from.read(buffer))?;
            let piece = buffer.get(..read).unwrap_or_default();
            if piece.is_empty() {
                to.set_len(at)?;
                return to.set_permissions(permissions);
            }
            if piece.iter().any(|byte| *byte != 0) {
                to.write_all_at(piece, at)?;
            }
            at += read as u64;
        }
    }

    /// Copies a file or a tree to the host, as [`FileSystem::copy_from_host`] does in the other
    /// direction. Devices, pipes and sockets are left out.
    ///
    /// # Errors
    /// [`Cause::Host`] if the host refuses something, or if a name below `host` exists. So nothing
    /// is replaced, and no symbolic link of a hostile image leads out of `host`.
    pub fn copy_to_host(&self, path: impl AsRef<Path>, host: impl AsRef<Path>) -> Result<()> {
        let (path, host) = (path.as_ref(), host.as_ref());
        let mut buffer = vec![0; PIECE];
        let found = self.symlink_metadata(path)?;
        if !found.is_dir() {
            return self.one_to_host(path, &found, host, &mut buffer);
        }
        let mut dirs = Vec::new();
        match make_closed_dir(host) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && host.is_dir() => {}
            made => {
                on_host(host, made)?;
                dirs.push((host.to_owned(), found));
            }
        }
        for entry in self.walk_dir(path)? {
            let (found, from) = {
                let entry = entry?;
                (entry.metadata()?, entry.path())
            };
            let to = host.join(from.strip_prefix(path).unwrap_or(&from));
            if found.is_dir() {
                on_host(&to, make_closed_dir(&to))?;
                dirs.push((to, found));
            } else {
                self.one_to_host(&from, &found, &to, &mut buffer)?;
            }
        }
        for (host, found) in dirs.into_iter().rev() {
            settle(&host, &on_host(&host, fs::File::open(&host))?, &found)?;
        }
        Ok(())
    }

    fn one_to_host(
        &self,
        from: &Path,
        found: &Metadata,
        to: &Path,
        buffer: &mut [u8],
    ) -> Result<()> {
        match found.file_type() {
            FileType::Symlink => on_host(to, symlink(self.read_link(from)?, to)),
            FileType::Regular => {
                let options = FileOptions::new().read(true).no_follow(true);
                let source = self.open_file_with(from, &options)?;
                let mut closed = fs::OpenOptions::new();
                let target = closed.write(true).create_new(true).mode(0o600).open(to);
                let target = on_host(to, target)?;
                each_piece(&source, buffer, |piece, at| {
                    on_host(to, target.write_all_at(piece, at))
                })?;
                on_host(to, target.set_len(found.len()))?;
                settle(to, &target, found)
            }
            _ => Ok(()),
        }
    }
}

/// Makes a directory of the host that is closed to others until it has its own permissions.
fn make_closed_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Gives a file of the host its permissions and times.
fn settle(host: &Path, file: &fs::File, found: &Metadata) -> Result<()> {
    let permissions = fs::Permissions::from_mode(u32::from(found.permissions()) & KEPT);
    on_host(host, file.set_permissions(permissions))?;
    let times = fs::FileTimes::new().set_accessed(found.accessed());
    on_host(host, file.set_times(times.set_modified(found.modified())))
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

fn device_number(number: u64) -> Rdev {
    Rdev { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
}

fn on_host<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|source| Cause::Host { path: path.into(), source }.into())
}
