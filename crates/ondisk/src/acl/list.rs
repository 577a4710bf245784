//! Permissions, tags and entries of a list.

use crate::cause::acl::Cause;
/// A set of permissions, with the bits 4 for read, 2 for write and 1 for execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions(u8);

impl Permissions {
    /// No permission.
    pub const NONE: Permissions = Permissions(0);
    /// Permission to read.
    pub const READ: Permissions = Permissions(4);
    /// Permission to write.
    pub const WRITE: Permissions = Permissions(2);
    /// Permission to execute, or to search a directory.
    pub const EXECUTE: Permissions = Permissions(1);

    /// Decodes permissions from the low three bits of `bits`.
    pub fn from_bits(bits: u16) -> Permissions {
        Permissions((bits & 7) as u8)
    }

    /// Returns the permissions as three bits.
    pub fn bits(self) -> u16 {
        u16::from(self.0)
    }

    /// Returns the permissions that are in at least one of the two sets.
    pub fn union(self, other: Permissions) -> Permissions {
        Permissions(self.0 | other.0)
    }

    /// Returns the permissions that are in both sets.
    pub fn intersection(self, other: Permissions) -> Permissions {
        Permissions(self.0 & other.0)
    }

    /// Returns whether every permission of `other` is in this set.
    pub fn contains(self, other: Permissions) -> bool {
        other.0 & !self.0 == 0
    }
}

/// The kind of an entry: either the mask, or the users whose permissions the entry sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tag {
    /// The file's owner.
    Owner,
    /// A named user.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// A named group.
    Group(u32),
    /// The mask, which limits the permissions of named users and of all groups.
    Mask,
    /// All other users.
    Other,
}

impl Tag {
    /// Returns the tag's position in the order of a list's entries.
    fn rank(self) -> u8 {
        match self {
            Tag::Owner => 0,
            Tag::User(_) => 1,
            Tag::OwningGroup => 2,
            Tag::Group(_) => 3,
            Tag::Mask => 4,
            Tag::Other => 5,
        }
    }

    /// Returns the id of a named user or group.
    fn id(self) -> Option<u32> {
        match self {
            Tag::User(id) | Tag::Group(id) => Some(id),
            Tag::Owner | Tag::OwningGroup | Tag::Mask | Tag::Other => None,
        }
    }

    fn is_named(self) -> bool {
        self.id().is_some()
    }
}

/// An entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclEntry {
    /// The subject.
    pub tag: Tag,
    /// The permissions that the entry grants.
    pub permissions: Permissions,
}

/// A valid list, in the order of [`Tag`]. It has one entry each for owner, owning group and others,
/// and any number of entries for named users and groups. It may have a mask, and must have one if
/// there is a named user or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Creates a list from the entries, which must be complete and in order.
    pub fn new(entries: Vec<AclEntry>) -> Result<Acl, Cause> {
        let count = |rank| entries.iter().filter(|entry| entry.tag.rank() == rank).count();
        let ordered = entries.is_sorted_by_key(|entry| entry.tag.rank());
        if !ordered || [0, 2, 5].map(count) != [1; 3] || count(4) > 1 {
            return Err(Cause::Entries);
        }
        if entries.iter().any(|entry| entry.tag.is_named()) && count(4) == 0 {
            return Err(Cause::NoMask);
        }
        Ok(Acl { entries })
    }

    /// Creates a list from the entries, which must be complete, but may be in any order.
    pub fn from_unordered(mut entries: Vec<AclEntry>) -> Result<Acl, Cause> {
        entries.sort_by_key(|entry| (entry.tag.rank(), entry.tag.id()));
        Acl::new(entries)
    }

    /// Returns the list with the same meaning as the nine permission bits of `mode`.
    pub fn from_mode(mode: u16) -> Acl {
        let entry =
            |tag, shift| AclEntry { tag, permissions: Permissions::from_bits(mode >> shift) };
        Acl {
            entries: vec![entry(Tag::Owner, 6), entry(Tag::OwningGroup, 3), entry(Tag::Other, 0)],
        }
    }

    /// Returns the entries in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Returns whether the nine bits of a mode can express the list. If they can, only the mode is
    /// stored.
    pub fn is_minimal(&self) -> bool {
        self.entries.iter().all(|entry| !entry.tag.is_named() && entry.tag != Tag::Mask)
    }

    pub(super) fn permissions(&self, tag: Tag) -> Option<Permissions> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    pub(super) fn set(&mut self, tag: Tag, permissions: Permissions) {
        for entry in self.entries.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }

    /// Returns the tag of the entry that the mode's group bits correspond to: the mask if there is
    /// one, otherwise the owning group.
    pub(super) fn group_class(&self) -> Tag {
        if self.permissions(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup }
    }
}
