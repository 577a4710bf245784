//! Reads, sets and removes extended attributes and access control lists.
//!
//! An attribute block that several inodes share (the kernel creates such blocks) is copied on
//! write. The reference count of the old block is decremented under that block's guard, and the
//! operation that decrements the count to zero frees the block.
//!
//! With the feature `ea_inode`, a value that fits neither into the inode nor into the inode's
//! attribute block gets an inode of its own.

use crate::attr::{Attr, SyncMode};
use crate::clock::now;
use crate::data::values::{NewValue, Put, ReleasedValues};
use crate::data::xattrs::{XattrChange, is_acl};
use crate::flags;
use crate::fs::Fs;
use crate::object::inode::InodeRef;
use crate::object::state::Concerns;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::FileType;
use lanefs_ondisk::xattr::AttributeName;
use lanefs_plan::Error;
use lanefs_plan::xattr;
use lanefs_plan::xattr::SetXattr;

/// The attribute with a program's file capabilities.
pub const CAPABILITY: &[u8] = b"security.capability";

fn may_replace(how: SetXattr) -> bool {
    matches!(how, SetXattr::Any | SetXattr::Replace)
}

impl Fs {
    /// Returns the value of an attribute by its full name (`user.x`). Access control lists are
    /// returned in the form of the system call.
    pub fn get_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>, Error> {
        let name = xattr::parse_name(name)?;
        self.objects.check_process()?;
        let _shared = inode.op.shared();
        let value = self.data(inode).stored_xattr(name)?;
        if !is_acl(name) {
            return Ok(value);
        }
        Ok(self.data(inode).decode_acl(&value)?.to_system())
    }

    /// Sets an attribute. Setting an access list that is equivalent to a mode changes only the
    /// mode. Does not check the inode's append-only flag: see [`crate::flags::check_xattrs`].
    pub fn set_xattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<(), Error> {
        self.set_xattr_as(inode, name, value, how, |attr| Ok(attr.permissions))
    }

    /// Does the same as [`Fs::set_xattr`], if `decide` allows it. `decide` gets the attributes that
    /// the inode has at the time of the change. If the attribute is an access list, the mode
    /// changes too: the list determines the permission bits, and `decide` returns the set-user-ID,
    /// set-group-ID and sticky bits.
    ///
    /// # Errors
    /// The errors of `decide` are returned too.
    ///
    /// # Locking
    /// `decide` runs under the operation lock and takes no operation lock itself.
    pub fn set_xattr_as(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        decide: impl FnOnce(&Attr) -> Result<u16, Error>,
    ) -> Result<(), Error> {
        self.objects.check_writable()?;
        let name = xattr::parse_name(name)?;
        // Declared before the lock so that these values are dropped after its release, because
        // dropping them may delete inodes of attribute values.
        let mut elsewhere = None;
        let _released;
        let exclusive = inode.op.exclusive();
        flags::check_not_immutable(&inode.rights())?;
        let special = decide(&inode.attr())? & 0o7000;
        let change = match is_acl(name) {
            // Nothing changes if the attribute already has this value: the kernel's ext4 does not
            // change ctime then either.
            false if may_replace(how) && self.data(inode).is_stored(name, value) => None,
            false => Some(self.plan_set(inode, name, value, how, &mut elsewhere)?),
            true => self.plan_acl(inode, name, value, special, &mut elsewhere)?,
        };
        _released = self.commit_xattrs(inode, change)?;
        drop(exclusive);
        self.obey_sync(inode, SyncMode::Full)
    }

