//! Reads tar archives as a stream: ustar, v7, GNU and pax, with long names and links, numbers in
//! base 256, attributes (`SCHILY.xattr`, `LIBARCHIVE.xattr`, `RHT.security.selinux`), ACLs
//! (`SCHILY.acl`), creation times (`LIBARCHIVE.creationtime`), and the four sparse formats of GNU
//! tar.
//!
//! Sources of the formats: POSIX.1-2017 *pax*, "Interchange Format"; the manuals of GNU tar ("Basic
//! Tar Format", "Sparse Formats") and of libarchive, tar(5).
//!
//! The crate `tar` is not used, because it reads no sparse formats of pax and no attributes of
//! libarchive, and sets no limit on the size of a header.

mod acl;
mod header;
mod pax;
mod reader;
mod sparse;
#[cfg(test)]
mod tests;

pub(crate) use header::Dialect;
pub(crate) use reader::{Body, Reader};
