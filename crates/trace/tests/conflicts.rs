//! Pairs of operations that share no cache line keep sharing none.

use std::process::Command;

/// Runs the tool on a file system of its own, in a process of its own: what other tests allocate
/// and lock is not to be traced.
fn stays_free(arguments: &[&str]) {
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/known-conflicts.txt");
    let output = Command::new(env!("CARGO_BIN_EXE_lanefs-conflicts"))
        .args(["--threads", "0", "--rounds", "1", "--known", list])
        .args(arguments)
        .output()
        .expect("the tool runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "pairs that were free share lines, or the tool failed");
}

/// Few operations, since each instruction takes some microseconds.
const SAMPLE: &str = "stat,open and close,read,overwrite,append,chmod";

#[test]
fn a_sample_of_operations_in_different_directories_stays_free() {
    stays_free(&["--settings", "directories", "--only", SAMPLE]);
}

#[test]
fn reads_overwrites_and_stats_of_one_file_stay_free() {
    stays_free(&["--settings", "file", "--only", SAMPLE]);
}

#[test]
#[ignore = "long: traces every operation"]
fn all_operations_in_different_directories_stay_free() {
    stays_free(&["--settings", "directories"]);
}

#[test]
#[ignore = "long: traces every operation"]
fn what_is_free_in_one_directory_stays_free() {
    stays_free(&["--settings", "names"]);
}

#[test]
#[ignore = "long: traces every operation"]
fn what_is_free_on_one_file_stays_free() {
    stays_free(&["--settings", "file"]);
}
