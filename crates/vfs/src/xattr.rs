//! Extended attributes: who may read and write which. The rules are those of xattr(7).

use crate::permission::{STICKY, is_append_only, is_immutable};
use crate::{Credentials, Error, Vfs, Want};
use lanefs_ext4::{Attr, InodeRef, SetXattr};
use lanefs_ondisk::FileType;

/// What is done with an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Change,
}

/// What the name alone decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Allowed,
    /// As for the data: the mode and the access control list decide.
    AsData,
    Hidden,
    Denied,
}

fn rule(who: &Credentials, attr: &Attr, name: &[u8], what: Use) -> Rule {
    let refused = if what == Use::Read { Rule::Hidden } else { Rule::Denied };
    if who.is_checked_elsewhere() {
        return Rule::Allowed;
    }
    if name.starts_with(b"trusted.") {
        return if who.is_superuser() { Rule::Allowed } else { refused };
    }
    if name.starts_with(b"user.") {
        // On other types the mode says nothing about who may store data.
        if !matches!(attr.file_type, FileType::Regular | FileType::Directory) {
            return refused;
        }
        let sticky = attr.file_type == FileType::Directory && attr.permissions & STICKY != 0;
        if what == Use::Change && sticky && !who.owns(attr.uid) {
            return Rule::Denied;
        }
        return Rule::AsData;
    }
    if what == Use::Read {
        return Rule::Allowed;
    }
    let allowed =
        if name.starts_with(b"security.") { who.is_superuser() } else { who.owns(attr.uid) };
    if allowed { Rule::Allowed } else { Rule::Denied }
}

impl Vfs {
    fn check_xattr(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        name: &[u8],
        what: Use,
    ) -> Result<(), Error> {
        let attr = inode.attr();
        if what == Use::Change && (is_immutable(&attr.rights()) || is_append_only(&attr.rights())) {
            return Err(Error::NotPermitted);
        }
        match rule(who, &attr, name, what) {
            Rule::Allowed => Ok(()),
            Rule::Hidden => Err(Error::NoAttribute),
            Rule::Denied => Err(Error::NotPermitted),
            Rule::AsData => {
                let want = if what == Use::Read { Want::READ } else { Want::WRITE };
                self.check_rights(who, inode, &attr.rights(), want)
            }
        }
    }

    /// The value of attribute `name` (with its prefix, as `user.x`).
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
        self.check_xattr(who, inode, name, Use::Change)?;
        self.fs().set_xattr(inode, name, value, how)
    }

    /// Removes attribute `name`.
    pub fn remove_xattr(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        name: &[u8],
    ) -> Result<(), Error> {
        self.check_xattr(who, inode, name, Use::Change)?;
        self.fs().remove_xattr(inode, name)
    }

    /// The full names of the attributes that `who` may know of.
    pub fn list_xattr(&self, who: &Credentials, inode: &InodeRef) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = self.fs().list_xattr(inode)?;
        if !who.is_trusted() {
            names.retain(|name| !name.starts_with(b"trusted."));
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::tests::attr;

    #[test]
    fn trusted_attributes_are_hidden_from_all_but_the_superuser() {
        let file = attr(FileType::Regular, 0o666, 1, 1);
        let user = Credentials::new(1, 1, []);
        assert_eq!(rule(&user, &file, b"trusted.x", Use::Read), Rule::Hidden);
        assert_eq!(rule(&user, &file, b"trusted.x", Use::Change), Rule::Denied);
        let root = Credentials::superuser();
        assert_eq!(rule(&root, &file, b"trusted.x", Use::Change), Rule::Allowed);
    }

    #[test]
    fn user_attributes_are_for_files_and_directories() {
        let user = Credentials::new(1, 1, []);
        let link = attr(FileType::Symlink, 0o777, 1, 1);
        assert_eq!(rule(&user, &link, b"user.x", Use::Change), Rule::Denied);
        let file = attr(FileType::Regular, 0o777, 2, 2);
        assert_eq!(rule(&user, &file, b"user.x", Use::Change), Rule::AsData);
    }

    #[test]
    fn in_a_sticky_directory_only_the_owner_sets_user_attributes() {
        let dir = attr(FileType::Directory, 0o1777, 2, 2);
        assert_eq!(rule(&Credentials::new(1, 1, []), &dir, b"user.x", Use::Change), Rule::Denied);
        assert_eq!(rule(&Credentials::new(2, 1, []), &dir, b"user.x", Use::Change), Rule::AsData);
    }

    #[test]
    fn lists_are_set_by_the_owner_and_labels_by_the_superuser() {
        let file = attr(FileType::Regular, 0o666, 1, 1);
        let (owner, other) = (Credentials::new(1, 1, []), Credentials::new(2, 2, []));
        let acl = b"system.posix_acl_access";
        assert_eq!(rule(&owner, &file, acl, Use::Change), Rule::Allowed);
        assert_eq!(rule(&other, &file, acl, Use::Change), Rule::Denied);
        assert_eq!(rule(&owner, &file, b"security.selinux", Use::Change), Rule::Denied);
        assert_eq!(rule(&other, &file, b"security.selinux", Use::Read), Rule::Allowed);
    }
}
