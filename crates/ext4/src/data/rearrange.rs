//! Moves all mappings of a file at once: the data stays in place on the device, but gets other
//! offsets in the file.
//!
//! A file may have more nodes than one transaction can hold, so no node of the old tree is changed.
//! The new tree is written to free blocks, like data. A handle then makes the inode refer to the
//! new tree. In the same handle the inode is recorded as an orphan, and the blocks that the file
//! loses (removed data, and the nodes of the old tree) are mapped after the end of the file. Later
//! handles free these blocks in steps. After a crash, a mount or e2fsck truncates the orphan to its
//! size, which also frees these blocks. So a crash leaves the file either unchanged or changed
//! completely. Until the handle's transaction is durable, a crash can bring back the old tree, in
//! which the blocks belong to other offsets. So writes in place wait for that transaction.

use crate::alloc::Claim;
use crate::data::file_data::FileData;
use crate::data::mapping::REVOKES_A_CREDIT;
use crate::object::state::{Concerns, InodeState};
use crate::volume::kind::MetaKind;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::{Block, FileBlock};
use lanefs_plan::Error;
use lanefs_plan::extent::{Extent, Layout, State};
use lanefs_plan::mapping::Form;
use lanefs_plan::{cluster, extent};

/// Credits for the inode and its orphan record.
const CREDITS: u32 = 8;
/// Credits for allocating one claim, which changes a bitmap, a descriptor, and the block that
/// contains the descriptor.
const CREDITS_A_CLAIM: u32 = 3;

impl FileData<'_> {
    /// Replaces all mappings by `layout`, whose blocks are mapped already, and changes the inode
    /// with `also`, all in one handle. Then frees the blocks of `removed`, which are not part of
    /// the layout. `size` is the size after the change, in bytes.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] if there are too few file blocks after the end of the file to map
    /// the removed blocks.
    ///
    /// # Locking
    /// The caller holds the operation lock exclusively.
    pub(crate) fn rearrange(
        &self,
        layout: Layout,
        removed: &[Extent],
        size: u64,
        also: impl FnOnce(&mut InodeState),
    ) -> Result<(), Error> {
        let FileData { objects, inode } = *self;
        let (form, root) = self.root()?;
        let reader = self.node_reader(form);
        let limits = objects.volume.limits_of(inode.ino);
        let old_nodes = extent::node_blocks(&root, &reader, &limits)?;
        let mut layout = layout;
        let parked = self.park(&mut layout, removed, &old_nodes, size)?;

        let plan = layout.plan(&root, &reader, &limits)?;
        let last = self.with_map(extent::Map::last)?;
        let claims = self.claim_nodes(form, last, plan.nodes_needed())?;
        let places: Vec<Block> = claims.iter().flat_map(Claim::first_blocks).collect();
        let placed = plan.place(&places);
        self.write_nodes(form, placed.writes)?;

        let map = layout.map();
        let credits = CREDITS
            + CREDITS_A_CLAIM * claims.len() as u32
            + (old_nodes.len() as u32).div_ceil(REVOKES_A_CREDIT);
        let mut handle = objects.join(credits)?;
        for claim in claims {
            objects.groups.allocate(&mut handle, claim);
        }
        for block in &old_nodes {
            objects.meta.free(&mut handle, *block);
        }
        if parked.is_some() {
            objects.orphans.add(&mut handle, inode);
        }
        let sectors = objects.volume.sectors(places.len() as u64);
        inode.moved_in.store(handle.tid().0, Ordering::Relaxed);
        inode.change(&mut handle, Concerns::Data, |state| {
            state.disk.block = placed.root;
            state.disk.sectors += sectors;
            also(state);
            inode.map.store(map, &objects.mount.totals);
        });
        drop(handle);
        let Some(parked) = parked else { return Ok(()) };
        self.free_from(parked)?;
        self.leave_orphans()
    }

    /// Waits until the blocks of the file are durably at the offsets where they are now. Called
    /// before each write to a block that the file has already: after a crash, such a write must not
    /// be found at an offset from which the block had moved away.
    ///
    /// # Locking
    /// The caller holds the operation lock, shared or exclusively.
    pub(crate) fn await_move(&self) -> Result<(), Error> {
        // Relaxed: the move was made under the operation lock.
        let moved = Tid(self.inode.moved_in.load(Ordering::Relaxed));
        match moved.0 != 0 && moved > self.objects.journal.durable() {
            true => Ok(self.objects.journal.commit(moved)?),
            false => Ok(()),
        }
    }

    /// Takes the blocks that the file loses, and maps them behind the file's end, which is at
    /// `size` bytes. Returns the first file block there, or `None` if the file loses no blocks.
    fn park(
        &self,
        layout: &mut Layout,
        removed: &[Extent],
        old_nodes: &[Block],
        size: u64,
    ) -> Result<Option<u32>, Error> {
        let end = u32::try_from(size.div_ceil(self.block_size()));
        let clusters = self.objects.volume.clusters();
        let parked = clusters.ceil(layout.end().max(end.map_err(|_| Error::FileTooLarge)?));
        let (start, len, state) = (FileBlock(0), 1, State::Unwritten);
        let nodes = old_nodes.iter().map(|block| Extent { start, len, block: *block, state });
        let mut last = None;
        let mut end = parked;
        for extent in removed.iter().copied().chain(nodes) {
            let at = cluster::place_behind(last.as_ref(), end, &extent, clusters)
                .ok_or(Error::FileTooLarge)?;
            // The blocks are mapped as unwritten, so they read as zeros if the file grows over them
            // later.
            layout.add(at, Extent { state: State::Unwritten, ..extent })?;
            end = layout.end();
            last = Some(extent);
        }
        Ok((end > parked).then_some(parked))
    }

    /// Writes new nodes to claimed blocks. Nothing refers to the nodes yet. A later handle makes
    /// the inode refer to them. The commit of that handle's transaction flushes the nodes first.
    fn write_nodes(&self, form: Form, nodes: Vec<(Block, Arc<[u8]>)>) -> Result<(), Error> {
        let FileData { objects, inode } = *self;
        let kind = MetaKind::node(form, inode.ino, inode.generation);
        for (block, bytes) in nodes {
            let sealed = kind.seal(&objects.volume, block, bytes);
            objects.volume.device.write_at(block.0 * self.block_size(), &sealed)?;
            objects.note_data(inode);
        }
        Ok(())
    }

    /// Removes the orphan record of a truncation that is finished, see
    /// [`finish`](crate::object::orphan::Orphans::finish).
    pub(crate) fn leave_orphans(&self) -> Result<(), Error> {
        let mut handle = self.objects.join(6)?;
        self.objects.orphans.finish(&mut handle, self.inode);
        Ok(())
    }
}
