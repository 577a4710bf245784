//! Many changes that become durable together.
//!
//! The changes are made by a mount of a copy-on-write view of the device. The view keeps them in
//! memory. [`Draft::publish`] then writes the blocks that differ. Blocks that were free are written
//! in place, since nothing refers to them yet. All others are written as one transaction of the
//! image's own log. After a crash all changes are present, or none.

use crate::error::{Error, JournalNeed, Unchecked};
use crate::image::Image;
use crate::open::has_journal_elsewhere;
use lanefs_device::{Device, OverlayDevice};
use lanefs_ext4::log;
use lanefs_journal::LogMap;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::mmp::{Mmp, Use};
use lanefs_ondisk::superblock::JournalPlace;
use lanefs_ondisk::{Block, Corruption, Group};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most memory that changes may take, in bytes.
const OVERLAY_CAP: u64 = 4 << 30;

/// The largest number of bytes that are compared at once.
const PIECE: usize = 64 << 10;

/// Changes that are in memory only, until they are published.
pub struct Draft {
    image: Image,
    changes: Arc<OverlayDevice>,
}

/// How many blocks were written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Published {
    /// Blocks that were free before the changes.
    pub new_blocks: u64,
    /// Blocks that were in use, and were therefore written through the log.
    pub logged_blocks: u64,
}

impl Draft {
    /// Recovers the file system on `device`, then starts a set of changes to it.
    ///
    /// # Errors
    /// [`Error::Journal`] if the image has no journal or its journal is on another device, and the
    /// errors of [`Image::open`].
    pub fn open(device: Arc<dyn Device>) -> Result<Draft, Error> {
        if has_journal_elsewhere(&*device) {
            return Err(JournalNeed::InImage.into());
        }
        let image = Image::open(device)?;
        if image.superblock().journal().is_none() {
            return Err(JournalNeed::ForDraft.into());
        }
        let changes = OverlayDevice::new(image.device.clone(), OVERLAY_CAP);
        if let Some(block) = image.superblock().mmp_block() {
            // `image` has claimed the file system by `mmp`. The mount of the view claims the file
            // system too, so the `mmp` block in the view must mark it as unused.
            release_mmp(&changes, &image, block)?;
        }
        Ok(Draft { image, changes: Arc::new(changes) })
    }

    /// Returns the device to mount; writes to it are kept in memory.
    pub fn device(&self) -> Arc<dyn Device> {
        self.changes.clone()
    }

    /// Writes all changes, durably. The mount of [`Draft::device`] must be closed.
    ///
    /// # Errors
    /// [`Error::Journal`] if the changed blocks that were in use do not fit into the log, in which
    /// case no block in use was written. [`Error::NeedsCheck`] if the mount was not closed.
    pub fn publish(self) -> Result<Published, Error> {
        let Draft { mut image, changes } = self;
        let view: Arc<dyn Device> = changes.clone();
        if crate::recover::look(&view)?.needs_recovery() {
            return Err(Unchecked::OpenDraft.into());
        }
        let after = Image::load(view)?;
        let before = Image::load(image.device.clone())?;
        let log = log_of(&image)?;
        let mut published = Published::default();
        let (geometry, mmp) = (image.geometry(), image.superblock().mmp_block());
        let size = image.block_bytes();
        let bits = geometry.block_size().bits();
        let mut new = Vec::new();
        let mut known = BTreeMap::new();
        // `contains` is false for blocks beyond the end. It is also false for the boot block if
        // blocks have 1 KiB, because the boot block is in no group then.
        let counts = |block| geometry.contains(block) && !log.contains(block) && Some(block) != mmp;
        let written = changed_blocks(&changes, bits).into_iter().filter(|block| counts(*block));
        let written: Vec<Block> = written.collect();
        let (mut old, mut now) = (Vec::new(), Vec::new());
        for run in adjacent(&written, |block| block.0).flat_map(|run| run.chunks(PIECE / size)) {
            let at = run[0].0 << bits;
            old.resize(run.len() * size, 0);
            now.resize(run.len() * size, 0);
            image.device.read_at(at, &mut old)?;
            changes.read_at(at, &mut now)?;
            for (block, (old, now)) in run.iter().zip(old.chunks(size).zip(now.chunks(size))) {
                if old == now {
                    continue;
                }
                match before.is_free(*block, &mut known)? {
                    true => new.push((*block, now.to_vec())),
                    false => {
                        image.blocks.insert(*block, now.to_vec());
                    }
                }
            }
        }
        published.new_blocks = new.len() as u64;
        published.logged_blocks = image.blocks.len() as u64;
        image.check_log_room()?;
        for run in adjacent(&new, |(block, _)| block.0) {
            let bytes: Vec<&[u8]> = run.iter().map(|(_, bytes)| &bytes[..]).collect();
            image.device.write_vectored_at(run[0].0.0 << bits, &bytes)?;
        }
        image.superblock = after.superblock;
        image.described = after.descriptors.clone();
        image.descriptors = after.descriptors;
        if published != Published::default() {
            image.commit()?;
        }
        Ok(published)
    }
}

