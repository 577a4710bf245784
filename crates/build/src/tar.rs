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
#[cfg(test)]
mod judged;
mod pax;
mod reader;
mod sparse;

pub(crate) use reader::{Body, Item, Reader};

/// Whose reading of an archive is followed where programs differ: in names that are stated twice,
/// global headers, names that end in a slash, and incomplete records of sparse files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// GNU tar's, for plain archives.
    Gnu,
    /// That of Go's package `archive/tar`, for layers and archives of container images, because
    /// docker, containerd, podman and buildah read them with it. Otherwise an image could hold files
    /// that they never see.
    Go,
}
