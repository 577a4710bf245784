//! Maps bytes of the array to its members.
//!
//! A *row* is one chunk of every member at the same offset: `d` chunks of data and one of parity.
//! The six layouts differ in which member has a row's parity and which has its first data chunk.
//! Tests compare all six with arrays that the kernel's md driver wrote.
//! [`Slots`] is a set of members, or of a row's data chunks.

use std::ops::{BitOr, BitOrAssign, Sub};

/// A layout: which member has a row's parity, and in which order the other members have the row's
/// data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Parity moves from the last member to the first. Data chunks start on member 0 and skip the
    /// member with the parity.
    LeftAsymmetric,
    /// Parity moves from the first member to the last. Data chunks start on member 0 and skip the
    /// member with the parity.
    RightAsymmetric,
    /// Parity moves from the last member to the first; data starts on the member after the parity.
    /// This is md's default. Sequential reads use all members equally.
    LeftSymmetric,
    /// Parity moves from the first member to the last; data starts on the member after the parity.
    RightSymmetric,
    /// Parity is always on member 0.
    ParityFirst,
    /// Parity is always on the last member.
    ParityLast,
}

impl Layout {
    /// All layouts, in the order of md's numbers.
    pub const ALL: [Layout; 6] = [
        Layout::LeftAsymmetric,
        Layout::RightAsymmetric,
        Layout::LeftSymmetric,
        Layout::RightSymmetric,
        Layout::ParityFirst,
        Layout::ParityLast,
    ];

    /// Returns the layout that has this number in md's superblock.
    pub fn from_md(number: u32) -> Option<Layout> {
        Layout::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the layout's name in mdadm.
    pub fn name(self) -> &'static str {
        match self {
            Layout::LeftAsymmetric => "left-asymmetric",
            Layout::RightAsymmetric => "right-asymmetric",
            Layout::LeftSymmetric => "left-symmetric",
            Layout::RightSymmetric => "right-symmetric",
            Layout::ParityFirst => "parity-first",
            Layout::ParityLast => "parity-last",
        }
    }

    /// Returns the layout that has this name in mdadm.
    pub fn from_name(name: &str) -> Option<Layout> {
        Layout::ALL.into_iter().find(|layout| layout.name() == name)
    }

    /// Returns the layout's number in md.
    pub fn md(self) -> u32 {
        self as u32
    }
}

/// The shape of an array. All sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    layout: Layout,
    members: usize,
    chunk: u64,
    rows: u64,
}

/// Why a [`Geometry`] is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Level 5 needs at least 3 members; more than 32 are not supported.
    #[error("{members} members: an array has 3 to 32")]
    Members {
        /// The requested number of members.
        members: usize,
    },
    /// The chunk size must be a power of two from 4 KiB to 1 GiB.
    #[error("chunks of {chunk} bytes: a power of two from 4 KiB to 1 GiB is needed")]
    Chunk {
        /// The requested size of a chunk in bytes.
        chunk: u64,
    },
    /// The members are too small for a row, or the size of the array overflows 64 bits.
    #[error("members of {member_size} bytes are too small or too large")]
    Size {
        /// Bytes used on each member.
        member_size: u64,
    },
}

/// Parity is kept, logged and locked in blocks of this size, as in md.
pub const BLOCK: u64 = 4096;

/// A position in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The number of the row.
    pub row: u64,
    /// The index of the data chunk in the row, counted in the order of the array's bytes.
    pub index: usize,
    /// The offset of the byte within the chunk.
    pub offset: u64,
}

impl Geometry {
    /// The largest number of members supported.
    pub const MAX_MEMBERS: usize = 32;

    /// Creates the geometry of `members` members, with `member_size` bytes used on each (rounded
    /// down to whole chunks).
    ///
    /// # Errors
    /// If no array can have these values.
    pub fn new(
        layout: Layout,
        members: usize,
        chunk: u64,
        member_size: u64,
    ) -> Result<Geometry, GeometryError> {
        if !(3..=Self::MAX_MEMBERS).contains(&members) {
            return Err(GeometryError::Members { members });
        }
        if !chunk.is_power_of_two() || !(BLOCK..=1 << 30).contains(&chunk) {
            return Err(GeometryError::Chunk { chunk });
        }
        let rows = member_size / chunk;
        let countable = member_size.checked_mul(members as u64).is_some_and(|all| all < 1 << 63);
        if rows == 0 || !countable {
            return Err(GeometryError::Size { member_size });
        }
        Ok(Geometry { layout, members, chunk, rows })
    }

