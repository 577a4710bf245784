//! What a POSIX access control list allows.
//!
//! Source of the algorithm: POSIX 1003.1e draft 17, section 23.1.5, and acl(5). The list comes in
//! the form that Linux passes in the attribute `system.posix_acl_access`: a version word (2), then
//! entries of tag (16 bits), permissions (16 bits) and identifier (32 bits), little-endian.

use crate::permission::Want;
use crate::{Credentials, Error};

/// Attribute of the list that decides.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";

const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;

const TAG_OWNER: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OWNER: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

#[derive(Debug, Clone, Copy)]
struct Entry {
    tag: u16,
    allowed: Want,
    id: u32,
}

/// Whether the list `value` of a file of group `group` lets `who`, who is not the owner, do `want`.
pub(crate) fn allows(
    value: &[u8],
    owner: u32,
    group: u32,
    who: &Credentials,
    want: Want,
) -> Result<bool, Error> {
    let (header, body) = value.split_at_checked(HEADER).ok_or(BAD)?;
    let (entries, rest) = body.as_chunks::<ENTRY>();
    if header != VERSION.to_le_bytes() || !rest.is_empty() {
        return Err(BAD);
    }
    let entries = || {
        entries.iter().map(|&[t0, t1, p0, p1, i0, i1, i2, i3]| Entry {
            tag: u16::from_le_bytes([t0, t1]),
            allowed: Want::from_bits_truncate(u16::from_le_bytes([p0, p1])),
            id: u32::from_le_bytes([i0, i1, i2, i3]),
        })
    };
    let mask = entries().find(|e| e.tag == TAG_MASK).map_or(Want::all(), |entry| entry.allowed);
    let masked = |entry: Entry| (entry.allowed & mask).contains(want);

    if who.uid() == owner {
        return Ok(entries().any(|e| e.tag == TAG_OWNER && e.allowed.contains(want)));
    }
    if let Some(entry) = entries().find(|e| e.tag == TAG_USER && e.id == who.uid()) {
        return Ok(masked(entry));
    }
    let mine = |e: &Entry| match e.tag {
        TAG_GROUP_OWNER => who.in_group(group),
        TAG_GROUP => who.in_group(e.id),
        _ => false,
    };
    // One group that allows all of it is enough; groups that match and do not allow it refuse,
    // whatever "other" would allow.
    let mut in_a_group = false;
    for entry in entries().filter(mine) {
        if masked(entry) {
            return Ok(true);
        }
        in_a_group = true;
    }
    Ok(!in_a_group && entries().any(|e| e.tag == TAG_OTHER && e.allowed.contains(want)))
}

const BAD: Error = Error::InvalidArgument { what: "an access control list in an unknown form" };

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    fn sample() -> Vec<u8> {
        list(&[
            (TAG_OWNER, 7, u32::MAX),
            (TAG_USER, 7, 1001),
            (TAG_GROUP_OWNER, 4, u32::MAX),
            (TAG_GROUP, 6, 2001),
            (TAG_MASK, 6, u32::MAX),
            (TAG_OTHER, 1, u32::MAX),
        ])
    }

    fn may(uid: u32, gid: u32, want: Want) -> bool {
        allows(&sample(), 1000, 2000, &Credentials::new(uid, gid, []), want).unwrap()
    }

    #[test]
    fn the_mask_limits_a_named_user() {
        assert!(may(1001, 9, Want::READ | Want::WRITE));
        assert!(!may(1001, 9, Want::EXECUTE));
    }

    #[test]
    fn the_mask_does_not_limit_the_owner() {
        assert!(may(1000, 9, Want::all()));
    }

    #[test]
    fn a_group_that_matches_and_refuses_hides_other() {
        assert!(may(1002, 2000, Want::READ));
        assert!(!may(1002, 2000, Want::EXECUTE));
        assert!(may(1002, 2001, Want::WRITE));
        assert!(may(1002, 9, Want::EXECUTE));
        assert!(!may(1002, 9, Want::READ));
    }

    #[test]
    fn permissions_of_several_groups_do_not_add_up() {
        let value =
            list(&[(TAG_GROUP_OWNER, 4, u32::MAX), (TAG_GROUP, 2, 2001), (TAG_MASK, 7, u32::MAX)]);
        let who = Credentials::new(1, 2000, [2001]);
        assert!(allows(&value, 1000, 2000, &who, Want::READ).unwrap());
        assert!(allows(&value, 1000, 2000, &who, Want::WRITE).unwrap());
        assert!(!allows(&value, 1000, 2000, &who, Want::READ | Want::WRITE).unwrap());
    }

    #[test]
    fn a_cut_list_is_an_error() {
        for len in [0, 3, 5, 11, 13] {
            let cut = &sample()[..len];
            assert!(allows(cut, 1, 1, &Credentials::new(2, 2, []), Want::READ).is_err());
        }
    }
}
