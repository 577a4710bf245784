use thiserror::Error;

/// The possible faults of a quota file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
    #[error("{len} bytes are too few for a quota file")]
    Length { len: usize },
    #[error("magic {magic:#010x} with version {version}")]
    Header { magic: u32, version: u32 },
    #[error("{blocks} blocks of 1 KiB where the file has {has}")]
    Blocks { blocks: u32, has: u32 },
    #[error("block {block} refers to block {to}")]
    Reference { block: u32, to: u32 },
    #[error("block {block} has no entry for id {id}")]
    Missing { block: u32, id: u32 },
    #[error("block {block} counts {found} entries where {expected} are used")]
    Entries { block: u32, found: u32, expected: u32 },
    #[error("the list of blocks with free entries is wrong at block {block}")]
    FreeList { block: u32 },
}
