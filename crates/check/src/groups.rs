//! Checks group descriptors: their checksums, the positions of bitmaps and inode tables, and the
//! blocks that the file system itself uses.

use crate::bytes::le16;
use crate::claims::Claims;
use crate::fault::Fault;
use crate::field::Feature;
use crate::place::Place;
use crate::report::Collector;
use crate::volume::Volume;
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::group_desc::{Cause, GroupDesc, GroupFlags};
use lanefs_ondisk::{Block, Group, Ino};

/// The offset of `bg_flags` in a descriptor.
const FLAGS: usize = 0x12;
const ITABLE_UNUSED: usize = 0x1c;

/// The block number that replaces an invalid block number of a bitmap.
pub const NOWHERE: Block = Block(0);

/// All descriptors; `None` for a descriptor that cannot be read or has an invalid block number of
/// the inode table. The inodes of such a group cannot be read.
pub struct Groups {
    groups: Vec<Option<GroupDesc>>,
}

impl Groups {
    /// Reads and checks all descriptors.
    pub fn read(volume: &Volume, report: &Collector) -> Groups {
        let geometry = &volume.geometry;
        let mut groups = Vec::new();
        for index in 0..geometry.desc_blocks() {
            let bytes = geometry.desc_block(index).and_then(|at| volume.read_block(at).ok());
            for group in (groups.len() as u32..geometry.group_count()).map(Group) {
                let Some((block, range)) = geometry.desc_place(group) else { break };
                if block != index {
                    break;
                }
                let raw = bytes.as_deref().and_then(|bytes| bytes.get(range));
                groups.push(raw.and_then(|raw| check(volume, report, group, raw)));
                if raw.is_none() {
                    report.add(Place::Descriptor { group }, Fault::Unreadable);
                }
            }
        }
        Groups { groups }
    }

    /// Returns the descriptor of a group; `None` if its inode table cannot be read. A bitmap with
    /// an invalid block number is at [`NOWHERE`].
    pub fn get(&self, group: Group) -> Option<&GroupDesc> {
        self.groups.get(usize::try_from(group.0).ok()?)?.as_ref()
    }

    /// Returns the offset of an inode on the device.
    pub fn inode_at(&self, volume: &Volume, ino: Ino) -> Option<u64> {
        let geometry = &volume.geometry;
        let place = geometry.inode_place(ino)?;
        let block = self.get(place.group)?.inode_table.0 + u64::from(place.table_block);
        Some((block << geometry.block_size().bits()) + place.offset as u64)
    }

    /// Reads the bytes of one inode.
    pub fn read_inode(&self, volume: &Volume, ino: Ino) -> Option<Vec<u8>> {
        let mut bytes = vec![0; volume.geometry.inode_size()];
        volume.device().read_at(self.inode_at(volume, ino)?, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Claims the blocks that the file system itself uses.
    pub fn claim(&self, volume: &Volume, report: &Collector, claims: &Claims, first: bool) {
        let geometry = &volume.geometry;
        // With `bigalloc`, claiming a cluster twice is no fault here, since a cluster may hold
        // several of these blocks. The blocks themselves are compared below.
        let is_exact = geometry.cluster_bits() == 0;
        for (place, start, len) in self.own_blocks(volume) {
            if let Some(found) = claims.claim(volume.clusters(start, len)).first()
                && is_exact
                && first
            {
                let start = Block(found.start + geometry.first_data_block().0);
                report.add(place, Fault::DoublyClaimed { start, len: 1 });
            }
        }
        if first && !is_exact {
            self.check_overlaps(volume, report);
        }
    }

    /// Returns the runs of blocks that the file system itself uses, with their places.
    fn own_blocks<'a>(
        &'a self,
        volume: &'a Volume,
    ) -> impl Iterator<Item = (Place, Block, u64)> + 'a {
        let geometry = &volume.geometry;
        let is_before = geometry.first_data_block().0 == 0 && geometry.super_block().0 == 1;
        let before = is_before.then_some((Place::Superblock, Block(0), 1));
        let mmp = Block(volume.raw().s_mmp_block.get());
        let has_mmp = volume.incompat(Incompat::MMP) && geometry.contains(mmp);
        let mmp = has_mmp.then_some((Place::Superblock, mmp, 1));
        let groups = (0..geometry.group_count()).map(Group);
        let of_groups = groups.flat_map(move |group| self.group_blocks(volume, group));
        before.into_iter().chain(of_groups).chain(mmp)
    }

