//! Maps the ids of users and groups between the host and the image.
//!
//! Host ids are *shown*: in requests and replies of the kernel. Image ids are *stored*: on disk.
//! The server maps ids as soon as it has decoded a request, and just before it encodes a reply:
//! those of callers, in attributes, of new owners, and in access control lists. The code below the
//! server has image ids only. The functions here have no side effects.
//!
//! While the kernel checks permissions, it compares shown ids with callers, who have host ids. That
//! is right for every map here: a range is one to one, so two shown ids are equal if and only if
//! the stored ones are; an unmapped id is shown as the kernel's "no id", which no caller has; and
//! where all files are shown with one id, the option says that this id is the owner.
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
