//! Published values: replaced as a whole, read under a pin.

use crate::epoch::{Pin, retire};
use crate::lane::Padded;
use crate::limbo::Retired;
use crate::sync::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomData;

/// A value that is replaced as a whole. Reads under a [`Pin`] need neither a write nor a wait.
pub struct Published<T> {
    value: AtomicPtr<T>,
    _owns: PhantomData<T>,
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Publishes `value`.
    pub fn new(value: T) -> Published<T> {
        Published { value: AtomicPtr::new(Box::into_raw(Box::new(value))), _owns: PhantomData }
    }

    /// Returns the present value; it does not change while the pin exists.
    #[inline]
    pub fn get<'p>(&'p self, _pin: &'p Pin) -> &'p T {
        // SAFETY: the pointer comes from a box. A replaced box is not freed while the pin exists.
        // The last box is freed by `drop`, which cannot run while `self` is borrowed. Acquire: the
        // contents of the box were written before it was published.
        unsafe { &*self.value.load(Ordering::Acquire) }
    }

    /// Runs `f` on the present value.
    #[inline]
    pub fn with<R>(&self, pin: &Pin, f: impl FnOnce(&T) -> R) -> R {
        f(self.get(pin))
    }

    /// Replaces the value. The old value is freed some time after no pin can see it any more.
    /// Writers should hold a common lock, which orders them. Without that lock, any of several
    /// concurrent stores may be the last.
    pub fn store(&self, value: T) {
        let new = Box::into_raw(Box::new(value));
        let old = self.value.swap(new, Ordering::AcqRel);
        // SAFETY: the box belonged to `self`, and the swap removed it: no later reader finds it.
        retire(unsafe { Retired::new(old) });
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: `self` is not borrowed, so no thread reads the value, which is an owned box.
        drop(unsafe { Box::from_raw(self.value.load(Ordering::Acquire)) });
    }
}

impl<T: Send + Sync + std::fmt::Debug + 'static> std::fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.with(&crate::epoch::pin(), |value| f.debug_tuple("Published").field(value).finish())
    }
}

/// A value of a [`Slot`]. Replaced values stay in memory until no pin can see them. Their bytes are
/// counted, so that the memory of these values is bounded.
pub trait Replaced: Send + Sync + 'static {
    /// Returns approximately how many bytes the value owns on the heap.
    fn heap_bytes(&self) -> usize;
}

/// Works like [`Published`], for a value that may be absent.
pub struct Slot<T> {
    value: AtomicPtr<T>,
    _owns: PhantomData<T>,
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot { value: AtomicPtr::new(std::ptr::null_mut()), _owns: PhantomData }
    }
}

