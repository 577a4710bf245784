//! Maps the ids of users and groups between the host and the image.
//!
//! Host ids are called *shown*: they occur in the kernel's requests and replies. Image ids are
//! called *stored*: they are on disk. The server maps ids directly after it has decoded a request
//! and directly before it encodes a reply. It maps the ids of callers and of new owners, and the
//! ids in attributes and in access control lists. The layers below the server see only image ids.
//! The functions here have no side effects.
//!
//! If the kernel checks permissions, it compares shown ids with the host ids of callers. The
//! outcome of this comparison is right for every map of this module. A range is one to one, so two
//! shown ids are equal if and only if the stored ids are equal. An unmapped id is shown as the
//! kernel's "no id", which no caller has. If all files are shown with one id, that id counts as the
//! owner of every file, as the mount option asks.
//!
//! The option `fakeroot` maps the caller instead: the owner of the mount is user 0 of the image.
//! The kernel does not know this map, so the server checks permissions ([`crate::Checks`]).

mod map;
mod maps;
mod ranges;
mod wanted;

pub use map::Refusal;
pub use maps::{Caller, Ids};
pub use wanted::{Conflict, IdOptions, OptionValue};

#[cfg(test)]
mod tests;
