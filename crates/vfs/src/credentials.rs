//! The caller of an operation.

use lanefs_ext4::Privilege;

/// The user, groups and rights that an operation runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    uid: u32,
    /// The group, then the supplementary groups.
    gids: Vec<u32>,
    checker: Checker,
}

/// Where permissions are checked: in this library, or elsewhere before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checker {
    Here,
    Elsewhere,
}

impl Credentials {
    /// Creates the credentials of a user with a group and supplementary groups. User 0 is the
    /// superuser.
    pub fn new(uid: u32, gid: u32, groups: impl AsRef<[u32]>) -> Credentials {
        let gids = std::iter::once(gid).chain(groups.as_ref().iter().copied()).collect();
        Credentials { uid, gids, checker: Checker::Here }
    }

    /// Creates the credentials of user 0 and group 0, to whom every possible operation is allowed.
    pub fn superuser() -> Credentials {
        Credentials::new(0, 0, [])
    }

    /// Creates the credentials of a user whose permissions another program has checked, as a kernel
    /// does for a FUSE mount with `default_permissions`. The user owns new files, and its writes
    /// clear set-user-ID bits, but no operation is refused because of a mode or an access control
    /// list.
    pub fn checked_elsewhere(uid: u32, gid: u32) -> Credentials {
        Credentials { checker: Checker::Elsewhere, ..Credentials::new(uid, gid, []) }
    }

    /// Returns the user, who owns new files.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the group of new files.
    pub fn gid(&self) -> u32 {
        self.gids.first().copied().unwrap_or(u32::MAX)
    }

    /// Returns the group and the supplementary groups.
    pub(crate) fn gids(&self) -> &[u32] {
        &self.gids
    }

    /// Returns whether `gid` is the group or one of the supplementary groups.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gids.contains(&gid)
    }

    /// Returns whether the user is user 0.
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    /// Returns whether no operation may be refused for lack of permission: the user is the
    /// superuser, or another program checks permissions.
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_superuser() || self.is_checked_elsewhere()
    }

    /// Returns whether another program has checked permissions already.
    pub(crate) fn is_checked_elsewhere(&self) -> bool {
        self.checker == Checker::Elsewhere
    }

    /// Returns whether the user may use the blocks reserved for root.
    pub fn privilege(&self) -> Privilege {
        if self.uid == 0 { Privilege::Root } else { Privilege::Ordinary }
    }

    pub(crate) fn owns(&self, uid: u32) -> bool {
        self.uid == uid || self.is_trusted()
    }
}
