//! Adds groups to a file system in use.

use super::groups::{Changes, Groups, cell};
use super::runs;
use lanefs_lanes::sync::atomic::AtomicU64;
use lanefs_ondisk::Group;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::Geometry;

impl Groups {
    /// Prepare: makes room in memory for new groups. No claim can find them before
    /// [`Groups::open_new`]. Two threads must not call this function at once.
    pub(crate) fn add_new(&self, geometry: &Geometry, descriptors: &[GroupDesc]) {
        let shared = &self.shared;
        let groups = geometry.group_count();
        let charged = self.descriptors_charged.len()..geometry.desc_blocks() as usize;
        self.descriptors_charged.extend(charged.map(|_| AtomicU64::new(0)));
        self.bitmaps.residents.grow(groups);
        shared.summaries.grow(groups);
        let first = Group(shared.summaries.groups());
        shared.format.system.grow(geometry, first, descriptors);
        shared.cells.extend(descriptors.iter().copied().map(cell));
    }

    /// Apply: makes the file system as large as `geometry`. From now on the new groups, and the
    /// blocks that are added to the last old group, can be claimed. So every change that uses them
    /// belongs to this transaction or a later one.
    ///
    /// # Panics
    /// If the last old group gets more blocks and its bitmaps are not in memory.
    pub(crate) fn open_new(
        &self,
        handle: &mut impl Changes,
        geometry: Geometry,
        descriptors: &[GroupDesc],
    ) {
        let shared = &self.shared;
        let old = *shared.format.geometry();
        let first = old.group_count();
        // The geometry is replaced before the blocks can be claimed, because a claim computes block
        // positions from the geometry.
        shared.format.geometry.set(geometry);
        let last = Group(first - 1);
        if let Some(bits) = geometry.blocks_in_group(last)
            && old.blocks_in_group(last) != Some(bits)
        {
            let mut state = shared.state(last);
            let (dirtied, added) = state.extend(handle.tid(), bits);
            let run = runs::around(&state.ready().blocks.taken, bits - added);
            shared.summaries.set_open_blocks(last.0, state.ready().blocks.open);
            shared.summaries.raise(last.0, run.end - run.start);
            drop(state);
            self.note(handle, last, dirtied);
            self.free_clusters.add(added.into());
            shared.space.put_back(added);
        }
        for (group, desc) in (first..).zip(descriptors) {
            {
                let _guard = shared.state(Group(group));
                shared.summaries.set_open_blocks(group, desc.free_blocks);
                shared.summaries.set_open_inodes(group, desc.free_inodes);
                shared.summaries.set_longest(group, desc.free_blocks);
            }
            self.free_clusters.add(desc.free_blocks.into());
            self.free_inodes.add(desc.free_inodes.into());
            shared.space.put_back(desc.free_blocks);
        }
        shared.summaries.show(geometry.group_count());
    }

    /// Committer: notes that the captured transaction contains the new groups. Later captures of
    /// these groups count only later changes.
    pub(crate) fn captured_new(&self, descriptors: &[GroupDesc]) {
        let mut captured = self.captured.lock();
        for desc in descriptors {
            captured.0 += i64::from(desc.free_blocks);
            captured.1 += i64::from(desc.free_inodes);
        }
    }
}
