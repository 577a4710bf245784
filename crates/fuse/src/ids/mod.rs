//! Maps the ids of users and groups between the host and the image.
//!
//! Host ids are *shown*: in requests and replies of the kernel. Image ids are *stored*: on disk.
//! The server maps at its door, in both directions: callers, attributes, new owners, and the ids
//! in access control lists. Nothing below knows of host ids. All of it is pure.
//!
//! While the kernel checks permissions, it compares shown ids with callers, who have host ids. That
//! is right for every map here: a range is one to one, so two shown ids are equal if and only if
//! the stored ones are; an unmapped id is none for the kernel too, which equals no caller; and where
//! all files are shown with one id, that id is the owner by the option's meaning.
//!
//! `fakeroot` maps the caller instead: the owner of the mount is user 0 of the image. The kernel
//! does not know that, so the server checks ([`crate::Checks`]).

mod map;
mod maps;
mod ranges;
mod wanted;

pub use map::Refusal;
pub use maps::{Caller, Ids};
pub use wanted::{Conflict, IdOptions, OptionValue};

#[cfg(test)]
mod tests;
