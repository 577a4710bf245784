//! How the files of a host's directory are seen: which owners, modes and types they have, which
//! extended attributes are kept, and what is done about files that cannot be read.

use crate::entry::Meta;
use crate::error::{Cause, Error, Result};
use lanefs_ondisk::FileType;
use regex::bytes::Regex;
use std::collections::HashMap;

/// How the directories among the sources are seen.
#[derive(Debug, Clone, Default)]
pub struct HostView {
    /// Whether owner, mode and type are taken from the attributes in which rootless containers keep
    /// them: `user.containers.override_stat` and `user.fuseoverlayfs.override_stat`
    /// (`UID:GID:MODE[:TYPE]`), and `user.rootlesscontainers` (a protobuf message of uid and gid).
    /// These attributes do not reach the image.
    pub override_stat: bool,
    /// Owners, modes and types that fakeroot(1) has saved. They take precedence.
    pub fakeroot: Option<FakerootState>,
    /// What to do about files that cannot be read.
    pub unreadable: Unreadable,
}

/// What to do about a file that this user may not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unreadable {
    /// The build fails, and names all of them.
    #[default]
    Fail,
    /// It is left out. Of a directory, everything in it is.
    Skip,
}

/// What `fakeroot -s` has saved: owner, mode and type of files, by device and inode.
#[derive(Debug, Clone, Default)]
pub struct FakerootState {
    files: HashMap<(u64, u64), Claim>,
}

impl FakerootState {
    /// Parses a file that `fakeroot -s` has written; `name` is for messages.
    ///
    /// # Errors
    /// The error names the first wrong line.
    pub fn parse(name: &str, text: &str) -> Result<FakerootState> {
        let mut files = HashMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            let wrong = || {
                let detail = "not dev=,ino=,mode=,uid=,gid=,nlink=,rdev= of fakeroot -s".into();
                Error::new(name, Cause::Table { line, detail })
            };
            let (file, claim) = saved(text).ok_or_else(wrong)?;
            files.insert(file, claim);
        }
        Ok(FakerootState { files })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns what a file is to be, and whether the state has it. As in fakeroot, root owns a file
    /// that the state lacks.
    pub(crate) fn of(&self, device: u64, inode: u64) -> (Claim, bool) {
        let root = Claim { uid: Some(0), gid: Some(0), ..Claim::default() };
        self.files.get(&(device, inode)).map_or((root, false), |claim| (*claim, true))
    }
}

/// Parses a line of fakeroot's state. Numbers are decimal, but `dev` is hexadecimal and `mode`
/// octal.
fn saved(text: &str) -> Option<((u64, u64), Claim)> {
    let mut fields = text.trim().split(',');
    let mut field = |name: &str, radix: u32| {
        let value = fields.next()?.strip_prefix(name)?.strip_prefix('=')?;
        u64::from_str_radix(value, radix).ok()
    };
    let file = (field("dev", 16)?, field("ino", 10)?);
    let mode = u16::try_from(field("mode", 8)?).ok()?;
    let (uid, gid) = (field("uid", 10)?.try_into().ok()?, field("gid", 10)?.try_into().ok()?);
    let (_, rdev) = (field("nlink", 10)?, field("rdev", 10)?);
    let special = (FileType::from_mode(mode)?, rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let permissions = Some(mode & 0o7777);
    Some((file, Claim { uid: Some(uid), gid: Some(gid), permissions, special: Some(special) }))
}

/// What a file is to be, whatever the host says. Without a value, the host's is right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    uid: Option<u32>,
    gid: Option<u32>,
    permissions: Option<u16>,
    /// The type, and the numbers of a device.
    special: Option<Special>,
}

/// A type, and the numbers of a device.
pub(crate) type Special = (FileType, u32, u32);

const CONTAINERS: &[u8] = b"user.containers.override_stat";
const FUSE_OVERLAYFS: &[u8] = b"user.fuseoverlayfs.override_stat";
const ROOTLESS: &[u8] = b"user.rootlesscontainers";

/// Returns whether an attribute claims owners.
pub(crate) fn is_claim(name: &[u8]) -> bool {
    [CONTAINERS, FUSE_OVERLAYFS, ROOTLESS].contains(&name)
}

impl Claim {
    /// Takes the attributes that claim owners out of `meta`, and returns what they claim. Those of
    /// containers take precedence, since only they have the mode.
    ///
    /// # Errors
    /// If one is malformed.
    pub(crate) fn take(meta: &mut Meta) -> Result<Claim> {
        let mut found = Claim::default();
        for name in [ROOTLESS, FUSE_OVERLAYFS, CONTAINERS] {
            let value = meta.attributes.iter().find(|(known, _)| known == name);
            let Some((_, value)) = value else { continue };
            let claim = if name == ROOTLESS { of_message(value) } else { of_text(value) };
            found = claim.ok_or_else(|| {
                let name = String::from_utf8_lossy(name);
                let detail = format!("{name} is '{}'", value.escape_ascii());
                Error::new("", Cause::Invalid { what: "an attribute that states owners", detail })
            })?;
            meta.remove_attribute(name);
        }
        Ok(found)
    }

