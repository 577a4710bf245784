//! The entries of sources: attributes of files, without their data.

use lanefs_ondisk::acl::Acl;
use lanefs_ondisk::{FileType, Time};

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// An extended attribute: full name, and value as in getxattr(2).
pub(crate) type Attribute = (Vec<u8>, Vec<u8>);

/// The attributes of a file in a source.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meta {
    /// The low 12 bits of the mode.
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: Time,
    /// `None` if the source has no access time. In this case the modification time is used.
    pub(crate) atime: Option<Time>,
    pub(crate) ctime: Option<Time>,
    /// `None` if the source has no creation time. In this case the time of the build is used.
    pub(crate) crtime: Option<Time>,
    /// Extended attributes, sorted by name.
    pub(crate) attributes: Vec<Attribute>,
}

impl Meta {
    pub(crate) fn set_attribute(&mut self, name: &[u8], value: Vec<u8>) {
        match self.attributes.binary_search_by(|(known, _)| known.as_slice().cmp(name)) {
            Ok(at) => {
                if let Some(place) = self.attributes.get_mut(at) {
                    place.1 = value;
                }
            }
            Err(at) => self.attributes.insert(at, (name.to_vec(), value)),
        }
    }

    /// Sets the low 12 bits of the mode. Like chmod(2), also sets the corresponding entries of the
    /// access control list.
    pub(crate) fn set_permissions(&mut self, permissions: u16) {
        self.permissions = permissions;
        if let Some(list) = self.access_list() {
            self.set_attribute(ACCESS_LIST, list.with_mode(permissions).to_system());
        }
    }

    /// Sets the low 12 bits of the mode and the owner, as far as they are given.
    pub(crate) fn change(&mut self, permissions: Option<u16>, uid: Option<u32>, gid: Option<u32>) {
        if let Some(permissions) = permissions {
            self.set_permissions(permissions);
        }
        self.uid = uid.unwrap_or(self.uid);
        self.gid = gid.unwrap_or(self.gid);
    }

    /// Takes the permissions from the access control list, if there is one. The result is the same
    /// as if a program had set the mode and then the list. As in the kernel, a list is removed if
    /// the mode alone expresses it.
    pub(crate) fn take_permissions_of_list(&mut self) {
        if let Some(list) = self.access_list() {
            self.permissions = self.permissions & 0o7000 | list.mode_bits();
            if list.is_minimal() {
                self.remove_attribute(ACCESS_LIST);
            }
        }
    }

    /// Returns the access control list, if there is a valid one.
    fn access_list(&self) -> Option<Acl> {
        let list = self.attributes.iter().find(|(name, _)| name == ACCESS_LIST);
        list.and_then(|(_, value)| Acl::from_system(value).ok().flatten())
    }

    /// Removes an attribute, if there is one of this name.
    pub(crate) fn remove_attribute(&mut self, name: &[u8]) {
        self.attributes.retain(|(known, _)| known != name);
    }
}

/// The type of a file that is not a directory, with the properties that belong to the type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file of this size. Its data follows in the source.
    Regular(u64),
    Symlink(Box<[u8]>),
    Device(FileType, u32, u32),
    Empty(FileType),
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_ondisk::acl::{AclEntry, Permissions, Tag};

    #[test]
    fn a_mode_changes_the_access_list_too() {
        let entry = |(tag, bits)| AclEntry { tag, permissions: Permissions::from_bits(bits) };
        let entries = [
            (Tag::Owner, 6),
            (Tag::User(7), 6),
            (Tag::OwningGroup, 4),
            (Tag::Mask, 6),
            (Tag::Other, 4),
        ];
        let list = Acl::new(entries.map(entry).to_vec()).unwrap();
        let mut meta = Meta { permissions: 0o664, ..Meta::default() };
        meta.set_attribute(ACCESS_LIST, list.to_system());
        meta.set_permissions(0o4640);
        assert_eq!(meta.access_list().unwrap().mode_bits(), 0o640);
        meta.permissions = 0o4777;
        meta.take_permissions_of_list();
        assert_eq!(meta.permissions, 0o4640);
    }

    #[test]
    fn a_list_equivalent_to_a_mode_becomes_the_mode() {
        let entry = |(tag, bits)| AclEntry { tag, permissions: Permissions::from_bits(bits) };
        let entries = [(Tag::Owner, 6), (Tag::OwningGroup, 4), (Tag::Other, 0)];
        let list = Acl::new(entries.map(entry).to_vec()).unwrap();
        let mut meta = Meta { permissions: 0o2777, ..Meta::default() };
        meta.set_attribute(ACCESS_LIST, list.to_system());
        meta.take_permissions_of_list();
        assert_eq!((meta.permissions, meta.attributes), (0o2640, Vec::new()));
    }
}
