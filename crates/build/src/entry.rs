//! The entries of sources: attributes of files, without their data.

use lanefs_ondisk::{FileType, Time};

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
    /// `None` if the source has no time of the last access. Then the time of the last modification
    /// is used.
    pub(crate) atime: Option<Time>,
    pub(crate) ctime: Option<Time>,
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

    /// Removes an attribute, if there is one of this name.
    pub(crate) fn remove_attribute(&mut self, name: &[u8]) {
        self.attributes.retain(|(known, _)| known != name);
    }
}

/// The type of a file that is not a directory, with the properties that belong to the type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file of this size; its data follows.
    Regular(u64),
    Symlink(Box<[u8]>),
    Device(FileType, u32, u32),
    Empty(FileType),
}
