//! An image file or a block device of the host.

mod access;

use crate::device::{Access, Device};
use crate::direct::Direct;
use crate::host_use::{Host, User, is_write_protected};
use crate::image_lock;
use crate::nbd::{Address, FORM, Nbd, is_uri};
use crate::partitions::{
    Partition, PartitionError, PartitionTable, Pick, Place, SECTOR, Which, before_at, file_of,
    split,
};
use lanefs_lanes::Process;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The part of the file that is the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// The offset of the device in the file, or in the partition that the name chooses, in bytes.
    pub offset: u64,
    /// The device's length in bytes. With `None` the device goes to the end of the partition that
    /// holds the offset, or to the end of the file if no partition does.
    pub len: Option<u64>,
    /// What the name of a disk stands for if it chooses no partition.
    pub pick: Pick,
}

/// The error of opening an image.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The image is in use: by another Lanefs, or by the host.
    #[error("{}: in use {by}", path.display())]
    InUse {
        /// The image.
        path: PathBuf,
        /// The other user.
        by: User,
    },
    /// The host refuses writes to the block device, which was to be opened for writing.
    #[error("{}: write-protected", path.display())]
    WriteProtected {
        /// The block device.
        path: PathBuf,
    },
    /// The image is neither a regular file nor a block device.
    #[error("{}: neither a file nor a block device", path.display())]
    NotADevice {
        /// The image.
        path: PathBuf,
    },
    /// The requested part is not within the file.
    #[error("{}: {} its {size} bytes", path.display(), outside(*offset, *len))]
    OutOfRange {
        /// The image.
        path: PathBuf,
        /// The requested start, in bytes.
        offset: u64,
        /// The requested length in bytes; 0 if the part goes to the end of the file.
        len: u64,
        /// Size of the file in bytes.
        size: u64,
    },
    /// The requested part reaches beyond the partition in which it begins.
    #[error(
        "{}: {len} bytes at byte {offset} reach beyond partition {partition}, which has {room} \
         bytes from there on",
        path.display()
    )]
    BeyondPartition {
        /// The image.
        path: PathBuf,
        /// The number of the partition.
        partition: u32,
        /// The requested start, in bytes.
        offset: u64,
        /// The requested length in bytes.
        len: u64,
        /// The number of bytes from the start to the end of the partition.
        room: u64,
    },
    /// The partition that the name of the image chooses cannot be used.
    #[error("{}: {cause}", path.display())]
    Partition {
        /// The image, with the name of the partition.
        path: PathBuf,
        /// The reason.
        cause: PartitionError,
    },
    /// The host returned an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The image.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
}

fn outside(offset: u64, len: u64) -> String {
    match len {
        0 => format!("byte {offset} is beyond"),
        len => format!("{len} bytes at byte {offset} are not within"),
    }
}

/// An image file or a block device of the host, or a part of it.
///
/// Data goes through the host's page cache. With [`FileDevice::with_direct_io`], accesses to file
/// data and to the log bypass that cache if they cover whole pages. [`Device::flush`] is
/// `fdatasync`. The file is locked with `flock` while the device is open: exclusively for writing,
/// shared for reading. The lock covers the whole file, even if the device is only a part of it:
/// `flock` is the lock that udev and systemd honour, and it has no byte ranges. The file is also
/// locked as qemu locks the images of virtual machines.
///
/// If the file is a disk, a device that begins in one of its partitions ends with that partition.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// The exclusive claim on a block device that is opened for writing. As long as this file is
    /// open, the kernel refuses mounts, arrays and other exclusive opens of the block device.
    claim: Option<Arc<File>>,
    lock: Arc<Lock>,
    start: u64,
    /// Changed only by [`Device::lengthen`].
    len: AtomicU64,
    /// Whether the device goes to the end of the file or partition.
    to_end: bool,
    /// The partition that holds the start of the device.
    partition: Option<Partition>,
    notes: Vec<String>,
    access: Access,
    is_block: bool,
    /// Whether writes are refused if the file has become shorter.
    keeps_length: bool,
    /// The export of an NBD server that is the disk in place of the file.
    nbd: Option<Arc<Nbd>>,
    /// The same file, opened for direct I/O.
    direct: Option<Direct>,
    /// The process that opened and locked the file. A child of fork(2) can only read: its parent
    /// goes on writing, and does not know of the child's writes.
    opener: Process,
    /// Becomes false when the host refuses `RWF_DSYNC`. The flag is rarely written, so its cache
    /// line stays shared.
    has_dsync: AtomicBool,
}

