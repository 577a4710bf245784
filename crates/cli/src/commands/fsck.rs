//! `lanefs fsck`: the interface of fsck(8), over `recover`, `check` and `repair`.

use super::{check, recover, repair};
use crate::cli::{Failure, Report};
use clap::{Args, FromArgMatches};
use lanefs::device::{file_of, is_uri};
use lanefs_check::{Harm, Phase, Progress};
use lanefs_fuse::MountEntry;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit codes of fsck(8).
const CLEAN: u8 = 0;
const LEFT: u8 = 4;
const FAILED: u8 = 8;

/// Checks an image as fsck(8) and boot scripts ask for it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The log is replayed first. An image that is clean then, and not marked as having errors, is checked
only with -f. With -a or -p, only faults whose repair loses nothing (counts, bitmaps, leaked space)
are repaired; others are left, with exit code 4, for -y. No question is ever asked: without -a, -p
and -y faults are only reported. lanefs check, recover and repair have more options.

Exit codes, as of fsck(8): 0 clean, 1 faults were repaired or a log was replayed, 4 faults are left,
8 failure, 16 wrong usage.

Examples:
  lanefs fsck -p disk.img            # as at boot
  lanefs fsck -fy disk.img           # checks all and repairs all
  fsck -A -t lanefs -- -p            # lines of fstab: fsck(8) calls the link /sbin/fsck.lanefs")]
#[command(args_override_self = true)]
pub struct Arguments {
    /// The image or block device
    image: PathBuf,
    /// Repair what is safe to repair
    #[arg(short = 'p', visible_short_alias = 'a')]
    preen: bool,
    /// Repair all faults
    #[arg(short = 'y', conflicts_with = "preen")]
    yes: bool,
    /// Write nothing: only report
    #[arg(short = 'n', conflicts_with_all = ["preen", "yes"])]
    no: bool,
    /// Check even if the image is clean
    #[arg(short = 'f')]
    force: bool,
    /// Do nothing if the image is mounted
    #[arg(short = 'M')]
    skip_mounted: bool,
    /// Write lines with the progress to this file descriptor
    #[arg(short = 'C', value_name = "FD")]
    progress: Option<u32>,
    /// No title line: there is none (accepted for fsck(8))
    #[arg(short = 'T', hide = true)]
    no_title: bool,
    /// Tell more: nothing more is told (accepted for fsck(8))
    #[arg(short = 'v', hide = true)]
    verbose: bool,
    /// Ask before repairs: nothing is asked (accepted for fsck(8))
    #[arg(short = 'r', hide = true)]
    interactive: bool,
}

/// Runs `lanefs fsck`.
pub fn run(arguments: &Arguments) -> ExitCode {
    if arguments.skip_mounted && is_mounted(&arguments.image) {
        return ExitCode::from(CLEAN);
    }
    if arguments.no {
        return ExitCode::from(check::code(&with(arguments), &progress(arguments)));
    }
    let recovered = recover::code(&with(arguments));
    if recovered == FAILED && !arguments.yes {
        return ExitCode::from(FAILED);
    }
    let is_clean = recovered != LEFT && recovered != FAILED;
    if is_clean && !arguments.force {
        return ExitCode::from(recovered);
    }
    let replayed = if recovered == FAILED { CLEAN } else { recovered & !LEFT };
    ExitCode::from(replayed | examine(arguments, !is_clean))
}

/// Checks the whole image and repairs what the options allow. If the image `is_marked` as having
/// errors, a repair also clears the mark.
fn examine(arguments: &Arguments, is_marked: bool) -> u8 {
    if arguments.yes {
        return repair::code(&with(arguments));
    }
    let wanted = with(arguments);
    let examined = check::examine(&wanted, &progress(arguments));
    let Some(report) = Report::new("fsck").given(examined) else { return FAILED };
    let is_safe = report.left_out == 0 && report.findings.iter().all(|f| loses_nothing(f.harm()));
    let has_faults = report.findings.iter().any(|finding| finding.harm() != Harm::Note);
    if arguments.preen && is_safe && (has_faults || is_marked) {
        return repair::code(&with(arguments));
    }
    let code = check::tell(&report, &wanted);
    if code & LEFT != 0 {
        let advice = "faults are left: run lanefs fsck -y, or lanefs repair -n to see the plan";
        Report::new("fsck").fail(Failure::new(arguments.image.display(), advice));
    }
    code
}

/// Returns whether the repair of such a fault takes nothing away that a user could miss.
fn loses_nothing(harm: Harm) -> bool {
    matches!(
        harm,
        Harm::NoGrowth
            | Harm::NeverFreed
            | Harm::SpaceLeaked { .. }
            | Harm::WrongCounts
            | Harm::WrongAnswers
            | Harm::Harmless
            | Harm::Note
    )
}

/// Returns the arguments of another subcommand for the same image.
fn with<A: Args + FromArgMatches>(arguments: &Arguments) -> A {
    let line = [OsString::from("fsck"), "--".into(), arguments.image.clone().into()];
    let matches = A::augment_args(clap::Command::new("fsck")).get_matches_from(line);
    A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns a function that writes the progress as fsck(8) reads it: pass, done, of, device.
fn progress(arguments: &Arguments) -> impl Fn(Progress) + Sync {
    let device = arguments.image.display().to_string();
    let open = |fd| OpenOptions::new().append(true).open(format!("/dev/fd/{fd}")).ok();
    let file: Option<File> = arguments.progress.and_then(open);
    move |progress| {
        let pass = match progress.phase {
            Phase::Inodes => 1,
            Phase::Directories => 2,
        };
        if let Some(mut file) = file.as_ref() {
            // A reader that is gone does not stop the check.
            let _ = writeln!(file, "{pass} {} {} {device}", progress.done, progress.of);
        }
    }
}

/// Returns whether the image or device is mounted by Lanefs.
fn is_mounted(image: &Path) -> bool {
    let disk = |name: &Path| match file_of(name) {
        uri if is_uri(uri) => Some(uri.to_path_buf()),
        file => file.canonicalize().ok(),
    };
    let Some(path) = disk(image) else { return false };
    let mounts = MountEntry::all().unwrap_or_default();
    mounts.iter().any(|mount| disk(&mount.source).is_some_and(|source| source == path))
}
