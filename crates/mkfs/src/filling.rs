//! Creates a file system together with its files. The writes need no journal, because the
//! superblock is written last, and until then the device has no file system.
//!
//! The caller claims blocks, writes file data into them directly (from any number of threads), and
//! then passes the tree. All other blocks that the files need (for directories, extent nodes and
//! attributes) are placed at the end, in the order of the tree. So the same claims and the same
//! tree always produce the same bytes.

use crate::fitting::Fitting;
use crate::layout::Layout;
use crate::numbers::Numbers;
use crate::options::{Identity, MkfsOptions, Room, Spare};
use crate::report::{MkfsError, Report};
use crate::tree::{NewFile, NewTree};
use crate::write;
use crate::write::{BlockWriter, Format};
use lanefs_device::Device;
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::features::{Compat, RoCompat};
use lanefs_ondisk::superblock::Superblock;
use std::ops::Range;

/// A file system whose files are written before its metadata.
pub struct Filling<'d> {
    device: &'d dyn Device,
    options: MkfsOptions,
    plan: Plan,
    /// The block at which the search for free blocks continues.
    cursor: u64,
    /// The number of the highest block that has been claimed, plus one.
    end: u64,
}

/// What is known of the layout so far.
enum Plan {
    Given(Box<(Numbers, Layout)>),
    Fitted(Fitting, Spare),
}

impl<'d> Filling<'d> {
    /// Checks that a file system with these options can be made together with its files.
    ///
    /// # Errors
    /// [`MkfsError::FeatureRule`] with the feature `bigalloc`, because the files would have to be
    /// placed in whole clusters.
    pub fn check(options: &MkfsOptions) -> Result<(), MkfsError> {
        match options.features.ro_compat.contains(RoCompat::BIGALLOC) {
            true => Err(MkfsError::FeatureRule { rule: "bigalloc: it cannot be made with files" }),
            false => Ok(()),
        }
    }

    /// Chooses the layout, and wipes the signatures of whatever format the device had before. From
    /// here on the old contents of the device are lost.
    ///
    /// # Errors
    /// The errors of [`super::mkfs`] and of [`Filling::check`].
    pub fn begin(
        device: &'d dyn Device,
        options: &MkfsOptions,
        room: Room,
    ) -> Result<Filling<'d>, MkfsError> {
        Filling::check(options)?;
        Filling::begin_empty(device, options, room)
    }

    /// Does the same as [`Filling::begin`], but permits `bigalloc`. The caller claims no block, and
    /// passes a tree that has only the root and `lost+found`.
    pub(crate) fn begin_empty(
        device: &'d dyn Device,
        options: &MkfsOptions,
        room: Room,
    ) -> Result<Filling<'d>, MkfsError> {
        options.check()?;
        let mut options = options.clone();
        let plan = match room {
            Room::Given => {
                let numbers = Numbers::choose(&options, device.len())?;
                let superblock = Superblock::from_raw(numbers.raw_superblock(&options))?;
                let layout = Layout::place(&superblock.geometry(), &numbers)?;
                Plan::Given(Box::new((numbers, layout)))
            }
            Room::Fitted(spare) => {
                let fitting = Fitting::new(&options, device.len())?;
                options.block_size = Some(fitting.block_size());
                options.journal = options.journal.in_blocks(fitting.block_size());
                Plan::Fitted(fitting, spare)
            }
        };
        let filling = Filling { device, options, plan, cursor: 0, end: 0 };
        let block_size = filling.block_size().bytes() as u32;
        if device.alignment() > block_size {
            return Err(MkfsError::Alignment { device: device.alignment(), block_size });
        }
        BlockWriter::new(device, filling.block_size(), filling.options.contents)
            .wipe_signatures()?;
        device.flush()?;
        Ok(filling)
    }

    /// Returns the block size.
    pub fn block_size(&self) -> BlockSize {
        match &self.plan {
            Plan::Given(given) => given.0.block_size,
            Plan::Fitted(fitting, _) => fitting.block_size(),
        }
    }

    /// Returns the device.
    pub fn device(&self) -> &'d dyn Device {
        self.device
    }

    /// Claims the next free blocks for file data. Returns one range for each run of free blocks.
    ///
    /// # Errors
    /// [`MkfsError::Full`].
    pub fn claim(&mut self, blocks: u64) -> Result<Vec<Range<u64>>, MkfsError> {
        let mut runs = Vec::new();
        let mut missing = blocks;
        while missing > 0 {
            let used = match &mut self.plan {
                Plan::Given(given) => &mut given.1.used,
                Plan::Fitted(fitting, _) => &mut fitting.used,
            };
            let Some(free) = used.next_free(self.cursor) else {
                let bytes = used.end() << self.block_size().bits();
                return Err(MkfsError::Full { bytes });
            };
            let run = free.start..free.end.min(free.start + missing);
            used.take(run.start, run.end - run.start);
            missing -= run.end - run.start;
            self.cursor = run.end;
            self.end = self.end.max(run.end);
            runs.push(run);
        }
        Ok(runs)
    }

    /// Gives claimed blocks back, so that later claims can take them again. Their data stays on the
    /// device, so a block that is not taken again is free but not zero.
    pub fn release(&mut self, runs: impl IntoIterator<Item = Range<u64>>) {
        for run in runs {
            self.cursor = self.cursor.min(run.start);
            match &mut self.plan {
                Plan::Given(given) => given.1.used.give(run.start, run.end - run.start),
                Plan::Fitted(fitting, _) => fitting.used.give(run.start, run.end - run.start),
            }
        }
    }

    /// Writes the metadata of all files and of the file system.
    ///
    /// # Errors
    /// [`MkfsError::File`] for a file that ext4 cannot store; otherwise the same as for
    /// [`super::mkfs`].
    pub fn finish(mut self, tree: &NewTree, identity: &Identity) -> Result<Report, MkfsError> {
        self.options.uuid = Some(identity.uuid);
        self.options.hash_seed = Some(identity.hash_seed);
        self.options.time = Some(identity.time);
        if let Plan::Fitted(fitting, spare) = &mut self.plan {
            fitting.choose_journal(&mut self.options, self.end, *spare)?;
        }
        let mut out = BlockWriter::new(self.device, self.block_size(), self.options.contents);
        let format = match &self.plan {
            Plan::Given(given) => Format::new(&given.0, &self.options),
            Plan::Fitted(fitting, _) => Format::new(fitting.numbers(), &self.options),
        };
        // The search starts again at the first block, so that it first takes small gaps, which
        // released data has left.
        self.cursor = 0;
        let directories = match &self.plan {
            Plan::Given(given) => [given.1.root.clone(), given.1.lost_and_found.clone()],
            Plan::Fitted(..) => Default::default(),
        };
        let claim = &mut |blocks: u64| self.claim(blocks);
        let ready = write::contents(&mut out, &format, tree, directories, claim)?;
        let (numbers, layout) = match self.plan {
            Plan::Given(given) => *given,
            Plan::Fitted(fitting, spare) => {
                fitting.close(&self.options, tree.files().len() as u64, spare, self.end)?
            }
        };
        finish(&mut out, &self.options, &numbers, layout, tree, ready)
    }
}

