//! The checked-in list of pairs of operations that may share cache lines; all other pairs must
//! share none.

use crate::AnyError;
use crate::matrix::Pair;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

/// Compares the pairs with the list, which has one `setting: first | second` on each line.
pub fn check(path: &Path, pairs: &[Pair]) -> Result<ExitCode, AnyError> {
    let list = std::fs::read_to_string(path)?;
    let known: BTreeSet<&str> =
        list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let name = |pair: &Pair| format!("{}: {} | {}", pair.setting.name(), pair.first, pair.second);
    let (mut new, mut gone) = (0, 0);
    for pair in pairs {
        let name = name(pair);
        match (pair.lines, known.contains(&*name)) {
            (1.., false) => {
                new += 1;
                println!("shared now: {name}");
                pair.reasons.iter().for_each(|reason| println!("{reason}"));
            }
            (0, true) => {
                gone += 1;
                println!("free now, or shared by chance: {name}");
            }
            _ => {}
        }
    }
    println!("{} pairs: {new} shared that were free, {gone} free that were shared", pairs.len());
    Ok(if new == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
