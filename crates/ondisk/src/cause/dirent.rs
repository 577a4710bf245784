use thiserror::Error;

/// The possible faults of a directory block. Offsets are bytes from the start of the block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the offset and the value found there
pub enum Cause {
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
