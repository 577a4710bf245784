//! Collapses and inserts ranges: the modes of fallocate(2) that move the rest of a file.

use crate::clock::now;
use crate::fs::Fs;
use crate::object::inode::Inode;
use crate::object::state::InodeState;
use lanefs_lanes::sync::Arc;
use lanefs_plan::extent::{Layout, overlapping};
use lanefs_plan::{Error, InvalidArgument};
use std::ops::Range;

impl Fs {
    /// Removes the bytes `offset..end` of a file; the bytes after them move to `offset`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless the range consists of whole clusters and ends before the
    /// end of the file.
    pub(super) fn collapse_range(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
    ) -> Result<(), Error> {
        let range = self.whole_clusters(offset, end)?;
        let size = inode.attr().size;
        if end >= size {
            return Err(InvalidArgument::CollapseToEnd.into());
        }
        inode.window.give_back();
        let data = self.data(inode);
        let (layout, removed) = data.with_map(|map| {
            (Layout::without(map, range.clone()), overlapping(map, range.clone()))
        })?;
        let size = size - (end - offset);
        data.rearrange(layout?, &removed, size, resized(size))
    }

    /// Inserts a hole of the bytes `offset..end`; the bytes from `offset` on move to `end`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless the range consists of whole clusters and starts inside the
    /// file; [`Error::FileTooLarge`] if the file would be too large.
    pub(super) fn insert_range(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
    ) -> Result<(), Error> {
        let range = self.whole_clusters(offset, end)?;
        let size = inode.attr().size;
        if offset >= size {
            return Err(InvalidArgument::InsertAfterEnd.into());
        }
        let size = size.checked_add(end - offset).ok_or(Error::FileTooLarge)?;
        self.objects.volume.check_size(self.data(inode).form(), size)?;
        inode.window.give_back();
        let data = self.data(inode);
        let len = range.end - range.start;
        let layout = data.with_map(|map| Layout::with_hole(map, range.start, len))??;
        data.rearrange(layout, &[], size, resized(size))
    }

    /// Returns the blocks of the bytes `offset..end`. The range must consist of whole clusters,
    /// because otherwise the blocks after it could not keep their positions within their clusters.
    fn whole_clusters(&self, offset: u64, end: u64) -> Result<Range<u32>, Error> {
        let block_size = self.objects.volume.block_size() as u64;
        let cluster = self.objects.volume.cluster_bytes();
        if !offset.is_multiple_of(cluster) || !end.is_multiple_of(cluster) {
            return Err(InvalidArgument::PartialCluster.into());
        }
        let block = |at| u32::try_from(at / block_size).map_err(|_| Error::FileTooLarge);
        Ok(block(offset)?..block(end)?)
    }
}

/// Returns a change that sets the size and new times.
fn resized(size: u64) -> impl FnOnce(&mut InodeState) {
    let now = now();
    move |state| {
        state.disk.size = size;
        state.disk.mtime = now;
        state.disk.ctime = now;
    }
}
