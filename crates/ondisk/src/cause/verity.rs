use thiserror::Error;

/// The possible faults of the metadata of a verity file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
    #[error("its blocks are not mapped by extents")]
    NoExtents,
    #[error("it has no block after its data")]
    NoBlocks,
    #[error("a descriptor of {size} bytes")]
    DescriptorSize { size: u32 },
    #[error("the descriptor is at byte {at}, and the hash tree begins at byte {tree}")]
    DescriptorPlace { at: u64, tree: u64 },
    #[error("descriptor of version {version}")]
    Version { version: u8 },
    #[error("unknown hash algorithm {number}")]
    Algorithm { number: u8 },
    #[error("blocks of 2^{bits} bytes in the hash tree")]
    BlockSize { bits: u8 },
    #[error("a salt of {size} bytes")]
    SaltSize { size: u8 },
    #[error("a signature of {size} bytes")]
    SignatureSize { size: u32 },
    #[error("reserved bytes of the descriptor are not zero")]
    Reserved,
    #[error("the hash tree is for {described} bytes, and the file has {size}")]
    DataSize { described: u64, size: u64 },
    #[error("the hash tree has more than 8 levels")]
    Levels,
}
