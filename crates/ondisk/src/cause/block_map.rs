use crate::types::{Block, FileBlock};
use thiserror::Error;

/// The possible faults of a block map.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values
pub enum Cause {
    #[error("{len} bytes are not an indirect block")]
    Length { len: usize },
    #[error("the pointer at {start} is to {block}, outside of the file system")]
    Target { start: FileBlock, block: Block },
    #[error("a pointer for file block {start}, which no file reaches")]
    Range { start: u64 },
    #[error("the map refers to the indirect {block} twice")]
    Twice { block: Block },
}
