//! Handles file data (mappings, claims for holes, bytes) and extended attributes.

pub(crate) mod bytes;
pub(crate) mod claim;
pub(crate) mod cut;
pub(crate) mod file_data;
pub(crate) mod mapping;
pub(crate) mod xattrs;
