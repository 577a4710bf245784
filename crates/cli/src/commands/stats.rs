//! `lanefs stats`

use crate::cli::{Failure, Report, counters, filled, human};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Shows the counters of a mounted file system
///
/// Shows the kernel's requests and how long they took, the waits for locks of each rank, commits,
/// caches, and the rows of an array that were written whole or in part. Requests that the kernel
/// answers from its own caches are not counted. Only the owner of the mount and root can read the
/// counters.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs stats mnt
  lanefs stats mnt --watch 2
  lanefs stats mnt --json")]
pub struct Arguments {
    /// Directory on which the file system is mounted
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
    /// Print all counters as JSON; with --watch, a new line every SECONDS seconds. interval_ns is
    /// the time that the counters cover; null is the whole time since the mount
    #[arg(long)]
    json: bool,
    /// Print the counters since the mount, then their changes every SECONDS seconds, until
    /// interrupted
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
}

/// Runs `lanefs stats`.
pub fn run(arguments: &Arguments) -> ExitCode {
    Report::run("stats", |report| Ok(report_stats(arguments, report)?))
}

fn report_stats(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    let mut before: Option<(Counters, Instant)> = None;
    loop {
        let (now, at) = (Counters::read(&arguments.mountpoint)?, Instant::now());
        let (shown, time) = match &before {
            None => (now.clone(), None),
            Some((then, since)) => (now.since(then), Some(at - *since)),
        };
        let shown = match (arguments.json, arguments.watch) {
            (true, watch) => shown.json(time, watch.is_some()),
            (false, None) => shown.table(),
            (false, Some(_)) => format!("{}\n{}\n", heading(time), shown.table()),
        };
        report.printed(print(&shown));
        let Some(seconds) = arguments.watch.filter(|_| !report.has_failed()) else { return Ok(()) };
        std::thread::sleep(Duration::from_secs(seconds));
        before = Some((now, at));
    }
}

