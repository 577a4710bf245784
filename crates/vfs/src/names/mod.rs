//! The name cache: it maps names in directories to inodes, and stores absent names too.
//!
//! While ext4 holds a directory's operation lock, it publishes every name that it reads or changes
//! ([`Names`]). So an entry is never older than its directory, and a look-up that finds an entry
//! needs no other check. An entry carries the directory's generation, so the entries of a deleted
//! directory are never found.

mod cache;
mod entry;
mod hashed;
mod known;

pub(crate) use cache::{NameCache, Sighting};
pub(crate) use hashed::HashedName;
pub(crate) use known::Known;

#[cfg(test)]
mod tests;
