use crate::types::Ino;
use thiserror::Error;

/// The possible faults of extended attributes. Offsets are bytes from the start of the area for
/// attributes, which is a block or a part of an inode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the offset and the value found there
pub enum Cause {
    #[error("an area of {len} bytes")]
    Length { len: usize },
    #[error("magic {found:#010x}")]
    Magic { found: u32 },
    #[error("{found} blocks, not 1")]
    Blocks { found: u32 },
    #[error("reference count 0")]
    Unreferenced,
    #[error("checksum is {found:#010x}, expected {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("the entries run over the end")]
    NoEnd,
    #[error("the name at {offset} contains NUL")]
    NameByte { offset: usize },
    #[error("the entry at {offset} has its {size} bytes of value at {value}, outside the area")]
    ValueRange { offset: usize, value: usize, size: usize },
    #[error("the entry at {offset} shares bytes of its value with another")]
    ValueOverlap { offset: usize },
    #[error("the entry at {offset} has hash {found:#010x}, computed {computed:#010x}")]
    Hash { offset: usize, found: u32, computed: u32 },
    #[error("the entry at {offset} and the one before are not in the order of entries")]
    Order { offset: usize },
    #[error("the entry at {offset} has a value of {size} bytes in an inode of its own")]
    ValueSize { offset: usize, size: u32 },
    #[error("{ino}, which should hold a value of {size} bytes, does not")]
    NoValue { ino: Ino, size: u32 },
    #[error("the value in {ino} has hash {found:#010x}, computed {computed:#010x}")]
    ValueHash { ino: Ino, found: u32, computed: u32 },
}
