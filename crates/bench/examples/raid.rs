//! Runs all measurements of arrays, or only the one that an argument names, and prints the figures.
//!
//! ```sh
//! cargo run --release -p lanefs-bench --example raid [-- fsmark|rows|small|log|sequential|all [SECONDS]]
//! ```

use lanefs_bench::raid::{
    FsMark, FsMarkPlan, SequentialPlan, SmallWrites, sequential, small_writes, streaming,
};
use lanefs_raid5::Consistency;
use std::time::Duration;

fn main() -> Result<(), lanefs_bench::Error> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "all".into());
    let seconds = arguments.next().and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds);
    let wanted = |name: &str| what == name || what == "all";
    if !["fsmark", "rows", "small", "log", "sequential", "all"].contains(&what.as_str()) {
        eprintln!("raid: {what}: one of fsmark, rows, small, log, sequential, all");
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
    if wanted("log") {
        log(time)?;
    }
    if wanted("sequential") {
        one_after_another()?;
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

/// Measures small writes with the partial parity log. Each round measures every number of threads
/// once, so that other load on the machine affects all of them alike.
fn log(time: Duration) -> Result<(), lanefs_bench::Error> {
    const THREADS: [u32; 3] = [1, 8, 64];
    const ROUNDS: usize = 7;
    println!(
        "\n4 KiB at random places, partial parity log, {ROUNDS} rounds of 1, 8, 64 threads: \
         median (lowest to highest)"
    );
    for members in [4, 9] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let log = ("ppl", Consistency::PartialParity { signature: 1 });
            let runs = THREADS.map(|threads| small_writes(members, threads, log.clone(), time));
            rounds.push(runs.into_iter().collect::<Result<Vec<_>, _>>()?);
        }
        for (at, threads) in THREADS.into_iter().enumerate() {
            let each = |value: &dyn Fn(&[SmallWrites]) -> f64| {
                spread(rounds.iter().map(|round| value(round)).collect())
            };
            let per_write = |count: fn(&SmallWrites) -> u64| {
                each(&|round| count(&round[at]) as f64 / round[at].writes as f64)
            };
            println!(
                "{members} members, {threads} threads: {} of the rate of 8 threads; for each write: \
                 us of CPU {}, switches {}, headers {}, log bytes {}, log flushes {}, \
                 waits for the log {}, woken from them in vain {}, waits for a flush {}; \
                 writes/s {}",
                each(&|round| round[at].rate / round[1].rate),
                per_write(|run| run.cpu.as_micros() as u64),
                per_write(|run| run.switches),
                per_write(|run| run.counted.log_headers),
                per_write(|run| run.counted.log_bytes),
                per_write(|run| run.counted.log_flushes),
                per_write(|run| run.counted.log_waits),
                per_write(|run| run.counted.log_vain_wakes),
                per_write(|run| run.counted.flush_waits),
                each(&|round| round[at].rate),
            );
        }
    }
    Ok(())
}

/// Measures a single sequential writer, with one or several requests in flight.
fn one_after_another() -> Result<(), lanefs_bench::Error> {
    let latency = Duration::from_micros(500);
    println!("\none sequential writer, 4 members that take {latency:?}: for each row");
    for (name, consistency) in
        [("resync", Consistency::Resync), ("ppl", Consistency::PartialParity { signature: 1 })]
    {
        for (request, depth) in
            [1 << 20, 256 << 10].into_iter().flat_map(|r| [1, 2, 8].map(|depth| (r, depth)))
        {
            let consistency = consistency.clone();
            let plan = SequentialPlan { members: 4, request, depth, latency, consistency };
            let done = sequential(&plan)?;
            let per_row = |count: u64| count as f64 / done.rows as f64;
            println!(
                "{name}, requests of {} KiB, {depth} in flight: {:.2} reads for parity, \
                 {:.2} parity writes, {:.2} log headers, {:.2} parts gathered; {:.0} MB/s",
                request >> 10,
                per_row(done.counted.old_reads),
                per_row(done.counted.parity_writes),
                per_row(done.counted.log_headers),
                per_row(done.counted.gathered),
                done.rate / 1e6,
            );
        }
    }
    Ok(())
}

fn spread(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    format!("{:.3} ({:.3} to {:.3})", all[all.len() / 2], all[0], all[all.len() - 1])
}
