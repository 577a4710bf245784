//! Extended attributes. All rules are checked first, without a lock. For a change, all rules except
//! those of the mode and the access list are checked again under the operation lock, which is then
//! held until the attribute has changed.

use crate::credentials::Credentials;
use crate::rules::{Rule, Use, Want, is_access_list, is_listed, on_xattr, with_access_list};
use crate::vfs::Vfs;
use lanefs_ext4::{Attr, Error, InodeRef, SetXattr};

impl Vfs {
    /// Makes all checks, and takes no lock for them. For a `user.` attribute, this includes whether
    /// the mode and the access list let `who` perform `what`. Returns false if the operation has no
    /// effect.
    fn check_xattr(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        name: &[u8],
        what: Use,
    ) -> Result<bool, Error> {
        let attr = inode.attr();
        let rule = on_xattr(who, &attr, name, what)?;
        if rule == Rule::AsData {
            let want = if what == Use::Read { Want::READ } else { Want::WRITE };
            self.check_rights(who, inode, &attr.rights(), want)?;
        }
        allowed(rule)
    }

    /// Returns the value of attribute `name` (with its prefix, like `user.x`).
    pub fn get_xattr(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        name: &[u8],
    ) -> Result<Vec<u8>, Error> {
        self.check_xattr(who, inode, name, Use::Read)?;
        self.fs().get_xattr(inode, name)
    }

    /// Sets attribute `name`.
    pub fn set_xattr(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<(), Error> {
        self.check_xattr(who, inode, name, Use::Set)?;
        self.fs().set_xattr_as(inode, name, value, how, |attr: &Attr| {
            allowed(on_xattr(who, attr, name, Use::Set)?)?;
            let list = is_access_list(name);
            Ok(if list { with_access_list(who, &attr.rights()) } else { attr.permissions })
        })
    }

    /// Removes attribute `name`.
    pub fn remove_xattr(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        name: &[u8],
    ) -> Result<(), Error> {
        if !self.check_xattr(who, inode, name, Use::Remove)? {
            return Ok(());
        }
        self.fs().remove_xattr_as(inode, name, |attr| {
            allowed(on_xattr(who, attr, name, Use::Remove)?).map(drop)
        })
    }

    /// Returns the full names of the attributes that `who` may see.
    pub fn list_xattr(&self, who: &Credentials, inode: &InodeRef) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = self.fs().list_xattr(inode)?;
        names.retain(|name| is_listed(name, who.is_superuser()));
        Ok(names)
    }
}

/// Returns whether the operation has an effect, or an error if the operation is forbidden.
fn allowed(rule: Rule) -> Result<bool, Error> {
    match rule {
        Rule::Allowed | Rule::AsData => Ok(true),
        Rule::Nothing => Ok(false),
        Rule::Hidden => Err(Error::NoAttribute),
        Rule::Denied => Err(Error::NotPermitted),
        Rule::Impossible => Err(Error::PermissionDenied),
    }
}
