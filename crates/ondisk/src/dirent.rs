//! Directory blocks: entries, tails, and their checksums.
//!
//! A block of a linear directory, and a leaf of an indexed one, is a chain of records that covers
//! the block; `rec_len` is the length of a record. With `metadata_csum` the last 12 bytes are a
//! tail in the form of an unused record. Source: kernel documentation, *ext4: Directory Entries*.
//!
//! # Invariants
//! An entry of [`entries`] is inside the block, four-byte aligned and after the previous one, so
//! that every walk ends after at most `block size / 12` steps.

mod edit;
mod format;
mod name;
mod record;
mod tail;

pub use crate::cause::dirent::Cause;
pub use edit::{
    Packed, Room, Sought, clear, find_or_room, find_room, insert, insert_at, new_directory, pack,
    remove, replace,
};
pub use format::{DirFormat, HEADER, MIN_RECORD, NameForm, TAIL, space};
pub use name::{MAX_NAME, Name, NameError};
pub use record::{Entries, Entry, dots, entries, entry_at, find, inline_entries, named_at, places};
pub use tail::{seal, verify};

#[cfg(test)]
mod tests;
