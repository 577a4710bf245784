//! A set of members, or of a row's data chunks, by number.

use std::ops::{BitOr, BitOrAssign, Sub};

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
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_inserted_slots() {
        let set: Slots = [3, 0, 63].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63]);
        assert!(set.contains(63) && !set.contains(1) && !set.contains(64));
        assert_eq!((set - Slots::one(0)).first(), Some(3));
        assert_eq!(Slots::below(3) | Slots::one(3), Slots::below(4));
        assert!(Slots::NONE.is_empty() && Slots::NONE.first().is_none());
    }
}
