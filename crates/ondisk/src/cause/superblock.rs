use thiserror::Error;

/// The possible faults of a superblock.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
    #[error("{len} bytes are not a superblock")]
    Length { len: usize },
    #[error("magic is {found:#06x}")]
    Magic { found: u16 },
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
    #[error("checksum type {found} is not crc32c")]
    ChecksumType { found: u8 },
    #[error("revision {found} is unknown")]
    Revision { found: u32 },
    #[error("block size is 2^(10 + {log})")]
    BlockSize { log: u32 },
    #[error("cluster size is 2^(10 + {log})")]
    ClusterSize { log: u32 },
    #[error("inode size is {size}")]
    InodeSize { size: u16 },
    #[error("first inode is {ino}")]
    FirstInode { ino: u32 },
    #[error("descriptor size is {size}")]
    DescSize { size: u16 },
    #[error("flexible groups are of 2^{log} groups")]
    FlexSize { log: u8 },
    #[error("{blocks} blocks in {clusters} clusters per group")]
    BlocksPerGroup { blocks: u32, clusters: u32 },
    #[error("{inodes} inodes per group")]
    InodesPerGroup { inodes: u32 },
    #[error("first data block is {block}")]
    FirstDataBlock { block: u32 },
    #[error("{blocks} blocks in all")]
    BlockCount { blocks: u64 },
    #[error("{inodes} inodes in {groups} groups")]
    InodeCount { inodes: u32, groups: u32 },
    #[error("{blocks} blocks reserved for descriptors")]
    ReservedDescriptors { blocks: u16 },
    #[error("first meta group is {first}")]
    FirstMetaGroup { first: u32 },
    #[error("{blocks} free blocks")]
    FreeBlocks { blocks: u64 },
    #[error("{blocks} reserved blocks")]
    ReservedBlocks { blocks: u64 },
    #[error("{inodes} free inodes")]
    FreeInodes { inodes: u32 },
    #[error("journal is inode {ino} and device {device:#x}")]
    JournalPlace { ino: u32, device: u32 },
    #[error("the feature journal_dev is absent")]
    NotAJournalDevice,
    #[error("orphan file is inode {ino}")]
    OrphanFileInode { ino: u32 },
    #[error("orphan list starts at inode {ino}")]
    LastOrphan { ino: u32 },
    #[error("the log changes the {what}")]
    ChangedInLog { what: &'static str },
}
