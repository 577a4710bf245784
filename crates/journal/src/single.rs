//! A single transaction, for a program that is the only user of a file system. There is no other
//! thread and no running transaction, and the log is empty before and after this transaction.
//!
//! The order is the same as in [`crate::commit`]: log blocks, flush, commit block, writes in place,
//! flush, tail.

use crate::config::Log;
use crate::error::Error;
use crate::flusher::Flusher;
use crate::in_place;
use crate::log::{LogWriter, Tail};
use crate::tid::Tid;
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, BlockSize};

/// A transaction that is in the log and not yet in place.
#[must_use = "the images are in the log alone"]
pub struct Single {
    device: Arc<dyn Device>,
    flusher: Flusher,
    writer: LogWriter,
    block_size: BlockSize,
    tid: Tid,
    images: Vec<(Block, Arc<[u8]>)>,
}

impl Single {
    /// Writes `images` to the empty `log` and commits them, durably. The file system must be marked
    /// as one that needs recovery.
    ///
    /// # Errors
    /// [`Error::TooBig`] if the log is too short; nothing was written then. [`Error::WildBlock`] if
    /// the place of an image is beyond the end of the device or inside the log. [`Error::Device`].
    pub fn commit(
        device: Arc<dyn Device>,
        block_size: BlockSize,
        log: Log,
        images: Vec<(Block, Arc<[u8]>)>,
    ) -> Result<Single, Error> {
        let end = device.len() >> block_size.bits();
        let wild = |block: Block| block.0 >= end || log.map.contains(block);
        if let Some((block, _)) = images.iter().find(|(block, _)| wild(*block)) {
            return Err(Error::WildBlock { block: *block });
        }
        let mut writer = LogWriter::new(&*device, block_size, log)?;
        writer.size(images.len(), 0)?;
        let flusher = Flusher::new(device.clone());
        let tid = writer.first();
        let written = writer.write(&*device, tid, &images, &[])?;
        flusher.flush()?;
        writer.flush()?;
        writer.commit(&flusher, tid, written)?;
        Ok(Single { device, flusher, writer, block_size, tid, images })
    }

    /// Returns an error if a transaction of `images` images does not fit into `log`.
    ///
    /// # Errors
    /// [`Error::TooBig`] if it does not fit, and other errors if this log cannot be written at all.
    pub fn check_fits(
        device: &dyn Device,
        block_size: BlockSize,
        log: Log,
        images: usize,
    ) -> Result<(), Error> {
        LogWriter::new(device, block_size, log)?.size(images, 0).map(|_| ())
    }

    /// Writes all images in place, durably, except the image of block `last`.
    /// [`Single::checkpoint`] then writes that image.
    ///
    /// # Errors
    /// [`Error::Device`]; the log then still has the transaction.
    pub fn checkpoint_except(&mut self, last: Block) -> Result<(), Error> {
        let (late, now): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.images).into_iter().partition(|(block, _)| *block == last);
        self.images = late;
        in_place::write(&*self.device, self.block_size, &now)?;
        Ok(self.flusher.flush()?)
    }

    /// Writes the images in place, and then marks the log empty, both durably.
    ///
    /// # Errors
    /// [`Error::Device`]; the log then still has the transaction, or is empty and all images are in
    /// place.
    pub fn checkpoint(mut self) -> Result<(), Error> {
        in_place::write(&*self.device, self.block_size, &self.images)?;
        self.flusher.flush()?;
        self.writer.move_tail(&self.flusher, Tail::Empty { next: self.tid.next() })
    }
}