    /// Changes `meta` as claimed, and returns the claimed type.
    pub(crate) fn apply(self, meta: &mut Meta) -> Option<Special> {
        meta.change(self.permissions, self.uid, self.gid);
        self.special
    }
}

/// Parses `UID:GID:MODE` or `UID:GID:MODE:TYPE`, with an octal mode. A device's type is
/// `block-MAJOR-MINOR` or `char-MAJOR-MINOR`.
fn of_text(value: &[u8]) -> Option<Claim> {
    let text = std::str::from_utf8(value).ok()?.trim_end_matches('\0');
    let mut fields = text.split(':');
    let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let mode = u16::from_str_radix(fields.next()?, 8).ok()?;
    // containers/storage also writes "file" for what it does not know the type of.
    let special = fields.next().filter(|text| *text != "file").map(of_type);
    let is_whole = fields.next().is_none() && special != Some(None);
    let permissions = Some(mode & 0o7777);
    let claim = Claim { uid: Some(uid), gid: Some(gid), permissions, special: special.flatten() };
    is_whole.then_some(claim)
}

fn of_type(text: &str) -> Option<Special> {
    let mut words = text.split('-');
    let kind = match words.next()? {
        "dir" => FileType::Directory,
        "symlink" => FileType::Symlink,
        "pipe" => FileType::Fifo,
        "socket" => FileType::Socket,
        "block" => FileType::BlockDevice,
        "char" => FileType::CharDevice,
        _ => return None,
    };
    let numbers = match kind {
        FileType::BlockDevice | FileType::CharDevice => {
            (words.next()?.parse().ok()?, words.next()?.parse().ok()?)
        }
        _ => (0, 0),
    };
    words.next().is_none().then_some((kind, numbers.0, numbers.1))
}

/// Parses the protobuf message of rootless-containers/proto: field 1 is the user, field 2 the
/// group. A missing field is 0, and 4294967295 means that the host's is right.
fn of_message(bytes: &[u8]) -> Option<Claim> {
    let (mut ids, mut rest) = ([0, 0], bytes);
    while let Some((tag, value)) = rest.split_first() {
        let (number, after) = varint(value)?;
        let id = match tag {
            0x08 => ids.first_mut()?,
            0x10 => ids.last_mut()?,
            _ => return None,
        };
        *id = u32::try_from(number).ok()?;
        rest = after;
    }
    let [uid, gid] = ids.map(|id| Some(id).filter(|id| *id != u32::MAX));
    Some(Claim { uid, gid, ..Claim::default() })
}

/// Splits a number of protobuf from the bytes after it: seven bits in a byte, the lowest first.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = bytes.iter().take(5).position(|byte| *byte < 0x80)? + 1;
    let (number, rest) = bytes.split_at_checked(len)?;
    let value = number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, rest))
}

/// Which extended attributes reach the image.
#[derive(Debug, Clone)]
pub struct AttributeFilter {
    /// In the order given, with whether the attributes are kept.
    patterns: Vec<(Regex, bool)>,
}

impl AttributeFilter {
    /// Parses patterns of full names, with `*` and `?`; `^` before one leaves its attributes out.
    /// The last pattern that fits decides. A name that none fits is kept if the first pattern
    /// leaves attributes out.
    ///
    /// # Errors
    /// A text that names the pattern, which is too long.
    pub fn parse(patterns: &[String]) -> std::result::Result<AttributeFilter, String> {
        let parse = |text: &String| {
            let (glob, keeps) =
                text.strip_prefix('^').map_or((&**text, true), |rest| (rest, false));
            let escaped = regex::escape(glob).replace(r"\*", ".*").replace(r"\?", ".");
            let regex = Regex::new(&format!("(?s-u)^{escaped}$"));
            regex.map(|regex| (regex, keeps)).map_err(|_| format!("'{text}' is not a pattern"))
        };
        let patterns = patterns.iter().map(parse).collect::<std::result::Result<_, _>>()?;
        Ok(AttributeFilter { patterns })
    }

    pub(crate) fn keeps(&self, name: &[u8]) -> bool {
        let last = self.patterns.iter().rev().find(|(regex, _)| regex.is_match(name));
        let first = self.patterns.first();
        last.map_or_else(|| first.is_none_or(|(_, keeps)| !keeps), |(_, keeps)| *keeps)
    }
}

/// Returns whether an attribute is a label that is true on the host only.
pub(crate) fn is_label_of_host(name: &[u8]) -> bool {
    [&b"security.selinux"[..], b"security.ima", b"security.evm"].contains(&name)
}
