//! The possible faults of each format.
//!
//! Each format re-exports its enum as `Cause`, and [`crate::Corruption`] adds the object in which
//! the cause was found. The causes stand here, so that both can import them.
#![allow(missing_docs)] // a field is a value that was found, under the format's name

use crate::types::{Block, BlockKind, FileBlock, FileType, Group, Ino};
use thiserror::Error;

/// The possible faults of an access control list. Offsets are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AclCause {
    #[error("{len} bytes do not make a list")]
    Length { len: usize },
    #[error("version {found}, not {expected}")]
    Version { found: u32, expected: u32 },
    #[error("the entry at {offset} has tag {found:#x}")]
    Tag { offset: usize, found: u16 },
    #[error("the entry at {offset} has permissions {found:#o}")]
    Permissions { offset: usize, found: u16 },
    #[error("the entry at {offset} has no valid id")]
    Id { offset: usize },
    #[error("an entry is missing, doubled or out of order")]
    Entries,
    #[error("named users or groups, but no mask")]
    NoMask,
}

/// The possible faults of a bitmap.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BitmapCause {
    #[error("the file system has no such group")]
    NoSuchGroup,
    #[error("{len} bytes are not a bitmap")]
    Length { len: usize },
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
    #[error("{clear} bits are clear where the descriptor has {free} free")]
    FreeCount { clear: u32, free: u32 },
    #[error("bit {bit}, which is metadata, is clear")]
    MetadataClear { bit: u32 },
    #[error("bit {bit}, which is metadata, was to be cleared")]
    MetadataFreed { bit: u32 },
    #[error("{len} bits from {start} reach beyond the end")]
    BeyondEnd { start: u32, len: u32 },
    #[error("inode {bit} of the group is in use, but its part of the table was never used")]
    NeverUsed { bit: u32 },
    #[error("bit {bit} to be set is set")]
    AlreadySet { bit: u32 },
    #[error("bit {bit} to be cleared is clear")]
    AlreadyClear { bit: u32 },
}

/// The possible faults of a block map.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockMapCause {
    #[error("{len} bytes are not an indirect block")]
    Length { len: usize },
    #[error("the pointer at {start} is to {block}, outside of the file system")]
    Target { start: FileBlock, block: Block },
    #[error("a pointer for file block {start}, which no file reaches")]
    Range { start: u64 },
    #[error("the map refers to the indirect {block} twice")]
    Twice { block: Block },
}

/// The possible faults of a directory block. Offsets are bytes from the start of the block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DirentCause {
    #[error("{found} bytes, expected a block of {expected}")]
    Length { expected: usize, found: usize },
    #[error("the record at {offset} is {rec_len} bytes, less than its header and name need")]
    RecordTooShort { offset: usize, rec_len: usize },
    #[error("the record at {offset} is {rec_len} bytes, not a multiple of four")]
    RecordUnaligned { offset: usize, rec_len: usize },
    #[error("the record at {offset} is {rec_len} bytes and crosses the end at {end}")]
    RecordPastEnd { offset: usize, rec_len: usize, end: usize },
    #[error("the record at {offset} leaves no room for another before the end")]
    RecordNearEnd { offset: usize },
    #[error("the name at {offset} is empty")]
    NameEmpty { offset: usize },
    #[error("the name at {offset} contains a slash or NUL")]
    NameByte { offset: usize },
    #[error("the record at {offset} names inode {ino} of {inodes}")]
    InodeRange { offset: usize, ino: u32, inodes: u32 },
    #[error("no record starts at {offset}")]
    NoRecord { offset: usize },
    #[error("\".\" or \"..\" at {offset}, where it must not be")]
    MisplacedDot { offset: usize },
    #[error("the directory does not start with \".\" and \"..\"")]
    NoDots,
    #[error("an entry names the directory that it is in")]
    NamesItself,
    #[error("its parents form a ring")]
    ParentRing,
    #[error("no checksum tail")]
    NoTail,
    #[error("the block is a hole")]
    Hole,
    #[error("checksum is {found:#010x}, expected {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
}