/// The locks of an open file, shared by the devices that are parts of it.
#[derive(Debug)]
struct Lock {
    file: File,
    opener: Process,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file may not be enough to release the locks, because a forked child that has
        // not reached its exec still has the file open. A child that drops its copy of the device
        // leaves the locks to its parent.
        if self.opener.is_this() {
            image_lock::unlock(&self.file);
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl FileDevice {
    /// Opens the file or block device at `path` and locks it. `path` may also name a partition of a
    /// disk: `PATH@WHICH`, where WHICH is a number, `name=`, `label=`, `uuid=`, `partuuid=`, or
    /// `root`, which is the partition of that type or else the only ext4. A file that has the whole
    /// name wins.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another user's lock or claim excludes `access`;
    /// [`OpenError::WriteProtected`].
    pub fn open(
        path: impl AsRef<Path>,
        access: Access,
        options: OpenOptions,
    ) -> Result<FileDevice, OpenError> {
        let device = FileDevice::open_unlocked(path.as_ref(), access, options)?;
        if device.nbd.is_some() {
            return Ok(device);
        }
        // The lock covers the whole disk.
        let path = file_of(path.as_ref());
        let in_use = |by| OpenError::InUse { path: path.into(), by };
        let lock = match access {
            Access::ReadOnly => FlockOperation::NonBlockingLockShared,
            Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        };
        match rustix::fs::flock(&device.file, lock) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use(User::Lock)),
            Err(error) => return Err(OpenError::Io { path: path.into(), source: error.into() }),
        }
        let failed = |source| OpenError::Io { path: path.into(), source };
        if !image_lock::lock(&device.file, access).map_err(failed)? {
            return Err(in_use(User::Machine));
        }
        let host = Host::this();
        let metadata = device.file.metadata().map_err(failed)?;
        if device.is_block {
            // An open for writing does not check whether the host uses the device, because the
            // exclusive claim would have failed if the host used it.
            if access == Access::ReadOnly && host.writes(&metadata) {
                return Err(in_use(User::Host));
            }
        } else {
            device.refuse_loop_user(path)?;
        }
        Ok(device)
    }

    fn refuse_loop_user(&self, path: &Path) -> Result<(), OpenError> {
        let failed = |source| OpenError::Io { path: path.into(), source };
        let metadata = self.file.metadata().map_err(failed)?;
        let part = self.start..self.start.saturating_add(self.len());
        match Host::this().loop_user(&metadata, part, self.access) {
            Some(by) => Err(OpenError::InUse { path: path.into(), by }),
            None => Ok(()),
        }
    }

    /// Opens the file or block device at `path` for reading while others may use and change it.
    /// Nothing is locked, and a read may return a half-finished change.
    ///
    /// # Errors
    /// The same as for [`FileDevice::open`], but an image in use is not an error.
    pub fn peek(path: impl AsRef<Path>, options: OpenOptions) -> Result<FileDevice, OpenError> {
        FileDevice::open_unlocked(path.as_ref(), Access::ReadOnly, options)
    }

