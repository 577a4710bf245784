//! A jail is refused where it would not hold.

use lanefs_jail::{Jail, NotAlone};

#[test]
fn a_process_with_threads_is_not_confined() {
    // The test itself runs in a thread beside the main one.
    let refused = Jail::new().enter().expect_err("two threads");
    assert!(matches!(refused, NotAlone { threads: Some(2..) }), "{refused}");
    assert!(refused.to_string().ends_with("threads already"));
    std::fs::read("/proc/self/status").expect("nothing is confined");
}
