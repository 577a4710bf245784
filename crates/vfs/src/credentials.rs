//! The caller of an operation.

use lanefs_ext4::Privilege;

/// The user, groups and rights with which an operation runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    uid: u32,
    gid: u32,
    /// The supplementary groups; `None` if there are none. Each open file has a copy of the
    /// credentials.
    groups: Option<Box<[u32]>>,
}

impl Credentials {
    /// Creates the credentials of a user with a group and supplementary groups. User 0 is the
    /// superuser.
    pub fn new(uid: u32, gid: u32, groups: impl AsRef<[u32]>) -> Credentials {
        let groups = groups.as_ref();
        Credentials { uid, gid, groups: (!groups.is_empty()).then(|| groups.into()) }
    }

    /// Creates the credentials of user 0 and group 0, which permit every possible operation.
    pub fn superuser() -> Credentials {
        Credentials::new(0, 0, [])
    }

    /// Returns the user, who owns new files.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the group of new files.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the group and the supplementary groups.
    pub(crate) fn gids(&self) -> Vec<u32> {
        std::iter::once(self.gid).chain(self.groups().iter().copied()).collect()
    }

    /// Returns whether `gid` is the group or one of the supplementary groups.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups().contains(&gid)
    }

    fn groups(&self) -> &[u32] {
        self.groups.as_deref().unwrap_or_default()
    }

    /// Returns whether the user is user 0.
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    /// Returns whether the user may use the blocks reserved for root.
    pub fn privilege(&self) -> Privilege {
        if self.uid == 0 { Privilege::Root } else { Privilege::Ordinary }
    }

    pub(crate) fn owns(&self, uid: u32) -> bool {
        self.uid == uid || self.is_superuser()
    }
}
