//! What an inode's guard guards: the record, and what a reloaded inode would not know.

use crate::object::record::{OrphanSlot, RawRecord, Record};
use crate::plan::extent;
use lanefs_journal::{Listed, Tid, Tracked};
use lanefs_lanes::Lines;
use lanefs_ondisk::inode::{self as disk, InodeFlags};
use lanefs_ondisk::{Block, FileType, Time};

/// The most links that an inode can have (ext4's limit); a directory beyond it says 1.
pub(crate) const MAX_LINKS: u16 = 65000;

/// Parts of an inode that a change concerns: what fdatasync(2) must wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concerns {
    /// Needed to read the data back: mapping, size.
    Data,
    /// The rest.
    Attributes,
}

/// Attributes as an inode stores them.
pub(crate) struct StoredXattrs {
    /// The area in the inode.
    pub(crate) in_inode: Lines,
    /// The attribute block.
    pub(crate) block: Option<Block>,
}

/// What an inode's guard guards.
pub(crate) struct InodeState {
    pub(crate) disk: disk::Inode,
    pub(crate) raw: RawRecord,
    /// In a box: few inodes ever have one.
    pub(crate) tracked: Tracked<Box<Record>>,
    /// Where the transaction in which it is dirty lists it.
    pub(crate) listed: Option<Listed>,
    /// Where it stands in the orphan file or list.
    pub(crate) orphan: Option<OrphanSlot>,
    /// Made without a name (O_TMPFILE): link may give it the first. One that lost its last name
    /// gets no other.
    pub(crate) linkable: bool,
    /// The transaction whose commit zeroes the tail of the last block: growing waits for it.
    pub(crate) tail_pending: Option<Tid>,
    /// Of a directory: when a name changed, if that is where its times are from.
    names_changed: Option<Time>,
    /// Of a directory: subdirectories less than it ever had, as far as was counted in this
    /// transaction. Who removes one may count before who made it; those to come make up for it.
    pub(crate) owed: i32,
    /// The inode's bit is cleared: its record loses to that of a newer inode of the same number.
    pub(crate) freed: bool,
}

impl InodeState {
    pub(crate) fn new(disk: disk::Inode, raw: RawRecord) -> InodeState {
        InodeState {
            disk,
            raw,
            tracked: Tracked::new(),
            listed: None,
            orphan: None,
            linkable: false,
            tail_pending: None,
            names_changed: None,
            owed: 0,
            freed: false,
        }
    }

    /// Whether it has a tree of extents with something in it.
    pub(crate) fn has_tree(&self) -> bool {
        self.disk.flags.contains(InodeFlags::EXTENTS) && self.disk.block != extent::empty_root()
    }

    /// Whether freeing its number frees all of it: no blocks, no attribute block, no orphan record.
    pub(crate) fn owns_nothing(&self) -> bool {
        let extents = self.disk.flags.contains(InodeFlags::EXTENTS);
        let no_blocks = match self.disk.file_type() {
            Some(FileType::Regular) => extents && !self.has_tree(),
            Some(FileType::Symlink) => !extents && self.disk.sectors == 0,
            Some(FileType::Directory) | None => false,
            Some(_) => true,
        };
        no_blocks && self.disk.file_acl.is_none() && self.orphan.is_none()
    }

    /// `changes` names of this directory changed, the last one at `at`.
    pub(crate) fn names_changed(&mut self, changes: u32, at: Time) {
        let last = self.names_changed;
        // Lanes read the clock before they are ordered: of their times the latest counts, but any
        // counts against one that was set before.
        let later = |kept: Time| if last == Some(kept) { kept.max(at) } else { at };
        let disk = &mut self.disk;
        disk.version = disk.version.wrapping_add(u64::from(changes));
        (disk.mtime, disk.ctime) = (later(disk.mtime), later(disk.ctime));
        self.names_changed = Some(disk.mtime);
    }

    /// `more` subdirectories, or less.
    pub(crate) fn count_subdirectories(&mut self, more: i32) {
        let more = more - std::mem::take(&mut self.owed);
        // Of a directory that counts them no more, the count stays what it is.
        let most = match self.disk.links {
            0 | 1 => i32::MAX,
            links => i32::from(links) - 2,
        };
        let less = (-more).min(most);
        self.owed = (-more - less).max(0);
        add_directory_links(&mut self.disk, -less);
    }
}

/// `more` subdirectories, or less.
fn add_directory_links(disk: &mut disk::Inode, more: i32) {
    for _ in 0..more {
        add_directory_link(disk);
    }
    for _ in more..0 {
        remove_directory_link(disk);
    }
}

/// One more subdirectory; past the limit the count is 1, "many" (feature `dir_nlink`).
fn add_directory_link(disk: &mut disk::Inode) {
    disk.links = match disk.links {
        1 => 1,
        links if links >= MAX_LINKS => 1,
        links => links + 1,
    };
}

/// One subdirectory less.
fn remove_directory_link(disk: &mut disk::Inode) {
    if disk.links > 2 {
        disk.links -= 1;
    }
}
