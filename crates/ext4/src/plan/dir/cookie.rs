//! Where a reader of a directory is.
//!
//! Entries are read in the order of their *position*, a number made from the name alone, so that a
//! reader can go on whatever happened to the directory meanwhile: splits, the conversion to an
//! index, insertions, removals. Position, from the top: 31 bits of the hash that an index is sorted
//! by, 26 further bits of hash, 6 bits that count entries equal in all of these. The kernel's choice,
//! the two halves of the directory hash alone, loses names of equal hash when a reader stops between
//! them, and with the legacy hash, which has no second half, such names are common.

use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::hash::{HashVersion, NameHasher};

/// Bits that count entries with the same hashes.
const ORDINAL_BITS: u32 = 6;
/// The highest of them.
const MOST_ORDINAL: u64 = (1 << ORDINAL_BITS) - 1;
/// "." and ".." come first, and the cookies behind them are 1 and 2.
const DOTS: u64 = 2;

/// The part of a position that a name determines; the low bits are clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

impl Key {
    /// The key of a name, and the hash that decides its leaf.
    pub(super) fn of(hasher: &NameHasher, name: &[u8]) -> (Key, u32) {
        let hash = hasher.hash(name);
        // The minor hash is keyed by the file system's secret seed; where there is none, a checksum
        // tells names apart.
        let further = match hasher.version {
            HashVersion::Legacy => Seed::START.chain(name).value(),
            HashVersion::HalfMd4 | HashVersion::Tea => hash.minor,
        } >> ORDINAL_BITS;
        let key = u64::from(hash.major >> 1) << 32 | u64::from(further) << ORDINAL_BITS;
        (Key(key), hash.major)
    }
}

/// A place between entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u64);

impl Position {
    /// The entry that is the `ordinal`-th of those with this key.
    pub(super) fn of(key: Key, ordinal: u64) -> Position {
        Position(key.0 | ordinal.min(MOST_ORDINAL))
    }

    /// Where a reader with this cookie, behind "." and "..", goes on.
    pub(super) fn from_cookie(cookie: u64) -> Position {
        Position(cookie.saturating_sub(DOTS))
    }

    /// The cookie for going on at this position.
    pub(super) fn cookie(self) -> u64 {
        self.0.saturating_add(DOTS)
    }

    /// Just behind.
    pub(super) fn after(self) -> Position {
        Position(self.0.saturating_add(1))
    }

    /// The lowest key whose entries can be at or behind this position.
    pub(super) fn key(self) -> Key {
        Key(self.0 & !MOST_ORDINAL)
    }

    /// The directory hash of entries here; `None` if it is behind all.
    pub(super) fn hash(self) -> Option<u32> {
        u32::try_from(self.0 >> 32).ok()?.checked_mul(2)
    }
}
