//! Lists the extents of a file, as the kernel's FIEMAP does.

use crate::attr::{ExtentFlags, FileExtent};
use crate::data::file_data::FileData;
use crate::fs::Fs;
use crate::object::inode::InodeRef;
use lanefs_ondisk::FileType;
use lanefs_plan::extent::{Extent, State};
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, InvalidArgument};

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
        self.objects.check_process()?;
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
        let FileData { objects, inode } = *self;
        let place = objects.volume.inode_place(inode.ino)?;
        let block = objects.volume.table_block(place.group, place.table_block)?;
        let record = block.0 * self.block_size() + place.offset as u64;
        Ok(FileExtent {
            offset: 0,
            place: record + BLOCK_FIELD,
            len: inode.attr().size.min(self.inline_bytes()?.len() as u64),
            flags: ExtentFlags::DATA_INLINE | ExtentFlags::NOT_ALIGNED | ExtentFlags::LAST,
        })
    }
}
