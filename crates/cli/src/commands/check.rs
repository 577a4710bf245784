//! `lanefs check`

use crate::cli::{
    Failure, ImageArguments, JournalArguments, OutputArguments, Report as Failures, WholeImage,
    counted, printable,
};
use crate::copy::with_template;
use indicatif::ProgressBar;
use lanefs::device::Access;
use lanefs_check::{Finding, Harm, Options, Phase, Progress, Report, Verdict, check};
use lanefs_offline::{view_without_fast_commits, view_without_log_elsewhere};
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// The exit code if faults were found, equal to e2fsck's "errors left uncorrected".
const DAMAGED: u8 = 4;
/// The exit code if the check is not complete, equal to e2fsck's "operational error".
const FAILED: u8 = 8;

/// Checks all metadata of an image, as e2fsck -fn does, and writes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The checker shares no code with the file system that lanefs mounts. A log that has to be replayed is
replayed in memory, and the result is checked. Each finding names its place and its harm.

Exit codes, as of e2fsck and fsck(8): 0 clean, 4 faults were found, 8 the check failed or is not
complete (the image has parts that the checker does not know; they are named), 12 both, 2 wrong
usage. The parity of an array is checked by lanefs raid scrub.

Examples:
  lanefs check disk.img
  lanefs check --offset 1M disk.img            # a partition
  lanefs check --journal log.img disk.img      # the journal is on another device
  lanefs check --json disk.img | jq '.findings[] | select(.harm == \"data_lost\")'
  lanefs check md:a.img,b.img,c.img            # the file system on an array")]
pub struct Arguments {
    /// The image
    image: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print nothing; only set the exit code
    #[arg(short, long)]
    quiet: bool,
    /// Number of threads [default: one for each processor]
    #[arg(
        short = 'j',
        long,
        value_name = "NUMBER",
        default_value = "0",
        hide_default_value = true
    )]
    threads: usize,
    /// The largest number of findings to print; further faults are only counted
    #[arg(long, value_name = "NUMBER", default_value = "1000")]
    findings: usize,
    #[command(flatten)]
    journal: JournalArguments,
    #[command(flatten)]
    options: ImageArguments,
}

/// Runs `lanefs check`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let bar = bar(arguments);
    let code = code(arguments, &|progress| show(&bar, progress));
    bar.finish_and_clear();
    ExitCode::from(code)
}

/// Checks the image and prints the report. Returns the exit code.
pub fn code(arguments: &Arguments, show: &(dyn Fn(Progress) + Sync)) -> u8 {
    let report = Failures::new("check").given(examine(arguments, show));
    report.map_or(FAILED, |report| tell(&report, arguments))
}

/// Prints a report. Returns the exit code.
pub fn tell(report: &Report, arguments: &Arguments) -> u8 {
    let failures = Failures::new("check");
    failures.printed(print(report, arguments));
    if failures.has_failed() {
        return FAILED;
    }
    let damaged = if report.verdict() == Verdict::Damaged { DAMAGED } else { 0 };
    let partial = if report.unchecked.is_empty() { 0 } else { FAILED };
    damaged | partial
}

/// Checks the image.
pub fn examine(arguments: &Arguments, show: &(dyn Fn(Progress) + Sync)) -> Result<Report, Failure> {
    let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadOnly)?;
    whole.refuse_other_contents()?;
    let options =
        Options { threads: arguments.threads, findings: arguments.findings, ..Options::default() };
    let journal = arguments.journal.open(Access::ReadOnly)?;
    let device = view_without_log_elsewhere(&whole.device(), journal.as_ref());
    let device = device.map_err(|error| whole.failure(error))?;
    // The checker does not replay fast commits, so it gets a view in which they are already
    // replayed. If that view cannot be made, the report says so.
    let plain = view_without_fast_commits(&device);
    let device = plain.as_ref().map_or(device, Arc::clone);
    let report = check(device, &options, show);
    let mut report = report.map_err(|error| whole.failure(error))?;
    let left = report.unchecked.iter_mut().find(|what| what.starts_with("fast commits"));
    if let (Some(what), Err(why)) = (left, plain) {
        *what = format!("{what}: {why}");
    }
    whole.close()?;
    Ok(report)
}

/// Creates the progress line, which is printed only on a terminal.
fn bar(arguments: &Arguments) -> ProgressBar {
    match arguments.quiet {
        true => ProgressBar::hidden(),
        false => with_template(ProgressBar::no_length(), "{spinner} {msg} {pos} of {len}"),
    }
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_message(match progress.phase {
        Phase::Inodes => "groups of inodes:",
        Phase::Directories => "directories:",
    });
    bar.set_length(progress.of);
    bar.set_position(progress.done);
}

fn print(report: &Report, arguments: &Arguments) -> io::Result<()> {
    let findings = report.findings.iter().map(|finding| printable(&finding.to_string()));
    let left_out = Some(report.left_out).filter(|count| *count > 0);
    let left_out = left_out.map(|count| format!("and {count} more findings"));
    let unchecked = report.unchecked.iter().map(|what| format!("not checked: {what}"));
    let totals = report.totals;
    let verdict = match report.verdict() {
        Verdict::Clean => "clean".to_owned(),
        Verdict::Unchecked => "no fault found, but not all was checked".to_owned(),
        Verdict::Damaged => counted(faults(report), "fault"),
    };
    let image = arguments.image.display();
    let verdict = format!(
        "{image}: {verdict}; {} inodes in use, {} directories with {} entries, {} blocks in use",
        totals.inodes, totals.directories, totals.entries, totals.blocks
    );
    let lines = findings.chain(left_out).chain(unchecked).chain([verdict]);
    let output = OutputArguments { json: arguments.json, quiet: arguments.quiet };
    output.print(&as_json(report, arguments), lines)
}

/// Returns the number of faults, including those that the report does not list. Notes are not
/// faults.
fn faults(report: &Report) -> u64 {
    let told = report.findings.iter().filter(|finding| finding.harm() != Harm::Note).count();
    told as u64 + report.left_out
}

/// Returns a finding as JSON.
pub fn finding_facts(finding: &Finding) -> Value {
    json!({
        "place": finding.place.to_string(),
        "inode": finding.place.ino().map(|ino| ino.0),
        "fault": finding.fault.to_string(),
        "harm": finding.harm().code(),
        "harm_text": finding.harm().to_string(),
    })
}

fn as_json(report: &Report, arguments: &Arguments) -> Value {
    json!({
        "image": arguments.image.display().to_string(),
        "verdict": match report.verdict() {
            Verdict::Clean => "clean",
            Verdict::Damaged => "damaged",
            Verdict::Unchecked => "unchecked",
        },
        "faults": faults(report),
        "findings": report.findings.iter().map(finding_facts).collect::<Vec<_>>(),
        "findings_left_out": report.left_out,
        "not_checked": report.unchecked,
        "inodes": report.totals.inodes,
        "directories": report.totals.directories,
        "entries": report.totals.entries,
        "blocks": report.totals.blocks,
    })
}
