//! Finds the programs of external suites, and parses the outcomes of pjdfstest.

#![allow(dead_code, reason = "each test program uses its own part")]

use super::mounting::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the program that `make test` built (`scripts/tools`). If the program is missing, prints
/// a message and returns `None`.
pub fn tool(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("LANEFS_TOOLS").map(PathBuf::from);
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let found = given.into_iter().chain([built]).map(|dir| dir.join(name)).find(|p| p.is_file());
    if found.is_none() {
        println!("skipped: {name} is not built (scripts/tools builds it)");
    }
    found
}

pub const PJDFSTEST: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
# Enough for the kernel's clock tick; remounting fails on the kernel's ext4 too.
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Returns the outcome of each case of pjdfstest in `dir`, by name.
pub fn pjdfstest(program: &Path, config: &Path, dir: &Path) -> BTreeMap<String, String> {
    let (_, said) = try_run(
        Command::new(program).arg("-c").arg(config).arg("-p").arg(dir).env("NO_COLOR", "1"),
    );
    outcomes(&said)
}

/// Returns the outcome of each case in the output of pjdfstest, by name.
pub fn outcomes(said: &str) -> BTreeMap<String, String> {
    let outcomes: BTreeMap<_, _> = said
        .lines()
        .filter(|line| !line.starts_with(char::is_whitespace))
        .filter_map(|line| line.split_once(char::is_whitespace))
        .map(|(name, outcome)| (name.to_owned(), outcome.trim().to_owned()))
        .filter(|(_, outcome)| ["ok", "skipped", "FAILED"].contains(&outcome.as_str()))
        .collect();
    assert!(outcomes.len() > 300, "pjdfstest ended early:\n{said}");
    for line in said.lines().skip_while(|line| !line.contains("FAILED")).take(40) {
        println!("    {line}");
    }
    outcomes
}
