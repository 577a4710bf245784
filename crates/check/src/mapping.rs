//! The blocks of one file: a walk of its extent tree or of its block pointers.

mod extents;
mod pointers;
mod sink;

pub use sink::Sink;

use crate::fault::Fault;
use crate::place::Place;
use crate::record::Record;
use crate::volume::Volume;
use lanefs_ondisk::extent::Extent;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::cmp::Ordering;

/// Walks the mapping of an inode that maps blocks.
pub fn walk(volume: &Volume, ino: Ino, record: &Record, sink: &mut dyn Sink) {
    if record.flags.contains(InodeFlags::EXTENTS) {
        extents::walk(volume, ino, record, sink);
    } else {
        pointers::walk(volume, ino, record, sink);
    }
}

/// The block runs of a small file or of a directory. Faults in the mapping are ignored.
#[derive(Debug, Default)]
pub struct Runs {
    extents: Vec<Extent>,
}

impl Runs {
    /// Collects the runs of an inode that maps blocks.
    pub fn of(volume: &Volume, ino: Ino, record: &Record) -> Runs {
        let mut runs = Runs::default();
        if record.maps_blocks() {
            walk(volume, ino, record, &mut runs);
        }
        runs
    }

    /// Returns the runs in the order of the file.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Checks that the file has its first `blocks` blocks and no other ones, as a log must.
    ///
    /// # Errors
    /// What is wrong, as a message.
    pub fn fill(&self, blocks: u32) -> Result<(), &'static str> {
        let end = self.extents.iter().try_fold(0, |end, extent| {
            (extent.start.0 == end).then_some(extent.end()).ok_or("the log has holes")
        })?;
        match end.cmp(&blocks) {
            Ordering::Less => Err("the log has holes"),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err("the log has blocks beyond its size"),
        }
    }

    /// Returns the device block that holds block `at` of the file.
    pub fn block(&self, at: FileBlock) -> Option<Block> {
        let extent = self.extent(at)?;
        Some(Block(extent.block.0 + u64::from(at.0 - extent.start.0)))
    }

    /// Returns the run that contains block `at` of the file.
    pub fn extent(&self, at: FileBlock) -> Option<&Extent> {
        let after = self.extents.partition_point(|extent| extent.start <= at);
        self.extents.get(after.checked_sub(1)?).filter(|extent| at.0 < extent.end())
    }
}

impl Sink for Runs {
    fn data(&mut self, extent: Extent) {
        match self.extents.last_mut() {
            Some(last) if last.continued_by(&extent) => last.len += extent.len,
            _ => self.extents.push(extent),
        }
    }

    fn meta(&mut self, _block: Block) {}

    fn fault(&mut self, _place: Place, _fault: Fault) {}
}
