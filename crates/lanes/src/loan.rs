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
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicBool, Ordering};
    use crate::sync::unscheduled::mpsc;

    #[test]
    fn borrowed_bytes_stay_until_they_are_returned() {
        let (to_borrower, loans) = mpsc::channel::<Arc<Loan>>();
        let (to_owner, borrowed) = mpsc::channel();
        let returned = AtomicBool::new(false);
        std::thread::scope(|s| {
            let returned = &returned;
            s.spawn(move || {
                let loan = loans.recv().expect("a loan");
                let bytes = Loan::borrow(&loan).expect("free");
                to_owner.send(()).expect("the owner waits");
                assert!(Loan::borrow(&loan).is_none(), "one borrower at a time");
                assert_eq!(bytes.slices().concat(), b"abcd");
                returned.store(true, Ordering::SeqCst);
                drop(bytes);
            });
            let (one, two) = (b"ab".to_vec(), b"cd".to_vec());
            Loan::lend(&[&one, &two], |loan| {
                to_borrower.send(loan.clone()).expect("the borrower waits");
                borrowed.recv().expect("borrowed");
            });
            assert!(returned.load(Ordering::SeqCst), "the owner waits for the borrower");
        });
    }

    #[test]
    fn a_loan_that_is_over_lends_nothing() {
        let kept = Loan::lend(&[b"ab"], |loan| {
            assert_eq!(Loan::borrow(loan).expect("free").slices(), [b"ab"]);
            assert!(Loan::borrow(loan).is_some(), "returned bytes can be borrowed again");
            loan.clone()
        });
        assert!(Loan::borrow(&kept).is_none());
        let kept = kept_from_a_panic();
        assert!(Loan::borrow(&kept).is_none());
    }

    fn kept_from_a_panic() -> Arc<Loan> {
        let mut kept = None;
        let lend = std::panic::AssertUnwindSafe(|| {
            Loan::lend(&[b"ab"], |loan| {
                kept = Some(loan.clone());
                std::panic::resume_unwind(Box::new(()));
            });
        });
        assert!(std::panic::catch_unwind(lend).is_err());
        kept.expect("lent")
    }
}
