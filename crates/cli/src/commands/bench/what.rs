//! The arguments of `lanefs bench` that say what to measure.

use lanefs_bench::Workload;
use std::str::FromStr;

/// One argument: a workload, a set of workloads or a part of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// One workload.
    Workload(Workload),
    /// The workloads of all seeds (docs/seeds.md), each run with the older and the present locking
    /// policies.
    Seeds,
    /// One seed, given by its name.
    Seed(&'static str),
    /// The workload of S4.
    FsMark,
    /// CPU time per operation, compared with the kernel's ext4.
    Efficiency,
}

/// The name of each seed.
const SEEDS: [&str; 5] = ["S1", "S2", "S3", "S4", "S5"];

impl FromStr for What {
    type Err = String;
    fn from_str(text: &str) -> Result<What, String> {
        match text {
            "seeds" => return Ok(What::Seeds),
            "efficiency" => return Ok(What::Efficiency),
            "fsmark" => return Ok(What::FsMark),
            _ => {}
        }
        if let Some(name) = SEEDS.into_iter().find(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(What::Seed(name));
        }
        text.parse().map(What::Workload).map_err(|error: String| {
            format!("{error}; or seeds (then workloads, fsmark or S1 to S5), or efficiency")
        })
    }
}
