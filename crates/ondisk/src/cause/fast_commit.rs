use crate::types::Ino;
use thiserror::Error;

/// The ways in which a fast commit that is complete can contradict the file system.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
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
