//! Open files.

use crate::error::{At, Cause, Error, Result};
use crate::metadata::{FileTimes, Metadata};
use crate::mounted::{Mounted, Shared, owners};
use lanefs_ext4::{Fallocate, FileDigest, FileExtent, SetAttr, SyncMode};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Mutex, Rank};
use lanefs_vfs::{OpenFile, OpenFlags};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fmt, io};

/// An open file. The methods of [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`] use the
/// file's position, as for [`std::fs::File`]. The methods that end in `_at` take an offset, and
/// several threads can call them concurrently.
///
/// An open file keeps the file system mounted, so it can be stored together with its
/// [`crate::FileSystem`], and moved to another thread. [`crate::FileSystem::close`] fails while a
/// file is open.
///
/// ```
/// use lanefs::{File, FileSystem};
/// use std::io::Write;
///
/// struct Journal {
///     fs: FileSystem,
///     log: File,
/// }
///
/// # use lanefs::device::RamDevice;
/// # use lanefs::{FormatOptions, OpenOptions};
/// # let device = std::sync::Arc::new(RamDevice::create(64 << 20).unwrap());
/// # FileSystem::format(&*device, &FormatOptions::default())?;
/// # let fs = FileSystem::open_device(device, &OpenOptions::new())?;
/// let mut journal = Journal { log: fs.create_file("/log")?, fs };
/// journal.log.write_all(b"one two")?;
/// journal.log.write_all_at(b"ONE", 0)?;
/// journal.log.sync_all()?; // now it survives a crash
///
/// let mut word = [0; 3];
/// journal.log.read_exact_at(&mut word, 4)?;
/// assert_eq!(&word, b"two");
/// assert_eq!(journal.log.metadata().len(), 7);
///
/// drop(journal.log);
/// journal.fs.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct File {
    open: OpenFile,
    /// This field is declared after `open`, so that it is dropped after `open`.
    mounted: Shared,
    path: PathBuf,
    position: Mutex<Position>,
}

/// A file's position. Only the first clone moves it to memory of its own, since most files are
/// never cloned.
enum Position {
    Own(u64),
    Shared(Arc<AtomicU64>),
}

impl Drop for File {
    fn drop(&mut self) {
        self.mounted.vfs.release(&self.open);
    }
}

impl File {
    pub(crate) fn new(mounted: Shared, open: OpenFile, path: &Path) -> File {
        let position = Mutex::new(Rank::Bucket, Position::Own(0));
        File { open, mounted, path: path.into(), position }
    }

    /// Returns another handle of the open file. As with [`std::fs::File::try_clone`], all handles
    /// share one position. It does not fail.
    pub fn try_clone(&self) -> Result<File> {
        let (open, mounted, path) = (self.open.clone(), self.mounted.clone(), self.path.clone());
        let mut position = self.position.lock();
        let shared = match &*position {
            Position::Own(position) => Arc::new(AtomicU64::new(*position)),
            Position::Shared(position) => position.clone(),
        };
        *position = Position::Shared(shared.clone());
        Ok(File {
            position: Mutex::new(Rank::Bucket, Position::Shared(shared)),
            open,
            mounted,
            path,
        })
    }

    fn position(&self) -> u64 {
        match &*self.position.lock() {
            Position::Own(position) => *position,
            Position::Shared(position) => position.load(Ordering::Relaxed),
        }
    }

    fn set_position(&self, to: u64) {
        match &mut *self.position.lock() {
            Position::Own(position) => *position = to,
            Position::Shared(position) => position.store(to, Ordering::Relaxed),
        }
    }

