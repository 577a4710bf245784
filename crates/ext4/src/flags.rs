//! What the flags of an inode forbid, to the superuser too: immutable and append-only; and what they
//! ask for: synchronous data and names.
//!
//! Pure functions, applied here under the locks of an operation where every front end needs them
//! (names, allocation), and by `vfs::rules` where what is asked depends on the front end.
//!
//! Source: ioctl_iflags(2); where that says less, what Linux 6.18 answers
//! (`crates/cli/tests/mount_rights.rs`).

use crate::attr::{CHANGEABLE_FLAGS, Fallocate, Rights};
use crate::error::Error;
use lanefs_ondisk::inode::InodeFlags;

/// `EXT4_IMMUTABLE_FL`: nothing of the inode changes but its flags.
pub const IMMUTABLE: u32 = InodeFlags::IMMUTABLE.bits();
/// `EXT4_APPEND_FL`: its data only grows at the end; a directory only gets names.
pub const APPEND_ONLY: u32 = InodeFlags::APPEND.bits();

bitflags::bitflags! {
    /// What a change of attributes is about.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Change: u8 {
        /// The mode, set-ID bits that are lost included.
        const MODE = 1;
        /// The owner or the group.
        const OWNER = 1 << 1;
        /// The times, if one is given or left out.
        const TIMES = 1 << 2;
        /// Both times become now.
        const TOUCH = 1 << 3;
        /// The size.
        const SIZE = 1 << 4;
    }
}

/// How a file is opened, as far as flags are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// To be written.
    pub writes: bool,
    /// Each write goes to the end.
    pub appends: bool,
    /// Its size becomes zero.
    pub truncates: bool,
}

/// True if nothing of the inode may change but its flags.
pub fn is_immutable(rights: &Rights) -> bool {
    rights.flags & IMMUTABLE != 0
}

/// True if data only grows, and names are only added.
pub fn is_append_only(rights: &Rights) -> bool {
    rights.flags & APPEND_ONLY != 0
}

/// True if what is written is durable when the write returns: chattr +S.
pub fn is_synchronous(rights: &Rights) -> bool {
    rights.flags & InodeFlags::SYNC.bits() != 0
}

/// True if what changes of a directory's names is durable at once: chattr +D, or +S.
pub fn has_synchronous_names(rights: &Rights) -> bool {
    rights.flags & (InodeFlags::SYNC | InodeFlags::DIRSYNC).bits() != 0
}

fn is_frozen(rights: &Rights) -> bool {
    rights.flags & (IMMUTABLE | APPEND_ONLY) != 0
}

fn unless(forbidden: bool) -> Result<(), Error> {
    if forbidden { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Fails if nothing of the inode may change.
pub fn check_not_immutable(rights: &Rights) -> Result<(), Error> {
    unless(is_immutable(rights))
}

/// Fails if the flags forbid `change`. An append-only inode can be touched, nothing else.
pub fn check_attributes(rights: &Rights, change: Change) -> Result<(), Error> {
    unless(
        is_immutable(rights) && !change.is_empty()
            || is_append_only(rights) && !Change::TOUCH.contains(change),
    )
}

/// Fails if flags that are `now` so may not become `asked`: of an immutable inode that stays immutable,
/// none may change.
pub fn check_flags(now: u32, asked: u32) -> Result<(), Error> {
    unless(now & asked & IMMUTABLE != 0 && (now ^ asked) & CHANGEABLE_FLAGS != 0)
}

/// Fails if the flags forbid a further name.
pub fn check_link(rights: &Rights) -> Result<(), Error> {
    unless(is_frozen(rights))
}

/// Fails if the flags of either forbid to take the name of `victim` from `dir`.
pub fn check_deletion(dir: &Rights, victim: &Rights) -> Result<(), Error> {
    unless(is_frozen(dir) || is_frozen(victim))
}

/// Fails if the flags forbid to set or remove extended attributes, access lists among them.
pub fn check_xattrs(rights: &Rights) -> Result<(), Error> {
    unless(is_frozen(rights))
}

/// Fails if the flags forbid to open the file so.
pub fn check_opening(rights: &Rights, opening: Opening) -> Result<(), Error> {
    let Opening { writes, appends, truncates } = opening;
    unless(
        is_immutable(rights) && (writes || truncates)
            || is_append_only(rights) && (truncates || writes && !appends),
    )
}

/// Fails if the flags forbid to allocate or free space of the file in that way.
pub fn check_allocation(rights: &Rights, how: Fallocate) -> Result<(), Error> {
    let adds = matches!(how, Fallocate::Allocate | Fallocate::AllocateKeepSize);
    unless(is_immutable(rights) || is_append_only(rights) && !adds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flagged(flags: u32) -> Rights {
        Rights { permissions: 0o644, uid: 1, gid: 1, flags }
    }

    #[test]
    fn an_append_only_inode_can_be_touched_and_nothing_else() {
        let rights = flagged(APPEND_ONLY);
        assert!(check_attributes(&rights, Change::TOUCH).is_ok());
        assert!(check_attributes(&rights, Change::empty()).is_ok());
        for change in [Change::MODE, Change::OWNER, Change::TIMES, Change::SIZE] {
            assert!(check_attributes(&rights, change).is_err(), "{change:?}");
            assert!(check_attributes(&rights, change | Change::TOUCH).is_err(), "{change:?}");
        }
    }

    #[test]
    fn an_immutable_inode_lets_nothing_change_but_its_flags() {
        let rights = flagged(IMMUTABLE);
        for change in Change::all().iter() {
            assert!(check_attributes(&rights, change).is_err(), "{change:?}");
        }
        assert!(check_attributes(&flagged(0), Change::all()).is_ok());
    }

    #[test]
    fn flags_of_an_immutable_inode_change_only_with_that_one() {
        const NO_DUMP: u32 = 0x40;
        assert!(check_flags(IMMUTABLE, IMMUTABLE).is_ok());
        assert!(check_flags(IMMUTABLE, IMMUTABLE | NO_DUMP).is_err());
        assert!(check_flags(IMMUTABLE, NO_DUMP).is_ok());
        assert!(check_flags(0, IMMUTABLE | NO_DUMP).is_ok());
        // What chattr cannot change is no change.
        assert!(check_flags(IMMUTABLE | 0x8_0000, IMMUTABLE).is_ok());
    }

    #[test]
    fn neither_a_frozen_file_nor_a_name_of_a_frozen_directory_is_deleted() {
        for flags in [IMMUTABLE, APPEND_ONLY] {
            assert!(check_deletion(&flagged(flags), &flagged(0)).is_err());
            assert!(check_deletion(&flagged(0), &flagged(flags)).is_err());
        }
        assert!(check_deletion(&flagged(0), &flagged(0)).is_ok());
    }

    #[test]
    fn an_append_only_file_is_opened_to_append_and_never_cut() {
        let rights = flagged(APPEND_ONLY);
        let opening = Opening { writes: true, appends: false, truncates: false };
        assert!(check_opening(&rights, opening).is_err());
        let appending = Opening { appends: true, ..opening };
        assert!(check_opening(&rights, appending).is_ok());
        assert!(check_opening(&rights, Opening { truncates: true, ..appending }).is_err());
        let reading = Opening { writes: false, appends: false, truncates: false };
        assert!(check_opening(&rights, reading).is_ok());
        assert!(check_opening(&flagged(IMMUTABLE), reading).is_ok());
        assert!(check_opening(&flagged(IMMUTABLE), appending).is_err());
    }
}
