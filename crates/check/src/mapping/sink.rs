//! Receives what a walk of a mapping finds.

use crate::fault::Fault;
use crate::place::Place;
use lanefs_ondisk::Block;
use lanefs_ondisk::extent::Extent;

/// Receives the blocks and the faults of a mapping, in the order of the file.
pub trait Sink {
    /// A run of data blocks.
    fn data(&mut self, extent: Extent);
    /// A block of the mapping itself: a node, or a block of pointers.
    fn meta(&mut self, block: Block);
    /// A fault. The walk does not follow a pointer that is invalid, nor the entries of a damaged
    /// node. A node in which only the checksum is wrong is followed.
    fn fault(&mut self, place: Place, fault: Fault);
}
