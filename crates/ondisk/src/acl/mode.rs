//! Converts between lists and the nine permission bits of a mode.

use super::{Acl, Permissions, Tag};

/// The mode and list that a new file gets from its directory's default list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    /// The requested mode, whose nine low bits keep only the permissions that the default list
    /// grants too. No umask applies.
    pub mode: u16,
    /// The access list; `None` if the mode can express it. (A new directory also gets the default
    /// list.)
    pub access: Option<Acl>,
}

impl Acl {
    /// Returns the nine mode bits of this list. The bits of the group are those of the mask if
    /// there is one, otherwise those of the owning group.
    pub fn mode_bits(&self) -> u16 {
        let bits = |tag| self.permissions(tag).unwrap_or(Permissions::NONE).bits();
        bits(Tag::Owner) << 6 | bits(self.group_class()) << 3 | bits(Tag::Other)
    }

    /// Returns the list as chmod(2) changes it: each of the three entries that correspond to the
    /// mode gets its three bits of the mode.
    pub fn with_mode(mut self, mode: u16) -> Acl {
        let group_class = self.group_class();
        self.set(Tag::Owner, Permissions::from_bits(mode >> 6));
        self.set(group_class, Permissions::from_bits(mode >> 3));
        self.set(Tag::Other, Permissions::from_bits(mode));
        self
    }

    /// Applies a directory's default list to a new file with the requested `mode`. The new list and
    /// the new mode grant only the permissions that the default list and `mode` both grant.
    pub fn inherit(&self, mode: u16) -> Inherited {
        let reduced = self.mode_bits() & mode;
        let access = self.clone().with_mode(reduced);
        let mode = mode & !0o777 | reduced;
        Inherited { mode, access: (!access.is_minimal()).then_some(access) }
    }
}