/// Returns the blocks that were written, in ascending order. A granule of the view may contain a
/// part of a block, or several blocks.
fn changed_blocks(changes: &OverlayDevice, bits: u32) -> Vec<Block> {
    let granules = changes.changes();
    let blocks = granules.iter().flat_map(|(at, bytes)| {
        let end = at + (bytes.len() as u64).saturating_sub(1);
        (at >> bits..=end >> bits).map(Block)
    });
    let mut blocks: Vec<Block> = blocks.collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

/// Splits sorted items wherever two neighbours have blocks that are not adjacent.
fn adjacent<T>(items: &[T], block: impl Fn(&T) -> u64) -> impl Iterator<Item = &[T]> {
    items.chunk_by(move |a, b| block(a) + 1 == block(b))
}

/// Marks the file system in `view` as unused, in its `mmp` block.
fn release_mmp(view: &OverlayDevice, image: &Image, block: Block) -> Result<(), Error> {
    let cause = |cause| Corruption::Mmp { block, cause };
    let mut bytes = image.block(block)?;
    let found = Mmp::decode(&bytes, image.checksums()).map_err(cause)?;
    let unused = Mmp { state: Use::Clean, ..found };
    unused.encode_into(&mut bytes, image.checksums()).map_err(cause)?;
    Ok(view.write_at(block.0 << image.geometry().block_size().bits(), &bytes)?)
}

fn log_of(image: &Image) -> Result<LogMap, Error> {
    match image.superblock().journal() {
        Some(JournalPlace::Inode(ino)) => {
            Ok(log::find(&*image.device, image.superblock(), ino)?.map)
        }
        _ => Err(lanefs_ext4::Error::internal().into()),
    }
}

impl Image {
    /// Returns whether a block is free. `known` keeps the bitmaps that were read.
    fn is_free(&self, block: Block, known: &mut BTreeMap<Group, Bitmap>) -> Result<bool, Error> {
        let Some((group, bit)) = self.geometry().group_of(block) else { return Ok(false) };
        if let Some(bitmap) = known.get(&group) {
            return Ok(!bitmap.get(bit));
        }
        let bitmap = self.block_bitmap(group)?;
        let is_free = !bitmap.get(bit);
        known.insert(group, bitmap);
        Ok(is_free)
    }

    /// Fails if the changed blocks do not fit into the log.
    fn check_log_room(&self) -> Result<(), Error> {
        let room = self.journal_len()?.unwrap_or(0);
        // The rest of the log is left for backups of the superblock, for the log's own descriptor
        // blocks, and for the commit block.
        let most = u64::from(room).saturating_sub(u64::from(room) / 32 + 32);
        let needed = self.blocks.len() as u64;
        match needed > most {
            true => Err(JournalNeed::DraftTooLarge { needed, most }.into()),
            false => Ok(()),
        }
    }
}
