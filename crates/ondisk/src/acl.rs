//! POSIX access control lists, as ext4 keeps them in an extended attribute and as Linux passes them.
//!
//! Both forms are a version number and entries of tag, permissions and, for named users and groups,
//! an id; on disk (version 1) the other entries leave the id out, in the system's form (version 2)
//! they carry one without meaning. What the entries mean follows acl(5).

mod access;
mod codec;
mod mode;

pub use access::{Owner, Subject};
pub use mode::Inherited;

use thiserror::Error;

/// What can be wrong with an access control list. Offsets are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the place and what was found there
pub enum Cause {
    #[error("{len} bytes do not make a list")]
    Length { len: usize },
    #[error("version {found}, not {expected}")]
    Version { found: u32, expected: u32 },
    #[error("the entry at {offset} has tag {found:#x}")]
    Tag { offset: usize, found: u16 },
    #[error("the entry at {offset} has permissions {found:#o}")]
    Permissions { offset: usize, found: u16 },
    #[error("the entry at {offset} has no valid id")]
    Id { offset: usize },
    #[error("an entry is missing, doubled or out of order")]
    Entries,
    #[error("named users or groups, but no mask")]
    NoMask,
}

/// Read 4, write 2, execute 1: a set of permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions(u8);

impl Permissions {
    /// None.
    pub const NONE: Permissions = Permissions(0);
    /// To read.
    pub const READ: Permissions = Permissions(4);
    /// To write.
    pub const WRITE: Permissions = Permissions(2);
    /// To execute, or to search a directory.
    pub const EXECUTE: Permissions = Permissions(1);

    /// The low three bits.
    pub fn from_bits(bits: u16) -> Permissions {
        Permissions((bits & 7) as u8)
    }

    /// As three bits.
    pub fn bits(self) -> u16 {
        u16::from(self.0)
    }

    /// Those in either.
    pub fn union(self, other: Permissions) -> Permissions {
        Permissions(self.0 | other.0)
    }

    /// Those in both.
    pub fn intersection(self, other: Permissions) -> Permissions {
        Permissions(self.0 & other.0)
    }

    /// True if `other` has nothing that is not here.
    pub fn contains(self, other: Permissions) -> bool {
        other.0 & !self.0 == 0
    }
}

/// Whom an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tag {
    /// The file's owner.
    Owner,
    /// This user.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// This group.
    Group(u32),
    /// The most that named users and all groups get.
    Mask,
    /// Everybody else.
    Other,
}

impl Tag {
    /// Place in the order of entries.
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

    fn is_named(self) -> bool {
        matches!(self, Tag::User(_) | Tag::Group(_))
    }
}

/// An entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it is about.
    pub tag: Tag,
    /// What they may do.
    pub permissions: Permissions,
}

/// A valid list: one entry each for owner, owning group and others, any number for named users and
/// groups, and a mask, which there must be if anybody is named; in the order of [`Tag`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Checks the entries.
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

    /// The list that says the same as these nine bits of a mode.
    pub fn from_mode(mode: u16) -> Acl {
        let entry =
            |tag, shift| AclEntry { tag, permissions: Permissions::from_bits(mode >> shift) };
        Acl {
            entries: vec![entry(Tag::Owner, 6), entry(Tag::OwningGroup, 3), entry(Tag::Other, 0)],
        }
    }

    /// The entries in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// True if it says no more than the nine bits of a mode can say: then only the mode is kept.
    pub fn is_minimal(&self) -> bool {
        self.entries.iter().all(|entry| !entry.tag.is_named() && entry.tag != Tag::Mask)
    }

    fn permissions(&self, tag: Tag) -> Option<Permissions> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn set(&mut self, tag: Tag, permissions: Permissions) {
        for entry in self.entries.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }

    /// What the mode's group bits stand for: the mask if there is one.
    fn group_class(&self) -> Tag {
        if self.permissions(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup }
    }
}

#[cfg(test)]
mod tests;
