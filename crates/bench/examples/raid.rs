//! Figures of arrays: all, or one of them.
//!
//! ```sh
//! cargo run --release -p lanefs-bench --example raid [-- fsmark|rows|small|all [SECONDS]]
//! ```

use lanefs_bench::raid::{FsMark, FsMarkPlan, small_writes, streaming};
use lanefs_raid5::Consistency;
use std::time::Duration;

fn main() -> Result<(), lanefs_bench::Error> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "all".into());
    let seconds = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds);
    let wanted = |name: &str| what == name || what == "all";
    if !["fsmark", "rows", "small", "all"].contains(&what.as_str()) {
        eprintln!("raid: {what}: one of fsmark, rows, small, all");
        std::process::exit(2);
    }
    if wanted("fsmark") {
        let plan = FsMarkPlan { slice: time, ..FsMarkPlan::default() };
        print!("{}", FsMark::head(&plan));
        FsMark::run(&plan, |line| println!("{}", line.text()))?;
    }
    if wanted("rows") {
        rows()?;
    }
    if wanted("small") {
        small(time)?;
    }
    Ok(())
}

fn rows() -> Result<(), lanefs_bench::Error> {
    println!(
        "\nfull rows in sequence, 1 thread: the bound sums a row, then copies it to members in memory, row by row, and nothing else"
    );
    for members in [4, 9] {
        let done = streaming(members, 512 << 20, 7)?;
        let median = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2] / 1e9
        };
        let bound = median(done.bounds.iter().map(|b| b.rate()).collect());
        let rate = median(done.rates.clone());
        println!(
            "{members} members: {rate:.2} GB/s of data, bound {bound:.2} GB/s, {:.0} %; \
             {} rows, {} data writes, {} parity writes, {} reads",
            100.0 * done.share(),
            done.counted.parity_writes,
            done.counted.data_writes,
            done.counted.parity_writes,
            done.counted.data_reads + done.counted.parity_reads,
        );
    }

    Ok(())
}

fn small(time: Duration) -> Result<(), lanefs_bench::Error> {
    println!("\n4 KiB at random places: member operations for each write");
    for members in [4, 9] {
        for (name, consistency) in [
            ("resync", Consistency::Resync),
            ("bitmap", Consistency::Bitmap { chunk: 64 << 20, bits: vec![0; 64] }),
            ("ppl", Consistency::PartialParity { signature: 1 }),
        ] {
            for threads in [1, 2, 8, 64] {
                let done = small_writes(members, threads, (name, consistency.clone()), time)?;
                let per: Vec<String> = done
                    .counted
                    .named()
                    .into_iter()
                    .filter(|(_, n)| *n > 0)
                    .map(|(what, n)| format!("{what} {:.3}", n as f64 / done.writes as f64))
                    .collect();
                println!(
                    "{members} members, {name}, {threads} threads: {:.0} writes/s; switches {:.2}, {}",
                    done.rate,
                    done.switches as f64 / done.writes as f64,
                    per.join(", ")
                );
            }
        }
    }
    Ok(())
}
