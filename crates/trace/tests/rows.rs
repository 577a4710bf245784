//! Rows of an array that different threads lock share no cache line.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use lanefs_device::Device;
use lanefs_raid5::{Array, Consistency, Geometry, Layout, Policies};
use lanefs_trace::{Crew, Symbols, conflicts, record};
use std::process::Command;

const CHUNK: u64 = 4096;
const ROWS: u64 = 64;

fn array(consistency: Consistency) -> Array {
    let shape = Geometry::new(Layout::LeftSymmetric, 4, CHUNK, CHUNK * ROWS).expect("a shape");
    Array::in_memory(shape, consistency, Policies::default()).expect("memory")
}

/// How many lines two threads share when each does `work` in a row of its own, side by side.
fn shared(array: &Array, work: impl Fn(&Array, u64) + Send + Sync) -> usize {
    let work = &work;
    Crew::with(
        2,
        |number| number as u64 + 8,
        |crew| {
            // Before: bits are set, the array is marked active, buffers are there.
            let warm = move |row: &mut u64| {
                forget_foreign_memory();
                work(array, *row);
            };
            crew.on(0, warm);
            crew.on(1, warm);
            let run = move |row: &mut u64| {
                work(array, *row);
                record(|| work(array, *row)).expect("this machine is supported").1
            };
            let (one, two) = (crew.on(0, run), crew.on(1, run));
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

/// A thread's start frees what the one that started it allocated, so that its allocator first gives
/// out blocks that lie beside those of others. Here they are taken and never used.
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
    // A part of a block: old data, old parity, and a merge.
    array.write_at(row * 3 * CHUNK + 700, &[row as u8; 512]).expect("written");
}

fn read_block(array: &Array, row: u64) {
    array.read_at(row * 3 * CHUNK + CHUNK, &mut [0; 512]).expect("read");
}

type Work = fn(&Array, u64);

const WORKS: [(&str, Work); 3] =
    [("a row", write_row), ("a block", write_block), ("a read", read_block)];

/// Not the partial parity log: a second write to a block before a flush asks for one, which looks at
/// the logs of all members.
const CONSISTENCIES: [fn() -> Consistency; 2] =
    [|| Consistency::Resync, || Consistency::Bitmap { chunk: 1 << 20, bits: vec![0; 8] }];

/// Which case a process of its own is to look at.
const CASE: &str = "LANEFS_ROWS_CASE";

/// A case in a process whose allocator has not handed memory from thread to thread yet.
#[test]
fn a_case_that_the_environment_names() {
    let Some(case) = std::env::var(CASE).ok().and_then(|case| case.parse::<usize>().ok()) else {
        return;
    };
    let (what, work) = WORKS[case % WORKS.len()];
    let consistency = CONSISTENCIES[case / WORKS.len()]();
    let array = array(consistency.clone());
    assert_eq!(shared(&array, work), 0, "{what}, {consistency:?}");
}

#[test]
#[ignore = "long: steps through six cases, each in a process of its own"]
fn whole_rows_and_small_writes_of_two_threads_share_no_line() {
    for case in 0..WORKS.len() * CONSISTENCIES.len() {
        let output = Command::new(std::env::current_exe().expect("a path"))
            .args(["a_case_that_the_environment_names", "--exact", "--nocapture"])
            .env(CASE, case.to_string())
            .output()
            .expect("the test program runs");
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("running 1 test") && output.status.success(), "case {case}: {said}");
    }
}

#[test]
fn one_row_is_seen_to_be_shared() {
    let array = array(Consistency::Resync);
    assert!(shared(&array, |array, _| write_block(array, 5)) > 0);
}
