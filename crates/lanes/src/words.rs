//! Values as plain 64-bit words, so that a [`SeqCell`](crate::SeqCell) can hold them in atomics.
//!
//! The bytes of a value cannot simply be copied: a reader would race with the writer. Nor can all
//! bytes be copied through atomics, because padding bytes have no value that could be loaded.
//! Instead the fields are converted to words. This conversion is safe code, and costs nothing for a
//! field that is a word already.

use crate::clock::CoarseTime;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A value that can be converted to words.
///
/// The macro [`words!`](crate::words) implements this trait for a struct of such values. For an
/// enum, the trait is implemented by hand, with the number that stands for the variant on disk.
pub trait Words: Copy {
    /// The words of the value: `[u64; N]`.
    type Array: WordArray;
    /// Returns the value as words.
    fn to_words(&self) -> Self::Array;
    /// Returns the value of these words. The words always come from [`Words::to_words`].
    fn from_words(words: Self::Array) -> Self;
}

/// `[u64; N]`, for every `N`.
pub trait WordArray: Copy + AsRef<[u64]> + sealed::Sealed {
    /// The number of words.
    const LEN: usize;
    /// An array of [`WordArray::LEN`] atomics.
    type Atomics: std::fmt::Debug + Send + Sync;
    /// Creates atomics with these values.
    fn into_atomics(self) -> Self::Atomics;
    /// Stores the words, in any order.
    fn store(self, atomics: &Self::Atomics);
    /// Returns the atomic of one word.
    ///
    /// # Panics
    /// If there is no such word.
    fn word(atomics: &Self::Atomics, at: usize) -> &AtomicU64;
    /// Loads the words, in any order.
    fn load(atomics: &Self::Atomics) -> Self;
    /// Returns the first [`WordArray::LEN`] words of `words`.
    ///
    /// # Panics
    /// If there are fewer words.
    fn from_slice(words: &[u64]) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl<const N: usize> Sealed for [u64; N] {}
}

impl<const N: usize> WordArray for [u64; N] {
    const LEN: usize = N;
    type Atomics = [AtomicU64; N];
    #[inline]
    fn into_atomics(self) -> Self::Atomics {
        self.map(AtomicU64::new)
    }
    #[inline]
    fn store(self, atomics: &Self::Atomics) {
        for (atomic, word) in atomics.iter().zip(self) {
            atomic.store(word, Ordering::Relaxed);
        }
    }
    #[inline]
    fn word(atomics: &Self::Atomics, at: usize) -> &AtomicU64 {
        &atomics[at]
    }
    #[inline]
    fn load(atomics: &Self::Atomics) -> Self {
        std::array::from_fn(|at| atomics[at].load(Ordering::Relaxed))
    }
    #[inline]
    fn from_slice(words: &[u64]) -> Self {
        std::array::from_fn(|at| words[at])
    }
}

impl<const N: usize> Words for [u64; N] {
    type Array = [u64; N];
    #[inline]
    fn to_words(&self) -> [u64; N] {
        *self
    }
    #[inline]
    fn from_words(words: [u64; N]) -> Self {
        words
    }
}

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl Words for $type {
            type Array = [u64; 1];
            #[inline]
            fn to_words(&self) -> [u64; 1] {
                [*self as u64]
            }
            #[inline]
            fn from_words([word]: [u64; 1]) -> Self {
                word as $type
            }
        }
    )* };
}

integers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

impl Words for bool {
    type Array = [u64; 1];
    #[inline]
    fn to_words(&self) -> [u64; 1] {
        [u64::from(*self)]
    }
    #[inline]
    fn from_words([word]: [u64; 1]) -> Self {
        word != 0
    }
}

crate::words!(CoarseTime { secs: i64, nanos: u32 });

/// Implements [`Words`](crate::Words) for a struct from its fields and their types. These types
/// must implement `Words` too.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Owner { uid: u32, gid: u32 }
/// lanefs_lanes::words!(Owner { uid: u32, gid: u32 });
///
/// let cell = lanefs_lanes::SeqCell::new(Owner { uid: 1, gid: 2 });
/// assert_eq!(cell.load(), Owner { uid: 1, gid: 2 });
/// ```
#[macro_export]
macro_rules! words {
    ($name:ty { $($field:ident : $type:ty),+ $(,)? }) => {
        impl $crate::Words for $name {
            type Array =
                [u64; 0 $(+ <<$type as $crate::Words>::Array as $crate::WordArray>::LEN)+];
            #[inline]
            fn to_words(&self) -> Self::Array {
                let mut words = [0; <Self::Array as $crate::WordArray>::LEN];
                let mut rest: &mut [u64] = &mut words;
                $(
                    let part = <$type as $crate::Words>::to_words(&self.$field);
                    let part: &[u64] = part.as_ref();
                    let (mine, others) = rest.split_at_mut(part.len());
                    mine.copy_from_slice(part);
                    rest = others;
                )+
                debug_assert!(rest.is_empty());
                words
            }
            #[inline]
            fn from_words(words: Self::Array) -> Self {
                let rest: &[u64] = &words;
                $(
                    let (mine, rest) = rest.split_at(
                        <<$type as $crate::Words>::Array as $crate::WordArray>::LEN,
                    );
                    let $field = <$type as $crate::Words>::from_words(
                        $crate::WordArray::from_slice(mine),
                    );
                )+
                debug_assert!(rest.is_empty());
                Self { $($field),+ }
            }
        }
    };
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Mixed {
        flag: bool,
        small: i8,
        when: CoarseTime,
        raw: [u64; 2],
    }
    words!(Mixed { flag: bool, small: i8, when: CoarseTime, raw: [u64; 2] });

    #[test]
    fn a_struct_comes_back_from_its_words() {
        let when = CoarseTime { secs: -1, nanos: 999_999_999 };
        let mixed = Mixed { flag: true, small: -3, when, raw: [5, u64::MAX] };
        assert_eq!(mixed.to_words().len(), 6);
        assert_eq!(Mixed::from_words(mixed.to_words()), mixed);
    }
}
