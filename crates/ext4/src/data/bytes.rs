//! Reads, writes and zeroes bytes of a file through its mappings.

use crate::alloc::Privilege;
use crate::data::FileData;
use crate::data::holes::{Covered, Overlap};
use crate::object::dirty::Credits;
use crate::object::inode::Inode;
use crate::object::state::{Concerns, InodeState};
use crate::volume::Volume;
use lanefs_device::Device;
use lanefs_ondisk::inode::{Cause, InodeFlags};
use lanefs_ondisk::xattr::{Attribute, AttributeName, Value};
use lanefs_ondisk::{Corruption, FileBlock, xattr};
use lanefs_plan::extent::{END, Extent, Mapping, State};
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, extent};

/// A piece of a byte range, with its position on the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    /// The byte offset in the file.
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// The byte offset on the device, if the piece is allocated and written.
    pub(crate) device: Option<u64>,
}

/// Fills `buf` with the bytes from `offset` on, but calls `read` only for whole units of `unit`
/// bytes. If the range covers only a part of a unit, only this part is copied to `buf`.
pub(crate) fn in_whole_units(
    unit: usize,
    offset: u64,
    buf: &mut [u8],
    read: impl Fn(u64, &mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut at, mut rest) = (offset, buf);
    while !rest.is_empty() {
        let within = (at % unit as u64) as usize;
        let len = match within == 0 && rest.len() >= unit {
            true => rest.len() / unit * unit,
            false => rest.len().min(unit - within),
        };
        let (part, after) = rest.split_at_mut(len);
        if within == 0 && len >= unit {
            read(at, part)?;
        } else {
            let mut whole = vec![0; unit];
            read(at - within as u64, &mut whole)?;
            part.copy_from_slice(&whole[within..within + len]);
        }
        at += len as u64;
        rest = after;
    }
    Ok(())
}