    /// Returns the blocks of a group's superblock and descriptors, and its bitmaps and table.
    fn group_blocks<'a>(
        &'a self,
        volume: &'a Volume,
        group: Group,
    ) -> impl Iterator<Item = (Place, Block, u64)> + 'a {
        let geometry = &volume.geometry;
        let overhead = u64::from(geometry.group_overhead(group));
        let start = geometry.group_first_block(group).filter(|_| overhead > 0);
        let head = start.map(|start| {
            let left = geometry.block_count() - start.0;
            let start = if group.0 == 0 { geometry.super_block() } else { start };
            (start, overhead.min(left))
        });
        let metadata = self.get(group).into_iter().flat_map(|g| g.metadata(geometry));
        let metadata = metadata.filter(|(start, _)| *start != NOWHERE);
        let all = head.into_iter().chain(metadata);
        all.map(move |(start, len)| (Place::Descriptor { group }, start, len))
    }

    /// Reports blocks of the file system itself that are used twice.
    fn check_overlaps(&self, volume: &Volume, report: &Collector) {
        let mut runs: Vec<_> = self.own_blocks(volume).collect();
        runs.sort_by_key(|(_, start, _)| *start);
        let mut end = 0;
        for (place, start, len) in runs {
            if start.0 < end {
                report.add(place, Fault::DoublyClaimed { start, len: 1 });
            }
            end = end.max(start.0 + len);
        }
    }
}

/// Checks a descriptor. Returns the descriptor if the block number of the inode table is valid.
fn check(volume: &Volume, report: &Collector, group: Group, raw: &[u8]) -> Option<GroupDesc> {
    let geometry = &volume.geometry;
    let place = Place::Descriptor { group };
    if let Err(cause) = GroupDesc::verify(raw, group, geometry, volume.checksums) {
        report.add(place, Fault::Descriptor(cause));
    }
    let mut desc = GroupDesc::decode_unchecked(raw, geometry).ok()?;
    check_flags(volume, report, group, raw);
    let free = geometry.clusters_in_group(group).unwrap_or_default();
    if desc.free_blocks > free {
        report.add(place, Fault::Descriptor(Cause::FreeBlocks { blocks: desc.free_blocks }));
    }
    if desc.itable_unused > geometry.inodes_per_group() {
        report.add(place, Fault::Descriptor(Cause::ItableUnused { inodes: desc.itable_unused }));
    }
    if let Err(cause) = check_table(volume, group, &desc) {
        report.add(place, Fault::Descriptor(cause));
        return None;
    }
    if !is_place(volume, group, desc.block_bitmap, 1) {
        let cause = Cause::BlockBitmapPlace { block: desc.block_bitmap };
        report.add(place, Fault::Descriptor(cause));
        desc.block_bitmap = NOWHERE;
    }
    if !is_place(volume, group, desc.inode_bitmap, 1) {
        let cause = Cause::InodeBitmapPlace { block: desc.inode_bitmap };
        report.add(place, Fault::Descriptor(cause));
        desc.inode_bitmap = NOWHERE;
    }
    Some(desc)
}

fn check_flags(volume: &Volume, report: &Collector, group: Group, raw: &[u8]) {
    let place = Place::Descriptor { group };
    let flags = GroupFlags::from_bits_retain(le16(raw, FLAGS));
    if !volume.geometry.features().has_descriptor_checksums() {
        let unused = le16(raw, ITABLE_UNUSED);
        if flags.intersects(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT) || unused != 0 {
            report.add(place, Fault::Feature { feature: Feature::UninitBg });
        }
        return;
    }
    let is_last = group.0 + 1 == volume.geometry.group_count();
    if is_last && flags.contains(GroupFlags::BLOCK_UNINIT) {
        report.add(place, Fault::Flags { flags: flags.bits().into() });
    }
}

/// Checks that the bitmaps and the inode table are inside the file system and, without `flex_bg`,
/// inside the group.
pub fn check_places(volume: &Volume, group: Group, desc: &GroupDesc) -> Result<(), Cause> {
    if !is_place(volume, group, desc.block_bitmap, 1) {
        return Err(Cause::BlockBitmapPlace { block: desc.block_bitmap });
    }
    if !is_place(volume, group, desc.inode_bitmap, 1) {
        return Err(Cause::InodeBitmapPlace { block: desc.inode_bitmap });
    }
    check_table(volume, group, desc)
}

fn check_table(volume: &Volume, group: Group, desc: &GroupDesc) -> Result<(), Cause> {
    let len = volume.geometry.itable_blocks().into();
    let is_valid = is_place(volume, group, desc.inode_table, len);
    is_valid.then_some(()).ok_or(Cause::InodeTablePlace { block: desc.inode_table })
}

fn is_place(volume: &Volume, group: Group, start: Block, len: u64) -> bool {
    let geometry = &volume.geometry;
    let (first, last) = (geometry.group_first_block(group), geometry.group_last_block(group));
    let (Some(first), Some(last)) = (first, last) else { return false };
    let anywhere = volume.incompat(Incompat::FLEX_BG);
    start != NOWHERE
        && geometry.contains_run(start, len)
        && (anywhere || (start >= first && start.0 + len - 1 <= last.0))
}

/// Returns how many inodes at the start of a group's table are, or were, in use.
pub fn used_inodes(volume: &Volume, desc: &GroupDesc) -> u32 {
    let all = volume.geometry.inodes_per_group();
    if !volume.geometry.features().has_descriptor_checksums() {
        return all;
    }
    if desc.flags.contains(GroupFlags::INODE_UNINIT) {
        return 0;
    }
    all.saturating_sub(desc.itable_unused)
}
