//! Handles file data (mappings, claims for holes, bytes) and extended attributes.

pub(crate) mod bytes;
pub(crate) mod encryption;
pub(crate) mod file_data;
pub(crate) mod holes;
pub(crate) mod inline;
pub(crate) mod mapping;
mod owners;
pub(crate) mod quota_file;
pub(crate) mod rearrange;
pub(crate) mod unmap;
pub(crate) mod values;
pub(crate) mod verity;
pub(crate) mod xattrs;