/// The possible faults of a node of an extent tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtentCause {
    #[error("{len} bytes are too short for a node")]
    Short { len: usize },
    #[error("magic {magic:#06x}")]
    Magic { magic: u16 },
    #[error("depth is {depth}, expected {expected}")]
    Depth { depth: u16, expected: u16 },
    #[error("depth {depth} is more than {max}")]
    TooDeep { depth: u16, max: u16 },
    #[error("room for {max} entries where {fits} fit")]
    Max { max: u16, fits: u16 },
    #[error("{entries} entries with room for {max}")]
    Entries { entries: u16, max: u16 },
    #[error("an index node without entries")]
    EmptyIndex,
    #[error("starts with {start} where its parent says {expected}")]
    FirstEntry { start: FileBlock, expected: FileBlock },
    #[error("an extent of length 0 at {start}")]
    EmptyExtent { start: FileBlock },
    #[error("the entry at {start} is not after the one before")]
    Order { start: FileBlock },
    #[error("the entry at {start} is outside of the node's range, which ends at {to}")]
    Range { start: FileBlock, to: FileBlock },
    #[error("the entry at {start} points to {len} blocks from {block}, outside of the file system")]
    Target { start: FileBlock, block: Block, len: u32 },
    /// With `bigalloc`, a block must have the same offset in its logical cluster as in its physical
    /// cluster.
    #[error("the extent at {start} is at {block}, with another offset in its cluster")]
    Cluster { start: FileBlock, block: Block },
    #[error("checksum is {found:#010x}, expected {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
}

/// The ways in which a fast commit that is complete can contradict the file system.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FastCommitCause {
    #[error("no file can have this inode")]
    NoSuchInode,
    #[error("the inode is not in use")]
    NotInUse,
    #[error("blocks for an inode that is not a regular file")]
    NotAFile,
    #[error("a name in an inode that is not a directory")]
    NotADirectory,
    #[error("a name that another inode has already: {found}")]
    NameTaken { found: Ino },
    #[error("a record of {len} bytes")]
    RecordLength { len: usize },
}

/// The possible faults of a group descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GroupDescCause {
    #[error("the file system has no such group")]
    NoSuchGroup,
    #[error("{len} bytes are not a descriptor")]
    Length { len: usize },
    #[error("checksum is {found:#06x}, expected {expected:#06x}")]
    Checksum { found: u16, expected: u16 },
    #[error("block bitmap is {block}")]
    BlockBitmapPlace { block: Block },
    #[error("inode bitmap is {block}")]
    InodeBitmapPlace { block: Block },
    #[error("inode table starts at {block}")]
    InodeTablePlace { block: Block },
    #[error("bitmaps and inode table overlap")]
    Overlap,
    #[error("{blocks} free blocks")]
    FreeBlocks { blocks: u32 },
    #[error("{inodes} free inodes")]
    FreeInodes { inodes: u32 },
    #[error("{directories} directories")]
    UsedDirs { directories: u32 },
    #[error("{inodes} unused inodes at the end of the table")]
    ItableUnused { inodes: u32 },
}

/// The possible faults of an index block, or of the block that it points to.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HtreeCause {
    #[error("{found} bytes, expected a block of {expected}")]
    Length { expected: usize, found: usize },
    #[error("not the root of an index")]
    NotRoot,
    #[error("not a node of an index")]
    NotNode,
    #[error("unknown hash version {found}")]
    HashVersion { found: u8 },
    #[error("root information of {found} bytes, not 8")]
    InfoLength { found: u8 },
    #[error("{found} levels below the root, {allowed} allowed")]
    Levels { found: u8, allowed: u8 },
    #[error("unknown flags {found:#x}")]
    Flags { found: u8 },
    #[error("room for {found} entries, not {expected}")]
    Limit { expected: usize, found: usize },
    #[error("{count} entries where 1 to {limit} fit")]
    Count { count: usize, limit: usize },
    #[error("checksum is {found:#010x}, expected {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("entry {entry} leads to {child}, of {blocks} blocks")]
    Child { entry: usize, child: FileBlock, blocks: u32 },
    #[error("entry {entry} has a lower hash than the one before")]
    Order { entry: usize },
    #[error("leads to more leaves than the directory has blocks")]
    TooManyLeaves,
    #[error("the name at {offset} of {leaf} has hash {hash:#x}, outside that leaf's range")]
    HashRange { leaf: FileBlock, offset: usize, hash: u32 },
}

