//! The rules of access by mode.

use crate::credentials::Credentials;
use lanefs_ext4::{Inode, Rights};
use lanefs_ondisk::FileType;

bitflags::bitflags! {
    /// The requested access to an inode, as the three permission bits that a mode has for each of
    /// owner, group and others.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Want: u16 {
        /// Read data, or list a directory.
        const READ = 4;
        /// Write data, or change a directory's names.
        const WRITE = 2;
        /// Execute, or look up a name in a directory.
        const EXECUTE = 1;
    }
}

const GROUP_CLASS: u16 = 0o070;
const ANY_EXECUTE: u16 = 0o111;

/// What the mode bits alone decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Yes,
    No,
    /// The access control list decides; without a list, this value is the decision.
    AskList(bool),
}

pub(crate) fn by_mode(
    who: &Credentials,
    file_type: FileType,
    attr: &Rights,
    want: Want,
) -> Verdict {
    let class = |shift: u16| Want::from_bits_truncate(attr.permissions >> shift).contains(want);
    if who.is_superuser() {
        // Even the superuser cannot execute a file that has no execute bit, but the superuser can
        // search any directory.
        let executable = file_type == FileType::Directory || attr.permissions & ANY_EXECUTE != 0;
        return if executable || !want.contains(Want::EXECUTE) {
            Verdict::Yes
        } else {
            Verdict::No
        };
    }
    if who.uid() == attr.uid {
        return if class(6) { Verdict::Yes } else { Verdict::No };
    }
    let allowed = if who.in_group(attr.gid) { class(3) } else { class(0) };
    // If the inode has a list, the group bits are the mask of the list. If the mask is empty, the
    // mode bits decide and the list is not read, as in Linux.
    if attr.permissions & GROUP_CLASS != 0 {
        return Verdict::AskList(allowed);
    }
    if allowed { Verdict::Yes } else { Verdict::No }
}

/// Returns whether the mode alone lets `who` search the directory, so that no list has to be read.
#[inline]
pub(crate) fn searches_by_mode(who: &Credentials, dir: &Inode) -> bool {
    let is_directory = dir.file_type() == FileType::Directory;
    (is_directory && who.is_superuser())
        || by_mode(who, dir.file_type(), &dir.rights(), Want::EXECUTE) == Verdict::Yes
}

#[cfg(test)]
mod tests;