impl FileData<'_> {
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.fs.volume.device
    }

    /// Returns the block size in bytes.
    pub(crate) fn block_size(&self) -> u64 {
        self.fs.volume.block_size() as u64
    }

    /// Splits the file bytes `offset..offset + len` into pieces. The caller holds the operation
    /// lock.
    pub(crate) fn pieces(&self, offset: u64, len: usize) -> Result<Vec<Piece>, Error> {
        let block_size = self.block_size();
        self.with_map(|map| {
            let mut pieces = Vec::new();
            let (mut at, end) = (offset, offset + len as u64);
            while at < end {
                let block = u32::try_from(at / block_size).ok().filter(|block| *block < END);
                let Some(block) = block else {
                    // A damaged size may be larger than the largest file.
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

    /// Reads into `buf` through the mappings, regardless of the file size. Holes read as zeros. The
    /// caller holds the operation lock.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        if self.is_inline() {
            return self.read_inline(offset, buf);
        }
        match self.contents()? {
            Some(cipher) => self.read_encrypted(cipher, offset, buf),
            None => self.read_stored(offset, buf),
        }
    }

    /// Does the same as [`FileData::read`], but returns the bytes as they are on the device, so the
    /// bytes of an encrypted file are not decrypted. The data must not be in the inode.
    pub(crate) fn read_stored(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        for piece in self.pieces(offset, buf.len())? {
            let from = (piece.offset - offset) as usize;
            let part = &mut buf[from..from + piece.len];
            match piece.device {
                Some(at) => self.device().read_data_at(at, part)?,
                None => part.fill(0),
            }
        }
        Ok(())
    }

    /// Writes `data` to the device at the extents that cover it. Blocks that were never written are
    /// written whole, with zeros around the data. If an extent is mapped already, the caller has
    /// called [`FileData::await_move`].
    pub(crate) fn write_blocks(
        &self,
        offset: u64,
        data: &[u8],
        extents: &[Extent],
    ) -> Result<(), Error> {
        if let Some(cipher) = self.contents()? {
            let write = |extent| self.write_encrypted(cipher, offset, data, extent);
            return extents.iter().try_for_each(write);
        }
        let block_size = self.block_size();
        let end = offset + data.len() as u64;
        for extent in extents {
            let (from, to) =
                (u64::from(extent.start.0) * block_size, u64::from(extent.end()) * block_size);
            let (start, stop) = (from.max(offset), to.min(end));
            if start >= stop {
                continue;
            }
            let part = &data[(start - offset) as usize..(stop - offset) as usize];
            let device = extent.block.0 * block_size + (start - from);
            // The number of bytes before `part` in its first block, and after `part` in its last
            // block.
            let head = (start % block_size) as usize;
            let tail = (stop.next_multiple_of(block_size) - stop) as usize;
            if extent.state == State::Written || (head == 0 && tail == 0) {
                self.device().write_data_at(device, part)?;
                continue;
            }
            let zeros = vec![0; head.max(tail)];
            let whole: [&[u8]; 3] = [&zeros[..head], part, &zeros[..tail]];
            self.device().write_vectored_at(device - head as u64, &whole)?;
        }
        Ok(())
    }

    /// Returns whether [`FileData::prepare_growth`] would have nothing to do.
    pub(crate) fn is_ready_to_grow(&self, size: u64, offset: u64) -> Result<bool, Error> {
        if self.inode.state.lock().tail_pending.is_some() {
            return Ok(false);
        }
        Ok(offset <= size || self.written_extents(size, offset)?.is_empty())
    }

    /// Prepares the file to grow from `size` by a write at `offset`: zeroes the bytes between
    /// `size` and `offset` that are in written blocks, because they become part of the file. Waits
    /// for an uncommitted truncation first.
    ///
    /// # Locking
    /// Until the file has grown, the caller holds the operation lock exclusively, or holds it
    /// shared and the growth lock exclusively.
    pub(crate) fn prepare_growth(&self, size: u64, offset: u64) -> Result<(), Error> {
        let FileData { fs, inode } = *self;
        let pending = inode.state.lock().tail_pending.take();
        if let Some(tid) = pending {
            // Until the truncation is committed, the bytes between the new end and the end of its
            // block belong to the longer file that a crash would restore. After the commit, the
            // committer zeroes these bytes.
            fs.journal.settle(tid)?;
        }
        if offset <= size {
            return Ok(());
        }
        self.zero_written(size, offset)
    }

    /// Zeroes the written parts of file bytes `from..to`.
    ///
    /// # Locking
    /// The caller holds the same locks as for [`FileData::prepare_growth`].
    pub(crate) fn zero_written(&self, from: u64, to: u64) -> Result<(), Error> {
        let (cipher, written) = (self.contents()?, self.written_extents(from, to)?);
        if !written.is_empty() {
            self.await_move()?;
        }
        for (start, device, len) in written {
            match cipher {
                Some(cipher) => self.zero_encrypted(cipher, start, device, len)?,
                None => self.device().write_zeros(device, len)?,
            }
            self.fs.note_data(self.inode);
        }
        Ok(())
    }

    /// Returns the written parts of file bytes `from..to`: the offsets in the file and on the
    /// device, and the length in bytes.
    fn written_extents(&self, from: u64, to: u64) -> Result<Vec<(u64, u64, u64)>, Error> {
        let block_size = self.block_size();
        let (first, last) = ((from / block_size) as u32, to.div_ceil(block_size) as u32);
        self.with_map(|map| {
            // Usually the range is beyond all extents, because a file grows at its end.
            if map.last().is_none_or(|extent| extent.end() <= first) {
                return Vec::new();
            }
            extent::overlapping(map, first..last)
                .into_iter()
                .filter(|e| e.state == State::Written)
                .map(|e| {
                    let start = (u64::from(e.start.0) * block_size).max(from);
                    let stop = (u64::from(e.end()) * block_size).min(to);
                    let device =
                        e.block.0 * block_size + (start - u64::from(e.start.0) * block_size);
                    (start, device, stop - start)
                })
                .collect()
        })
    }
}

// Reads the data of small files and symbolic links that is stored in the inode (feature
// `inline_data`), and moves it to a block.
//
// The first 60 bytes of the data are stored in place of the extent tree, the other bytes in the
// attribute `system.data` after the inode's fields. Such a file is read in place. The first change
// of the file moves its data to a block, in one handle. Data never moves from a block to the
// inode.

impl FileData<'_> {
    /// Returns whether the inode's data is in the inode.
    pub(crate) fn is_inline(&self) -> bool {
        let flags = || InodeFlags::from_bits_retain(self.inode.rights().flags);
        self.fs.volume.inline_data && is_marked(flags())
    }

    /// Returns all bytes of data in the inode, including bytes beyond the size of the file. The
    /// caller holds the operation lock.
    pub(crate) fn inline_bytes(&self) -> Result<Vec<u8>, Error> {
        let ino = self.inode.ino;
        let state = self.inode.state.lock();
        let area = state.disk.xattr_area(self.fs.volume.geometry()).unwrap_or(0..0);
        let area = state.raw.area(area);
        let mut bytes = state.disk.block.to_vec();
        let attributes = xattr::decode_inode(&area).map_err(|cause| Corruption::Xattr {
            ino,
            block: None,
            cause,
        })?;
        let found = attributes.iter().find(|one| one.name == AttributeName::inline_data());
        let Some(Attribute { value: Value::Here(more), .. }) = found else {
            return Err(Corruption::Inode { ino, cause: Cause::NoInlineData }.into());
        };
        bytes.extend_from_slice(more);
        Ok(bytes)
    }

    /// Returns the contents of a file or symbolic link whose data is in its inode. If the size is
    /// larger than the room in the inode, the rest of the file reads as zeros, as on the kernel's
    /// ext4; the result ends before the rest. The caller holds the operation lock.
    pub(crate) fn inline_contents(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = self.inline_bytes()?;
        bytes.truncate(usize::try_from(self.inode.size()).unwrap_or(usize::MAX));
        Ok(bytes)
    }

    /// Reads into `buf` from a file or symbolic link whose data is in its inode; bytes of `buf`
    /// beyond the end are zeroed.
    pub(crate) fn read_inline(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let contents = self.inline_contents()?;
        let from = usize::try_from(offset).ok().and_then(|from| contents.get(from..));
        let from = from.unwrap_or_default();
        for (n, byte) in buf.iter_mut().enumerate() {
            *byte = from.get(n).copied().unwrap_or(0);
        }
        Ok(())
    }

    /// Moves the first `keep` bytes of a file's data from its inode to a block; does nothing if the
    /// data is not in the inode. The file size stays the same. The caller holds the operation lock
    /// exclusively.
    pub(crate) fn leave_inode(&self, keep: u64) -> Result<(), Error> {
        if !self.is_inline() {
            return Ok(());
        }
        let FileData { fs, inode } = *self;
        let mut contents = self.inline_contents()?;
        contents.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
        if contents.is_empty() {
            let mut handle = fs.join(Credits::INODE)?;
            inode.change(&mut handle, Concerns::Data, |state| {
                state.disk.block = fs.volume.new_form.empty_root();
                stop_inline(&fs.volume, inode, state);
            });
            return Ok(());
        }
        let Covered { mut claims, extents, held: _held } =
            self.claim_holes(0..1, Privilege::Root, Overlap::Anywhere)?;
        self.write_blocks(0, &contents, &extents)?;
        fs.note_data(inode);
        let written: Vec<Extent> =
            extents.iter().map(|extent| Extent { state: State::Written, ..*extent }).collect();
        let change = self.plan_mapping(0..1, &written)?;
        self.publish(&mut claims, 1, change, |state| stop_inline(&fs.volume, inode, state))
    }
}

/// Returns whether the flags say that the inode holds data instead of an extent tree.
pub(crate) fn is_marked(flags: InodeFlags) -> bool {
    flags.contains(InodeFlags::INLINE_DATA) && !flags.contains(InodeFlags::EXTENTS)
}

/// Apply: clears the flag for data in the inode, and removes the attribute that holds a part of the
/// data. The caller replaces the part that is stored in place of the extent tree.
pub(crate) fn stop_inline(volume: &Volume, inode: &Inode, state: &mut InodeState) {
    state.disk.flags -= InodeFlags::INLINE_DATA;
    state.disk.flags.set(InodeFlags::EXTENTS, volume.new_form == Form::Extents);
    inode.xattrs.clear();
    let Some(area) = state.disk.xattr_area(volume.geometry()) else { return };
    let old = state.raw.area(area.clone()).into_owned();
    let others = xattr::decode_inode(&old).map(|mut attributes| {
        attributes.retain(|one| one.name != AttributeName::inline_data());
        xattr::encode_inode(old.len(), &attributes)
    });
    debug_assert!(matches!(others, Ok(Some(_))), "fewer attributes fit");
    if let Ok(Some(new)) = others {
        state.raw.set(volume.geometry().inode_size(), area, &new);
    }
}
