//! Adds and removes the block of multiple mount protection.

use crate::commit::seconds;
use crate::error::Error;
use crate::image::Image;
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::mmp::{Mmp, Use};
use lanefs_ondisk::{Block, Corruption};

/// Seconds between two updates of the block by a mount, as in mke2fs.
const USUAL_INTERVAL: u16 = 5;

impl Image {
    /// Sets the feature, and allocates an `mmp` block that marks the file system as not mounted;
    /// the caller commits. Does nothing if the file system has the feature.
    pub(crate) fn add_mmp(&mut self) -> Result<(), Error> {
        if self.superblock.mmp_block().is_some() {
            return Ok(());
        }
        let claimed = self.claim(Block(0), 1)?;
        let (block, _) = *claimed.first().expect("a claim has as many blocks as asked for");
        let interval = self.superblock.mmp_update_interval().max(USUAL_INTERVAL);
        let unused = Mmp {
            state: Use::Clean,
            time: seconds(),
            node: Vec::new(),
            device: Vec::new(),
            check_interval: interval,
        };
        let mut bytes = vec![0; self.block_bytes()];
        let encoded = unused.encode_into(&mut bytes, self.checksums());
        encoded.map_err(|cause| Corruption::Mmp { block, cause })?;
        self.blocks.insert(block, bytes);
        self.edit(|raw| {
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::MMP.bits());
            raw.s_mmp_block.set(block.0);
            raw.s_mmp_interval.set(interval);
        })
    }

    /// Frees the `mmp` block and clears the feature; the caller commits. Does nothing if the file
    /// system lacks the feature.
    pub(crate) fn remove_mmp(&mut self) -> Result<(), Error> {
        let Some(block) = self.superblock.mmp_block() else { return Ok(()) };
        self.release(block, 1)?;
        self.edit(|raw| {
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::MMP.bits());
            raw.s_mmp_block.set(0);
            raw.s_mmp_interval.set(0);
        })
    }
}
