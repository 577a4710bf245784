//! Decides what Lanefs can do with a file system.

use super::Superblock;
use crate::block_map::BLOCKS_END;
use crate::features::{Incompat, Support};
use crate::hash::HashVersion;

const CREATOR_HURD: u32 = 1;
/// `s_encoding` of UTF-8 with Unicode 12.1, the only encoding of ext4.
const UTF8_12_1: u16 = 1;

impl Superblock {
    /// Returns the operations that Lanefs supports on this file system. The result depends on all
    /// fields of the superblock, not only on the features. A file system with an external journal
    /// is refused, because the caller does not have the journal's device.
    pub fn support(&self) -> Support {
        match self.has_journal_elsewhere() {
            true => Support::Refused(vec!["external journal".into()]),
            false => self.support_with_journal(),
        }
    }

    /// Returns the operations that Lanefs supports on this file system. If it has an external
    /// journal, the caller must have the journal's device.
    pub fn support_with_journal(&self) -> Support {
        if self.raw.s_creator_os.get() == CREATOR_HURD {
            // Inodes that the Hurd wrote have different fields at some offsets.
            return Support::Refused(vec!["creator OS Hurd".into()]);
        }
        let more = self.refused_beyond_features();
        match self.features().support() {
            Support::Refused(mut names) => {
                names.extend(more);
                Support::Refused(names)
            }
            _ if !more.is_empty() => Support::Refused(more),
            Support::ReadWrite => match self.read_only_reason() {
                Some(reason) => Support::ReadOnly(vec![reason.into()]),
                None => Support::ReadWrite,
            },
            support => support,
        }
    }

    /// Returns the reason why Lanefs must not write to this file system, although Lanefs supports
    /// writing with each of the file system's features; `None` if there is no such reason.
    fn read_only_reason(&self) -> Option<&'static str> {
        let has_extents = self.features().incompat.contains(Incompat::EXTENTS);
        let (clusters, blocks) = (self.geometry.clusters(), self.geometry.block_count());
        if self.exceeds_block_maps() {
            Some("more than 2^32 blocks without extent")
        } else if !clusters.are_blocks() && !has_extents {
            // The kernel refuses such file systems.
            Some("bigalloc without extent")
        } else if clusters.offset(blocks) != 0 {
            Some("a part of a cluster at the end")
        } else {
            None
        }
    }

    /// Returns the reasons, other than unsupported features, to refuse the file system.
    fn refused_beyond_features(&self) -> Vec<String> {
        let mut names = Vec::new();
        if HashVersion::from_byte(self.hash_version()).is_none() {
            names.push(format!("directory hash {}", self.hash_version()));
        }
        if self.folding().is_some() && self.raw.s_encoding.get() != UTF8_12_1 {
            names.push(format!("encoding {} of names", self.raw.s_encoding.get()));
        }
        names
    }

    /// Returns whether new files would get block maps although the file system has blocks that the
    /// pointers of a block map cannot express.
    fn exceeds_block_maps(&self) -> bool {
        !self.features().incompat.contains(Incompat::EXTENTS)
            && self.geometry.block_count() > BLOCKS_END
    }
}
