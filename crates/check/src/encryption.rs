//! The encryption policies of inodes (fscrypt). The policies decide which inodes may have names in
//! an encrypted directory.
//!
//! An encrypted inode has an attribute that contains its encryption context. The policy is the
//! context without the nonce. All files, directories and symbolic links in an encrypted directory
//! must have the same policy as the directory. As in e2fsck, only the length of a context is
//! checked, and an unknown version is not a fault. Source: kernel documentation,
//! *Filesystem-level encryption (fscrypt)*, "Encryption context".

use crate::attributes;
use crate::record::Record;
use crate::run::Run;
use lanefs_ondisk::inode::{Cause, InodeFlags};
use lanefs_ondisk::{FileType, Ino};

/// Bytes of the nonce, at the end of a context.
const NONCE: usize = 16;

/// The policy of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// The inode is not encrypted.
    None,
    /// The inode is marked as encrypted, but has no context.
    Missing,
    /// The context is damaged.
    Damaged(Cause),
    /// The version of the context is unknown.
    Unknown,
    /// The policy itself: the context without the nonce.
    Known(Vec<u8>),
}

impl Policy {
    /// Returns the policy of an inode with these bytes.
    pub fn of(run: &Run<'_>, record: &Record, bytes: &[u8]) -> Policy {
        if !record.flags.contains(InodeFlags::ENCRYPT) {
            return Policy::None;
        }
        match attributes::encryption_context(run, record, bytes) {
            Some(context) => Policy::in_context(&context),
            None => Policy::Missing,
        }
    }

    /// Returns the policy in an encryption context.
    pub fn in_context(context: &[u8]) -> Policy {
        let (version, len) = (context.first().copied().unwrap_or(0), context.len());
        match (version, len) {
            (1, 28) | (2, 40) => Policy::Known(context.get(..len - NONCE).unwrap_or(&[]).to_vec()),
            (0..=2, _) | (_, 0) => Policy::Damaged(Cause::EncryptionContext { version, len }),
            _ => Policy::Unknown,
        }
    }

    /// Returns whether a directory with this policy may contain a name that refers to inode `ino`.
    pub fn permits(&self, run: &Run<'_>, ino: Ino) -> bool {
        let encrypted = [FileType::Regular, FileType::Directory, FileType::Symlink];
        let is_encrypted = run.states.get(ino).file_type().is_some_and(|t| encrypted.contains(&t));
        if !is_encrypted || !matches!(self, Policy::Unknown | Policy::Known(_)) {
            return true;
        }
        let Some(bytes) = run.read_inode(ino) else { return true };
        Policy::of(run, &Record::decode(&bytes), &bytes) == *self
    }
}
