//! The rules: which operations a caller may perform, which changes flags forbid, which bits a
//! change clears, and what a new inode inherits.
//!
//! The rules are pure functions of credentials and attributes. The library applies all of them. A
//! FUSE mount leaves modes, access lists and owners to the kernel, and applies the other rules:
//! those for flags, for clearing set-ID bits, and for hidden attributes.
//!
//! The rules are those of POSIX as Linux applies them: path_resolution(7), inode(7), acl(5),
//! unlink(2), rename(2), chmod(2), chown(2), utimensat(2), truncate(2), xattr(7), ioctl_iflags(2).
//! If the mode refuses an operation, the error is [`Error::PermissionDenied`] (EACCES). If a
//! privilege is missing or a flag forbids the operation, the error is [`Error::NotPermitted`]
//! (EPERM). A test compares the rules with the kernel's ext4
//! (`crates/cli/tests/mount/by_rights.rs`).
//!
//! [`Error::PermissionDenied`]: lanefs_ext4::Error::PermissionDenied
//! [`Error::NotPermitted`]: lanefs_ext4::Error::NotPermitted

mod access;
mod attributes;
mod names;
mod set_id;
mod xattrs;

pub use access::Want;
pub(crate) use access::{Verdict, by_mode, searches_by_mode};
pub(crate) use attributes::is_touch;
pub use attributes::{check_resize, permitted};
pub use lanefs_ext4::flags::{
    Change, Opening, check_allocation, check_attributes, check_deletion, check_flags, check_link,
    check_opening, check_xattrs, is_immutable,
};
pub use names::NewNode;
pub(crate) use names::{check_device, may_delete, new_inode};
pub use set_id::{Member, SGID, STICKY, SUID, without_set_id};
pub(crate) use set_id::{after_write, with_access_list};
pub(crate) use xattrs::{Rule, Use, on_xattr};
pub use xattrs::{is_access_list, is_list, is_listed};

#[cfg(test)]
pub(crate) mod tests {
    use lanefs_ext4::{Attr, Rdev};
    use lanefs_ondisk::{FileType, Ino, Time};

    pub(crate) fn attr(file_type: FileType, permissions: u16, uid: u32, gid: u32) -> Attr {
        Attr {
            ino: Ino(12),
            generation: 1,
            file_type,
            permissions,
            links: 1,
            uid,
            gid,
            size: 0,
            sectors: 0,
            rdev: Rdev::default(),
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: None,
            flags: 0,
        }
    }
}
