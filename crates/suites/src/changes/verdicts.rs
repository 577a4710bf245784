//! The verdicts of e2fsck and the checker on one image, and the known differences between them.

use super::change::Change;
use lanefs_check::{Fault, Finding, Harm, Options, Place, Report, Verdict, check};
use lanefs_device::{Access, FileDevice, OpenOptions};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{Ino, extent, jbd2, superblock, xattr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The verdicts of e2fsck and of the checker on one image.
#[derive(Debug)]
pub struct Verdicts {
    /// The exit code of e2fsck -fn.
    pub status: i32,
    /// The output of e2fsck.
    pub text: String,
    /// The report of the checker; `None` if the checker could not check the image.
    pub report: Option<Report>,
    /// The reason why the checker could not check the image.
    pub error: String,
}

impl Verdicts {
    /// Judges the image at `path`.
    pub fn of(path: &Path) -> Verdicts {
        let output =
            Command::new("timeout").args(["-s", "KILL", "60", "e2fsck", "-fn"]).arg(path).output();
        let output = output.expect("e2fsck runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let device = FileDevice::open(path, Access::ReadOnly, OpenOptions::default());
        let device = Arc::new(device.expect("the image opens"));
        let options = Options { threads: 1, ..Options::default() };
        let (report, error) = match check(device, &options, &|_| {}) {
            Ok(report) => (Some(report), String::new()),
            Err(error) => (None, error.to_string()),
        };
        Verdicts { status: output.status.code().unwrap_or(-1), text, report, error }
    }

    /// Returns whether e2fsck finds the image clean: its exit code is 0, it asks no question, and
    /// it reports no problem as "IGNORED". Two exceptions are allowed: it may report times in the
    /// future, and it may offer to make an extent tree smaller. The exit code alone does not
    /// suffice, because it can be 0 although e2fsck asked a question before its first pass.
    pub fn is_clean_for_e2fsck(&self) -> bool {
        let is_question = |line: &str| line.contains("? no") || line.contains("IGNORED");
        let is_offer = |line: &str| line.contains(" extent tree (at level ");
        // e2fsck reports a last mount time or last write time that is later than now, but this is
        // not damage.
        let lines: Vec<&str> = self.text.lines().collect();
        let is_time = |n: usize| n > 0 && lines[n - 1].contains("is in the future.");
        let mut asked = (0..lines.len()).filter(|n| is_question(lines[*n]) && !is_time(*n));
        self.status == 0 && asked.all(|n| is_offer(lines[n]))
    }

    /// Returns whether the checker finds the image clean.
    pub fn is_clean_for_lanefs(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.verdict() == Verdict::Clean)
    }

    /// Returns whether both verdicts agree.
    pub fn agree(&self) -> bool {
        self.is_clean_for_e2fsck() == self.is_clean_for_lanefs()
    }

    /// Returns the known reason why e2fsck misses the first fault that the checker found. Returns
    /// `None` if e2fsck does not find the image clean, or misses a fault for an unknown reason.
    pub fn known(&self) -> Option<&'static str> {
        let report = self.report.as_ref()?;
        let faults = report.findings.iter().filter(|finding| finding.harm() != Harm::Note);
        let is_resize = |finding: &Finding| matches!(finding.fault, Fault::Special { ino: 7, .. });
        let has_resize = report.findings.iter().any(is_resize);
        let is_deep = |finding: &Finding| missed(&finding.fault) == Some(DEPTH);
        let has_depth = report.findings.iter().any(is_deep);
        let reason = |finding: &Finding| match (finding.place.ino(), &finding.fault) {
            (Some(Ino::RESIZE), _) if has_resize => Some(RESIZE),
            // If a node has a wrong depth, the checker does not count the blocks below it as blocks
            // in use.
            (_, Fault::Count { .. } | Fault::FreeButUsed { .. }) if has_depth => Some(DEPTH),
            (Some(_), Fault::WildBlock { .. })
                if matches!(finding.place, Place::Attributes { .. }) =>
            {
                Some("e2fsck does not look at the attributes of hidden files; the kernel does")
            }
            (_, fault) => missed(fault),
        };
        let reasons: Option<Vec<_>> = faults.map(reason).collect();
        reasons.filter(|_| self.is_clean_for_e2fsck())?.first().copied()
    }

    /// Describes both verdicts.
    pub fn show(&self, change: &Change) -> String {
        let mut text = format!("{change}\n");
        text += &format!("  e2fsck -fn: {}\n", self.status);
        for line in self.text.lines().filter(|line| !line.is_empty()).take(12) {
            text += &format!("    {line}\n");
        }
        match &self.report {
            None => text += &format!("  lanefs: {}\n", self.error),
            Some(report) => {
                text += &format!("  lanefs: {:?} {:?}\n", report.verdict(), report.unchecked);
                for finding in report.findings.iter().take(12) {
                    text += &format!("    {finding}\n");
                }
            }
        }
        text
    }
}

const RESIZE: &str = "e2fsck looks at a quarter of the reserved descriptors";
const CONTEXT: &str = "e2fsck takes an attribute \"c\" of an unknown prefix for an encryption \
                       context; the kernel does not";
const DEPTH: &str = "e2fsck accepts an extent node below the root with a wrong depth";

/// The size of a file without a last block that can only be an orphan file.
const HUGE_ORPHANS: u64 = 1 << 30;

/// Returns the known reason why e2fsck -fn misses a fault, if there is one.
fn missed(fault: &Fault) -> Option<&'static str> {
    Some(match fault {
        Fault::Journal(jbd2::Cause::First { .. }) => {
            "e2fsck accepts a log that the kernel does not mount: the first block is beyond the end"
        }
        Fault::Journal(jbd2::Cause::TooShort { .. }) => {
            "e2fsck accepts a log that is too short for the kernel"
        }
        Fault::Superblock(superblock::Cause::LastOrphan { .. })
        | Fault::Orphan { .. }
        | Fault::OrphansPending { .. } => "e2fsck -n does not follow the list of orphans",
        Fault::Superblock(superblock::Cause::JournalPlace { .. }) => {
            "e2fsck accepts a journal in a file and on a device; the kernel does not mount it"
        }
        Fault::Extent {
            cause: extent::Cause::TooDeep { .. } | extent::Cause::Depth { .. },
            ..
        } => DEPTH,
        Fault::Extent { cause: extent::Cause::EmptyIndex, .. } => {
            "e2fsck accepts a root of an extent tree with a depth and no entries; no mount does"
        }
        Fault::Flags { flags } if *flags == InodeFlags::EA_INODE.bits() => {
            "e2fsck accepts the flag of attribute values without ea_inode; the kernel does not"
        }
        Fault::ForeignPolicy { .. } => CONTEXT,
        Fault::Flags { flags } if *flags == InodeFlags::ENCRYPT.bits() => CONTEXT,
        Fault::QuotaFile(_) | Fault::QuotaHole { .. } => {
            "e2fsck compares the usage in quota files, and not the form of these files"
        }
        Fault::Size { size, last: None } if *size >= HUGE_ORPHANS => {
            "e2fsck accepts an orphan file with a hole; the kernel reads all of its blocks"
        }
        Fault::Attributes(xattr::Cause::NameByte { .. }) => {
            "e2fsck accepts a zero byte in the name of an attribute, which no call can name"
        }
        Fault::Links { found: 0, .. } => "e2fsck accepts quota files without links; no mount does",
        _ => return None,
    })
}
