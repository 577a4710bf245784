//! POSIX access control lists, in the form of ext4's extended attribute and in the form of Linux's
//! system calls.
//!
//! Both forms consist of a version number and a list of entries. An entry has a tag, permissions
//! and, for a named user or group, an id. In the on-disk form (version 1) all other entries have no
//! id. In the form of the system calls (version 2) all other entries have an id without meaning.
//! The manual page acl(5) describes what the entries mean.

pub use crate::cause::AclCause as Cause;

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
    /// Returns the number in both forms. The entries of a list are in the order of these numbers.
    fn number(self) -> u16 {
        match self {
            Tag::Owner => 0x01,
            Tag::User(_) => 0x02,
            Tag::OwningGroup => 0x04,
            Tag::Group(_) => 0x08,
            Tag::Mask => 0x10,
            Tag::Other => 0x20,
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
        let count = |number| entries.iter().filter(|entry| entry.tag.number() == number).count();
        let ordered = entries.is_sorted_by_key(|entry| entry.tag.number());
        if !ordered || [0x01, 0x04, 0x20].map(count) != [1; 3] || count(0x10) > 1 {
            return Err(Cause::Entries);
        }
        if entries.iter().any(|entry| entry.tag.is_named()) && count(0x10) == 0 {
            return Err(Cause::NoMask);
        }
        Ok(Acl { entries })
    }

    /// Creates a list from the entries, which must be complete, but may be in any order.
    pub fn from_unordered(mut entries: Vec<AclEntry>) -> Result<Acl, Cause> {
        entries.sort_by_key(|entry| (entry.tag.number(), entry.tag.id()));
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

    fn permissions(&self, tag: Tag) -> Option<Permissions> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn set(&mut self, tag: Tag, permissions: Permissions) {
        for entry in self.entries.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }

    /// Returns the tag of the entry that the mode's group bits correspond to: the mask if there is
    /// one, otherwise the owning group.
    fn group_class(&self) -> Tag {
        if self.permissions(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup }
    }
}

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

/// The user and groups that request access.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The user.
    pub uid: u32,
    /// The group and the supplementary groups of the process that requests access.
    pub gids: &'a [u32],
}

/// The user and the group that own a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Acl {
    /// Returns whether `subject` has all `wanted` permissions for a file of `owner`. The algorithm
    /// is that of acl(5). The classes are owner, named users, groups and others, in this order, and
    /// the first class that matches decides. If several groups match, one of them must grant all
    /// wanted permissions by itself. Privileges, such as those of root, are ignored here: the
    /// caller checks them.
    pub fn allows(&self, wanted: Permissions, subject: &Subject<'_>, owner: &Owner) -> bool {
        let gives =
            |tag| self.permissions(tag).is_some_and(|has: Permissions| has.contains(wanted));
        if subject.uid == owner.uid {
            return gives(Tag::Owner);
        }
        if self.mode_bits() & 0o070 == 0 {
            // If the mode's group bits are all clear, Linux ignores the list. So a named user or
            // group gets the permissions of others, although acl(5) would deny access.
            return match subject.gids.contains(&owner.gid) {
                true => wanted == Permissions::NONE,
                false => gives(Tag::Other),
            };
        }
        let masked = self.permissions(Tag::Mask).is_none_or(|mask| mask.contains(wanted));
        if self.permissions(Tag::User(subject.uid)).is_some() {
            return gives(Tag::User(subject.uid)) && masked;
        }
        let mut groups = self.entries().iter().filter(|entry| match entry.tag {
            Tag::OwningGroup => subject.gids.contains(&owner.gid),
            Tag::Group(gid) => subject.gids.contains(&gid),
            _ => false,
        });
        match groups.next() {
            None => gives(Tag::Other),
            Some(first) => {
                let any = first.permissions.contains(wanted)
                    || groups.any(|entry| entry.permissions.contains(wanted));
                any && masked
            }
        }
    }
}

const DISK_VERSION: u32 = 1;
const SYSTEM_VERSION: u32 = 2;
/// The value of the id field in an entry without an id.
const NO_ID: u32 = !0;

impl Acl {
    /// Decodes ext4's form.
    pub fn from_disk(bytes: &[u8]) -> Result<Acl, Cause> {
        Acl::new(decode(bytes, DISK_VERSION)?)
    }

    /// Encodes ext4's form.
    pub fn to_disk(&self) -> Vec<u8> {
        self.encode(DISK_VERSION)
    }

    /// Decodes the form of setxattr(2). Returns `None` if `bytes` have no entries, which is a
    /// request to remove the list.
    pub fn from_system(bytes: &[u8]) -> Result<Option<Acl>, Cause> {
        let entries = decode(bytes, SYSTEM_VERSION)?;
        if entries.is_empty() { Ok(None) } else { Acl::new(entries).map(Some) }
    }

    /// Encodes the form that getxattr(2) returns.
    pub fn to_system(&self) -> Vec<u8> {
        self.encode(SYSTEM_VERSION)
    }

    fn encode(&self, version: u32) -> Vec<u8> {
        let mut bytes = version.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.number().to_le_bytes());
            bytes.extend(entry.permissions.bits().to_le_bytes());
            let no_id = (version == SYSTEM_VERSION).then_some(NO_ID);
            bytes.extend(entry.tag.id().or(no_id).map(u32::to_le_bytes).into_iter().flatten());
        }
        bytes
    }
}

fn decode(bytes: &[u8], version: u32) -> Result<Vec<AclEntry>, Cause> {
    let mut rest = after_version(bytes, version)?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let offset = bytes.len() - rest.len();
        let head = word(bytes, &mut rest)?;
        let (tag, permissions) = (head as u16, (head >> 16) as u16);
        let id = match version == SYSTEM_VERSION || has_id(tag) {
            true => word(bytes, &mut rest)?,
            false => NO_ID,
        };
        entries.push(entry(offset, tag, permissions, id)?);
    }
    Ok(entries)
}

fn after_version(bytes: &[u8], expected: u32) -> Result<&[u8], Cause> {
    let (version, rest) = bytes.split_first_chunk().ok_or(Cause::Length { len: bytes.len() })?;
    let found = u32::from_le_bytes(*version);
    if found != expected {
        return Err(Cause::Version { found, expected });
    }
    Ok(rest)
}

fn word(bytes: &[u8], rest: &mut &[u8]) -> Result<u32, Cause> {
    let (word, after) = rest.split_first_chunk().ok_or(Cause::Length { len: bytes.len() })?;
    *rest = after;
    Ok(u32::from_le_bytes(*word))
}

fn has_id(tag: u16) -> bool {
    matches!(tag, 2 | 8)
}

fn entry(offset: usize, tag: u16, permissions: u16, id: u32) -> Result<AclEntry, Cause> {
    if has_id(tag) && id == NO_ID {
        return Err(Cause::Id { offset });
    }
    if permissions > 7 {
        return Err(Cause::Permissions { offset, found: permissions });
    }
    let tag = match tag {
        0x01 => Tag::Owner,
        0x02 => Tag::User(id),
        0x04 => Tag::OwningGroup,
        0x08 => Tag::Group(id),
        0x10 => Tag::Mask,
        0x20 => Tag::Other,
        found => return Err(Cause::Tag { offset, found }),
    };
    Ok(AclEntry { tag, permissions: Permissions::from_bits(permissions) })
}

#[cfg(test)]
mod tests;
