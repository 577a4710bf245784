//! Looks names up, and lists directories.
//!
//! Only names that are not in the name cache are looked up here. A look-up holds the directory's
//! operation lock shared. `name/directory.rs` goes down the index to the one block where the name
//! can be. `object/meta.rs` finds the block in memory, or `object/fs.rs` reads and checks it, and
//! `lanefs_plan::dir` searches its bytes. If the block did not change meanwhile, the result is
//! published to the name cache, even if the result is that the name does not exist.

use crate::attr::{Attr, ExtentFlags, FileExtent, Named, Seek, SetTime, now};
use crate::crypt::NoKeyName;
use crate::data::FileData;
use crate::flags;
use crate::name::directory::{Directory, checked};
use crate::object::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::meta::Contents;
use crate::options::Atime;
use lanefs_lanes::Lines;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::hash::NameHash;
use lanefs_ondisk::inode::{Cause, Cause as InodeCause, InodeFlags};
use lanefs_ondisk::{Corruption, FileBlock, FileType, Ino};
use lanefs_plan::dir::{self, DirEntry, Found};
use lanefs_plan::extent::{Extent, State};
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, InvalidArgument};
use std::ops::ControlFlow;

/// How often an entry may be found to refer to the same free inode before the entry counts as
/// damaged.
const TRIES: u32 = 64;

impl Fs {
    /// Returns whether the names in `dir` are kept out of the name cache. This is so if `dir`
    /// ignores case or is encrypted.
    #[inline]
    pub fn is_uncached(&self, dir: &Inode) -> bool {
        let volume = &self.volume;
        (volume.folding.is_some() || volume.encrypts) && flags::changes_names(&dir.rights())
    }

    /// Returns the inode to which `name` in `dir` refers. Publishes the result to the name cache,
    /// even if the name does not exist.
    ///
    /// # Errors
    /// The errors of [`Fs::check_child`] are returned too.
    pub fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<Named>, Error> {
        match known(self.entry(dir, name)?) {
            Some(named) => Ok(named),
            // The type is read from the inode.
            None => {
                let inode = self.find(dir, name)?;
                Ok(inode.map(|inode| Named { ino: inode.ino, file_type: inode.file_type }))
            }
        }
    }

