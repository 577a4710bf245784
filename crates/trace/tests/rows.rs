//! Tests which cache lines two threads share while each of them works in its own row of an array:
//! none, unless both rows have the same partial parity log.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use lanefs_device::Device;
use lanefs_raid5::{Array, Consistency, Geometry, Layout, Policies};
use lanefs_trace::{Symbols, Workers, conflicts, record};
use std::process::Command;

const CHUNK: u64 = 4096;
const ROWS: u64 = 64;

fn array(consistency: Consistency) -> Array {
    array_of(CHUNK, consistency)
}

fn array_of(chunk: u64, consistency: Consistency) -> Array {
    lanefs_lanes::fix_hash_keys();
    let shape = Geometry::new(Layout::LeftSymmetric, 4, chunk, chunk * ROWS).expect("a shape");
    Array::in_memory(shape, consistency, Policies::default()).expect("memory")
}

/// Adjacent rows: their parity is on different members.
const SIDE_BY_SIDE: [u64; 2] = [8, 9];

/// Two rows of the array of four members whose parity is on the same member.
const SAME_PARITY: [u64; 2] = [8, 12];

/// Returns the number of lines that two threads share when each runs `work` in its own row.
fn shared(array: &Array, rows: [u64; 2], work: impl Fn(&Array, u64) + Send + Sync) -> usize {
    let work = &work;
    Workers::with(
        2,
        |number| rows[number],
        |workers| {
            // Before tracing, the bits of the bitmap are set, the array is marked active, and the
            // buffers are allocated.
            let warm = move |row: &mut u64| {
                forget_foreign_memory();
                work(array, *row);
            };
            workers.on(0, warm);
            workers.on(1, warm);
            let run = move |row: &mut u64| {
                work(array, *row);
                record(|| work(array, *row)).expect("this machine is supported").1
            };
            let (one, two) = (workers.on(0, run), workers.on(1, run));
            let found = conflicts(&one, &two);
            let mut symbols = Symbols::new();
            let sites = found.iter().flat_map(|c| {
                let (one, two) = (&c.first, &c.second);
                one.writes.iter().chain(&one.reads).chain(&two.writes).chain(&two.reads)
            });
            for site in sites {
                println!("{:#x}", site.address);
                for ip in [site.ip].iter().chain(site.calls.iter().rev()).take(6) {
                    println!("{:?}", symbols.frames(*ip).first());
                }
                println!();
            }
            found.len()
        },
    )
}

/// Uses up the memory that the allocator of a new thread returns first. A new thread frees memory
/// that its parent allocated, so these first blocks may be adjacent to those of other threads.
fn forget_foreign_memory() {
    for size in (16..=1040).step_by(16) {
        (0..16).for_each(|_| std::mem::forget(Vec::<u8>::with_capacity(size)));
    }
}

fn write_row(array: &Array, row: u64) {
    let data = vec![row as u8; 3 * CHUNK as usize];
    array.write_at(row * data.len() as u64, &data).expect("written");
}

fn write_block(array: &Array, row: u64) {
    // A write to a part of a block needs old data, old parity, and a merge.
    array.write_at(row * 3 * CHUNK + 700, &[row as u8; 512]).expect("written");
}

fn read_block(array: &Array, row: u64) {
    array.read_at(row * 3 * CHUNK + CHUNK, &mut [0; 512]).expect("read");
}

type Work = fn(&Array, u64);

const WORKS: [(&str, Work); 3] =
    [("a row", write_row), ("a block", write_block), ("a read", read_block)];

/// Writes a block that was not written since the last flush, because a second write to a block
/// requests a flush, which checks the logs of all members.
fn write_new_block(array: &Array, row: u64) {
    std::thread_local!(static NEXT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let block = NEXT.get();
    NEXT.set(block + 1);
    let data = [row as u8; 4096];
    array.write_at(row * 3 * LOGGED_CHUNK + block * 4096, &data).expect("written");
}

/// The chunk size, which gives a chunk enough blocks for each write to have a block of its own.
const LOGGED_CHUNK: u64 = 64 << 10;

const PARTIAL_PARITY: Consistency = Consistency::PartialParity { signature: 7 };

const CONSISTENCIES: [fn() -> Consistency; 2] =
    [|| Consistency::Resync, || Consistency::Bitmap { chunk: 1 << 20, bits: vec![0; 8] }];

/// The numbers of the two cases with a partial parity log. In the first case, the two rows have
/// different logs; in the second case, they have the same log.
const LOGGED: usize = WORKS.len() * CONSISTENCIES.len();
const SAME_LOG: usize = LOGGED + 1;

/// The largest number of lines of a log's state that two threads may share. They usually share 72
/// lines. 64 of these hold the 4 KiB of partial parity that the next header has to repeat, because
/// md's recovery uses only the newest header.
const LOG_STATE: usize = 160;

/// Environment variable with the case that a child process runs.
const CASE: &str = "LANEFS_ROWS_CASE";

/// Runs the case that the environment variable [`CASE`] names. Other tests start this test in a new
/// process for each case, because there the allocator has not moved memory between threads yet.
#[test]
fn a_case_that_the_environment_names() {
    let Some(case) = std::env::var(CASE).ok().and_then(|case| case.parse::<usize>().ok()) else {
        return;
    };
    if case == LOGGED {
        let array = array_of(LOGGED_CHUNK, PARTIAL_PARITY);
        assert_eq!(shared(&array, SIDE_BY_SIDE, write_new_block), 0, "a block, with a log");
        return;
    }
    if case == SAME_LOG {
        let array = array_of(LOGGED_CHUNK, PARTIAL_PARITY);
        println!("{} lines", shared(&array, SAME_PARITY, write_new_block));
        return;
    }
    let (what, work) = WORKS[case % WORKS.len()];
    let consistency = CONSISTENCIES[case / WORKS.len()]();
    let array = array(consistency.clone());
    assert_eq!(shared(&array, SIDE_BY_SIDE, work), 0, "{what}, {consistency:?}");
}

#[test]
#[ignore = "long: steps through seven cases, each in a process of its own"]
fn whole_rows_and_small_writes_of_two_threads_share_no_line() {
    (0..=LOGGED).for_each(|case| drop(by_itself(case)));
}

#[test]
#[ignore = "long: steps through a case in a process of its own"]
fn two_rows_with_one_parity_log_share_only_its_state() {
    let said = by_itself(SAME_LOG);
    let lines = said.lines().find_map(|line| line.strip_suffix(" lines")?.parse().ok());
    let lines: usize = lines.expect("a count");
    println!("{lines} lines");
    assert!((1..=LOG_STATE).contains(&lines), "{said}");
}

/// Runs a case in its own process; returns the output.
fn by_itself(case: usize) -> String {
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args(["a_case_that_the_environment_names", "--exact", "--nocapture"])
        .env(CASE, case.to_string())
        .output()
        .expect("the test program runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("running 1 test") && output.status.success(), "case {case}: {said}");
    said.into_owned()
}

#[test]
fn one_row_is_seen_to_be_shared() {
    let array = array(Consistency::Resync);
    assert!(shared(&array, SIDE_BY_SIDE, |array, _| write_block(array, 5)) > 0);
}
