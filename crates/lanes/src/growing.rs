//! Values that are rarely replaced, and tables that rarely grow. Even during such a change, other
//! threads read them without a lock and without writing shared memory.

// The schedule checkers need not see these accesses, because a reader gets either the whole old
// value or the whole new value.
use crate::sync::unscheduled::OnceLock;
use crate::sync::unscheduled::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomData;
use std::ops::Index;
use std::ptr::null_mut;

/// A value that is replaced rarely, such as the size of a mounted file system. A reference to a
/// replaced value stays valid, because all values are kept until the `Latest` is dropped. Reading
/// takes no pin, and writes nothing.
///
/// ```
/// let size = lanefs_lanes::Latest::new(1);
/// let old = size.get();
/// size.set(2);
/// assert_eq!((*old, *size.get()), (1, 2));
/// ```
pub struct Latest<T> {
    now: AtomicPtr<Kept<T>>,
    _owns: PhantomData<T>,
}

struct Kept<T> {
    value: T,
    /// The previous value, or null.
    older: AtomicPtr<Kept<T>>,
}

impl<T: Send + Sync> Latest<T> {
    /// Creates a `Latest` with its first value.
    pub fn new(value: T) -> Latest<T> {
        Latest { now: AtomicPtr::new(Kept::of(value)), _owns: PhantomData }
    }

    /// Returns the present value.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: the pointer comes from a box, which only `drop` frees. Acquire: the contents of
        // the box were written before it was published.
        unsafe { &(*self.now.load(Ordering::Acquire)).value }
    }

    /// Replaces the value. Two threads must not call this function at once, because then either of
    /// their two values could become the present one.
    pub fn set(&self, value: T) {
        let new = Kept::of(value);
        let old = self.now.swap(new, Ordering::AcqRel);
        // SAFETY: `new` comes from a box, which only `drop` frees.
        unsafe { &(*new).older }.store(old, Ordering::Release);
    }
}

impl<T> Kept<T> {
    fn of(value: T) -> *mut Kept<T> {
        Box::into_raw(Box::new(Kept { value, older: AtomicPtr::new(null_mut()) }))
    }
}

impl<T> Drop for Latest<T> {
    fn drop(&mut self) {
        let mut next = *self.now.get_mut();
        while !next.is_null() {
            // SAFETY: the pointers come from boxes, each is in the chain once, and no reader is
            // left, since `self` is borrowed exclusively.
            let mut kept = unsafe { Box::from_raw(next) };
            next = *kept.older.get_mut();
        }
    }
}

impl<T: Send + Sync + std::fmt::Debug> std::fmt::Debug for Latest<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// A table that grows at its end, and whose elements stay in place. Each extension adds a part, and
/// a look-up goes through the parts in order.
#[derive(Debug)]
pub struct Growing<T> {
    first: Box<[T]>,
    next: OnceLock<Box<Growing<T>>>,
}

impl<T> Growing<T> {
    /// Returns the element with this index.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        match self.first.get(index) {
            Some(found) => Some(found),
            None => self.get_later(index),
        }
    }

    #[cold]
    fn get_later(&self, index: usize) -> Option<&T> {
        let (mut part, mut index) = (self, index);
        while let Some(rest) = index.checked_sub(part.first.len()) {
            (part, index) = (part.next.get()?, rest);
        }
        part.first.get(index)
    }

    /// Adds elements at the end. The caller makes sure that only one thread at a time calls this
    /// function.
    ///
    /// # Panics
    /// If another thread extends the table at the same time.
    pub fn extend(&self, elements: impl IntoIterator<Item = T>) {
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        let added = last.next.set(Box::new(elements.into_iter().collect()));
        assert!(added.is_ok(), "the table is extended by one thread at a time");
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        let parts = std::iter::successors(Some(self), |part| part.next.get().map(|next| &**next));
        parts.map(|part| part.first.len()).sum()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> FromIterator<T> for Growing<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Growing<T> {
        Growing { first: elements.into_iter().collect(), next: OnceLock::new() }
    }
}

impl<T> Index<usize> for Growing<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        self.get(index).expect("the index of an element")
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_its_elements_in_place_while_it_grows() {
        let table: Growing<u32> = (0..5).collect();
        let third = &table[3];
        table.extend(5..6);
        table.extend(6..20);
        table.extend(std::iter::empty());
        table.extend(20..21);
        assert!(std::ptr::eq(third, &table[3]));
        assert!((0..21).all(|n| table.get(n as usize) == Some(&n)));
        assert_eq!((table.get(21), table.len()), (None, 21));
    }

    #[test]
    fn readers_see_whole_values_that_stay_valid() {
        let latest = Latest::new(vec![0u64; 8]);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let mut before = latest.get();
                    while before[0] < 1000 {
                        let now = latest.get();
                        assert!(now.iter().all(|n| *n == now[0]) && now[0] >= before[0]);
                        before = now;
                    }
                });
            }
            (1..=1000).for_each(|n| latest.set(vec![n; 8]));
        });
    }
}