    /// Does the same as [`Fs::lookup`], but returns the entry, which may store no type.
    fn entry(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<Found>, Error> {
        let name = checked(name)?;
        self.check_process()?;
        let shared = dir.op.shared();
        if dir.file_type == FileType::Directory && dir.links() == 0 {
            return Ok(None);
        }
        let view = Directory::of(self, dir)?;
        let (shown, Some(stored)) = (name.bytes(), view.stored(name)?) else { return Ok(None) };
        let name = stored.name();
        let sought = view.leaf_of(name).and_then(|leaf| match leaf {
            Some(leaf) => self.look_up_in(&view, leaf, name),
            None => {
                let found = view.find(name)?;
                // A name that may be in several blocks changes only under the exclusive operation
                // lock. This thread holds the lock shared, so `found` is still right.
                if let Some(named) = self.to_publish(found)
                    && view.context.compares_bytes()
                    && !matches!(name.bytes(), b"." | b"..")
                {
                    self.options.names.publish(dir.dir_id(), name.bytes(), named);
                }
                Ok(found)
            }
        });
        let found = match sought {
            Err(damage @ Error::Corruption(_)) => {
                let first = dir.last_found.load(Ordering::Relaxed);
                let found = dir::find_anywhere(&view.context, &view, name, first).ok_or(damage)?;
                dir.last_found.store(found.block.0, Ordering::Relaxed);
                Some(found)
            }
            sought => sought?,
        };
        // The inode is loaded only after the directory's lock was released, because dropping the
        // reference may delete the inode, and a deletion takes the operation lock of the deleted
        // inode.
        drop(shared);
        let is_dot = matches!(shown, b"." | b"..");
        if let Some(Found { ino, .. }) = found
            && view.crypt.is_some()
            && !is_dot
        {
            match self.get(ino, None) {
                Ok(child) => self.check_child(dir, &child)?,
                // The inode was deleted after the name was found.
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Looks for `name` in the only block that may contain it, and publishes the result unless
    /// another thread has changed the block meanwhile.
    fn look_up_in(
        &self,
        view: &Directory<'_>,
        leaf: FileBlock,
        name: Name<'_>,
    ) -> Result<Option<Found>, Error> {
        let dir = view.dir;
        let (block, kind) = view.place(leaf)?;
        let look = |contents: &Contents<'_>| view.find_in(leaf, contents, name);
        self.meta.look(self, block, kind, look, |found, still| {
            if let Ok(found) = found
                && view.context.compares_bytes()
                && let Some(named) = self.to_publish(*found)
            {
                self.options.names.publish_read(dir.dir_id(), name.bytes(), named, still);
            }
        })?
    }

    /// Does the same as [`known`] for a result that will be published. Returns `None` for the file
    /// system's internal inodes. These must not be published: a reader of the name cache takes an
    /// inode from memory, and the internal inodes are in memory too.
    fn to_publish(&self, found: Option<Found>) -> Option<Option<Named>> {
        let named = known(found)?;
        named.is_none_or(|named| self.volume.is_for_names(named.ino)).then_some(named)
    }

    /// Returns a hold on the inode that `name` in `dir` refers to, or `None`. Looks again if the
    /// inode is deleted before it can be held, or if its number may have been reused. Reports
    /// damage if the entry keeps referring to a free inode.
    pub fn find(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>, Error> {
        let mut free = (Ino(0), 0);
        loop {
            let Some(Found { ino, .. }) = self.entry(dir, name)? else { return Ok(None) };
            match self.get(ino, None) {
                Ok(inode) => {
                    // A held inode keeps its number. So if the name still refers to this number, it
                    // refers to this inode.
                    if self.entry(dir, name)?.is_some_and(|again| again.ino == ino) {
                        return Ok(Some(inode));
                    }
                }
                Err(Error::Stale) if free.0 == ino => free.1 += 1,
                Err(Error::Stale) => free = (ino, 1),
                Err(error) => return Err(error),
            }
            // A name is removed before its inode is freed, so an entry that keeps referring to a
            // free inode is damage.
            if free.1 == TRIES {
                let cause = InodeCause::NotInUse;
                let error = Corruption::Inode { ino, cause }.into();
                self.note_error(&error);
                return Err(error);
            }
        }
    }

    /// Passes the entries after `cookie` (0: from the start) to `each`, "." and ".." first. An
    /// error is returned after the entries that can be read.
    pub fn read_dir(
        &self,
        dir: &InodeRef,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.check_process()?;
        let _shared = dir.op.shared();
        let blocks = Directory::of(self, dir)?;
        if dir.links() == 0 {
            return Ok(());
        }
        blocks.read_from(cookie, each)
    }
}

/// Converts an entry, or the absence of an entry, to the result of a look-up. Returns `None` if the
/// entry stores no type, which is the case without the feature `filetype`.
fn known(found: Option<Found>) -> Option<Option<Named>> {
    let Some(Found { ino, file_type, .. }) = found else { return Some(None) };
    file_type.map(|file_type| Some(Named { ino, file_type }))
}

// Reads file data.

impl Fs {
    /// Reads into `buf` from `offset`. Returns the number of bytes read, which is less than the
    /// length of `buf` only at the end of the file.
    pub fn read_at(&self, inode: &InodeRef, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        self.check_process()?;
        inode.check_regular()?;
        let _shared = inode.op.shared();
        let attr = inode.attr();
        let len = (attr.size.saturating_sub(offset)).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        match attr.flags & InodeFlags::VERITY.bits() != 0 {
            true => self.data(inode).read_verified(offset, buf)?,
            false => self.data(inode).read(offset, buf)?,
        }
        Ok(len)
    }

    /// Fails if the file cannot be opened: it is encrypted and its key is missing, it was found in
    /// an encrypted directory of another policy, or it is a verity file without a valid descriptor.
    ///
    /// # Errors
    /// [`Error::NoKey`], [`Error::ForeignPolicy`], [`lanefs_ondisk::Corruption::Verity`].
    #[inline]
    pub fn check_contents(&self, inode: &InodeRef) -> Result<(), Error> {
        inode.check_not_foreign()?;
        let data = self.data(inode);
        if inode.file_type != FileType::Regular || !data.is_encrypted() && !data.is_verity() {
            return Ok(());
        }
        self.check_process()?;
        let _shared = inode.op.shared();
        data.contents()?;
        if data.is_verity() { data.verity().map(drop) } else { Ok(()) }
    }

    /// Returns the offset of the next data or hole at or after `offset`, as lseek(2) does.
    /// Unwritten space counts as a hole.
    pub fn seek(&self, inode: &InodeRef, what: Seek, offset: u64) -> Result<u64, Error> {
        self.check_process()?;
        let _shared = inode.op.shared();
        let size = inode.attr().size;
        if offset >= size {
            return Err(Error::NoSuchOffset);
        }
        if inode.file_type != FileType::Regular || self.data(inode).is_inline() {
            return Ok(if what == Seek::Data { offset } else { size });
        }
        let block_size = self.volume.block_size() as u64;
        let from = FileBlock(u32::try_from(offset / block_size).map_err(|_| Error::NoSuchOffset)?);
        let found = self.data(inode).with_map(|map| match what {
            Seek::Data => map.seek_data(from),
            Seek::Hole => Some(map.seek_hole(from)),
        })?;
        let at = found.map(|block| (u64::from(block.0) * block_size).max(offset));
        match (what, at) {
            (Seek::Data, Some(at)) if at < size => Ok(at),
            (Seek::Data, _) => Err(Error::NoSuchOffset),
            (Seek::Hole, at) => Ok(at.unwrap_or(size).min(size)),
        }
    }

    /// Updates atime after a read, as required by the mount's atime option and the inode's flag
    /// (chattr +A).
    pub fn touch_atime(&self, inode: &InodeRef) -> Result<(), Error> {
        const DAY: i64 = 24 * 3600;
        if self.is_read_only() {
            return Ok(());
        }
        let attr = inode.attr();
        let now = now();
        let due = match self.options.atime {
            _ if attr.flags & InodeFlags::NOATIME.bits() != 0 => false,
            Atime::Noatime => false,
            Atime::Strict if self.volume.geometry().inode_size() > 128 => attr.atime != now,
            // Only the seconds are compared, because inodes of 128 bytes store no fractions.
            Atime::Strict => attr.atime.secs != now.secs,
            Atime::Relatime => {
                attr.atime <= attr.mtime
                    || attr.atime <= attr.ctime
                    || now.secs - attr.atime.secs >= DAY
            }
        };
        if due { self.set_times(inode, Some(SetTime::At(now)), None) } else { Ok(()) }
    }
}

// Lists the extents of a file, as the kernel's FIEMAP does.

/// The offset in bytes of the block field (`i_block`) in an inode, where inline data begins.
const BLOCK_FIELD: u64 = 0x28;

impl Fs {
    /// Returns the extents of a file or directory in ascending order, including space allocated
    /// beyond its end. Extents that continue each other both in the file and on the device are
    /// returned as one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other types of files.
    pub fn extents(&self, inode: &InodeRef) -> Result<Vec<FileExtent>, Error> {
        if !matches!(inode.file_type, FileType::Regular | FileType::Directory) {
            return Err(InvalidArgument::NotFileOrDirectory.into());
        }
        self.check_process()?;
        let _shared = inode.op.shared();
        let data = self.data(inode);
        if data.is_inline() {
            return data.inline_extent().map(|extent| vec![extent]);
        }
        let merged = match data.form() {
            Form::BlockMap => ExtentFlags::MERGED,
            Form::Extents => ExtentFlags::empty(),
        };
        let mut found = data.with_map(|map| {
            let mut found = Vec::new();
            map.iter().for_each(|extent| append(&mut found, extent, data.block_size(), merged));
            found
        })?;
        if let Some(last) = found.last_mut() {
            last.flags |= ExtentFlags::LAST;
        }
        Ok(found)
    }
}

/// Appends `extent` to `found`. If it continues the last extent and has the same flags, the last
/// extent is lengthened instead.
fn append(found: &mut Vec<FileExtent>, extent: Extent, block_size: u64, merged: ExtentFlags) {
    let Extent { start, block, len, state } = extent;
    let mut flags = merged;
    flags.set(ExtentFlags::UNWRITTEN, state == State::Unwritten);
    let next = FileExtent {
        offset: u64::from(start.0) * block_size,
        place: block.0 * block_size,
        len: u64::from(len) * block_size,
        flags,
    };
    match found.last_mut() {
        Some(last)
            if last.offset + last.len == next.offset
                && last.place + last.len == next.place
                && last.flags == next.flags =>
        {
            last.len += next.len;
        }
        _ => found.push(next),
    }
}

impl FileData<'_> {
    /// Returns the data in the inode as an extent that starts at the inode's block field. As in the
    /// kernel, the extent does not show that the bytes after the first 60 lie elsewhere in the
    /// inode.
    fn inline_extent(&self) -> Result<FileExtent, Error> {
        let FileData { fs, inode } = *self;
        let place = fs.volume.inode_place(inode.ino)?;
        let block = fs.volume.table_block(place.group, place.table_block)?;
        let record = block.0 * self.block_size() + place.offset as u64;
        Ok(FileExtent {
            offset: 0,
            place: record + BLOCK_FIELD,
            len: inode.attr().size.min(self.inline_bytes()?.len() as u64),
            flags: ExtentFlags::DATA_INLINE | ExtentFlags::NOT_ALIGNED | ExtentFlags::LAST,
        })
    }
}

// Reads symbolic links.

impl Fs {
    /// Returns the target of a symbolic link. Without the key of an encrypted link, returns the
    /// text that is shown for the encrypted target.
    pub fn read_link(&self, inode: &InodeRef) -> Result<Vec<u8>, Error> {
        if inode.file_type != FileType::Symlink {
            return Err(InvalidArgument::NotSymlink.into());
        }
        if let Some(target) = inode.target.get() {
            return Ok(target.to_vec());
        }
        let target = self.load_target(inode)?;
        // The target never changes. So if two threads have loaded it, either copy may be kept.
        Ok(inode.target.get_or_init(|| Lines::from(&*target)).to_vec())
    }

    /// Returns the attributes of an inode for stat(2). The size of an encrypted symbolic link is
    /// the length of what [`Fs::read_link`] returns, as on the kernel's ext4 since 5.15. If
    /// [`Fs::read_link`] fails, the size on disk is returned.
    pub fn stat(&self, inode: &InodeRef) -> Attr {
        let mut attr = inode.attr();
        if attr.file_type == FileType::Symlink
            && flags::is_encrypted(&attr.rights())
            && let Ok(target) = self.read_link(inode)
        {
            attr.size = target.len() as u64;
        }
        attr
    }

    fn load_target(&self, inode: &InodeRef) -> Result<Vec<u8>, Error> {
        self.check_process()?;
        let _shared = inode.op.shared();
        let stored = self.stored_target(inode)?;
        let Some(crypt) = self.data(inode).crypt()? else { return Ok(stored) };
        let damaged = || {
            let cause = Cause::EncryptedText { len: stored.len() };
            Error::from(Corruption::Inode { ino: inode.ino, cause })
        };
        // A target begins with its length (kernel documentation, fscrypt: "Symlinks").
        let (len, rest) = stored.split_first_chunk().ok_or_else(damaged)?;
        let len = usize::from(u16::from_le_bytes(*len));
        let encrypted = rest.get(..len).filter(|_| len > 0).ok_or_else(damaged)?;
        match crypt.names() {
            Ok(names) => names.decrypt(encrypted).filter(|t| !t.is_empty()).ok_or_else(damaged),
            Err(_) => Ok(NoKeyName::encode(NameHash { major: 0, minor: 0 }, encrypted)),
        }
    }

    /// Returns the bytes of the target on disk. The caller holds the operation lock.
    fn stored_target(&self, inode: &InodeRef) -> Result<Vec<u8>, Error> {
        let (inside, size) = {
            let state = inode.state.lock();
            (state.disk.fast_symlink(self.volume.geometry()).map(<[u8]>::to_vec), state.disk.size)
        };
        if let Some(target) = inside {
            return Ok(target);
        }
        // No target is longer than a block. A larger size would be damage, and would have been
        // found when the inode was decoded.
        let most = self.volume.block_size() as u64;
        let mut target = vec![0; size.min(most) as usize];
        self.data(inode).read(0, &mut target)?;
        Ok(target)
    }
}
