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
mod tests {
    use super::*;
    use crate::rules::tests::attr;

    #[test]
    fn the_owner_is_judged_by_the_owner_bits_alone() {
        let file = attr(FileType::Regular, 0o077, 5, 6);
        let who = Credentials::new(5, 6, []);
        assert_eq!(by_mode(&who, file.file_type, &file.rights(), Want::READ), Verdict::No);
    }

    #[test]
    fn a_supplementary_group_counts_as_a_group() {
        let file = attr(FileType::Regular, 0o640, 5, 6);
        assert_eq!(
            by_mode(&Credentials::new(7, 8, [6]), file.file_type, &file.rights(), Want::READ),
            Verdict::AskList(true)
        );
        assert_eq!(
            by_mode(&Credentials::new(7, 8, []), file.file_type, &file.rights(), Want::READ),
            Verdict::AskList(false)
        );
    }

    #[test]
    fn without_group_bits_no_list_is_read() {
        let file = attr(FileType::Regular, 0o604, 5, 6);
        assert_eq!(
            by_mode(&Credentials::new(7, 8, []), file.file_type, &file.rights(), Want::READ),
            Verdict::Yes
        );
        assert_eq!(
            by_mode(&Credentials::new(7, 6, []), file.file_type, &file.rights(), Want::READ),
            Verdict::No
        );
    }

    #[test]
    fn the_superuser_reads_and_writes_all_but_executes_only_executables() {
        let root = Credentials::superuser();
        let plain = attr(FileType::Regular, 0o000, 5, 6);
        assert_eq!(
            by_mode(&root, plain.file_type, &plain.rights(), Want::READ | Want::WRITE),
            Verdict::Yes
        );
        assert_eq!(by_mode(&root, plain.file_type, &plain.rights(), Want::EXECUTE), Verdict::No);
        let script = attr(FileType::Regular, 0o001, 5, 6);
        assert_eq!(by_mode(&root, script.file_type, &script.rights(), Want::EXECUTE), Verdict::Yes);
        let dir = attr(FileType::Directory, 0o000, 5, 6);
        assert_eq!(by_mode(&root, dir.file_type, &dir.rights(), Want::all()), Verdict::Yes);
    }
}
