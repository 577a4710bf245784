//! Encodes and decodes both forms of an access control list.

use super::{Acl, AclEntry, Cause, Permissions, Tag};

const DISK_VERSION: u32 = 1;
const SYSTEM_VERSION: u32 = 2;
/// The value of the id field in an entry without an id.
const NO_ID: u32 = !0;

impl Acl {
    /// Decodes ext4's form.
    pub fn from_disk(bytes: &[u8]) -> Result<Acl, Cause> {
        let mut rest = after_version(bytes, DISK_VERSION)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let offset = bytes.len() - rest.len();
            let (tag, permissions) = head(bytes, &mut rest)?;
            let id = if has_id(tag) { word(bytes, &mut rest)? } else { NO_ID };
            entries.push(entry(offset, tag, permissions, id)?);
        }
        Acl::new(entries)
    }

    /// Encodes ext4's form.
    pub fn to_disk(&self) -> Vec<u8> {
        let mut bytes = DISK_VERSION.to_le_bytes().to_vec();
        for entry in self.entries() {
            push_head(&mut bytes, entry);
            if let Tag::User(id) | Tag::Group(id) = entry.tag {
                bytes.extend(id.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes the form of setxattr(2). Returns `None` if `bytes` have no entries, which is a
    /// request to remove the list.
    pub fn from_system(bytes: &[u8]) -> Result<Option<Acl>, Cause> {
        let mut rest = after_version(bytes, SYSTEM_VERSION)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let offset = bytes.len() - rest.len();
            let (tag, permissions) = head(bytes, &mut rest)?;
            let id = word(bytes, &mut rest)?;
            entries.push(entry(offset, tag, permissions, id)?);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        Acl::new(entries).map(Some)
    }

    /// Encodes the form that getxattr(2) returns.
    pub fn to_system(&self) -> Vec<u8> {
        let mut bytes = SYSTEM_VERSION.to_le_bytes().to_vec();
        for entry in self.entries() {
            push_head(&mut bytes, entry);
            let id = match entry.tag {
                Tag::User(id) | Tag::Group(id) => id,
                _ => NO_ID,
            };
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
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

/// Returns the tag and the permissions of an entry.
fn head(bytes: &[u8], rest: &mut &[u8]) -> Result<(u16, u16), Cause> {
    let word = word(bytes, rest)?;
    Ok((word as u16, (word >> 16) as u16))
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

fn push_head(bytes: &mut Vec<u8>, entry: &AclEntry) {
    let tag: u16 = match entry.tag {
        Tag::Owner => 0x01,
        Tag::User(_) => 0x02,
        Tag::OwningGroup => 0x04,
        Tag::Group(_) => 0x08,
        Tag::Mask => 0x10,
        Tag::Other => 0x20,
    };
    bytes.extend(tag.to_le_bytes());
    bytes.extend(entry.permissions.bits().to_le_bytes());
}
