//! Holds the state under an inode's guard: the record, and state that a reloaded inode would lack.

use crate::object::fast_track::FastTrack;
use crate::object::record::{OrphanSlot, RawRecord, Record};
use lanefs_journal::{Listed, Tid, Tracked};
use lanefs_lanes::Lines;
use lanefs_ondisk::inode::BlockField;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, FileType, Time, inode as disk};
use lanefs_plan::mapping::Form;

/// Selects the parts of an inode that a change concerns. They determine whether fdatasync(2) waits
/// for the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concerns {
    /// Parts needed to read the data back: mapping, size.
    Data,
    /// All other parts.
    Attributes,
}

/// Holds extended attributes as an inode stores them.
pub(crate) struct StoredXattrs {
    /// The area for attributes in the inode's record.
    pub(crate) in_inode: Lines,
    /// The attribute block.
    pub(crate) block: Option<Block>,
}

impl lanefs_lanes::Replaced for StoredXattrs {
    fn heap_bytes(&self) -> usize {
        self.in_inode.len()
    }
}

/// The state under an inode's guard.
pub(crate) struct InodeState {
    pub(crate) disk: disk::Inode,
    pub(crate) raw: RawRecord,
    /// The transaction in which the inode is dirty, and the record that was saved for the
    /// transaction before, if any. The record is boxed because few inodes ever have one.
    pub(crate) tracked: Tracked<Box<Record>>,
    /// The inode's position on the list of the transaction in which the inode is dirty.
    pub(crate) listed: Option<Listed>,
    /// The inode's position in the orphan file or list.
    pub(crate) orphan: Option<OrphanSlot>,
    /// Is set if the inode was created without a name (O_TMPFILE): link(2) may give it its first
    /// name. An inode that has lost its last name cannot get another.
    pub(crate) linkable: bool,
    /// The transaction after whose commit the tail of the last block is zeroed. An operation that
    /// grows the file waits for this commit.
    pub(crate) tail_pending: Option<Tid>,
    /// With `bigalloc`: the last transaction that unmapped blocks of a cluster that stays in use.
    pub(crate) unmapped_in: Option<Tid>,
    /// For a directory: the time of the last name change, if that change set the directory's times.
    names_changed: Option<Time>,
    /// For a directory: the number of subdirectories whose removal was counted before their
    /// creation, in the transaction in which the directory is dirty. This happens if one lane
    /// counts the removal before another lane counts the creation. Later additions are reduced by
    /// this number.
    pub(crate) owed: i32,
    /// The changes for fast commits, if the mount writes them.
    pub(crate) fast: Option<Box<FastTrack>>,
    /// Whether the inode's bit in the bitmap was cleared. If so, the record of a newer inode with
    /// the same number replaces this record.
    pub(crate) freed: bool,
}

impl InodeState {
    #[inline]
    pub(crate) fn new(disk: disk::Inode, raw: RawRecord) -> InodeState {
        InodeState {
            disk,
            raw,
            tracked: Tracked::new(),
            listed: None,
            orphan: None,
            linkable: false,
            tail_pending: None,
            unmapped_in: None,
            names_changed: None,
            owed: 0,
            fast: None,
            freed: false,
        }
    }

    /// Returns whether the inode has mappings, or nodes for mappings.
    pub(crate) fn has_mappings(&self, geometry: &Geometry) -> bool {
        let empty = match self.disk.block_field(geometry) {
            BlockField::ExtentTree => Form::Extents.empty_root(),
            BlockField::BlockMap => Form::BlockMap.empty_root(),
            BlockField::InlineData | BlockField::NoMapping => return false,
        };
        self.disk.block != empty
    }

    /// Returns whether nothing but the inode's number has to be freed: the inode has no blocks, no
    /// attribute block and no orphan record.
    pub(crate) fn owns_nothing(&self, geometry: &Geometry) -> bool {
        let is_directory = matches!(self.disk.file_type(), Some(FileType::Directory) | None);
        !is_directory
            && !self.has_mappings(geometry)
            // `sectors` also counts attribute values that are in inodes of their own.
            && self.disk.sectors == 0
            && self.disk.file_acl.is_none()
            && self.orphan.is_none()
    }

    /// Changes the record into that of a free inode.
    pub(crate) fn end(&mut self, now: Time) {
        self.disk.file_acl = None;
        self.disk.links = 0;
        self.disk.size = 0;
        self.disk.dtime = u32::try_from(now.secs).unwrap_or(u32::MAX);
        self.freed = true;
    }

    /// Counts `changes` name changes in this directory, the last of which happened at time `at`.
    pub(crate) fn names_changed(&mut self, changes: u32, at: Time) {
        let last = self.names_changed;
        // Lanes read the clock before they take the guard, so the times of their changes may arrive
        // out of order, and the latest is kept. If the time was set in another way, for example by
        // utimensat(2), the next name change replaces it, even if the change is earlier.
        let later = |kept: Time| if last == Some(kept) { kept.max(at) } else { at };
        let disk = &mut self.disk;
        disk.version = disk.version.wrapping_add(u64::from(changes));
        (disk.mtime, disk.ctime) = (later(disk.mtime), later(disk.ctime));
        self.names_changed = Some(disk.mtime);
    }

    /// Adds `more - owed`, which may be negative, to the number of subdirectories in the link
    /// count. If the count is too small for all removals, the remaining removals are kept in
    /// `owed`.
    pub(crate) fn count_subdirectories(&mut self, more: i32) {
        let more = more - std::mem::take(&mut self.owed);
        // A directory with link count 1 no longer counts its subdirectories: its link count stays
        // 1.
        let most = match self.disk.links {
            0 | 1 => i32::MAX,
            links => i32::from(links) - 2,
        };
        let less = (-more).min(most);
        self.owed = (-more - less).max(0);
        self.disk.add_directory_links(-less);
    }
}