    /// Opens another partition of the same disk, named as for [`FileDevice::open`], with the same
    /// access and under the same lock.
    ///
    /// # Errors
    /// The same as for [`FileDevice::open`]; [`OpenError::InUse`] if the two share bytes.
    pub fn beside(
        &self,
        name: impl AsRef<Path>,
        options: OpenOptions,
    ) -> Result<FileDevice, OpenError> {
        let (path, which) = split(name.as_ref());
        let failed = |source| OpenError::Io { path: path.into(), source };
        let file = self.file.try_clone().map_err(failed)?;
        let (claim, lock) = (self.claim.clone(), self.lock.clone());
        let part = (name.as_ref(), which, options);
        let disk = (file, self.nbd.clone(), self.is_block);
        let other = FileDevice::part_of(disk, (claim, lock), part, self.access)?;
        let apart =
            other.start + other.len() <= self.start || self.start + self.len() <= other.start;
        if !apart {
            return Err(OpenError::InUse { path: path.into(), by: User::Lock });
        }
        if !other.is_block {
            other.refuse_loop_user(path)?;
        }
        Ok(other)
    }

    /// Returns the partition that holds the start of the device, if the file is a disk and the
    /// device does not begin at offset 0.
    pub fn partition(&self) -> Option<&Partition> {
        self.partition.as_ref()
    }

    /// Returns what the user should know about the choice of the partition.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the offset of the device in the file, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the size of a sector, in bytes, in which an MBR of the disk counts.
    pub fn sector(&self) -> u64 {
        sector_of(&self.file, self.is_block)
    }

    /// Reads bytes of the disk, which may begin before the device.
    fn read_disk(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        read_disk(&self.file, self.nbd.as_deref(), offset, bytes)
    }

    /// Returns whether the device is a whole file or block device.
    pub fn is_whole(&self) -> bool {
        self.start == 0 && self.to_end && self.partition.is_none()
    }

    /// Returns whether this is a block device that is claimed exclusively.
    pub fn is_claimed(&self) -> bool {
        self.claim.is_some()
    }

    /// Gives up this device's exclusive claim on the block device at `path`, so that `take` can
    /// claim the block device, for example by mount(2). This device keeps its lock. The caller must
    /// not rely on any data that it has read: while this device did not have the claim, another
    /// mount may have changed the block device.
    ///
    /// # Errors
    /// After `take`, this device tries to claim the block device again. The outer error is the
    /// error of this second claim, for example [`OpenError::InUse`] if `take` failed and another
    /// user has claimed the block device meanwhile. Otherwise the inner result is `Ok` if `take`
    /// has claimed the block device. If `take` failed, the inner result is the error of `take`. If
    /// `take` succeeded without claiming the block device, the value of `take` is passed to
    /// `untake`, and the inner result is the error that `untake` returns. After either inner error
    /// this device has the claim again.
    pub fn hand_claim_to<T, E>(
        &mut self,
        path: &Path,
        take: impl FnOnce() -> Result<T, E>,
        untake: impl FnOnce(T) -> E,
    ) -> Result<Result<T, E>, OpenError> {
        self.claim = None;
        let taken = take();
        match (taken, claim(path)) {
            // The second claim was refused, which shows that `take` has claimed the device.
            (Ok(taken), Err(OpenError::InUse { .. })) => Ok(Ok(taken)),
            (Err(error), Ok(claim)) => {
                self.claim = Some(Arc::new(claim));
                Ok(Err(error))
            }
            (Err(_), Err(error)) => Err(error),
            (Ok(taken), Ok(claim)) => {
                self.claim = Some(Arc::new(claim));
                Ok(Err(untake(taken)))
            }
            (Ok(taken), Err(error)) => {
                untake(taken);
                Err(error)
            }
        }
    }

