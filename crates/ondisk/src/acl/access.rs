//! Decides whether an access control list permits an access.

use super::{Acl, Permissions, Tag};

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
