//! Copies trees: between an image and the host, and between images.
//!
//! A [`Source`] or a [`Target`] is an image or the host. [`Copier`] works on several threads, each
//! with one directory at a time. Two steps come last. First the further names of hard-linked files
//! are created. Then the attributes of directories are set, since every new entry changes a
//! directory's times.

mod copier;
mod host;
mod image;
mod progress;
mod seen;
mod trail;
mod tree;

pub use copier::{Copier, Dereference, Existing, INTO_ITSELF, Keep, Plan, Recursion, Verbose};
pub use host::HostTree;
pub use image::{ImageNode, ImageTree};
pub use progress::Progress;
pub use seen::Seen;
pub use trail::Trail;
pub use tree::{Attribute, Content, Identity, Listing, Meta, Settings, Sink, Source, Target};