impl<T: Replaced> Slot<T> {
    /// Returns the value, if there is one; it does not change while the pin exists.
    #[inline]
    pub fn get<'p>(&'p self, _pin: &'p Pin) -> Option<&'p T> {
        // SAFETY: as in `Published::get`, for a pointer that may be null.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Replaces the value. If several threads may write, a lock of the caller must order them.
    pub fn store(&self, value: T) {
        self.replace(Box::into_raw(Box::new(value)));
    }

    /// Removes the value; writes nothing if there is none.
    #[inline]
    pub fn clear(&self) {
        if !self.value.load(Ordering::Relaxed).is_null() {
            self.replace(std::ptr::null_mut());
        }
    }

    fn replace(&self, new: *mut T) {
        let old = self.value.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: the box belonged to `self`, and the swap removed it, so no later reader finds
            // it. Readers that found it before only read it, as this thread does.
            retire(unsafe { Retired::with_bytes(old, (*old).heap_bytes()) });
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let value = self.value.load(Ordering::Acquire);
        if !value.is_null() {
            // SAFETY: `self` is not borrowed, so no thread reads the value, which is an owned box.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

/// A [`Slot`] for a value that takes no memory while absent. When present, the value is on cache
/// lines that contain no other data.
pub struct Cached<T>(Slot<Padded<T>>);

impl<T: Replaced> Replaced for Padded<T> {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

impl<T> Default for Cached<T> {
    fn default() -> Cached<T> {
        Cached(Slot::default())
    }
}

impl<T: Replaced> Cached<T> {
    /// Returns the value, if there is one; it does not change while the pin exists.
    #[inline]
    pub fn get<'p>(&'p self, pin: &'p Pin) -> Option<&'p T> {
        self.0.get(pin).map(|padded| &padded.0)
    }

    /// Replaces the value. If several threads may write, a lock of the caller must order them.
    pub fn store(&self, value: T) {
        self.0.store(Padded(value));
    }

    /// Removes the value; writes nothing if there is none.
    #[inline]
    pub fn clear(&self) {
        self.0.clear();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::epoch::{advance, pin};
    use crate::lock::Mutex;
    use crate::rank::Rank;
    use crate::sync::Arc;
    use crate::sync::unscheduled::atomic::{AtomicBool, AtomicUsize};

    /// Counts its drops.
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    impl Replaced for Counted {
        fn heap_bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn a_reader_sees_what_was_published_last() {
        let value = Published::new(1);
        value.store(2);
        assert_eq!(value.with(&pin(), |v| *v), 2);
    }

    #[test]
    fn a_cached_value_is_there_from_its_store_to_its_clearing() {
        let drops = Arc::new(AtomicUsize::new(0));
        let cached = Cached::default();
        assert!(cached.get(&pin()).is_none());
        cached.clear();
        cached.store(Counted(drops.clone()));
        let pinned = pin();
        let seen = cached.get(&pinned).expect("just stored");
        cached.clear();
        assert!(cached.get(&pinned).is_none());
        assert_eq!(seen.0.load(Ordering::Relaxed), 0);
        drop(pinned);
        cached.store(Counted(drops.clone()));
        drop(cached);
        while drops.load(Ordering::Relaxed) < 2 {
            advance();
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_pin_keeps_what_it_saw_and_its_end_lets_it_go() {
        let drops = Arc::new(AtomicUsize::new(0));
        let value = Published::new(Counted(drops.clone()));
        let outer = pin();
        let inner = pin();
        let seen = value.get(&outer);
        value.store(Counted(drops.clone()));
        for _ in 0..10 {
            advance();
        }
        drop(inner);
        assert_eq!(seen.0.load(Ordering::Relaxed), 0);
        drop(outer);
        // Other tests sometimes hold pins, so it may take more than two attempts to advance the
        // epoch twice.
        while drops.load(Ordering::Relaxed) == 0 {
            advance();
            std::thread::yield_now();
        }
        drop(value);
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn limbo_is_emptied_by_the_threads_that_fill_it() {
        let drops = Arc::new(AtomicUsize::new(0));
        let value = Published::new(Counted(drops.clone()));
        // Pins of other tests may delay the drop.
        while drops.load(Ordering::Relaxed) == 0 {
            value.store(Counted(drops.clone()));
        }
    }

    /// Takes a state guard when it is dropped.
    struct Guarded(Arc<Mutex<u32>>);
    impl Drop for Guarded {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }

    #[test]
    fn destructors_wait_until_the_state_guard_is_let_go() {
        let drops = Arc::new(Mutex::new(Rank::Guard, 0));
        let value = Published::new(Guarded(drops.clone()));
        for _ in 0..50 {
            let state = Mutex::new(Rank::Guard, ());
            let held = state.lock();
            for _ in 0..100 {
                value.store(Guarded(drops.clone()));
                assert!(value.with(&pin(), |v| Arc::ptr_eq(&v.0, &drops)));
                advance();
            }
            drop(held);
            drop(pin());
        }
        // Pins of other tests may delay the drop.
        while *drops.lock() == 0 {
            advance();
            std::thread::yield_now();
        }
    }

    #[test]
    fn readers_never_see_a_value_that_was_freed() {
        let value = Published::new(vec![0_u64; 4]);
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        value.with(&pin(), |v| assert!(v.iter().all(|w| *w == v[0])));
                    }
                });
            }
            (0..30_000).for_each(|n| value.store(vec![n; 4]));
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::epoch::{advance, pin};
    use crate::sync::{Arc, thread};
    use loom::cell::UnsafeCell;

    /// A value that writes to a cell when it is dropped, so that loom reports a race between the
    /// drop and a read.
    struct Canary(UnsafeCell<u32>);
    // SAFETY: loom's cell checks every access, in every thread.
    unsafe impl Sync for Canary {}
    impl Canary {
        fn new() -> Canary {
            Canary(UnsafeCell::new(0))
        }
        fn look(&self) {
            self.0.with(|_| ());
        }
    }
    impl Drop for Canary {
        fn drop(&mut self) {
            // SAFETY: loom's cell checks the exclusion that makes this sound.
            self.0.with_mut(|dead| unsafe { *dead = 1 });
        }
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        crate::schedules::check(3, model);
    }

    #[test]
    fn loom_nothing_is_freed_under_a_pin() {
        check(|| {
            let value = Arc::new(Published::new(Canary::new()));
            let reader = {
                let value = value.clone();
                thread::spawn(move || {
                    value.with(&pin(), Canary::look);
                    value.with(&pin(), Canary::look);
                })
            };
            value.store(Canary::new());
            for _ in 0..3 {
                advance();
            }
            reader.join().expect("no panic");
        });
    }

    #[test]
    fn loom_nothing_is_freed_under_a_pin_that_came_late() {
        check(|| {
            let value = Arc::new(Published::new(Canary::new()));
            let reader = {
                let value = value.clone();
                thread::spawn(move || value.with(&pin(), Canary::look))
            };
            let other = thread::spawn(|| {
                advance();
                advance();
            });
            value.store(Canary::new());
            advance();
            reader.join().expect("no panic");
            other.join().expect("no panic");
        });
    }

    /// The main thread of the model owns one of the two lanes. While both readers run, one of them
    /// owns the second lane, and the other is a guest on the main thread's lane.
    #[test]
    fn loom_an_owners_and_a_guests_pin_both_protect() {
        crate::schedules::check(2, || {
            let _mine = crate::lane::Lane::current();
            let value = Arc::new(Published::new(Canary::new()));
            let readers = [(); 2].map(|()| {
                let value = value.clone();
                thread::spawn(move || value.with(&pin(), Canary::look))
            });
            value.store(Canary::new());
            advance();
            advance();
            readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
        });
    }
}