    /// Reads into `buf` from `offset`. Returns the number of bytes read, which is less than the
    /// length of `buf` only at the end of the file.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.mounted.vfs.read(&self.open, offset, buf).at(&self.path)
    }

    /// Fills `buf` with the data that starts at `offset`.
    ///
    /// # Errors
    /// [`Cause::UnexpectedEof`] if the file ends before `buf` is full. The contents of `buf` are
    /// then unspecified.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match self.read_at(buf, offset)? {
            read if read == buf.len() => Ok(()),
            _ => Err(Error::new(&self.path, Cause::UnexpectedEof)),
        }
    }

    /// Writes at `offset`, or at the end if the file was opened to append. Returns the number of
    /// bytes written, which is less than the length of `buf` only if space ran out.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        Ok(self.mounted.vfs.write(&self.open, offset, buf).at(&self.path)?.1)
    }

    /// Writes all of `buf` at `offset`, or at the end if the file was opened to append.
    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let (mut at, mut left) = (offset, buf);
        while !left.is_empty() {
            let written = self.write_at(left, at)?;
            if written == 0 {
                return Err(lanefs_ext4::Error::NoSpace).at(&self.path);
            }
            at += written as u64;
            left = left.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Returns size, owner, times and other metadata.
    pub fn metadata(&self) -> Metadata {
        self.open.inode().attr().into()
    }

    /// Truncates the file to `size` bytes, or extends it with a hole.
    ///
    /// # Errors
    /// As of ftruncate(2): `EINVAL` if the file is not open for writing; `EFBIG` if a file cannot
    /// be so large.
    pub fn set_len(&self, size: u64) -> Result<()> {
        if !self.open.flags().contains(OpenFlags::WRITE) {
            return Err(Error::new(&self.path, Cause::Invalid("not open for writing")));
        }
        self.mounted.vfs.set_len(&self.open, size).at(&self.path).map(drop)
    }

    /// Changes the attributes of the file, as [`crate::FileSystem::set_attr`] does.
    pub fn set_attr(&self, set: &SetAttr) -> Result<()> {
        self.mounted.set_attr(self.open.inode(), set).at(&self.path)
    }

    /// Sets the low 12 bits of the mode.
    pub fn set_permissions(&self, permissions: u16) -> Result<()> {
        self.set_attr(&SetAttr { permissions: Some(permissions), ..SetAttr::default() })
    }

    /// Sets owner and group; `None` leaves the owner or the group unchanged.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set_attr(&owners(uid, gid))
    }

    /// Sets times.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.set_attr(&times.into())
    }

    /// Sets the time of the last change of the data.
    pub fn set_modified(&self, time: SystemTime) -> Result<()> {
        self.set_times(FileTimes::new().modified(time))
    }

    /// Makes data and metadata durable, as fsync(2) does.
    pub fn sync_all(&self) -> Result<()> {
        self.mounted.vfs.fsync(&self.open, SyncMode::Full).at(&self.path)
    }

    /// Makes the data durable, and the metadata that is needed to read it, as fdatasync(2) does.
    pub fn sync_data(&self) -> Result<()> {
        self.mounted.vfs.fsync(&self.open, SyncMode::Data).at(&self.path)
    }

    /// Allocates, punches, zeroes, removes or inserts `len` bytes at `offset`, as `how` says.
    pub fn fallocate(&self, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.mounted.vfs.fallocate(&self.open, how, offset, len).at(&self.path)
    }

    /// Reserves space for `len` bytes at `offset`. If the file ends before the end of this range,
    /// it grows to that end.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(Fallocate::Allocate, offset, len)
    }

    /// Frees `len` bytes at `offset`. The bytes then read as zeros; the size of the file does not
    /// change.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(Fallocate::PunchHole, offset, len)
    }

    /// Returns the extents of the file in ascending order, as FIEMAP does. They include space that
    /// is allocated beyond the end of the file.
    pub fn extents(&self) -> Result<Vec<FileExtent>> {
        self.mounted.vfs.fs().extents(self.open.inode()).at(&self.path)
    }

    /// Moves the data of the file so that it occupies fewer runs of blocks, as far as free space
    /// permits. The file must be open for writing. A crash loses no data. [`File::extents`] shows
    /// the result.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a file that maps its blocks one by one, as in ext2 and ext3; `EPERM` for an
    /// append-only file; `ENOSPC` if there is no free space for a copy.
    pub fn defragment(&self) -> Result<()> {
        self.mounted.vfs.defragment(&self.open).at(&self.path)
    }

    /// Returns the start of the next data at or after `offset`; `None` if there is no data from
    /// `offset` on.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_for(lanefs_ext4::Seek::Data, offset)
    }

    /// Returns the start of the next hole at or after `offset`; the end of the file counts as a
    /// hole. `None` if `offset` is beyond the end.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_for(lanefs_ext4::Seek::Hole, offset)
    }

    fn seek_for(&self, what: lanefs_ext4::Seek, offset: u64) -> Result<Option<u64>> {
        match self.mounted.vfs.seek(&self.open, what, offset) {
            Ok(found) => Ok(Some(found)),
            Err(lanefs_ext4::Error::NoSuchOffset) => Ok(None),
            Err(error) => Err(error).at(&self.path),
        }
    }

    /// Returns the digest of a verity file, as `fsverity digest` computes it; `None` if the file is
    /// not a verity file.
    pub fn digest(&self) -> Result<Option<FileDigest>> {
        self.mounted.vfs.fs().file_digest(self.open.inode()).at(&self.path)
    }

    /// Returns the value of an extended attribute; `None` if it does not exist.
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        self.mounted.xattr(self.open.inode(), name.as_ref()).at(&self.path)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: impl AsRef<[u8]>) -> Result<()> {
        self.mounted.set_xattr(self.open.inode(), name.as_ref(), value.as_ref()).at(&self.path)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let Mounted { vfs, credentials, .. } = &*self.mounted;
        let name = name.as_ref().as_bytes();
        vfs.remove_xattr(credentials, self.open.inode(), name).at(&self.path)
    }

    /// Returns the names of the extended attributes.
    pub fn xattrs(&self) -> Result<Vec<OsString>> {
        self.mounted.xattrs(self.open.inode()).at(&self.path)
    }

    /// Returns the open file of the layer below, [`lanefs_vfs`].
    pub fn as_open_file(&self) -> &OpenFile {
        &self.open
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ino, path) = (self.metadata().ino(), &self.path);
        f.debug_struct("File").field("path", path).field("ino", &ino).finish_non_exhaustive()
    }
}

/// As with [`std::fs::File`], threads that share a file share its position. Two threads that read
/// or write at the same time may read or write at the same position. [`File::read_at`] and
/// [`File::write_at`] do not use the position.
impl io::Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let position = self.position();
        let read = self.read_at(buf, position)?;
        self.set_position(position + read as u64);
        Ok(read)
    }
}

impl io::Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let position = self.position();
        let (at, written) = self.mounted.vfs.write(&self.open, position, buf).at(&self.path)?;
        self.set_position(at + written as u64);
        Ok(written)
    }

    /// Does nothing, because `File` has no buffer. [`File::sync_all`] makes data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for &File {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let place = match to {
            io::SeekFrom::Start(offset) => Some(offset),
            io::SeekFrom::Current(by) => self.position().checked_add_signed(by),
            io::SeekFrom::End(by) => self.metadata().len().checked_add_signed(by),
        };
        let position = place.ok_or(io::ErrorKind::InvalidInput)?;
        self.set_position(position);
        Ok(position)
    }
}

impl io::Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl io::Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl io::Seek for File {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