/// Returns the heading of a table that `--watch` prints: the time that the table covers.
fn heading(time: Option<Duration>) -> String {
    match time {
        None => "since it was mounted".into(),
        Some(time) => format!("in {:.2} s", time.as_secs_f64()),
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// All counters of a mount. The key is the counter's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Counters(BTreeMap<String, u64>);

/// The lines about the journal, the allocators and the caches.
const SUMMARY: &str = "
journal: {journal.commits} commits, {journal.blocks_logged} blocks logged, {journal.flushes} \
flushes, {journal.checkpoints} checkpoints, {journal.blocks_in_place} blocks written in place, \
{journal.credit_waits} waits for log space
allocators: {alloc.block_searches} searches for blocks, {alloc.inode_searches} for inodes, \
{alloc.groups_tried} groups tried, {alloc.groups_busy} skipped as busy, {alloc.moves} moves; \
{alloc.windows} windows of {alloc.window_blocks} blocks, {alloc.window_hits} hits
caches: {cache.inodes} inodes, {cache.metadata_blocks} metadata blocks, {cache.table_blocks} \
inode-table blocks (cap {cache.cap_bytes})
free: {free.blocks} blocks, {free.inodes} inodes
";

/// The lines about the array.
const ARRAY: &str = "\
array: {array.full_row} strips of rows written whole, {array.reconstruct+array.modify} in part, \
{array.no_parity} without parity; {array.old_reads} member reads for parity; {array.gathered} \
parts gathered
array: waits: {array.row_waits} for a row, {array.budget_waits} for one of {array.state.rows} \
rows at once, {array.log_waits} for a log, {array.flush_waits} for a flush; {array.log_headers} \
log headers, {array.log_flushes} log flushes; {array.state.not_in_sync} of \
{array.state.members} members not in sync
";

/// Returns whether the counter holds a current value. All other counters count events since the
/// mount.
fn is_level(name: &str) -> bool {
    ["cache.", "free.", "ids.", "size.", "transport.", "array.state."]
        .iter()
        .any(|kind| name.starts_with(kind))
}

impl Counters {
    fn read(mountpoint: &Path) -> Result<Counters, Failure> {
        counters(mountpoint).map(Counters)
    }

    /// Returns how many events were counted since `before`. Counters that hold a current value are
    /// returned unchanged.
    fn since(&self, before: &Counters) -> Counters {
        let changed = self.0.iter().map(|(name, now)| {
            let then = if is_level(name) { 0 } else { before.get(name) };
            (name.clone(), now.saturating_sub(then))
        });
        Counters(changed.collect())
    }

    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Formats the counters as JSON, together with the time that they cover. The time is null if it
    /// is the whole time since the mount. The JSON is on one line if `is_watched`.
    fn json(&self, time: Option<Duration>, is_watched: bool) -> String {
        let mut value = serde_json::json!(self.0);
        value["interval_ns"] = time.map(|time| time.as_nanos() as u64).into();
        if is_watched { format!("{value}\n") } else { format!("{value:#}\n") }
    }

    /// Returns, for each name that begins with `prefix`, the part between `prefix` and the next
    /// full stop. Equal parts are returned only once.
    fn kinds(&self, prefix: &str) -> Vec<&str> {
        let mut kinds: Vec<&str> =
            self.0.keys().filter_map(|name| name.strip_prefix(prefix)?.split('.').next()).collect();
        kinds.dedup();
        kinds
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<14}{:>12}{:>12}{:>12}{:>12}\n",
            "request", "count", "mean us", "50 % <", "99 % <"
        );
        // Writing to a string does not fail.
        for kind in self.kinds("request.") {
            let count = self.get(&format!("request.{kind}.count"));
            if count == 0 {
                continue;
            }
            let mean = self.get(&format!("request.{kind}.ns")) as f64 / count as f64 / 1000.0;
            let _ = writeln!(
                text,
                "{kind:<14}{count:>12}{mean:>12.1}{:>12}{:>12}",
                self.under(kind, 50),
                self.under(kind, 99)
            );
        }
        let _ =
            writeln!(text, "\n{:<14}{:>12}{:>12}{:>12}", "lock", "waits", "total ms", "mean us");
        if !self.0.iter().any(|(name, n)| *n > 0 && name.starts_with("lock.")) {
            text += "no waits\n";
        }
        for rank in self.kinds("lock.") {
            let waits = self.get(&format!("lock.{rank}.waits"));
            if waits == 0 {
                continue;
            }
            let micros = self.get(&format!("lock.{rank}.ns")) as f64 / 1000.0;
            let (total, mean) = (micros / 1000.0, micros / waits as f64);
            let _ = writeln!(text, "{rank:<14}{waits:>12}{total:>12.2}{mean:>12.1}");
        }
        let queues = self.get("transport.queues");
        text += &match (queues, self.get("transport.ring_offered")) {
            (0, 0) => "\nrequests by read(2); no io_uring (lanefs mount -v tells more)\n".into(),
            (0, _) => {
                "\nrequests by read(2); the kernel has io_uring too (-o transport=ring)\n".into()
            }
            (queues, _) => format!("\nrequests by io_uring, {queues} queues\n"),
        };
        text += &self.ids();
        text += &self.filled(SUMMARY);
        if self.get("array.state.members") > 0 {
            text += &self.filled(ARRAY);
        }
        text
    }

    /// Replaces the names of counters in braces, or the sums of several, by their values.
    fn filled(&self, template: &str) -> String {
        filled(template, |names| match names {
            "cache.cap_bytes" => human(self.get(names)),
            _ => names.split('+').map(|name| self.get(name)).sum::<u64>().to_string(),
        })
    }

    /// Returns how ids are mapped, one line for each map.
    fn ids(&self) -> String {
        let mut text = String::new();
        let shown =
            self.0.iter().filter_map(|(name, value)| Some((name.strip_prefix("ids.")?, value)));
        for (name, value) in shown {
            let parts: Vec<&str> = name.split('.').collect();
            text += &match parts[..] {
                ["fakeroot"] => format!("ids: user {value} acts as root of the image\n"),
                ["uid"] => format!("ids: all files are shown with user {value}\n"),
                ["gid"] => format!("ids: all files are shown with group {value}\n"),
                ["map", kind, shown, stored] => {
                    let letter = kind.get(..1).unwrap_or_default();
                    format!("ids: idmap {letter}:{shown}:{stored}:{value}\n")
                }
                _ => continue,
            };
        }
        text
    }

    /// Returns the time within which `percent` of the requests of a kind were answered, as text
    /// such as "16 us". The time is the upper limit of a step of the histogram.
    fn under(&self, kind: &str, percent: u64) -> String {
        let prefix = format!("request.{kind}.under_us.");
        let mut steps: Vec<(Option<u64>, u64)> = self
            .0
            .iter()
            .filter_map(|(name, count)| Some((name.strip_prefix(&prefix)?.parse().ok(), *count)))
            .collect();
        // The step without an upper limit is named "more", which is no number. It is sorted last.
        steps.sort_by_key(|(limit, _)| limit.unwrap_or(u64::MAX));
        let all: u64 = steps.iter().map(|(_, count)| count).sum();
        let wanted = (all * percent).div_ceil(100);
        let mut seen = 0;
        for (limit, count) in steps {
            seen += count;
            if seen >= wanted {
                return limit.map_or("more".into(), |limit| format!("{limit} us"));
            }
        }
        String::new()
    }
}

#[cfg(test)]
mod tests;
