//! Inodes that hold the value of an extended attribute (feature `ea_inode`).
//!
//! Such an inode is a regular file with the flag `EA_INODE` and a link count of one, but no
//! directory entry refers to it. Its time fields hold no times. The field of the access time holds
//! the hash of the value. The field of the change time and the lower half of the version together
//! hold the number of attributes with this value. Source: kernel documentation, *Large Extended
//! Attribute Values*.

use super::{Inode, InodeFlags};
use crate::types::{FileType, Ino, Time};

impl Inode {
    /// Returns whether the inode holds the value of an attribute.
    pub fn is_attribute_value(&self) -> bool {
        self.flags.contains(InodeFlags::EA_INODE) && self.file_type() == Some(FileType::Regular)
    }

    /// Returns the stored hash of the value.
    pub fn value_hash(&self) -> u32 {
        self.atime.secs as u32
    }

    /// Returns the number of attributes with this value.
    pub fn value_references(&self) -> u64 {
        u64::from(self.ctime.secs as u32) << 32 | u64::from(self.version as u32)
    }

    /// Sets the number of attributes with this value.
    pub fn set_value_references(&mut self, references: u64) {
        self.ctime = word((references >> 32) as u32);
        self.version = references & u64::from(u32::MAX);
    }

    /// Makes the inode hold the value of one attribute; `hash` is the hash of the value.
    pub fn become_attribute_value(&mut self, hash: u32) {
        self.flags |= InodeFlags::EA_INODE;
        self.links = 1;
        self.atime = word(hash);
        self.set_value_references(1);
    }

    /// Returns whether the inode records the inode `owner` as its only user. Lustre, which
    /// introduced such inodes, stored the owner instead of a hash and a reference count.
    pub fn is_value_of(&self, owner: Ino, generation: u32) -> bool {
        self.mtime.secs as u32 == owner.0 && self.generation == generation
    }
}

/// Returns the time whose seconds the inode stores as the word `value`.
fn word(value: u32) -> Time {
    Time { secs: i64::from(value as i32), nanos: 0 }
}
