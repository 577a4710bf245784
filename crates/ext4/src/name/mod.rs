//! Directories as changing objects: reading them, finding the place of a name, making room.

pub(crate) mod ascent;
pub(crate) mod directory;
pub(crate) mod place;