    /// Removes an attribute; [`Error::NoAttribute`] if it does not exist.
    pub fn remove_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.remove_xattr_as(inode, name, |_| Ok(()))
    }

    /// Does the same as [`Fs::remove_xattr`], if `decide` allows it: see [`Fs::set_xattr_as`].
    ///
    /// # Errors
    /// The errors of `decide` are returned too.
    pub fn remove_xattr_as(
        &self,
        inode: &InodeRef,
        name: &[u8],
        decide: impl FnOnce(&Attr) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.objects.check_writable()?;
        let name = xattr::parse_name(name)?;
        // Declared before the lock so that these values are dropped after its release, because
        // dropping them may delete inodes of attribute values.
        let _released;
        let exclusive = inode.op.exclusive();
        flags::check_not_immutable(&inode.rights())?;
        decide(&inode.attr())?;
        let change = match self.data(inode).plan_xattr(name, None, SetXattr::Any) {
            // It is no error to remove a list that is not stored: an access list that only repeats
            // the mode is never stored.
            Err(Error::NoAttribute) if is_acl(name) => None,
            other => Some(other?),
        };
        _released = self.commit_xattrs(inode, change)?;
        drop(exclusive);
        self.obey_sync(inode, SyncMode::Full)
    }

    /// Removes the file capabilities of a regular file. A caller that changes the data, the size or
    /// the owner calls this first, because the capabilities were granted to the old data. It calls
    /// this again after the change, because they may have been set after the first call.
    pub fn drop_capability(&self, inode: &InodeRef) -> Result<(), Error> {
        if inode.file_type != FileType::Regular || inode.lacks_capability.load(Ordering::Relaxed) {
            return Ok(());
        }
        let name = xattr::parse_name(CAPABILITY)?;
        {
            self.objects.check_process()?;
            let _shared = inode.op.shared();
            match self.data(inode).stored_xattr(name) {
                Ok(_) => {}
                Err(Error::NoAttribute) => {
                    inode.lacks_capability.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                // Attributes that cannot be decoded grant nothing.
                Err(Error::Corruption(_) | Error::Unsupported(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        match self.remove_xattr(inode, CAPABILITY) {
            // Another writer has removed the attribute meanwhile.
            Err(Error::NoAttribute) => Ok(()),
            removed => removed,
        }
    }

    /// Returns the full names of all attributes, including those of `trusted.`.
    pub fn list_xattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>, Error> {
        self.objects.check_process()?;
        let _shared = inode.op.shared();
        let (in_inode, block) = self.data(inode).read_xattrs()?;
        xattr::list(&self.data(inode).xattr_state(&in_inode, &block))
    }

    /// Plans to set an attribute. A value that fits neither into the inode nor into the inode's
    /// attribute block is written to a new inode, which is left in `elsewhere`; the caller drops
    /// `elsewhere` after releasing the operation lock.
    fn plan_set<'f>(
        &'f self,
        inode: &'f InodeRef,
        name: AttributeName<'_>,
        value: &[u8],
        how: SetXattr,
        elsewhere: &mut Option<NewValue>,
    ) -> Result<XattrChange<'f>, Error> {
        let data = self.data(inode);
        if self.objects.volume.value_seed.is_none() {
            return data.plan_xattr(name, Some(Put::Here(value)), how);
        }
        match data.plan_xattr(name, Some(Put::HereWithRoom(value)), how) {
            Err(Error::NoSpace) => {
                let new = self.write_value(inode, value, elsewhere)?;
                data.plan_xattr(name, Some(Put::Elsewhere(new)), how)
            }
            planned => planned,
        }
    }

    /// Plans to set an access control list given in the form of the system call.
    fn plan_acl<'f>(
        &'f self,
        inode: &'f InodeRef,
        name: AttributeName<'_>,
        value: &[u8],
        special: u16,
        elsewhere: &mut Option<NewValue>,
    ) -> Result<Option<XattrChange<'f>>, Error> {
        let Some(acl) = self.data(inode).acl_to_store(name, value, special)? else {
            return Ok(None);
        };
        let permissions = acl.permissions;
        let planned = match &acl.stored {
            Some(list) => self.plan_set(inode, name, list, SetXattr::Any, elsewhere),
            None => self.data(inode).plan_xattr(name, None, SetXattr::Any),
        };
        match planned {
            Ok(change) => Ok(Some(change.with_permissions(permissions))),
            // There is no list to store and no stored list to remove.
            Err(Error::NoAttribute) if permissions.is_some() => {
                Ok(Some(XattrChange::of_permissions(permissions)))
            }
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Plans the change that a chmod makes to the access list, if the inode has one. The caller
    /// holds the operation lock exclusively.
    pub(super) fn plan_acl_chmod<'f>(
        &'f self,
        inode: &'f InodeRef,
        permissions: u16,
        elsewhere: &mut Option<NewValue>,
    ) -> Result<Option<XattrChange<'f>>, Error> {
        let Some(list) = self.data(inode).acl_after_chmod(permissions)? else { return Ok(None) };
        let name = AttributeName::acl_access();
        self.plan_set(inode, name, &list, SetXattr::Any, elsewhere).map(Some)
    }

    fn commit_xattrs(
        &self,
        inode: &InodeRef,
        change: Option<XattrChange<'_>>,
    ) -> Result<Option<ReleasedValues>, Error> {
        let Some(change) = change else { return Ok(None) };
        let now = now();
        let permissions = change.permissions;
        let mut handle = self.objects.join(change.credits + 2)?;
        let released = self.data(inode).apply_xattrs(&mut handle, change);
        inode.change(&mut handle, Concerns::Attributes, |state| {
            state.disk.ctime = now;
            if let Some(permissions) = permissions {
                state.disk.mode = (state.disk.mode & !0o7777) | permissions;
            }
        });
        Ok(Some(released))
    }
}
