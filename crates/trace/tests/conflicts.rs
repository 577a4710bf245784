//! Checks that pairs of operations without shared cache lines still share none.

use std::collections::BTreeSet;
use std::process::Command;

/// Fails only if a pair that is not in the list is reported by two runs. In a single run the
/// allocator may by chance have placed unrelated data in one line.
fn stays_free(arguments: &[&str]) {
    let first = shared_now(arguments);
    if first.is_empty() {
        return;
    }
    let again = shared_now(arguments);
    let both: Vec<&String> = first.intersection(&again).collect();
    assert!(both.is_empty(), "pairs that were free share lines: {both:#?}");
}

/// Runs the tool in its own process on its own file system, so that allocations and locks of other
/// tests are not traced. Returns the reported pairs.
fn shared_now(arguments: &[&str]) -> BTreeSet<String> {
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/known-conflicts.txt");
    let output = Command::new(env!("CARGO_BIN_EXE_lanefs-conflicts"))
        .args(["--threads", "0", "--rounds", "1", "--known", list])
        .args(arguments)
        .output()
        .expect("the tool runs");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    let pairs = said.lines().filter_map(|line| line.strip_prefix("shared now: "));
    let pairs: BTreeSet<String> = pairs.map(str::to_owned).collect();
    assert!(output.status.success() || !pairs.is_empty(), "the tool failed");
    pairs
}

/// Few operations, since each instruction takes some microseconds.
const SAMPLE: &str = "stat,open and close,read,overwrite,append,chmod";

#[test]
fn a_sample_of_operations_in_different_directories_stays_free() {
    stays_free(&["--settings", "directories", "--only", SAMPLE]);
}

#[test]
fn a_sample_of_operations_in_directories_that_one_thread_made_stays_free() {
    stays_free(&["--settings", "made", "--only", "create and close,unlink,append"]);
}

#[test]
fn the_server_shares_nothing_between_clients_in_different_directories() {
    stays_free(&["--settings", "served", "--only", "getattr,create and release,unlink"]);
}

#[test]
fn the_server_shares_nothing_between_clients_that_read_and_overwrite_one_file() {
    stays_free(&["--settings", "served-file", "--only", "getattr,read,write"]);
}

#[test]
#[ignore = "long: traces every request"]
fn all_requests_of_clients_in_different_directories_stay_free() {
    stays_free(&["--settings", "served,served-file"]);
}

#[test]
#[ignore = "long: traces every operation"]
fn all_operations_in_directories_that_one_thread_made_stay_free() {
    stays_free(&["--settings", "made"]);
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
#[ignore = "long: traces many operations"]
fn work_on_different_files_of_one_directory_stays_free() {
    stays_free(&["--settings", "names", "--only", "stat,open and close,read,overwrite,seek,chmod"]);
}

#[test]
#[ignore = "long: traces many instructions"]
fn names_change_side_by_side_in_one_directory() {
    stays_free(&["--settings", "names", "--only", "create and close,unlink,rename"]);
}

#[test]
#[ignore = "long: traces every operation"]
fn operations_without_conflicts_on_one_file_stay_free() {
    stays_free(&["--settings", "file"]);
}
