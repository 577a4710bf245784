//! Copies trees: between an image and the host, and between images.
//!
//! A [`Tree`] is an image or the host. [`Copier`] works on several threads, each
//! with one directory at a time. Two steps come last. First the names of hard-linked files are
//! created that were found while another thread copied the file. Then the attributes of directories
//! are set, since every new entry changes a directory's times.

mod copier;
mod host;
mod image;
mod links;
mod plan;
mod progress;
mod tree;

pub use copier::Copier;
pub use host::HostTree;
pub use image::{ImageNode, ImageTree, Listed};
pub use links::{Links, Seen, Trail};
pub use plan::{Dereference, Existing, INTO_ITSELF, Keep, Plan, Recursion, Verbose};
pub use progress::{Progress, with_template};
pub use tree::{
    Attribute, Identity, Listing, Meta, Opening, OtherLists, Settings, Tree, TreeFile, pump,
    replace,
};
