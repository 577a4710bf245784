//! The rules for changes of attributes: which callers may make them, and which bits they clear.

use super::set_id::{Member, after_write, settable, without_set_id};
use crate::credentials::Credentials;
use lanefs_ext4::flags::{
    APPEND_ONLY, Change, IMMUTABLE, check_attributes, check_flags, is_append_only, is_verity,
};
use lanefs_ext4::{Attr, Error, InvalidArgument, SetAttr, SetTime};
use lanefs_ondisk::FileType;

/// Fails if an inode's type or flags forbid setting the inode's size.
pub fn check_resize(attr: &Attr) -> Result<(), Error> {
    match attr.file_type {
        FileType::Regular if is_append_only(&attr.rights()) || is_verity(&attr.rights()) => {
            Err(Error::NotPermitted)
        }
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(InvalidArgument::NotRegularFile.into()),
    }
}

/// Returns whether atime and mtime both become the present time, as touch(1) requests. A caller
/// with write permission may make this change.
pub(crate) fn is_touch(set: &SetAttr) -> bool {
    matches!((set.atime, set.mtime), (Some(SetTime::Now), Some(SetTime::Now)))
}

/// Returns the kinds of change that `set` makes. The rules of inode flags depend on them.
fn change_of(set: &SetAttr) -> Change {
    let times = set.atime.is_some() || set.mtime.is_some();
    let mut change = Change::empty();
    change.set(Change::MODE, set.permissions.is_some());
    change.set(Change::OWNER, set.uid.is_some() || set.gid.is_some());
    change.set(Change::TOUCH, is_touch(set));
    change
        .set(Change::TIMES, times && !is_touch(set) || set.ctime.is_some() || set.crtime.is_some());
    change.set(Change::SIZE, set.size.is_some());
    change
}

/// Returns the change `set`, completed by the new permissions if the change clears set-ID bits.
/// Returns an error if `who` may not make the change. This function does not check whether the mode
/// lets `who` set the size or touch the inode; its caller does.
pub fn permitted(who: &Credentials, attr: &Attr, set: &SetAttr) -> Result<SetAttr, Error> {
    let change = change_of(set);
    check_attributes(&attr.rights(), change)?;
    let by_owner = change.intersects(Change::MODE | Change::OWNER | Change::TIMES)
        || set.flags.is_some()
        || set.casefold.is_some()
        || set.project.is_some();
    if by_owner && !who.owns(attr.uid) {
        return Err(Error::NotPermitted);
    }
    if !who.is_superuser() {
        check_unprivileged(who, attr, set)?;
    }
    if let Some(asked) = set.flags {
        check_flags(attr.file_type, attr.flags, asked)?;
    }
    let permissions = permissions_after(who, attr, set);
    if permissions.is_some() {
        // Inode flags that forbid chmod also forbid every other operation that would change the
        // mode.
        check_attributes(&attr.rights(), Change::MODE)?;
    }
    Ok(SetAttr { permissions, ..*set })
}

/// Refuses changes that only the superuser may make.
fn check_unprivileged(who: &Credentials, attr: &Attr, set: &SetAttr) -> Result<(), Error> {
    let gives_away = set.uid.is_some_and(|uid| uid != attr.uid);
    let foreign = set.gid.is_some_and(|gid| gid != attr.gid && !who.in_group(gid));
    let flags =
        set.flags.is_some_and(|flags| (flags ^ attr.flags) & (IMMUTABLE | APPEND_ONLY) != 0);
    if gives_away || foreign || flags || set.ctime.is_some() || set.crtime.is_some() {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Returns the permissions to set: the requested ones, or the present ones without the bits that a
/// new owner, group or size clears.
fn permissions_after(who: &Credentials, attr: &Attr, set: &SetAttr) -> Option<u16> {
    let owned = set.uid.is_some() || set.gid.is_some();
    match set.permissions {
        Some(asked) => Some(settable(asked & 0o7777, Member::of(who, set.gid.unwrap_or(attr.gid)))),
        None if owned && attr.file_type != FileType::Directory => {
            let left = without_set_id(attr.permissions, Member::of(who, attr.gid));
            (left != attr.permissions).then_some(left)
        }
        None if set.size.is_some() => after_write(who, &attr.rights()),
        None => None,
    }
}

#[cfg(test)]
mod tests;
