//! Scenarios run without one step of the code: blind is who does not notice.

use std::process::Command;

/// More than enough for each: the most that one needed is in docs/results.
const SCHEDULES: &str = "20000";

/// The schedule in which `scenario` failed without `step`. In a process of its own, for what is
/// left out is left out for good.
///
/// # Panics
/// If it passed.
pub fn found(step: &str, scenario: &str) -> u64 {
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args([scenario, "--exact", "--nocapture"])
        .env("LANEFS_LEAVE_OUT", step)
        .env("LANEFS_SCHEDULES", SCHEDULES)
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the test program runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("running 1 test"), "there is no test {scenario}");
    assert!(!output.status.success(), "{scenario} passes without {step}");
    let words = said.split("in schedule ").nth(1).and_then(|rest| rest.split(':').next());
    words.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}
