//! The caller of an operation.

use lanefs_ext4::Privilege;

/// The user, groups and rights that an operation runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    uid: u32,
    /// The group, then the supplementary groups.
    gids: Vec<u32>,
    judge: Judge,
}

/// Where permissions are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judge {
    Here,
    Elsewhere,
}

impl Credentials {
    /// A user with a group and supplementary groups. User 0 is the superuser.
    pub fn new(uid: u32, gid: u32, groups: impl AsRef<[u32]>) -> Credentials {
        let gids = std::iter::once(gid).chain(groups.as_ref().iter().copied()).collect();
        Credentials { uid, gids, judge: Judge::Here }
    }

    /// User 0 and group 0, which may do all that is possible.
    pub fn superuser() -> Credentials {
        Credentials::new(0, 0, [])
    }

    /// A user whose permissions were checked before the request came here, as a kernel does for a
    /// FUSE mount with `default_permissions`. It owns the files that it creates, and its writes
    /// clear set-user-ID bits, but nothing is refused for a mode or an access control list.
    pub fn checked_elsewhere(uid: u32, gid: u32) -> Credentials {
        Credentials { judge: Judge::Elsewhere, ..Credentials::new(uid, gid, []) }
    }

    /// The user, and owner of new files.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group of new files.
    pub fn gid(&self) -> u32 {
        self.gids.first().copied().unwrap_or(u32::MAX)
    }

    /// The group and the supplementary ones.
    pub(crate) fn gids(&self) -> &[u32] {
        &self.gids
    }

    /// True if `gid` is the group or among the supplementary ones.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gids.contains(&gid)
    }

    /// True for user 0.
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    /// True if no check here may refuse: the superuser, or checked elsewhere.
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_superuser() || self.is_checked_elsewhere()
    }

    /// True if another program has checked permissions already.
    pub(crate) fn is_checked_elsewhere(&self) -> bool {
        self.judge == Judge::Elsewhere
    }

    /// Whether the user may use the blocks reserved for root.
    pub fn privilege(&self) -> Privilege {
        if self.uid == 0 { Privilege::Root } else { Privilege::Ordinary }
    }

    pub(crate) fn owns(&self, uid: u32) -> bool {
        self.uid == uid || self.is_trusted()
    }
}
