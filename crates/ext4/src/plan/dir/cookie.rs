//! The positions of readers in a directory.
//!
//! Entries are read in the order of their *position*, a number whose bits, except for the last six,
//! are computed from the name only. So a reader can continue after any change of the directory: a
//! split, the conversion to an index, an insertion, or a removal. A position has three parts, from
//! the highest bit down: 31 bits of the hash by which an index is sorted, 26 bits of a second hash,
//! and 6 bits that count entries with the same 57 hash bits. The kernel's position consists only of
//! the two halves of the directory hash. So a kernel reader that stops between names of equal hash
//! misses some of these names. Such names are common with the legacy hash, which has no second
//! half.

use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::hash::{HashVersion, NameHasher};

/// The number of bits that count entries with the same hash bits.
const ORDINAL_BITS: u32 = 6;
/// The highest count.
const MOST_ORDINAL: u64 = (1 << ORDINAL_BITS) - 1;
/// The number of entries that come first, "." and "..". Their cookies are 1 and 2.
const DOTS: u64 = 2;

/// The part of a position that the name determines; the low bits are clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

impl Key {
    /// Returns the key of a name, and the hash that determines its leaf.
    pub(super) fn of(hasher: &NameHasher, name: &[u8]) -> (Key, u32) {
        let hash = hasher.hash(name);
        // The second hash is the minor hash, which depends on the file system's secret seed. The
        // legacy hash has no minor part, so a checksum of the name takes the place of the minor
        // hash.
        let further = match hasher.version {
            HashVersion::Legacy => Seed::START.chain(name).value(),
            HashVersion::HalfMd4 | HashVersion::Tea => hash.minor,
        } >> ORDINAL_BITS;
        let key = u64::from(hash.major >> 1) << 32 | u64::from(further) << ORDINAL_BITS;
        (Key(key), hash.major)
    }
}

/// A position in the order of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u64);

impl Position {
    /// Returns the position of the `ordinal`-th entry with this key.
    pub(super) fn of(key: Key, ordinal: u64) -> Position {
        Position(key.0 | ordinal.min(MOST_ORDINAL))
    }

    /// Returns the position at which a reader with this cookie continues, among the entries other
    /// than "." and "..".
    pub(super) fn from_cookie(cookie: u64) -> Position {
        Position(cookie.saturating_sub(DOTS))
    }

    /// Returns the cookie for continuing at this position.
    pub(super) fn cookie(self) -> u64 {
        self.0.saturating_add(DOTS)
    }

    /// Returns the position before all entries with this directory hash.
    pub(super) fn of_hash(major: u32) -> Position {
        Position(u64::from(major >> 1) << 32)
    }

    /// Returns the next position.
    pub(super) fn after(self) -> Position {
        Position(self.0.saturating_add(1))
    }

    /// Returns the lowest key whose entries can be at or after this position.
    pub(super) fn key(self) -> Key {
        Key(self.0 & !MOST_ORDINAL)
    }

    /// Returns the directory hash of entries at this position; `None` if it is after all entries.
    pub(super) fn hash(self) -> Option<u32> {
        u32::try_from(self.0 >> 32).ok()?.checked_mul(2)
    }
}
