//! Modes in the grammar of chmod(1), and access control lists in that of setfacl(1).

use crate::cli::{UserNames, type_letter};
use lanefs::FileType;
use lanefs_ondisk::acl::{Acl, AclEntry, Permissions, Tag};
use std::str::FromStr;

const ALL: u16 = 0o7777;

/// A change of a mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModeChange {
    /// The mode becomes this number, except that a directory may keep its set-ID bits.
    Octal(u16, SetIds),
    /// Symbolic clauses, applied in order.
    Symbolic(Vec<Clause>),
}

/// What a numeric mode does with the set-ID bits of a directory. Source: GNU Coreutils manual,
/// "Directories and the Set-User-ID and Set-Group-ID Bits".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetIds {
    /// With up to four digits, the mode can set the set-ID bits but not clear them.
    Added,
    /// With five digits or more, such as 00755, the mode can clear the set-ID bits too.
    Exact,
}

/// One step, such as `u+x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clause {
    /// Bits of the classes that are named (0o700 user, 0o070 group, 0o007 other). `None` if no
    /// class is named; the step then applies to all classes, except for bits in the umask.
    who: Option<u16>,
    action: Action,
    what: Bits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Add,
    Remove,
    Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Bits {
    /// rwx of one class, in the low three bits.
    rwx: u16,
    /// X: execute, if the file is a directory or some class may already execute it.
    if_executable: u16,
    set_id: u16,
    sticky: u16,
    /// The class from which the bits are copied (`g=u`). Stored as the position of the class's
    /// lowest bit in the mode.
    copy_from: Option<u16>,
}

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<ModeChange, String> {
        let bad = || format!("'{text}' is not a mode (examples: 644, u+x, go-w, a=rX)");
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return match u16::from_str_radix(text, 8) {
                Ok(mode) if mode <= ALL => {
                    let set_ids = if text.len() < 5 { SetIds::Added } else { SetIds::Exact };
                    Ok(ModeChange::Octal(mode, set_ids))
                }
                _ => Err(bad()),
            };
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_part(part, &mut clauses).ok_or_else(bad)?;
        }
        Ok(ModeChange::Symbolic(clauses))
    }
}

/// Parses the text between two commas, which has the form `[ugoa]*([-+=]([rwxXst]*|[ugo]))+`.
fn parse_part(part: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let mut letters = part.chars().peekable();
    let mut named = 0;
    while let Some(class) = letters.peek().copied() {
        named |= match class {
            'u' => 0o700,
            'g' => 0o070,
            'o' => 0o007,
            'a' => 0o777,
            _ => break,
        };
        letters.next();
    }
    let who = (named != 0).then_some(named);
    letters.peek()?;
    while let Some(action) = letters.next() {
        let action = match action {
            '+' => Action::Add,
            '-' => Action::Remove,
            '=' => Action::Set,
            _ => return None,
        };
        let mut what = Bits::default();
        while let Some(letter) = letters.peek().copied() {
            match letter {
                'r' => what.rwx |= 4,
                'w' => what.rwx |= 2,
                'x' => what.rwx |= 1,
                'X' => what.if_executable = 1,
                's' => what.set_id = 0o6000,
                't' => what.sticky = 0o1000,
                'u' | 'g' | 'o' if what == Bits::default() => {
                    what.copy_from = Some(match letter {
                        'u' => 6,
                        'g' => 3,
                        _ => 0,
                    });
                    letters.next();
                    break;
                }
                _ => break,
            }
            letters.next();
        }
        clauses.push(Clause { who, action, what });
    }
    Some(())
}

impl ModeChange {
    /// Returns the new mode of a file whose mode is `old`, for a process with `umask`.
    pub fn apply(&self, old: u16, file_type: FileType, umask: u16) -> u16 {
        self.applied(old, file_type, umask).0
    }

    /// Returns the new mode, and the bits that the change decides.
    pub fn applied(&self, old: u16, file_type: FileType, umask: u16) -> (u16, u16) {
        match self {
            ModeChange::Octal(mode, SetIds::Added) if file_type == FileType::Directory => {
                (mode | (old & 0o6000), 0o1777 | mode)
            }
            ModeChange::Octal(mode, _) => (*mode, ALL),
            ModeChange::Symbolic(clauses) => {
                clauses.iter().fold((old & ALL, 0), |(mode, decided), clause| {
                    let (mode, more) = clause.apply(mode, file_type, umask);
                    (mode, decided | more)
                })
            }
        }
    }
}

impl Clause {
    /// Returns the new mode, and the bits that this step decides.
    fn apply(&self, mode: u16, file_type: FileType, umask: u16) -> (u16, u16) {
        let who = self.who.unwrap_or(0o777);
        let executable = file_type == FileType::Directory || mode & 0o111 != 0;
        let mut rwx = self.what.rwx;
        if executable {
            rwx |= self.what.if_executable;
        }
        if let Some(shift) = self.what.copy_from {
            rwx |= mode >> shift & 7;
        }
        let mut bits = (rwx << 6 | rwx << 3 | rwx) & who;
        if self.who.is_none() {
            bits &= !umask;
        }
        let set_ids = (if who & 0o700 != 0 { 0o4000 } else { 0 })
            | (if who & 0o070 != 0 { 0o2000 } else { 0 });
        bits |= self.what.set_id & set_ids;
        let sticky = if who & 0o007 != 0 || self.who.is_none() { 0o1000 } else { 0 };
        bits |= self.what.sticky & sticky;
        match self.action {
            Action::Add => (mode | bits, bits),
            Action::Remove => (mode & !bits, bits),
            Action::Set => {
                // A directory keeps its set-ID bits unless the mode names them, as in GNU chmod.
                let cleared = if file_type == FileType::Directory { 0 } else { set_ids };
                let decided = who | cleared | sticky;
                (mode & !decided | bits, decided | bits)
            }
        }
    }
}

/// Returns the umask of this process. Must be called before other threads start, because the
/// function sets another umask for a moment.
pub fn process_umask() -> u16 {
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    (umask.bits() & 0o777) as u16
}

/// Formats `mode`, with its type, as the ten letters of `ls -l`.
pub fn mode_string(mode: u16) -> String {
    let kind = match FileType::from_mode(mode) {
        Some(FileType::Regular) => '-',
        Some(file_type) => type_letter(file_type),
        None => '?',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let class = mode >> shift;
        text.push(if class & 4 != 0 { 'r' } else { '-' });
        text.push(if class & 2 != 0 { 'w' } else { '-' });
        text.push(match (class & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

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

#[cfg(test)]
mod tests;
