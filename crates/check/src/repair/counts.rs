//! Repairs bitmaps, counts and checksums, which are computed from all other structures.

use super::mender::Mender;
use crate::bitmaps::used_inodes_of;
use crate::fault::Fault;
use crate::place::Place;
use crate::report::Finding;
use lanefs_ondisk::Group;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::Superblock;
use std::collections::BTreeSet;

impl Mender<'_> {
    /// Writes the bitmaps of the groups with faults, and all counts.
    pub fn mend_counts(&mut self, found: &[Finding]) {
        let mut groups = BTreeSet::new();
        for finding in found {
            match (finding.place, &finding.fault) {
                (Place::BlockBitmap { group }, _) => groups.extend([(group, true)]),
                (Place::InodeBitmap { group }, _) => groups.extend([(group, false)]),
                (Place::Descriptor { group }, _) => groups.extend([(group, true), (group, false)]),
                (place, Fault::References { expected, .. }) => {
                    self.set_references(place, *expected);
                }
                _ => {}
            }
        }
        for (group, is_blocks) in groups {
            self.mend_group(group, is_blocks);
        }
        self.mend_sums();
    }

    fn mend_group(&mut self, group: Group, is_blocks: bool) {
        let is_unsure = |f: &Finding| match (f.place, &f.fault) {
            (Place::Descriptor { .. } | Place::Superblock, Fault::DoublyClaimed { .. }) => true,
            (place, Fault::Descriptor(_)) => place == Place::Descriptor { group },
            _ => false,
        };
        if self.findings.iter().any(is_unsure) {
            // Nothing is written, because the bitmap positions in a damaged descriptor could be
            // those of other metadata.
            return;
        }
        let Some(mut desc) = self.descriptor(group) else { return };
        let mut bytes = vec![0; self.run.volume.block_bytes()];
        let (geometry, checksums) = (self.run.volume.geometry, self.run.volume.checksums);
        if is_blocks {
            let bitmap = self.block_bitmap(group);
            desc.free_blocks = bitmap.count_clear();
            desc.flags -= GroupFlags::BLOCK_UNINIT;
            bitmap.encode_blocks_into(&mut bytes, &mut desc, &geometry, checksums);
            self.write_block(desc.block_bitmap, &bytes);
            self.act(Place::BlockBitmap { group }, "written from the blocks in use");
        } else {
            let used = used_inodes_of(self.run, group, geometry.inodes_per_group());
            let words: Vec<u8> = used.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let bitmap = Bitmap::from_bytes(&words, geometry.inodes_per_group());
            desc.free_inodes = bitmap.count_clear();
            desc.used_dirs = used.directories;
            if desc.flags.contains(GroupFlags::INODE_UNINIT) && used.inodes == 0 {
                return self.write_descriptor(group, &desc);
            }
            desc.flags -= GroupFlags::INODE_UNINIT;
            bitmap.encode_inodes_into(&mut bytes, &mut desc, &geometry, checksums);
            self.write_block(desc.inode_bitmap, &bytes);
            self.act(Place::InodeBitmap { group }, "written from the inodes in use");
        }
        self.write_descriptor(group, &desc);
    }

    fn block_bitmap(&self, group: Group) -> Bitmap {
        let geometry = &self.run.volume.geometry;
        let bits = geometry.clusters_in_group(group).unwrap_or_default();
        let start = u64::from(group.0) * u64::from(geometry.clusters_per_group());
        let words = (0..u64::from(bits)).step_by(64);
        let bytes: Vec<u8> =
            words.flat_map(|bit| self.run.claims.word_at(start + bit).to_le_bytes()).collect();
        Bitmap::from_bytes(&bytes, bits)
    }

    /// Returns a descriptor, including the changes of this round.
    pub fn descriptor(&self, group: Group) -> Option<GroupDesc> {
        self.run.groups.get(group)?;
        let geometry = &self.run.volume.geometry;
        let (index, range) = geometry.desc_place(group)?;
        let bytes = self.read_block(geometry.desc_block(index)?)?;
        GroupDesc::decode_unchecked(bytes.get(range)?, geometry).ok()
    }

    pub fn write_descriptor(&mut self, group: Group, desc: &GroupDesc) {
        let (geometry, checksums) = (self.run.volume.geometry, self.run.volume.checksums);
        let Some((index, range)) = geometry.desc_place(group) else { return };
        let Some(block) = geometry.desc_block(index) else { return };
        let Some(mut bytes) = self.read_block(block) else { return };
        let Some(record) = bytes.get_mut(range) else { return };
        desc.encode_into(record, group, &geometry, checksums);
        self.write_block(block, &bytes);
    }

    /// Sets the counts of the superblock to the sums over the descriptors.
    fn mend_sums(&mut self) {
        let groups = (0..self.run.volume.geometry.group_count()).map(Group);
        let all: Vec<GroupDesc> = groups.filter_map(|group| self.descriptor(group)).collect();
        let free: u64 = all.iter().map(|desc| u64::from(desc.free_blocks)).sum();
        let inodes: u64 = all.iter().map(|desc| u64::from(desc.free_inodes)).sum();
        let bits = self.run.volume.geometry.cluster_bits();
        let edited = self.edit_superblock(|raw| {
            if let Ok(mut superblock) = Superblock::from_raw(raw.clone()) {
                superblock.set_free_blocks(free << bits);
                superblock.set_free_inodes(u32::try_from(inodes).unwrap_or(u32::MAX));
                *raw = superblock.raw().clone();
            }
        });
        if edited {
            self.act(Place::Superblock, "counts of free blocks and inodes corrected");
        }
    }
}
