//! Reads the data of small files and symbolic links that is stored in the inode (feature
//! `inline_data`), and moves it to a block.
//!
//! The first 60 bytes of the data are stored in place of the extent tree, the other bytes in the
//! attribute `system.data` after the inode's fields. Such a file is read in place. The first change
//! of the file moves its data to a block, in one handle. Data never moves from a block to the
//! inode.

use crate::alloc::Privilege;
use crate::data::file_data::FileData;
use crate::data::holes::{Overlap, take_front};
use crate::object::inode::Inode;
use crate::object::state::{Concerns, InodeState};
use crate::volume::Volume;
use lanefs_ondisk::inode::{Cause, InodeFlags};
use lanefs_ondisk::xattr::{Attribute, AttributeName, Value};
use lanefs_ondisk::{Corruption, xattr};
use lanefs_plan::Error;
use lanefs_plan::extent::{Extent, State};
use lanefs_plan::mapping::Form;

impl FileData<'_> {
    /// Returns whether the inode's data is in the inode.
    pub(crate) fn is_inline(&self) -> bool {
        let flags = || InodeFlags::from_bits_retain(self.inode.rights().flags);
        self.objects.volume.inline_data && is_marked(flags())
    }

    /// Returns all bytes of data in the inode, including bytes beyond the size of the file. The
    /// caller holds the operation lock.
    pub(crate) fn inline_bytes(&self) -> Result<Vec<u8>, Error> {
        let ino = self.inode.ino;
        let state = self.inode.state.lock();
        let area = state.disk.xattr_area(self.objects.volume.geometry()).unwrap_or(0..0);
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

    /// Returns the contents of a file or symbolic link whose data is in its inode. The caller holds
    /// the operation lock.
    pub(crate) fn inline_contents(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = self.inline_bytes()?;
        let (size, room) = (self.inode.size(), bytes.len() as u64);
        if size > room {
            let cause = Cause::InlineSize { size, room };
            return Err(Corruption::Inode { ino: self.inode.ino, cause }.into());
        }
        bytes.truncate(size as usize);
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
        let FileData { objects, inode } = *self;
        let mut contents = self.inline_contents()?;
        contents.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
        if contents.is_empty() {
            let mut handle = objects.join(2)?;
            inode.change(&mut handle, Concerns::Data, |state| {
                state.disk.block = objects.volume.new_form.empty_root();
                stop_inline(&objects.volume, inode, state);
            });
            return Ok(());
        }
        let (mut claims, extents, _held) =
            self.claim_holes(0..1, Privilege::Root, Overlap::Anywhere)?;
        self.write_blocks(0, &contents, &extents)?;
        objects.note_data(inode);
        let written: Vec<Extent> =
            extents.iter().map(|extent| Extent { state: State::Written, ..*extent }).collect();
        let change = self.plan_mapping(0..1, &written)?;
        let used = take_front(&mut claims, 1, objects.volume.clusters());
        let mut handle = objects.join(change.credits + 3 * used.len() as u32 + 1)?;
        for claim in used {
            objects.groups.allocate(&mut handle, claim);
        }
        self.apply_mapping(&mut handle, change, |state| {
            stop_inline(&objects.volume, inode, state);
        });
        Ok(())
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
