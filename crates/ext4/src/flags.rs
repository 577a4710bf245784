//! The effects of an inode's flags. The flags "immutable" and "append-only" forbid changes, even by
//! the superuser. Other flags request synchronous data and names.
//!
//! All functions are pure. A check that every front end needs (names, allocation) is made by the
//! operation, under its locks. A check that depends on the front end is made by `vfs::rules`.
//!
//! Source: ioctl_iflags(2); where the manual page is silent, the behaviour of Linux 6.18
//! (`crates/cli/tests/mount/by_rights.rs`).

use crate::attr::{CHANGEABLE_FLAGS, Fallocate, Rights};
use lanefs_ondisk::FileType;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_plan::Error;

/// `EXT4_IMMUTABLE_FL`: only the flags of the inode can change.
pub const IMMUTABLE: u32 = InodeFlags::IMMUTABLE.bits();
/// `EXT4_APPEND_FL`: data can only be appended; in a directory, names can only be added.
pub const APPEND_ONLY: u32 = InodeFlags::APPEND.bits();

/// `EXT4_FL_USER_VISIBLE`: the flags that lsattr(1) shows.
pub const VISIBLE_FLAGS: u32 = 0x705b_dfff;

/// The flags that only directories have.
const OF_DIRECTORIES: u32 = InodeFlags::DIRSYNC.bits()
    | InodeFlags::TOPDIR.bits()
    | InodeFlags::CASEFOLD.bits()
    | InodeFlags::PROJINHERIT.bits();

/// The flags that would promise something that Lanefs does not do, if they were set: data in the
/// journal, and the conversion of a block map to extents.
const UNKEPT: u32 = InodeFlags::JOURNAL_DATA.bits() | InodeFlags::EXTENTS.bits();

bitflags::bitflags! {
    /// The kinds of attributes that a change affects.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Change: u8 {
        /// The mode. Clearing set-ID bits is also a change of the mode.
        const MODE = 1;
        /// The owner or the group.
        const OWNER = 1 << 1;
        /// A time, unless the change is a `TOUCH`.
        const TIMES = 1 << 2;
        /// Both atime and mtime are set to the present time.
        const TOUCH = 1 << 3;
        /// The size.
        const SIZE = 1 << 4;
    }
}

/// The properties of an open(2) that an inode's flags may forbid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The file is opened for writing.
    pub writes: bool,
    /// Each write appends.
    pub appends: bool,
    /// The size is set to zero.
    pub truncates: bool,
}

/// Returns whether nothing but the flags of the inode can change.
pub fn is_immutable(rights: &Rights) -> bool {
    rights.flags & IMMUTABLE != 0
}

/// Returns whether data can only be appended, and names can only be added.
pub fn is_append_only(rights: &Rights) -> bool {
    rights.flags & APPEND_ONLY != 0
}

/// Returns whether the flag `S` of chattr(1) is set: a write must be durable before the call
/// returns.
pub fn is_synchronous(rights: &Rights) -> bool {
    rights.flags & InodeFlags::SYNC.bits() != 0
}

/// Returns whether changes of a directory's names are durable at once: chattr +D or +S.
pub fn has_synchronous_names(rights: &Rights) -> bool {
    rights.flags & (InodeFlags::SYNC | InodeFlags::DIRSYNC).bits() != 0
}

/// Returns whether a directory ignores the case of names: chattr +F.
pub fn folds_names(rights: &Rights) -> bool {
    rights.flags & InodeFlags::CASEFOLD.bits() != 0
}

/// Returns whether the inode is encrypted.
pub fn is_encrypted(rights: &Rights) -> bool {
    rights.flags & InodeFlags::ENCRYPT.bits() != 0
}

/// Returns whether the data of a regular file with these flags is verified and never changes.
pub fn is_verity(rights: &Rights) -> bool {
    rights.flags & InodeFlags::VERITY.bits() != 0
}

/// Returns whether the stored bytes of a name are not enough to find it in a directory, because the
/// directory ignores case or is encrypted.
#[cold]
pub(crate) fn changes_names(rights: &Rights) -> bool {
    folds_names(rights) || is_encrypted(rights)
}

fn is_frozen(rights: &Rights) -> bool {
    rights.flags & (IMMUTABLE | APPEND_ONLY) != 0
}

fn unless(forbidden: bool) -> Result<(), Error> {
    if forbidden { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Fails if the inode is immutable.
pub fn check_not_immutable(rights: &Rights) -> Result<(), Error> {
    unless(is_immutable(rights))
}

/// Fails if the data cannot change, because the inode is immutable or a verity file.
pub fn check_data_changes(rights: &Rights) -> Result<(), Error> {
    unless(is_immutable(rights) || is_verity(rights))
}

/// Fails if the flags forbid `change`. An append-only inode can be touched, but not changed
/// otherwise; a verity file keeps its size.
pub fn check_attributes(rights: &Rights, change: Change) -> Result<(), Error> {
    unless(
        is_immutable(rights) && !change.is_empty()
            || is_append_only(rights) && !Change::TOUCH.contains(change)
            || is_verity(rights) && change.contains(Change::SIZE),
    )
}

/// Fails if the flags of an inode cannot change from `now` to `asked`.
///
/// # Errors
/// [`Error::NotSupported`] for a new flag that no program may set or that promises what Lanefs does
/// not do, and for a directory flag on another kind of inode. Other flags outside of
/// [`CHANGEABLE_FLAGS`] are ignored. [`Error::NotPermitted`] if the inode stays immutable and
/// another flag changes.
pub fn check_flags(file_type: FileType, now: u32, asked: u32) -> Result<(), Error> {
    let refused = match file_type {
        FileType::Directory => !VISIBLE_FLAGS | UNKEPT,
        _ => !VISIBLE_FLAGS | UNKEPT | OF_DIRECTORIES,
    };
    if asked & !now & refused != 0 {
        return Err(Error::NotSupported);
    }
    unless(now & asked & IMMUTABLE != 0 && (now ^ asked) & CHANGEABLE_FLAGS != 0)
}

/// Fails if the flags forbid another hard link.
pub fn check_link(rights: &Rights) -> Result<(), Error> {
    unless(is_frozen(rights))
}

/// Fails if the flags of `dir` or `victim` forbid removing the name of `victim` from `dir`.
pub fn check_deletion(dir: &Rights, victim: &Rights) -> Result<(), Error> {
    unless(is_frozen(dir) || is_frozen(victim))
}

/// Fails if the flags forbid setting or removing extended attributes, which include ACLs.
pub fn check_xattrs(rights: &Rights) -> Result<(), Error> {
    unless(is_frozen(rights))
}

/// Fails if the flags forbid opening the file in this way.
pub fn check_opening(rights: &Rights, opening: Opening) -> Result<(), Error> {
    let Opening { writes, appends, truncates } = opening;
    unless(
        (is_immutable(rights) || is_verity(rights)) && (writes || truncates)
            || is_append_only(rights) && (truncates || writes && !appends),
    )
}

/// Fails if the flags forbid allocating or freeing space of the file in this way.
pub fn check_allocation(rights: &Rights, how: Fallocate) -> Result<(), Error> {
    let adds = matches!(how, Fallocate::Allocate | Fallocate::AllocateKeepSize);
    check_data_changes(rights)?;
    unless(is_append_only(rights) && !adds)
}

#[cfg(test)]
mod tests;
