//! Directory blocks: entries, tails, and their checksums.
//!
//! Every block of a linear directory, and every leaf of an indexed directory, is filled by a chain
//! of records. The field `rec_len` contains a record's length. With `metadata_csum` the last 12
//! bytes are a tail in the form of an unused record. Source: kernel documentation, *ext4: Directory
//! Entries*.
//!
//! # Invariants
//! Every entry that [`entries`] yields is inside the block, aligned to four bytes, and after the
//! previous entry. So every walk ends after at most `block size / 12` steps.

mod edit;
mod record;

pub use crate::cause::DirentCause as Cause;
pub use edit::{
    Packed, Room, Sought, clear, find_or_room, find_room, insert, insert_at, new_directory, pack,
    remove, replace,
};
pub use record::{
    DirFormat, Entries, Entry, HEADER, MAX_NAME, MIN_RECORD, Name, NameError, NameForm, TAIL, dots,
    entries, entry_at, find, inline_entries, named_at, places, seal, space, verify,
};

#[cfg(test)]
mod tests;
