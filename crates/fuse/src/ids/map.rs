//! The map of one kind of ids: users or groups.

use super::ranges::Ranges;

/// The id that means "no id" to the kernel. If the server reports this id as a file's owner,
/// programs see the overflow id (65534). No process then has the rights of the owner, and the
/// kernel refuses changes to the file, even by root. If the server reported 65534 itself, user
/// 65534 would have the rights of the owner.
pub(crate) const UNMAPPED: u32 = u32::MAX;

/// How the ids of users, or of groups, are mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Map {
    /// Host and image use the same ids.
    #[default]
    Same,
    /// The host sees this id for every id of the image. The owner of a new file is stored
    /// unchanged.
    ShownAs(u32),
    /// Ids of the ranges are mapped one to one; all others are unmapped.
    Ranges(Ranges),
}

/// Why an id cannot be the new owner or group of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The id is unmapped.
    Unmapped,
    /// All files are shown with one id, and a program cannot give a file another id.
    Fixed,
}

impl Map {
    /// Returns the id that the host sees for `stored`.
    pub(crate) fn shown(&self, stored: u32) -> u32 {
        match self {
            Map::Same => stored,
            Map::ShownAs(id) => *id,
            Map::Ranges(ranges) => ranges.shown(stored).unwrap_or(UNMAPPED),
        }
    }

    /// Returns the image's id for a caller's host id; `None` if the host id is unmapped.
    pub(crate) fn stored(&self, shown: u32) -> Option<u32> {
        match self {
            Map::Same | Map::ShownAs(_) => Some(shown),
            Map::Ranges(ranges) => ranges.stored(shown),
        }
    }

    /// Returns the id to store for an owner that a program chose, or `None` if the present id
    /// stays.
    pub(crate) fn chosen(&self, shown: u32) -> Result<Option<u32>, Refusal> {
        match self {
            Map::Same => Ok(Some(shown)),
            Map::ShownAs(id) if *id == shown => Ok(None),
            Map::ShownAs(_) => Err(Refusal::Fixed),
            Map::Ranges(ranges) => ranges.stored(shown).map(Some).ok_or(Refusal::Unmapped),
        }
    }

    /// Returns the id that the host sees in an access control list; `None` if `stored` is unmapped.
    pub(crate) fn shown_in_list(&self, stored: u32) -> Option<u32> {
        match self {
            Map::Same | Map::ShownAs(_) => Some(stored),
            Map::Ranges(ranges) => ranges.shown(stored),
        }
    }

    /// Returns whether the new files of a caller with the host id `shown` are shown with this id.
    /// The stored id does not matter.
    pub(crate) fn is_shown_as(&self, shown: u32) -> bool {
        match self {
            Map::ShownAs(id) => *id == shown,
            Map::Same | Map::Ranges(_) => true,
        }
    }
}
