//! Checks a requested access against the access control list of an inode.

use crate::credentials::Credentials;
use crate::rules::Want;
use crate::vfs::Vfs;
use lanefs_ext4::{Error, InodeRef, Rights};
use lanefs_ondisk::Corruption;
use lanefs_ondisk::acl::{Acl, Owner, Permissions, Subject};

/// The name of the attribute that contains the access control list.
const ACCESS: &[u8] = b"system.posix_acl_access";

impl Vfs {
    /// Returns whether the access control list of `inode` grants `who` the access `want`; `None` if
    /// the inode has no list.
    pub(crate) fn list_allows(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        rights: &Rights,
        want: Want,
    ) -> Result<Option<bool>, Error> {
        let value = match self.fs().get_xattr(inode, ACCESS) {
            Ok(value) => value,
            Err(Error::NoAttribute | Error::NotSupported) => return Ok(None),
            Err(error) => return Err(error),
        };
        let acl = Acl::from_system(&value)
            .map_err(|cause| Corruption::Acl { ino: inode.ino(), cause })?;
        Ok(acl.map(|acl| allows(&acl, who, rights, want)))
    }
}

fn allows(acl: &Acl, who: &Credentials, rights: &Rights, want: Want) -> bool {
    let subject = Subject { uid: who.uid(), gids: &who.gids() };
    let owner = Owner { uid: rights.uid, gid: rights.gid };
    acl.allows(Permissions::from_bits(want.bits()), &subject, &owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::attr;
    use lanefs_ondisk::FileType;
    use lanefs_ondisk::acl::{AclEntry, Tag};

    #[test]
    fn supplementary_groups_count_as_the_group_does() {
        let entry = |tag, bits| AclEntry { tag, permissions: Permissions::from_bits(bits) };
        let acl = Acl::new(vec![
            entry(Tag::Owner, 7),
            entry(Tag::OwningGroup, 4),
            entry(Tag::Group(2001), 6),
            entry(Tag::Mask, 6),
            entry(Tag::Other, 0),
        ])
        .unwrap();
        let file = attr(FileType::Regular, 0o760, 1000, 2000);
        let may = |gid, groups: &[u32], want| {
            allows(&acl, &Credentials::new(5, gid, groups), &file.rights(), want)
        };
        assert!(may(2000, &[], Want::READ));
        assert!(may(9, &[2000], Want::READ));
        assert!(may(9, &[8, 2001], Want::WRITE));
        assert!(!may(9, &[], Want::READ));
    }
}
