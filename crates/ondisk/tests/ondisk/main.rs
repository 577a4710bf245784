//! Fields, checksums and limits against images of mke2fs and debugfs.

#[path = "../../../raid5/tests/golden_arrays/archive.rs"]
mod archive;
#[path = "../image/mod.rs"]
mod image;

mod acl;
mod array;
mod corruption;
mod encryption;
mod feature_table;
mod field;
mod hash;
mod journal;
mod metadata;
