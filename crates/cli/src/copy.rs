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
mod progress;
mod pump;
mod replace;
mod seen;
mod trail;
mod tree;

pub use copier::{Copier, Dereference, Existing, INTO_ITSELF, Keep, Plan, Recursion, Verbose};
pub use host::HostTree;
pub use image::{ImageNode, ImageTree};
pub use links::Links;
pub use progress::{Progress, with_template};
pub use pump::pump;
pub use replace::replace;
pub use seen::Seen;
pub use trail::Trail;
pub use tree::{
    Attribute, Identity, Listing, Meta, NewMode, Opening, OtherLists, Settings, Tree, TreeFile,
};
