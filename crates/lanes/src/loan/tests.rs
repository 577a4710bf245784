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
