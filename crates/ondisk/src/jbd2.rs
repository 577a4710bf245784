//! The jbd2 log: superblock, descriptors, tags, commit and revoke blocks, which are big endian, and
//! fast commits, which are little endian.
//!
//! A log block is recognised by its [`Header`]. All other blocks of the log are copies of file
//! system blocks, in the order of the tags of the descriptor before them. Functions here return a
//! bare [`Cause`], since only the caller knows which log block it read (see
//! [`crate::Corruption::Journal`]).
//!
//! Source: ext4 disk layout documentation, "Journal (jbd2)".

mod block;
mod fast_commit;
mod superblock;

pub use crate::cause::{FastCommitCause as FastCause, Jbd2Cause as Cause};
pub use crate::types::BlockKind;
pub use block::{
    BlockNumbers, Commit, Header, Image, LogChecksums, LogFormat, MAGIC, Revokes, Sequence, Tag,
    TagFlags, Tags, TransactionChecksum, encode_descriptor, encode_revoke, escape, needs_escape,
    unescape,
};
pub use fast_commit::{
    FastChange, FastCommits, FastFault, FastName, FastNext, FastPlace, encode_fast_commit,
};
pub use superblock::{JournalCompat, JournalIncompat, JournalSuperblock, JournalVersion};

#[cfg(test)]
mod tests;