/// Writes all blocks that do not belong to a file in the tree.
fn finish(
    out: &mut BlockWriter<'_>,
    options: &MkfsOptions,
    numbers: &Numbers,
    mut layout: Layout,
    tree: &NewTree,
    ready: write::Ready,
) -> Result<Report, MkfsError> {
    let superblock = complete(options, numbers, &mut layout, tree)?;
    write::write(out, options, &superblock, &layout, &ready.inodes)?;
    Ok(Report { losses: ready.losses, ..report(numbers, &superblock) })
}

/// Returns the superblock of a file system with these files.
pub(crate) fn complete(
    options: &MkfsOptions,
    numbers: &Numbers,
    layout: &mut Layout,
    tree: &NewTree,
) -> Result<Superblock, MkfsError> {
    let mut numbers = *numbers;
    // If the chosen features lack `EXT_ATTR` or `LARGE_FILE` and a file needs the feature, it is
    // set here, as the kernel does when it writes such a file.
    let all = tree.files();
    if all.iter().any(|file| !file.attributes.is_empty()) {
        numbers.features.compat |= Compat::EXT_ATTR;
    }
    if all.iter().any(NewFile::is_large) {
        numbers.features.ro_compat |= RoCompat::LARGE_FILE;
    }
    let mut raw = numbers.raw_superblock(options);
    layout.hold(tree)?;
    layout.complete_superblock(&mut raw);
    Ok(Superblock::from_raw(raw)?)
}

pub(crate) fn report(numbers: &Numbers, superblock: &Superblock) -> Report {
    Report {
        block_size: numbers.block_size.bytes() as u32,
        blocks: numbers.blocks,
        groups: superblock.geometry().group_count(),
        inodes: superblock.geometry().inode_count(),
        journal_blocks: numbers.journal.blocks,
        reserved_blocks: numbers.reserved,
        free_blocks: superblock.free_blocks(),
        uuid: superblock.uuid(),
        features: superblock.features().names(),
        losses: Vec::new(),
    }
}