    /// Returns the layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the number of members of a complete array.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Returns the number of data chunks in a row.
    pub fn data(&self) -> usize {
        self.members - 1
    }

    /// Returns the size of a chunk in bytes.
    pub fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of bytes of data in a row.
    pub fn row_len(&self) -> u64 {
        self.chunk * self.data() as u64
    }

    /// Returns the size of the array in bytes.
    pub fn len(&self) -> u64 {
        self.rows * self.row_len()
    }

    /// Returns false: an array has at least one row.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the number of bytes used on each member.
    pub fn member_len(&self) -> u64 {
        self.rows * self.chunk
    }

    /// Returns where byte `at` of the array lies.
    pub fn place(&self, at: u64) -> Location {
        let (chunk, offset) = (at / self.chunk, at % self.chunk);
        let data = self.data() as u64;
        Location { row: chunk / data, index: (chunk % data) as usize, offset }
    }

    /// Returns the offset in the array of the byte at `place`.
    pub fn array_byte(&self, place: Location) -> u64 {
        (place.row * self.data() as u64 + place.index as u64) * self.chunk + place.offset
    }

    /// Returns the slot of the member with the parity of `row`.
    pub fn parity_slot(&self, row: u64) -> usize {
        let turn = (row % self.members as u64) as usize;
        match self.layout {
            Layout::LeftAsymmetric | Layout::LeftSymmetric => self.data() - turn,
            Layout::RightAsymmetric | Layout::RightSymmetric => turn,
            Layout::ParityFirst => 0,
            Layout::ParityLast => self.data(),
        }
    }

    /// Returns the slot of the member with data chunk `index` of `row`.
    pub fn data_slot(&self, row: u64, index: usize) -> usize {
        let parity = self.parity_slot(row);
        match self.layout {
            Layout::LeftSymmetric | Layout::RightSymmetric => (parity + 1 + index) % self.members,
            _ => index + usize::from(index >= parity),
        }
    }

    /// Returns the index of the data chunk of `row` on the member in `slot`; `None` if that member
    /// has the parity.
    pub fn index_of(&self, row: u64, slot: usize) -> Option<usize> {
        let parity = self.parity_slot(row);
        if slot == parity {
            return None;
        }
        Some(match self.layout {
            Layout::LeftSymmetric | Layout::RightSymmetric => {
                (slot + self.members - parity - 1) % self.members
            }
            _ => slot - usize::from(slot > parity),
        })
    }
}

/// A set of small numbers: slots of members, or indexes of a row's data chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Slots(u64);

impl Slots {
    /// The empty set.
    pub const NONE: Slots = Slots(0);

    /// Returns the set of the numbers below `count`.
    pub fn below(count: usize) -> Slots {
        (0..count).collect()
    }

    /// Returns the set with `slot` as its only element.
    pub fn one(slot: usize) -> Slots {
        debug_assert!(slot < 64, "an array has fewer members");
        Slots(1 << (slot & 63))
    }

    /// Returns whether `slot` is in the set.
    pub fn contains(self, slot: usize) -> bool {
        slot < 64 && self.0 >> slot & 1 == 1
    }

    /// Returns the number of elements.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the lowest element.
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// Returns all elements, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self;
        std::iter::from_fn(move || {
            let next = left.first()?;
            left = left - Slots::one(next);
            Some(next)
        })
    }
}

impl BitOr for Slots {
    type Output = Slots;
    fn bitor(self, other: Slots) -> Slots {
        Slots(self.0 | other.0)
    }
}

impl BitOrAssign for Slots {
    fn bitor_assign(&mut self, other: Slots) {
        self.0 |= other.0;
    }
}

impl Sub for Slots {
    type Output = Slots;
    fn sub(self, other: Slots) -> Slots {
        Slots(self.0 & !other.0)
    }
}

impl FromIterator<usize> for Slots {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Slots {
        numbers.into_iter().fold(Slots::NONE, |all, n| all | Slots::one(n))
    }
}

#[cfg(test)]
mod tests;