    fn open_unlocked(
        path: &Path,
        access: Access,
        options: OpenOptions,
    ) -> Result<FileDevice, OpenError> {
        let name = path;
        let (path, which) = split(name);
        let failed = |source: io::Error| OpenError::Io { path: path.into(), source };
        let part = (name, which, options);
        if is_uri(path) {
            let address = Address::parse(path).ok_or_else(|| failed(io::Error::other(FORM)))?;
            let (nbd, file) = Nbd::open(&address, access).map_err(failed)?;
            let lock = Lock { file: file.try_clone().map_err(failed)?, opener: Process::this() };
            let disk = (file, Some(Arc::new(nbd)), true);
            return FileDevice::part_of(disk, (None, Arc::new(lock)), part, access);
        }
        let kind = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_disk(before_at(path)) => {
                return Err(OpenError::Partition {
                    path: path.into(),
                    cause: PartitionError::NoName,
                });
            }
            found => found.map_err(failed)?.file_type(),
        };
        if !kind.is_file() && !kind.is_block_device() {
            return Err(OpenError::NotADevice { path: path.into() });
        }
        let writes = access == Access::ReadWrite;
        let claim = match writes && kind.is_block_device() {
            true => {
                let claim = claim(path)?;
                // Recent kernels open a write-protected device for writing, and refuse only the
                // writes.
                if is_write_protected(&claim).map_err(|e| failed(e.into()))? {
                    return Err(OpenError::WriteProtected { path: path.into() });
                }
                Some(Arc::new(claim))
            }
            false => None,
        };
        let file = File::options().read(true).write(writes).open(path).map_err(failed)?;
        if let Some(claim) = &claim {
            let number = |file: &File| file.metadata().map(|metadata| metadata.rdev());
            if number(claim).map_err(failed)? != number(&file).map_err(failed)? {
                // The path now refers to another file.
                return Err(OpenError::InUse { path: path.into(), by: User::Host });
            }
        }
        let lock = Lock { file: file.try_clone().map_err(failed)?, opener: Process::this() };
        let disk = (file, None, kind.is_block_device());
        FileDevice::part_of(disk, (claim, Arc::new(lock)), part, access)
    }

    fn part_of(
        (mut file, nbd, is_block): (File, Option<Arc<Nbd>>, bool),
        (claim, lock): (Option<Arc<File>>, Arc<Lock>),
        (name, which, options): (&Path, Option<Which<'_>>, OpenOptions),
        access: Access,
    ) -> Result<FileDevice, OpenError> {
        let failed = |source: io::Error| OpenError::Io { path: name.into(), source };
        // The metadata of a block device does not contain the device's size, but seeking to the end
        // of the device returns the size.
        let size = match &nbd {
            Some(nbd) => nbd.len(),
            None => file.seek(SeekFrom::End(0)).map_err(failed)?,
        };
        let pick = if options.len.is_none() { options.pick } else { Pick::Nothing };
        let disk = (size, sector_of(&file, is_block));
        let read = |at, bytes: &mut [u8]| read_disk(&file, nbd.as_deref(), at, bytes).ok();
        let found = Place::find(which, (options.offset, pick), disk, &read);
        let refused = |cause| OpenError::Partition { path: name.into(), cause };
        let Place { start, partition, overlaps, notes } = found.map_err(refused)?;
        if let (Access::ReadWrite, Some(other), Some(this)) = (access, overlaps, &partition) {
            return Err(refused(PartitionError::Overlap(this.number, other)));
        }
        let len = length(name, (start, options.len), size, partition.as_ref())?;
        Ok(FileDevice {
            file,
            claim,
            lock,
            start,
            notes,
            len: AtomicU64::new(len),
            to_end: options.len.is_none(),
            partition,
            access,
            is_block,
            keeps_length: false,
            nbd,
            direct: None,
            opener: Process::this(),
            has_dsync: AtomicBool::new(true),
        })
    }

    /// Returns the same device, except that writes and flushes fail if the file has become shorter.
    /// Without this check, a write would make the file longer again, with zeros in place of the
    /// lost bytes. The check costs a system call for each write and flush.
    pub fn keeping_length(mut self) -> FileDevice {
        self.keeps_length = true;
        self
    }

    /// Returns whether the bytes of the disk are those of an image file, which can become longer.
    pub fn is_file(&self) -> bool {
        !self.is_block
    }

    /// Makes accesses to file data and to blocks of the log bypass the host's page cache if they
    /// cover whole pages of the host. All other metadata still goes through that cache. `path` is
    /// the path by which the device was opened.
    ///
    /// # Errors
    /// An error of the host, if it cannot open the file for direct I/O; `InvalidInput` if the
    /// device does not start at a whole page of the file.
    pub fn with_direct_io(&mut self, path: &Path) -> io::Result<()> {
        let direct = Direct::open(path, &self.file, self.access == Access::ReadWrite)?;
        if !self.start.is_multiple_of(direct.unit() as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.direct = Some(direct);
        Ok(())
    }

    /// Creates a sparse image file of `len` zero bytes, and opens it for writing.
    ///
    /// # Errors
    /// [`OpenError::Io`] if it exists already or cannot be created.
    pub fn create(path: impl AsRef<Path>, len: u64) -> Result<FileDevice, OpenError> {
        let path = path.as_ref();
        let failed = |source| OpenError::Io { path: path.into(), source };
        let file = File::create_new(path).map_err(failed)?;
        let sized = file.set_len(len).map_err(failed);
        sized
            .and_then(|()| FileDevice::open(path, Access::ReadWrite, OpenOptions::default()))
            .inspect_err(|_| remove_new(path, &file))
    }

    /// Removes the image file at `path`, which [`FileDevice::create`] has created, because it
    /// cannot be used. Does nothing if `path` refers to another file now.
    pub fn remove_new(&self, path: &Path) {
        remove_new(path, &self.file);
    }
}

/// Removes the file at `path`, which this program has created as `file`, because it cannot be used.
/// Does nothing if `path` refers to another file now. A failure is ignored, because the caller
/// reports why the file cannot be used.
fn remove_new(path: &Path, file: &File) {
    let place = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let (same, there) = (file.metadata().map(place), path.symlink_metadata().map(place));
    if matches!((same, there), (Ok(same), Ok(there)) if same == there) {
        let _ = std::fs::remove_file(path);
    }
}

fn read_disk(file: &File, nbd: Option<&Nbd>, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    match nbd {
        Some(nbd) => nbd.read(offset, bytes),
        None => file.read_exact_at(bytes, offset),
    }
}

/// Returns whether `path` is a disk with a partition table.
fn is_disk(path: Option<&Path>) -> bool {
    let open = |path| FileDevice::peek(path, OpenOptions::default()).ok();
    let disk = path.filter(|path| path.exists()).and_then(open);
    disk.is_some_and(|disk| matches!(PartitionTable::of(&disk), Ok(Some(_))))
}

fn sector_of(file: &File, is_block: bool) -> u64 {
    match is_block {
        true => rustix::fs::ioctl_blksszget(file).map_or(SECTOR, u64::from),
        false => SECTOR,
    }
}

/// Returns the length of the part of a file of `size` bytes that begins at `offset` and has `wanted`
/// bytes, or goes to the end.
fn length(
    path: &Path,
    (offset, wanted): (u64, Option<u64>),
    size: u64,
    partition: Option<&Partition>,
) -> Result<u64, OpenError> {
    let path = PathBuf::from(path);
    if let (Some(len), Some(partition)) = (wanted, partition) {
        let room = partition.bytes.end.saturating_sub(offset);
        if len > room {
            let partition = partition.number;
            return Err(OpenError::BeyondPartition { path, partition, offset, len, room });
        }
    }
    let end = partition.map_or(size, |partition| partition.bytes.end.min(size));
    let rest = end.checked_sub(offset);
    match (rest, wanted) {
        (Some(rest), wanted) if wanted.unwrap_or(rest) <= rest => Ok(wanted.unwrap_or(rest)),
        (_, wanted) => Err(OpenError::OutOfRange { path, offset, len: wanted.unwrap_or(0), size }),
    }
}

/// Claims the block device at `path`. With O_EXCL the kernel refuses the open if the device is
/// mounted, in an array, or claimed by another program, and refuses these uses while the file is
/// open.
fn claim(path: &Path) -> Result<File, OpenError> {
    let exclusive = OFlags::EXCL.bits() as i32;
    File::options().read(true).custom_flags(exclusive).open(path).map_err(|source| {
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::BUSY) => {
                OpenError::InUse { path: path.into(), by: Host::this().claimant(path) }
            }
            _ => OpenError::Io { path: path.into(), source },
        }
    })
}
