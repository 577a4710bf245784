//! The jbd2 log: superblock, descriptors, tags, commit and revoke blocks, which are big endian, and
//! fast commits, which are little endian.
//!
//! A log block is recognised by its [`Header`]. All other blocks of the log are copies of file
//! system blocks, in the order of the tags of the descriptor before them. Functions here return a
//! bare [`Cause`], since only the caller knows which log block it read (see
//! [`crate::Corruption::Journal`]).
//!
//! Source: ext4 disk layout documentation, "Journal (jbd2)".

mod commit;
mod descriptor;
mod fast_commit;
mod format;
mod header;
mod kind;
mod revoke;
mod superblock;

pub use crate::cause::fast_commit::Cause as FastCause;
pub use crate::cause::jbd2::Cause;
pub use commit::{Commit, TransactionChecksum};
pub use descriptor::{
    Image, Tag, TagFlags, Tags, encode_descriptor, escape, needs_escape, unescape,
};
pub use fast_commit::write::{FastPlace, encode_fast_commit};
pub use fast_commit::{FastChange, FastCommits, FastFault, FastName, FastNext};
pub use format::{BlockNumbers, LogChecksums, LogFormat};
pub use header::{Header, MAGIC, Sequence};
pub use kind::BlockKind;
pub use revoke::{Revokes, encode_revoke};
pub use superblock::{JournalCompat, JournalIncompat, JournalSuperblock, JournalVersion};

#[cfg(test)]
mod tests;