/// The possible faults of an inode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InodeCause {
    #[error("the file system has no such inode")]
    NoSuchInode,
    #[error("a name leads to it, and it is free")]
    NotInUse,
    #[error("it is in use, and bit {bit} in the inode bitmap of {group} says that it is free")]
    MarkedFree { group: Group, bit: u32 },
    #[error("{len} bytes are not an inode")]
    Length { len: usize },
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
    #[error("extra size is {size}")]
    ExtraSize { size: u16 },
    #[error("mode is {mode:#o}")]
    Mode { mode: u16 },
    #[error("{kind:?} of {size} bytes in {sectors} sectors: not a root directory")]
    NotARoot { kind: FileType, size: u64, sectors: u64 },
    #[error("size is {size}")]
    Size { size: u64 },
    #[error("attribute block is {block}")]
    FileAcl { block: Block },
    #[error("directory of {size} bytes is not whole blocks")]
    DirectorySize { size: u64 },
    #[error("symbolic link of {size} bytes")]
    SymlinkSize { size: u64 },
    #[error("its data is in the inode, and it has no attribute system.data")]
    NoInlineData,
    #[error("it is encrypted, and has no encryption context")]
    NoEncryptionContext,
    #[error("encryption context of version {version} and {len} bytes")]
    EncryptionContext { version: u8, len: usize },
    #[error("the reserved bytes of its encryption context are {bytes:?}")]
    ReservedEncryption { bytes: [u8; 3] },
    #[error("an encrypted name or target of {len} bytes")]
    EncryptedText { len: usize },
    #[error("the list of orphans comes back to it")]
    OrphanLoop,
    #[error("it is recorded as an orphan, and there is no such inode")]
    NoOrphan,
}

/// The possible faults of a log block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Jbd2Cause {
    #[error("{len} bytes are too few")]
    Length { len: usize },
    #[error("not a journal superblock")]
    NotASuperblock,
    #[error("not a {expected:?} block")]
    WrongKind { expected: BlockKind },
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
    #[error("checksum type is {found}")]
    ChecksumType { found: u8 },
    #[error("more than one kind of checksum")]
    ChecksumKinds,
    #[error("block size is {found}")]
    BlockSize { found: u32 },
    #[error("{blocks} blocks long, in a file of {file_blocks}")]
    BeyondFile { blocks: u32, file_blocks: u32 },
    #[error("{blocks} blocks are too few for a log")]
    TooShort { blocks: u32 },
    #[error("first log block is {first}")]
    First { first: u32 },
    #[error("log starts at {start}")]
    Start { start: u32 },
    #[error("{count} bytes of revoke records")]
    RevokeCount { count: u32 },
    #[error("fast commit record at byte {offset}: unknown tag {tag}")]
    FastTag { offset: usize, tag: u16 },
    #[error("fast commit record at byte {offset}: {len} bytes for the tag {tag}")]
    FastLength { offset: usize, tag: u16, len: usize },
    #[error("fast commit record at byte {offset}: a name that no file can have")]
    FastName { offset: usize },
    #[error("fast commit record at byte {offset}: a range of no blocks")]
    FastRange { offset: usize },
}

/// The possible faults of the block of multiple mount protection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MmpCause {
    #[error("{len} bytes are too few")]
    Length { len: usize },
    #[error("magic is {found:#010x}")]
    Magic { found: u32 },
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
}

/// The possible faults of a block of the orphan file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrphanCause {
    #[error("{len} bytes are not a block")]
    Length { len: usize },
    #[error("magic is {found:#010x}")]
    Magic { found: u32 },
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
}

/// The possible faults of a quota file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuotaCause {
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

/// The possible faults of a superblock.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SuperblockCause {
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

/// The possible faults of the metadata of a verity file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerityCause {
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

/// The possible faults of extended attributes. Offsets are bytes from the start of the area for
/// attributes, which is a block or a part of an inode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum XattrCause {
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
