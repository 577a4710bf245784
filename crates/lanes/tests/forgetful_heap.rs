//! Tests a heap that does not reuse freed memory, so that an address always belongs to the same
//! object. The heap keeps this setting for all threads that start later, even those of other tests,
//! so this test needs a process of its own.
#![cfg(not(any(loom, shuttle)))]

use lanefs_lanes::LineHeap;
use lanefs_lanes::sync::unscheduled::Mutex;
use std::collections::BTreeSet;

#[global_allocator]
static HEAP: LineHeap = LineHeap;

#[test]
fn no_address_is_used_twice_by_threads_that_come_and_go() {
    LineHeap::forget_what_is_freed();
    let seen = Mutex::new(BTreeSet::new());
    let thread = || {
        for n in 0..200 {
            let block = Box::new([n; 8]);
            let new = seen.lock().unwrap().insert(std::ptr::from_ref(&*block).addr());
            assert!(new, "used twice");
        }
    };
    for _ in 0..20 {
        std::thread::scope(|scope| scope.spawn(thread).join().unwrap());
    }
}
