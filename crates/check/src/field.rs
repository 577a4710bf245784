//! Names of fields and features in faults.

use lanefs_ondisk::quota::Kind;
use std::fmt;

/// A field of the superblock, or of the journal's superblock, with an invalid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // `Display` describes each
pub enum Field {
    ReservedBlocks,
    DescriptorSize,
    LeastExtraSize,
    WantedExtraSize,
    Quotas(Kind),
    Encoding,
    JournalInode,
    JournalDeviceUuid,
    OrphanFile,
    Mmp,
    FirstInode,
    Revision,
    ChecksumSeed,
    JournalError,
    JournalUsers,
}

impl Field {
    /// Returns whether the field decides which inodes are reserved or have a special purpose.
    pub(crate) fn is_inode(self) -> bool {
        matches!(
            self,
            Field::Quotas(_) | Field::JournalInode | Field::OrphanFile | Field::FirstInode
        )
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::ReservedBlocks => "the number of reserved blocks",
            Field::DescriptorSize => "the size of descriptors",
            Field::LeastExtraSize => "the least extra size of inodes",
            Field::WantedExtraSize => "the wanted extra size of inodes",
            Field::Quotas(Kind::User) => "the inode of user quotas",
            Field::Quotas(Kind::Group) => "the inode of group quotas",
            Field::Quotas(Kind::Project) => "the inode of project quotas",
            Field::Encoding => "the encoding of names",
            Field::JournalInode => "the inode of the journal",
            Field::JournalDeviceUuid => "the UUID of a journal device",
            Field::OrphanFile => "the inode of the orphan file",
            Field::Mmp => "the block of mmp",
            Field::FirstInode => "the first inode that is not reserved",
            Field::Revision => "the revision",
            Field::ChecksumSeed => "the stored seed of checksums, without metadata_csum,",
            Field::JournalError => "the error number",
            Field::JournalUsers => "the number of its file systems",
        })
    }
}

/// A feature that the file system lacks, although structures of the feature are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names of mke2fs
pub enum Feature {
    HasJournal,
    LargeFile,
    /// `dir_nlink`
    DirNlink,
    /// `ext_attr`
    ExtAttr,
    OrphanFile,
    ResizeInode,
    UninitBg,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::HasJournal => "has_journal",
            Feature::LargeFile => "large_file",
            Feature::DirNlink => "dir_nlink",
            Feature::ExtAttr => "ext_attr",
            Feature::OrphanFile => "orphan_file",
            Feature::ResizeInode => "resize_inode",
            Feature::UninitBg => "uninit_bg",
        })
    }
}
