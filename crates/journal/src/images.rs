//! The block images of a transaction, as the file system captures them.

use crate::store::Store;
use crate::tid::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, BlockSize};
use std::collections::BTreeMap;

/// The block images of a transaction that is being captured.
///
/// [`crate::Journal::image`] finds an image as soon as it is pushed, so the object from which the
/// image was made may be evicted at once.
pub struct Images {
    tid: Tid,
    block_size: BlockSize,
    store: Arc<Store>,
    blocks: BTreeMap<Block, Arc<[u8]>>,
    pub(crate) last: Option<Block>,
}

impl Images {
    pub(crate) fn new(tid: Tid, block_size: BlockSize, store: Arc<Store>) -> Images {
        Images { tid, block_size, store, blocks: BTreeMap::new(), last: None }
    }

    /// Sets the content of `block` as of this transaction. If a block is pushed several times, the
    /// last push counts.
    ///
    /// If the transaction freed a block, the block's image must not be pushed, because a push after
    /// a revoke in the same transaction means that the block is used again.
    ///
    /// # Panics
    /// If `bytes` is not one block.
    pub fn push(&mut self, block: Block, bytes: Arc<[u8]>) {
        assert_eq!(bytes.len(), self.block_size.bytes(), "an image is one block");
        self.store.push(block, self.tid, bytes.clone());
        self.blocks.insert(block, bytes);
    }

    /// Requests that all blocks in the log are written in place as soon as this transaction is
    /// durable. `block` is written last, after a flush of all others. This is for a block that
    /// programs read before they replay the log, and whose new content refers to the new contents
    /// of other blocks.
    pub fn write_in_place_last(&mut self, block: Block) {
        self.last = Some(block);
    }

    /// Returns the last image pushed for `block`.
    pub fn get(&self, block: Block) -> Option<&Arc<[u8]>> {
        self.blocks.get(&block)
    }

    /// Returns the number of blocks pushed.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns all images with their blocks, sorted by block.
    pub fn iter(&self) -> impl Iterator<Item = (Block, &Arc<[u8]>)> {
        self.blocks.iter().map(|(block, bytes)| (*block, bytes))
    }

    /// Returns all images, sorted by block.
    pub(crate) fn into_sorted(self) -> Vec<(Block, Arc<[u8]>)> {
        self.blocks.into_iter().collect()
    }
}
