//! Reads file data.

use crate::attr::{Seek, SetTime};
use crate::clock::now;
use crate::fs::Fs;
use crate::object::inode::InodeRef;
use crate::policy::Atime;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileBlock, FileType};
use lanefs_plan::Error;

impl Fs {
    /// Reads into `buf` from `offset`. Returns the number of bytes read, which is less than the
    /// length of `buf` only at the end of the file.
    pub fn read_at(&self, inode: &InodeRef, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        self.objects.check_process()?;
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
        self.objects.check_process()?;
        let _shared = inode.op.shared();
        data.contents()?;
        if data.is_verity() { data.verity().map(drop) } else { Ok(()) }
    }

    /// Returns the offset of the next data or hole at or after `offset`, as lseek(2) does.
    /// Unwritten space counts as a hole.
    pub fn seek(&self, inode: &InodeRef, what: Seek, offset: u64) -> Result<u64, Error> {
        self.objects.check_process()?;
        let _shared = inode.op.shared();
        let size = inode.attr().size;
        if offset >= size {
            return Err(Error::NoSuchOffset);
        }
        if inode.file_type != FileType::Regular || self.data(inode).is_inline() {
            return Ok(if what == Seek::Data { offset } else { size });
        }
        let block_size = self.objects.volume.block_size() as u64;
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
        let due = match self.atime {
            _ if attr.flags & InodeFlags::NOATIME.bits() != 0 => false,
            Atime::Noatime => false,
            Atime::Strict if self.objects.volume.geometry().inode_size() > 128 => attr.atime != now,
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
