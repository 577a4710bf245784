//! Serves requests on extended attributes, including POSIX ACLs.

use super::{Done, Server};
use crate::protocol::{Errno, MAX_DATA, Outbox, Request, abi};
use crate::transport::Channel;
use lanefs_ext4::{CAPABILITY, SetXattr};
use lanefs_vfs::rules::{self, SGID};

/// The two flags of setxattr(2) together.
const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;

/// Appends a value of at most `room` bytes; with `room` 0 the reply has the value's length.
fn put_sized(value: &[u8], room: u32, outbox: &mut Outbox) -> Done {
    if room == 0 {
        outbox.put(&abi::GetxattrOut { size: value.len() as u32, padding: 0 });
    } else if value.len() > room as usize || value.len() > MAX_DATA {
        return Err(Errno::RANGE);
    } else {
        outbox.put_bytes(value);
    }
    Ok(())
}

impl Server {
    /// Returns true for an access control list, if the ids in lists differ between host and image.
    fn maps_list(&self, name: &[u8]) -> bool {
        !self.ids.keeps_lists() && rules::is_list(name)
    }

    pub(super) fn getxattr(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let room = request.take::<abi::GetxattrIn>()?.size;
        let name = request.name()?;
        if Server::may_see_statistics(&request.header, name) {
            return put_sized(self.statistics().as_bytes(), room, outbox);
        }
        let controls = self.controls(&request.header, name);
        if let Some(value) = controls.iter().find_map(|control| control.get(name)) {
            return put_sized(&value, room, outbox);
        }
        let inode = self.inode(request.header.nodeid)?;
        let mut value = match self.checked_caller(&request.header) {
            Some(who) => self.vfs.get_xattr(&who, &inode, name)?,
            None => self.fs().get_xattr(&inode, name)?,
        };
        if self.maps_list(name) {
            value = self.ids.shown_list(value);
        }
        put_sized(&value, room, outbox)
    }

    pub(super) fn listxattr(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let room = request.take::<abi::GetxattrIn>()?.size;
        let mut names = Vec::new();
        let inode = self.inode(request.header.nodeid)?;
        let all = self.fs().list_xattr(&inode)?;
        // The kernel does not send the caller's capabilities, so only user 0 counts as having them.
        // In a user namespace the kernel lets no user read `trusted.` attributes.
        let superuser = request.header.uid == 0 && self.is_in_first_namespace;
        for name in all.into_iter().filter(|name| rules::is_listed(name, superuser)) {
            names.extend_from_slice(&name);
            names.push(0);
        }
        put_sized(&names, room, outbox)
    }

    pub(super) fn setxattr(&self, request: &mut Request<'_>, kernel: &Channel) -> Done {
        let input: abi::SetxattrIn = request.take()?;
        let (name, value) = (request.name()?, request.data(input.size as usize)?);
        let controls = self.controls(&request.header, name);
        if let Some(taken) = controls.iter().find_map(|control| control.set(name, value)) {
            return taken;
        }
        let how = match input.flags as i32 {
            0 => SetXattr::Any,
            libc::XATTR_CREATE => SetXattr::Create,
            libc::XATTR_REPLACE => SetXattr::Replace,
            BOTH => SetXattr::CreateAndReplace,
            _ => return Err(Errno::INVAL),
        };
        let inode = self.inode(request.header.nodeid)?;
        let mapped = match self.maps_list(name) {
            true => self.ids.stored_list(value).ok_or(Errno::INVAL)?,
            false => Vec::new(),
        };
        let value = if self.maps_list(name) { &mapped } else { value };
        if let Some(who) = self.checked_caller(&request.header) {
            self.vfs.set_xattr(&who, &inode, name, value, how)?;
            if rules::is_access_list(name) {
                // Setting the ACL has changed the mode too.
                kernel.forget_attributes(request.header.nodeid);
            }
            return Ok(());
        }
        let kills = input.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0;
        Ok(self.fs().set_xattr_as(&inode, name, value, how, |now| {
            rules::check_xattrs(&now.rights())?;
            Ok(if kills { now.permissions & !SGID } else { now.permissions })
        })?)
    }

    pub(super) fn removexattr(&self, request: &mut Request<'_>) -> Done {
        let inode = self.inode(request.header.nodeid)?;
        let name = request.name()?;
        // A request to remove capabilities comes from the kernel itself, or from a program whose
        // right the kernel has checked.
        if let Some(who) = self.checked_caller(&request.header).filter(|_| name != CAPABILITY) {
            return Ok(self.vfs.remove_xattr(&who, &inode, name)?);
        }
        Ok(self.fs().remove_xattr_as(&inode, name, |now| match name {
            // The kernel itself sends this request before a write, even if the file is append-only.
            CAPABILITY => Ok(()),
            _ => rules::check_xattrs(&now.rights()),
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_probed_then_given_or_out_of_range() {
        let mut outbox = Outbox::new();
        put_sized(b"value", 0, &mut outbox).unwrap();
        assert_eq!(outbox.len(), 8);
        outbox.clear();
        put_sized(b"value", 5, &mut outbox).unwrap();
        assert_eq!(outbox.len(), 5);
        outbox.clear();
        assert_eq!(put_sized(b"value", 4, &mut outbox).unwrap_err(), Errno::RANGE);
    }
}
