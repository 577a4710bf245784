//! Access control lists in the text form of getfacl(1) and setfacl(1).

use super::UserNames;
use lanefs_ondisk::acl::{Acl, AclEntry, Permissions, Tag};

/// Formats permissions, as "r-x".
pub fn rights(permissions: Permissions) -> String {
    let letter = |right, letter| if permissions.contains(right) { letter } else { '-' };
    [
        letter(Permissions::READ, 'r'),
        letter(Permissions::WRITE, 'w'),
        letter(Permissions::EXECUTE, 'x'),
    ]
    .iter()
    .collect()
}

/// Which of a file's two lists an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The access list, which applies to the file itself.
    Access,
    /// The default list of a directory. New files in the directory get this list.
    Default,
}

/// Formats an entry, for example as "user:ann:rw-".
pub fn entry_text(entry: &AclEntry, names: &UserNames) -> String {
    let (kind, name) = match entry.tag {
        Tag::Owner => ("user", String::new()),
        Tag::User(id) => ("user", names.user(id)),
        Tag::OwningGroup => ("group", String::new()),
        Tag::Group(id) => ("group", names.group(id)),
        Tag::Mask => ("mask", String::new()),
        Tag::Other => ("other", String::new()),
    };
    format!("{kind}:{name}:{}", rights(entry.permissions))
}

/// Returns those permissions of an entry that remain after the mask is applied; `None` if the mask
/// removes no permission.
pub fn effective(list: &Acl, entry: &AclEntry) -> Option<Permissions> {
    if matches!(entry.tag, Tag::Owner | Tag::Mask | Tag::Other) {
        return None;
    }
    let mask = list.entries().iter().find(|entry| entry.tag == Tag::Mask)?;
    let left = entry.permissions.intersection(mask.permissions);
    (left != entry.permissions).then_some(left)
}

/// An entry to set or to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclItem {
    pub scope: Scope,
    pub tag: Tag,
    /// `None` if the entry is to be removed.
    pub permissions: Option<Permissions>,
    /// Whether the text of the entry has an `X`: the right to execute is added if the file is a
    /// directory or if an entry of its list has this right already.
    pub execute_if_any: bool,
}

impl AclItem {
    /// Parses "[default:]user:NAME:rwx", "u:NAME" and the like. A comment after the entry is
    /// ignored.
    pub fn parse(text: &str, names: &UserNames) -> Result<AclItem, String> {
        let text = text.split('#').next().unwrap_or_default().trim();
        let bad = || format!("'{text}' is not an entry (examples: u:ann:rw, g::r, m::rwx, d:o::-)");
        let mut parts = text.split(':').map(str::trim).peekable();
        let scope = match parts.next_if(|part| matches!(*part, "d" | "default")) {
            Some(_) => Scope::Default,
            None => Scope::Access,
        };
        let kind = parts.next().ok_or_else(bad)?;
        let rest: Vec<&str> = parts.collect();
        let is_class = matches!(kind, "m" | "mask" | "o" | "other");
        // "mask:rwx" and "other:rwx" leave out the empty name and its colon.
        let (name, rights) = match rest.as_slice() {
            [] => ("", None),
            [rights] if is_class && !rights.is_empty() => ("", Some(*rights)),
            [name] => (*name, None),
            [name, rights] => (*name, Some(*rights)),
            _ => return Err(bad()),
        };
        let tag = match (kind, name.is_empty()) {
            ("u" | "user", true) => Tag::Owner,
            ("u" | "user", false) => Tag::User(names.uid(name)?),
            ("g" | "group", true) => Tag::OwningGroup,
            ("g" | "group", false) => Tag::Group(names.gid(name)?),
            ("m" | "mask", true) => Tag::Mask,
            ("o" | "other", true) => Tag::Other,
            _ => return Err(bad()),
        };
        let mut item = AclItem { scope, tag, permissions: None, execute_if_any: false };
        if let Some(rights) = rights {
            let (permissions, execute_if_any) = parse_rights(rights).ok_or_else(bad)?;
            item.permissions = Some(permissions);
            item.execute_if_any = execute_if_any;
        }
        Ok(item)
    }
}

/// Parses "rwx", "r-X" or an octal digit; also returns whether there is an `X`.
fn parse_rights(text: &str) -> Option<(Permissions, bool)> {
    if let [digit @ b'0'..=b'7'] = text.as_bytes() {
        return Some((Permissions::from_bits(u16::from(digit - b'0')), false));
    }
    let mut given = (Permissions::NONE, false);
    for letter in text.chars() {
        given.0 = given.0.union(match letter {
            'r' => Permissions::READ,
            'w' => Permissions::WRITE,
            'x' => Permissions::EXECUTE,
            'X' => {
                given.1 = true;
                Permissions::NONE
            }
            '-' => Permissions::NONE,
            _ => return None,
        });
    }
    (!text.is_empty()).then_some(given)
}
