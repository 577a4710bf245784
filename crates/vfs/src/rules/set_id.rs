//! The rules that clear set-user-ID and set-group-ID.

use crate::credentials::Credentials;
use lanefs_ext4::Rights;

/// Set-user-ID.
pub const SUID: u16 = 0o4000;
/// Set-group-ID.
pub const SGID: u16 = 0o2000;
/// The sticky bit: names can be removed only by the owner of the file or of the directory.
pub const STICKY: u16 = 0o1000;
/// The group may execute the file.
const GROUP_EXECUTE: u16 = 0o010;

/// Whether a caller is a member of a file's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// The caller is a member, or has the same privileges, or its groups are unknown.
    Possibly,
    /// The caller is not a member.
    No,
}

impl Member {
    /// Returns the membership of `who` in group `gid`. The superuser counts as a possible member.
    pub(crate) fn of(who: &Credentials, gid: u32) -> Member {
        if who.is_superuser() || who.in_group(gid) { Member::Possibly } else { Member::No }
    }
}

/// Returns `permissions` without set-user-ID and set-group-ID. If the group may not execute the
/// file, set-group-ID does not make the program run as the group, so it is cleared only for a
/// caller outside the group.
pub fn without_set_id(permissions: u16, member: Member) -> u16 {
    let drop_group = permissions & GROUP_EXECUTE != 0 || member == Member::No;
    permissions & !SUID & !(if drop_group { SGID } else { 0 })
}

/// Returns the permissions of a regular file after a write by `who`, if they change.
pub(crate) fn after_write(who: &Credentials, rights: &Rights) -> Option<u16> {
    if who.is_superuser() {
        return None;
    }
    let kept = without_set_id(rights.permissions, Member::of(who, rights.gid));
    (kept != rights.permissions).then_some(kept)
}

/// Returns the bits of `permissions` that a caller may set. `member` says whether the caller is in
/// the group of the file.
pub(super) fn settable(permissions: u16, member: Member) -> u16 {
    permissions & !(if member == Member::No { SGID } else { 0 })
}

/// Returns the permissions of a file after `who` set its access list.
pub(crate) fn with_access_list(who: &Credentials, rights: &Rights) -> u16 {
    settable(rights.permissions, Member::of(who, rights.gid))
}

/// Returns the permissions of a new file that inherits its group from a set-group-ID directory. A
/// caller outside that group must not create programs that run as the group.
pub(super) fn inherited(permissions: u16, member: Member) -> u16 {
    let runs_as_group = permissions & (SGID | GROUP_EXECUTE) == SGID | GROUP_EXECUTE;
    if runs_as_group { settable(permissions, member) } else { permissions }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(permissions: u16, gid: u32) -> Rights {
        Rights { permissions, uid: 10, gid, flags: 0 }
    }

    #[test]
    fn a_write_takes_the_set_id_bits_but_not_for_the_superuser() {
        let owner = Credentials::new(10, 20, [30]);
        assert_eq!(after_write(&owner, &file(0o6755, 20)), Some(0o755));
        assert_eq!(after_write(&Credentials::superuser(), &file(0o6755, 20)), None);
        assert_eq!(after_write(&owner, &file(0o2644, 20)), None);
        assert_eq!(after_write(&owner, &file(0o2644, 99)), Some(0o644));
    }

    #[test]
    fn set_group_id_is_lost_where_the_group_may_execute_or_the_caller_is_outside() {
        assert_eq!(without_set_id(0o6755, Member::Possibly), 0o755);
        assert_eq!(without_set_id(0o6745, Member::Possibly), 0o2745);
        assert_eq!(without_set_id(0o6745, Member::No), 0o745);
        assert_eq!(without_set_id(0o1644, Member::Possibly), 0o1644);
    }

    #[test]
    fn an_access_list_of_an_owner_outside_the_group_takes_set_group_id() {
        let outside = Credentials::new(10, 99, []);
        assert_eq!(with_access_list(&outside, &file(0o6755, 20)), 0o4755);
        assert_eq!(with_access_list(&Credentials::new(10, 99, [20]), &file(0o6755, 20)), 0o6755);
        assert_eq!(with_access_list(&Credentials::superuser(), &file(0o2755, 20)), 0o2755);
    }
}
