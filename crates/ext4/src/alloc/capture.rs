//! Captures groups for a commit.

use super::group::{GroupImage, RawImage};
use super::groups::Groups;
use lanefs_journal::Tid;
use lanefs_ondisk::Group;

impl Groups {
    /// Committer: captures the group as of `tid`, or returns `None` if the group was captured
    /// already. Bitmaps that did not change are left out, but the descriptor has the checksums of
    /// both bitmaps.
    pub(crate) fn capture(&self, tid: Tid, group: Group) -> Option<GroupImage> {
        let (raw, blocks, inodes) = self.shared.state(group).take_image(tid)?;
        {
            let mut captured = self.captured.lock();
            captured.0 += blocks;
            captured.1 += inodes;
        }
        let RawImage { mut desc, blocks, inodes } = raw;
        let format = &self.shared.format;
        let block = || vec![0; format.geometry().block_size().bytes()];
        let block_bitmap = blocks.map(|bitmap| {
            let mut bytes = block();
            bitmap.encode_blocks_into(&mut bytes, &mut desc, format.geometry(), format.checksums);
            bytes.into()
        });
        let inode_bitmap = inodes.map(|bitmap| {
            let mut bytes = block();
            bitmap.encode_inodes_into(&mut bytes, &mut desc, format.geometry(), format.checksums);
            bytes.into()
        });
        // A descriptor has the checksums of both bitmaps. If a later transaction changes only one
        // bitmap, it takes the other bitmap's checksum from `state.desc`, so both are stored there.
        // The group cannot have been captured again since `take_image` released the guard, because
        // commits run one at a time.
        let mut state = self.shared.state(group);
        state.desc.block_bitmap_csum = desc.block_bitmap_csum;
        state.desc.inode_bitmap_csum = desc.inode_bitmap_csum;
        Some(GroupImage { desc, block_bitmap, inode_bitmap })
    }

    /// Committer: returns the total numbers of free blocks and inodes, as of each group's last
    /// capture.
    pub(crate) fn captured_counts(&self) -> (u64, u64) {
        let (blocks, inodes) = *self.captured.lock();
        let bits = self.shared.format.geometry().cluster_bits();
        ((blocks.max(0) as u64) << bits, inodes.max(0) as u64)
    }
}
