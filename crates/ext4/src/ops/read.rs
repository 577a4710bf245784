//! Reading file data.

use crate::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::plan::extent::{Mapping, State};
use crate::{Atime, Error, Seek, SetTime};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileBlock, FileType, Time};

/// A piece of a byte range and what it maps to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    /// Bytes of the file.
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// Bytes on the device, if the piece is allocated and written.
    pub(crate) device: Option<u64>,
}

impl Fs {
    /// The pieces of `offset..offset + len`; the operation lock is held.
    pub(crate) fn pieces(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        len: usize,
    ) -> Result<Vec<Piece>, Error> {
        let block_size = self.geometry.block_size().bytes() as u64;
        self.with_map(inode, |map| {
            let mut pieces = Vec::new();
            let (mut at, end) = (offset, offset + len as u64);
            while at < end {
                let Ok(block) = u32::try_from(at / block_size) else {
                    pieces.push(Piece { offset: at, len: (end - at) as usize, device: None });
                    break;
                };
                let within = at % block_size;
                let (blocks, device) = match map.find(FileBlock(block)) {
                    Mapping::Mapped { block, len, state: State::Written } => {
                        (len, Some(block.0 * block_size + within))
                    }
                    Mapping::Mapped { len, .. } => (len, None),
                    Mapping::Hole { len } => (len, None),
                };
                let len = (u64::from(blocks) * block_size - within).min(end - at);
                pieces.push(Piece { offset: at, len: len as usize, device });
                at += len;
            }
            pieces
        })
    }

    /// Reads into `buf` from `offset`. Bytes read: fewer than asked only at the end of the file.
    pub fn read_at(&self, inode: &InodeRef, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        match inode.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::InvalidArgument { what: "not a regular file" }),
        }
        let _shared = inode.op.shared();
        let size = inode.attr().size;
        let len = (size.saturating_sub(offset)).min(buf.len() as u64) as usize;
        self.read_mapped(inode, offset, &mut buf[..len])?;
        Ok(len)
    }

    /// Fills `buf` from the mappings, holes as zeros, whatever the size says. The operation lock is held.
    pub(crate) fn read_mapped(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), Error> {
        for piece in self.pieces(inode, offset, buf.len())? {
            let from = (piece.offset - offset) as usize;
            let part = &mut buf[from..from + piece.len];
            match piece.device {
                Some(at) => self.device.read_at(at, part)?,
                None => part.fill(0),
            }
        }
        Ok(())
    }

    /// The next data or hole at or after `offset`, as lseek(2) has it: unwritten space is a hole.
    pub fn seek(&self, inode: &InodeRef, what: Seek, offset: u64) -> Result<u64, Error> {
        let _shared = inode.op.shared();
        let size = inode.attr().size;
        if offset >= size {
            return Err(Error::NoSuchOffset);
        }
        if inode.file_type != FileType::Regular {
            return Ok(if what == Seek::Data { offset } else { size });
        }
        let block_size = self.geometry.block_size().bytes() as u64;
        let from = FileBlock(u32::try_from(offset / block_size).map_err(|_| Error::NoSuchOffset)?);
        let found = self.with_map(inode, |map| match what {
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

    /// Records a read, as the mount's atime option and the inode's flag (chattr +A) say.
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
            Atime::Strict if self.geometry.inode_size() > 128 => attr.atime != now,
            // Of whole seconds.
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

/// The time of the last clock tick, as inodes keep it.
pub(crate) fn now() -> Time {
    let now = lanefs_lanes::coarse_now();
    Time { secs: now.secs, nanos: now.nanos }
}
