//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Builds ext4 images from directories, tars and container images, without a mount and without
//! root.
//!
//! [`Builder`] takes [`Source`]s in order and writes a file system to any
//! [`Device`](lanefs_device::Device). Data goes to the device as it is read, so a tar from a pipe
//! needs no temporary copy. The metadata of all entries is kept in memory until all data is on the
//! device. Then all metadata is written together, without a journal, and the superblock is written
//! last.
#![forbid(unsafe_code)]

mod apply;
pub mod base64;
mod builder;
mod container;
mod convert;
mod entry;
mod error;
mod host;
mod host_file;
mod owners;
mod pipeline;
mod progress;
mod short_path;
mod source;
mod table;
mod tar;
mod tree;
mod unescape;
mod unpack;
mod verity;
mod view;

pub use apply::{Subtree, Whiteouts};
pub use builder::{Builder, Built, Bytes};
pub use error::{Cause, Error, Result};
pub use lanefs_mkfs::{MkfsOptions, OnLoss, Room, Spare, most_bytes_fitted};
pub use owners::{IdMap, Owners};
pub use progress::Progress;
pub use short_path::ShortPath;
pub use source::Source;
pub use table::Table;
pub use unescape::unescape;
pub use unpack::{is_packed, unpacked};
pub use verity::{Sealed, Verity};
pub use view::{AttributeFilter, FakerootState, HostView, Unreadable};
