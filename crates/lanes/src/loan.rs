//! Lends a request's bytes to another thread, which processes the request for its owner.
//!
//! The owner only borrows the bytes, so it must not continue while the other thread reads them.
//! [`Loan::lend`] enforces this: before it returns or unwinds, it waits until no thread has the
//! bytes borrowed, and ends the loan. After that no thread can borrow the bytes.

use crate::lock::{Condvar, Mutex};
use crate::rank::Rank;
use crate::sync::Arc;

/// Bytes that their owner lends to at most one other thread at a time.
#[derive(Debug)]
pub struct Loan {
    bytes: Bytes,
    state: Mutex<State>,
    returned: Condvar,
}

/// The first of the request's slices, and the number of slices. The slices are valid until the loan
/// is over.
#[derive(Debug)]
struct Bytes {
    first: *const &'static [u8],
    count: usize,
}

// SAFETY: all threads only read the slices, and `&[&[u8]]` is `Send` and `Sync`.
unsafe impl Send for Bytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for Bytes {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Borrowed,
    Over,
}

impl Loan {
    /// Calls `body` with a loan of `bytes`, then waits until no thread has the bytes borrowed, and
    /// ends the loan.
    ///
    /// # Locking
    /// Waits for the thread that has borrowed the bytes, so the caller must hold no lock that the
    /// borrower may need.
    pub fn lend<R>(bytes: &[&[u8]], body: impl FnOnce(&Arc<Loan>) -> R) -> R {
        let loan = Arc::new(Loan {
            bytes: Bytes { first: bytes.as_ptr().cast(), count: bytes.len() },
            state: Mutex::new(Rank::Bucket, State::Free),
            returned: Condvar::new(),
        });
        let _end = End(&loan);
        body(&loan)
    }

    /// Borrows the bytes. Returns `None` if another thread has them, or the loan is over.
    pub fn borrow(loan: &Arc<Loan>) -> Option<Borrowed> {
        let mut state = loan.state.lock();
        if *state != State::Free {
            return None;
        }
        *state = State::Borrowed;
        drop(state);
        Some(Borrowed(loan.clone()))
    }
}

/// Ends a loan when dropped.
struct End<'l>(&'l Arc<Loan>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        while *state == State::Borrowed {
            self.0.returned.wait(&mut state);
        }
        *state = State::Over;
    }
}

/// Borrowed bytes, returned to their owner when dropped.
#[derive(Debug)]
pub struct Borrowed(Arc<Loan>);

impl Borrowed {
    /// Returns the slices of the request.
    pub fn slices(&self) -> &[&[u8]] {
        let Bytes { first, count } = self.0.bytes;
        // SAFETY: `first` and `count` come from a slice that `Loan::lend` borrows. `Loan::lend`
        // does not return while the state is `Borrowed`, and only the drop of this value changes
        // that state. Both lifetimes of the result end before that drop.
        unsafe { std::slice::from_raw_parts(first, count) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        *self.0.state.lock() = State::Free;
        self.0.returned.notify_all();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
