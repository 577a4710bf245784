//! Access control lists as text, as star and GNU tar write them.

use lanefs_ondisk::acl::{Acl, AclEntry, Permissions, Tag};

/// Returns the list in the form of getxattr(2). Entries name users and groups by number, or by name
/// with the number as a fourth part. A name without a number is converted to the number that it has
/// on this machine, as tar(1) does when it unpacks.
pub(super) fn parse(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let entries: Option<Vec<AclEntry>> = text
        .split([',', '\n'])
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
        .map(entry)
        .collect();
    Some(Acl::from_unordered(entries?).ok()?.to_system())
}

fn entry(line: &str) -> Option<AclEntry> {
    let line = line.strip_prefix("default:").unwrap_or(line);
    let mut parts = line.split(':');
    let (kind, name, rights) = (parts.next()?, parts.next()?, parts.next()?);
    let fourth = parts.next();
    let id = |names: &str| {
        let number = fourth.unwrap_or(name).parse().or_else(|_| name.parse());
        number.ok().or_else(|| number_of(names, name))
    };
    let tag = match (kind, name.is_empty()) {
        ("user" | "u", true) => Tag::Owner,
        ("user" | "u", false) => Tag::User(id("/etc/passwd")?),
        ("group" | "g", true) => Tag::OwningGroup,
        ("group" | "g", false) => Tag::Group(id("/etc/group")?),
        ("mask" | "m", _) => Tag::Mask,
        ("other" | "o", _) => Tag::Other,
        _ => return None,
    };
    let bits = rights.chars().take(3).try_fold(0, |bits, letter| {
        Some(
            bits | match letter {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                '-' => 0,
                _ => return None,
            },
        )
    });
    Some(AclEntry { tag, permissions: Permissions::from_bits(bits?) })
}

/// Looks a name up in a file of lines "NAME:PASSWORD:NUMBER:...".
fn number_of(file: &str, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_as_numbers_or_behind_the_rights() {
        let numbers = parse(b"user::rw-,user:1000:r--,group::r--,mask::r--,other::---");
        let named = parse(b"user::rw-\nuser:ann:r--:1000\ngroup::r--\nmask::r--\nother::---\n");
        assert!(numbers.is_some());
        assert_eq!(numbers, named);
        assert_eq!(parse(b"user::rw-,user:no such user:r--,group::r--,mask::r--,other::---"), None);
        assert_eq!(parse(b"user::rwz"), None);
        let root = parse(b"user::rw-,user:root:r--,group::r--,mask::r--,other::---");
        assert_eq!(root, parse(b"user::rw-,user:0:r--,group::r--,mask::r--,other::---"));
    }
}
