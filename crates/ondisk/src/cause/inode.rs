use crate::types::{Block, FileType, Group};
use thiserror::Error;

/// The possible faults of an inode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
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
    #[error("size is {size}, and the inode has room for {room} bytes of data")]
    InlineSize { size: u64, room: u64 },
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
