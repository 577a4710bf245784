//! The maps of a mount: users, groups and callers.

use super::map::{Map, Refusal};
use lanefs_ondisk::acl::{Acl, AclEntry, Tag};
use std::fmt;

/// Replaces an unmapped id in an access control list. The kernel's own "no id" cannot be used
/// there, because the kernel refuses a list that contains it. No process has the replacement id,
/// and the mount options cannot map it.
pub(super) const UNMAPPED_IN_LIST: u32 = u32::MAX - 1;

/// Set-user-ID and set-group-ID.
const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;

/// How the ids of the host and of the image are mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ids {
    pub(super) users: Map,
    pub(super) groups: Map,
    /// The host id that is mapped to user 0 of the image.
    pub(super) fakeroot: Option<u32>,
}

/// The caller of a request, with ids of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// User and group; `None` if one of them is unmapped.
    pub ids: Option<(u32, u32)>,
    /// Whether the caller is root of the host, or acts as root of the image.
    pub is_superuser: bool,
}

impl Ids {
    /// Returns the ids under which the host sees a user and a group of the image.
    pub fn shown(&self, uid: u32, gid: u32) -> (u32, u32) {
        (self.users.shown(uid), self.groups.shown(gid))
    }

    /// Returns the caller with these host ids.
    pub fn caller(&self, uid: u32, gid: u32) -> Caller {
        if self.fakeroot == Some(uid) {
            return Caller { ids: Some((0, 0)), is_superuser: true };
        }
        let ids = self.users.stored(uid).zip(self.groups.stored(gid));
        Caller { ids, is_superuser: uid == 0 }
    }

    /// Returns the groups of the image for supplementary groups of the host; unmapped ones are left
    /// out.
    pub fn groups(&self, groups: impl IntoIterator<Item = u32>) -> Vec<u32> {
        groups.into_iter().filter_map(|gid| self.groups.stored(gid)).collect()
    }

    /// Returns the user to store for the chosen owner `uid`, or `None` if the present user stays.
    ///
    /// # Errors
    /// See `Refusal`.
    pub fn chosen_user(&self, uid: u32) -> Result<Option<u32>, Refusal> {
        self.users.chosen(uid)
    }

    /// Does the same as [`Ids::chosen_user`] for a group.
    ///
    /// # Errors
    /// See `Refusal`.
    pub fn chosen_group(&self, gid: u32) -> Result<Option<u32>, Refusal> {
        self.groups.chosen(gid)
    }

    /// Returns the permissions of a new file. The caller has these host ids and asked for the
    /// permissions `asked`. If all files are shown with one owner, the set-user-ID and set-group-ID
    /// bits are cleared for other callers, because their programs would run as that owner.
    pub fn new_permissions(&self, uid: u32, gid: u32, asked: u16) -> u16 {
        let mut cleared = 0;
        if !self.users.is_shown_as(uid) {
            cleared |= SET_USER_ID;
        }
        if !self.groups.is_shown_as(gid) {
            cleared |= SET_GROUP_ID;
        }
        asked & !cleared
    }

    /// Returns whether access control lists have the same ids on the host and in the image.
    pub fn keeps_lists(&self) -> bool {
        let same = |map: &Map| !matches!(map, Map::Ranges(_));
        same(&self.users) && same(&self.groups)
    }

    /// Returns the access control list that the host sees. A list that cannot be decoded is
    /// returned unchanged.
    pub fn shown_list(&self, stored: Vec<u8>) -> Vec<u8> {
        let shown = |map: &Map, id| map.shown_in_list(id).unwrap_or(UNMAPPED_IN_LIST);
        let mapped = mapped(&stored, |tag| {
            Some(match tag {
                Tag::User(id) => Tag::User(shown(&self.users, id)),
                Tag::Group(id) => Tag::Group(shown(&self.groups, id)),
                other => other,
            })
        });
        mapped.unwrap_or(stored)
    }

    /// Returns the access control list to store; `None` if it cannot be decoded or has an unmapped
    /// id.
    pub fn stored_list(&self, shown: &[u8]) -> Option<Vec<u8>> {
        mapped(shown, |tag| {
            Some(match tag {
                Tag::User(id) => Tag::User(self.users.stored(id)?),
                Tag::Group(id) => Tag::Group(self.groups.stored(id)?),
                other => other,
            })
        })
    }

    /// Returns whether a user of the host acts as root of the image.
    pub fn has_fakeroot(&self) -> bool {
        self.fakeroot.is_some()
    }

    /// Returns whether the host and the image use the same ids, for files as well as for callers.
    pub fn are_same(&self) -> bool {
        *self == Ids::default()
    }

    /// Returns the figures of the map for `lanefs stats`: names and numbers.
    pub fn figures(&self) -> Vec<(String, u64)> {
        let mut figures = Vec::new();
        if let Some(uid) = self.fakeroot {
            figures.push(("ids.fakeroot".into(), uid.into()));
        }
        for (kind, map) in [("uid", &self.users), ("gid", &self.groups)] {
            match map {
                Map::Same => {}
                Map::ShownAs(id) => figures.push((format!("ids.{kind}"), (*id).into())),
                Map::Ranges(ranges) => {
                    for range in ranges.iter() {
                        let (shown, stored, count) = range.parts();
                        figures.push((format!("ids.map.{kind}.{shown}.{stored}"), count.into()));
                    }
                }
            }
        }
        figures
    }
}

/// Decodes a list, maps the users and groups in it, and encodes the list again. Returns `None` if
/// one of these steps fails.
fn mapped(list: &[u8], map: impl Fn(Tag) -> Option<Tag>) -> Option<Vec<u8>> {
    let Some(acl) = Acl::from_system(list).ok()? else { return Some(list.to_vec()) };
    let entries: Option<Vec<AclEntry>> = acl
        .entries()
        .iter()
        .map(|entry| Some(AclEntry { tag: map(entry.tag)?, ..*entry }))
        .collect();
    Some(Acl::new(entries?).ok()?.to_system())
}

/// Describes the maps in text for users.
impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.are_same() {
            return write!(f, "the same ids on the host and in the image");
        }
        let mut parts = Vec::new();
        if let Some(uid) = self.fakeroot {
            parts.push(format!("user {uid} acts as root of the image"));
        }
        for (kind, letter, map) in [("user", 'u', &self.users), ("group", 'g', &self.groups)] {
            match map {
                Map::Same => {}
                Map::ShownAs(id) => parts.push(format!("all files are shown with {kind} {id}")),
                Map::Ranges(ranges) => {
                    parts.extend(ranges.iter().map(|range| format!("idmap {letter}:{range}")));
                }
            }
        }
        write!(f, "{}", parts.join(", "))
    }
}
