//! Compares what repairs keep: each damaged image is repaired by Lanefs and by `e2fsck -fy`, and
//! the two results are compared. What e2fsck keeps and Lanefs loses is a failure. So is a result
//! that either checker calls faulty, a repair that refuses or does not end, and a change of a file
//! that the damage did not touch.

mod compare;
mod cuts;
mod fields;
mod ours;
mod subject;
mod tree;

use crate::changes::{Verdicts, put, rng_of};
use crate::hostile::target::Left;
use crate::image::Image;
use crate::random::in_parallel;
pub use cuts::Cuts;

use compare::{Loss, Trees};
use lanefs_check::{Report, Verdict};
use lanefs_device::{Device, OverlayDevice};
use lanefs_lanes::sync::unscheduled::{Mutex, OnceLock};
use ours::{checked, first, normal, repair, shown};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use subject::{Damage, SETS, Subject};
use tree::Tree;

/// The number of images that one worker makes from one base.
const TOGETHER: u64 = 25;
/// One result in so many is also read with debugfs, so that a fault of our reader shows.
const DEBUGFS_SHARE: u64 = 40;
const CAP: u64 = 1 << 30;

/// A difference that is no failure: the repair keeps more than e2fsck, or what is right. The table
/// in `docs/check.md` has the same classes, with what e2fsck does.
struct Accepted {
    name: &'static str,
    /// The symptoms, as [`Trees`] and the verdicts name them.
    symptoms: &'static [&'static str],
    /// Whether damage of this subject can cause the difference.
    causes: fn(&Subject, &Damage) -> bool,
}

const ACCEPTED: [Accepted; 14] = [
    Accepted {
        name: "data that the file never had",
        symptoms: &["foreign data, ours a hole"],
        // If `i_blocks` is not 0, e2fsck takes the target of a short link for pointers.
        causes: |_, damage| {
            maps(damage)
                || damage.place.starts_with("inode.i_blocks")
                || damage.place == "random bytes"
        },
    },
    Accepted {
        name: "a copy of metadata",
        symptoms: &["other foreign data"],
        causes: |_, damage| maps(damage),
    },
    Accepted {
        name: "a damaged encryption context",
        symptoms: &["a name is lost", "a name is lost that was not before", "flags lost"],
        causes: |subject, damage| {
            let field = damage.place.as_str();
            let is_attribute = field.starts_with("attributes") || field.ends_with(".e_name_index");
            subject.is_encrypted() && (is_attribute || field.starts_with("inode.i_file_acl"))
        },
    },
    Accepted {
        name: "a damaged encryption context",
        // The target of a link without a context cannot be read.
        symptoms: &["a name is lost, and its inode", "an inode is lost"],
        causes: |subject, damage| subject.is_encrypted() && damage.place.ends_with(".e_name_index"),
    },
    Accepted {
        name: "fewer dots in a name",
        symptoms: &["a name is lost that e2fsck has with dots"],
        causes: |_, _| true,
    },
    Accepted {
        name: "extents out of order",
        symptoms: &["other data of two lost"],
        causes: |_, damage| maps(damage),
    },
    Accepted {
        name: "an extent behind the end",
        symptoms: &["size that grows with data lost", "other size that grows with data"],
        causes: |_, damage| maps(damage) || damage.place.starts_with("inode.i_size"),
    },
    Accepted {
        name: "a type that is lost",
        symptoms: &[
            "other type again, mode",
            "foreign data, ours a hole",
            "an inode is lost that had no name",
        ],
        causes: |_, damage| damage.place == "inode.i_mode",
    },
    Accepted {
        name: "equal names",
        symptoms: &["a whole name is changed as by e2fsck"],
        causes: |_, damage| damage.place.starts_with("leaf"),
    },
    Accepted {
        name: "what e2fsck leaves",
        symptoms: &[
            "an inode is lost that had no name",
            "verdict: check complains after e2fsck: size is N, and its last block is None",
            "verdict: check complains after e2fsck: the inode of project quotas is N, which is not valid",
            "verdict: check complains after e2fsck: the number of free inodes is N where N was found",
        ],
        causes: |_, damage| {
            ["superblock.s_orphan_file_inum", "superblock.s_prj_quota_inum"]
                .contains(&damage.place.as_str())
        },
    },
    Accepted {
        name: "what e2fsck leaves",
        symptoms: &[
            "verdict: check complains after e2fsck: i_blocks is N where N sectors were counted",
            "verdict: check complains after e2fsck: the log has holes",
            "verdict: check complains after e2fsck: the number of free blocks is N where N was found",
            "verdict: check complains after e2fsck: size is N, and its last block is None",
        ],
        causes: |_, damage| {
            maps(damage)
                || damage.place.starts_with("attributes")
                || ["inode", "superblock.s_creator_os"].contains(&damage.place.as_str())
        },
    },
    Accepted {
        name: "what e2fsck leaves",
        symptoms: &[
            "e2fsck complains after the repair: Clone multiply-claimed blocks? no",
            "verdict: check finds nothing: Clone multiply-claimed blocks? no",
            "verdict: check complains after e2fsck: size is N, and its last block is Some(FileBlock(N))",
        ],
        causes: |_, damage| {
            ["superblock.s_creator_os", "inode.i_size_high"].contains(&damage.place.as_str())
        },
    },
    Accepted {
        name: "what e2fsck does not see",
        symptoms: &[
            "verdict: e2fsck finds nothing: log starts at N",
            "verdict: e2fsck finds nothing: the number of free blocks is N where N was found",
        ],
        causes: |_, damage| damage.place.starts_with("log"),
    },
    Accepted {
        name: "what e2fsck does not see",
        symptoms: &[
            "verdict: e2fsck finds nothing: flags N are not valid here",
            "verdict: e2fsck finds nothing: mode is NoN, expected a hidden file",
        ],
        causes: |_, damage| ["inode.i_flags", "inode.i_mode"].contains(&damage.place.as_str()),
    },
];

/// Returns whether the damage is in a block pointer or in an extent.
fn maps(damage: &Damage) -> bool {
    let (part, field) = damage.place.split_once('.').unwrap_or((&damage.place, ""));
    let is_mapping = field.starts_with("ee_") || field.starts_with("ei_") || field == "i_block";
    part == "node" || part == "pointers" || part == "inode" && is_mapping
}

/// Which images are made.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The seed of all choices.
    pub seed: u64,
    /// The number of the first image.
    pub first: u64,
    /// The number of images.
    pub images: u64,
    /// Whether each repair is also interrupted at each of its writes, and run again.
    pub with_cuts: bool,
    /// A folder for one damaged image of each class of failures.
    pub keep: Option<PathBuf>,
}

/// A class of differences.
#[derive(Debug, Clone, Default)]
pub struct Class {
    /// The number of images.
    pub count: u64,
    /// The first image, and how to make it again.
    pub first: (u64, String),
}

/// The counts of a run.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// The number of damaged images.
    pub images: u64,
    /// How many of them e2fsck -fn calls faulty, by generator.
    pub faulty: BTreeMap<&'static str, u64>,
    /// How many of them e2fsck refuses to check.
    pub refused: u64,
    /// How many of the faulty ones e2fsck -fy does not repair in one run.
    pub unfinished: u64,
    /// How many repairs were interrupted, and how often.
    pub cuts: Cuts,
    /// The accepted differences, by class.
    pub accepted: BTreeMap<&'static str, Class>,
    /// The failures: the symptom, and the damaged structure.
    pub classes: BTreeMap<(String, String), Class>,
}

impl Tally {
    /// Returns the number of images that e2fsck -fn calls faulty.
    pub fn all_faulty(&self) -> u64 {
        self.faulty.values().sum()
    }

    fn add(&mut self, other: Tally) {
        self.images += other.images;
        self.refused += other.refused;
        self.unfinished += other.unfinished;
        self.cuts.add(other.cuts);
        for (name, count) in other.faulty {
            *self.faulty.entry(name).or_default() += count;
        }
        for (name, class) in other.accepted {
            self.accepted.entry(name).or_default().add(class);
        }
        for (key, class) in other.classes {
            self.classes.entry(key).or_default().add(class);
        }
    }
}

impl Class {
    fn add(&mut self, other: Class) {
        if self.count == 0 || other.first.0 < self.first.0 {
            self.first = other.first;
        }
        self.count += other.count;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} images, {} of them faulty for e2fsck (", self.images, self.all_faulty())?;
        for (n, (name, count)) in self.faulty.iter().enumerate() {
            write!(f, "{}{count} by {name}", if n == 0 { "" } else { ", " })?;
        }
        write!(f, "); e2fsck refuses {}, and does not finish {}", self.refused, self.unfinished)?;
        if self.cuts != Cuts::default() {
            write!(f, "; {}", self.cuts)?;
        }
        for (name, Class { count, first }) in &self.accepted {
            write!(f, "\n{count:5} accepted: {name} | image {}: {}", first.0, first.1)?;
        }
        for ((symptom, place), Class { count, first }) in &self.classes {
            write!(f, "\n{count:5} {symptom} | {place} | image {}: {}", first.0, first.1)?;
        }
        Ok(())
    }
}

/// Damages, repairs and compares images, on all processors.
pub fn run(selection: &Selection) -> Tally {
    let subjects: Vec<OnceLock<Option<Subject>>> = SETS.iter().map(|_| OnceLock::new()).collect();
    let found = Mutex::new(Tally::default());
    let jobs = selection.first / TOGETHER..(selection.first + selection.images).div_ceil(TOGETHER);
    in_parallel(jobs.collect(), |job| {
        let which = (job % SETS.len() as u64) as usize;
        let made = || Subject::make(SETS[which]);
        let Some(subject) = subjects[which].get_or_init(made) else { return };
        let tally = many(subject, selection, job);
        found.lock().unwrap_or_else(|poison| poison.into_inner()).add(tally);
    });
    found.into_inner().unwrap_or_else(|poison| poison.into_inner())
}

fn many(subject: &Subject, selection: &Selection, job: u64) -> Tally {
    let mut tally = Tally::default();
    let work = Work::new(subject);
    let wanted = selection.first..selection.first + selection.images;
    for n in (job * TOGETHER..(job + 1) * TOGETHER).filter(|n| wanted.contains(n)) {
        let mut rng = rng_of(selection.seed, job, n % TOGETHER);
        let (generator, damage) = subject.draw(&mut rng, selection.seed << 32 | n);
        let mut outcome = work.judge(subject, &damage, n.is_multiple_of(DEBUGFS_SHARE));
        if selection.with_cuts && !damage.writes.is_empty() {
            match cuts::cut(subject, &damage) {
                Ok(cuts) => tally.cuts.add(cuts),
                Err(why) => {
                    outcome.found.push((format!("an interrupted repair: {}", normal(&why)), why))
                }
            }
        }
        tally.images += 1;
        tally.refused += u64::from(outcome.status & !7 != 0);
        tally.unfinished += u64::from(outcome.is_unfinished);
        if outcome.status & !7 == 0 && outcome.status & 4 != 0 {
            *tally.faulty.entry(generator).or_default() += 1;
        }
        let recipe = format!("mke2fs {}, {:?}: {}", subject.set.0, subject.set.2, damage.what);
        for (symptom, detail) in outcome.found {
            let is_accepted = |one: &&Accepted| {
                one.symptoms.contains(&symptom.as_str()) && (one.causes)(subject, &damage)
            };
            let accepted = ACCEPTED.iter().find(is_accepted);
            let class = match accepted {
                Some(one) => tally.accepted.entry(one.name).or_default(),
                None => tally.classes.entry((symptom, damage.place.clone())).or_default(),
            };
            class.count += 1;
            if class.count == 1 {
                let detail = detail.split_whitespace().collect::<Vec<_>>().join(" ");
                let detail: String = detail.chars().take(300).collect();
                class.first = (n, format!("{recipe}: {detail}"));
                if let Some(folder) = &selection.keep {
                    work.view(&damage.writes)
                        .to_file(folder.join(format!("{n}.img")))
                        .expect("kept");
                }
            }
        }
    }
    tally
}

/// What the two programs made of one image.
#[derive(Debug, Default)]
struct Outcome {
    /// The exit code of e2fsck -fn for the damaged image.
    status: i32,
    is_unfinished: bool,
    found: Vec<Loss>,
}

/// A file with a base image, on which e2fsck runs.
struct Work {
    image: Image,
    file: File,
    below: Arc<dyn Device>,
}

impl Work {
    fn new(subject: &Subject) -> Work {
        let image = Image::empty();
        subject.device.to_file(image.path()).expect("a copy");
        let file = File::options().read(true).write(true).open(image.path());
        Work { image, file: file.expect("the copy opens"), below: subject.device.clone() }
    }

    fn view(&self, writes: &[(u64, Vec<u8>)]) -> OverlayDevice {
        let view = OverlayDevice::new(self.below.clone(), CAP);
        for (at, bytes) in writes {
            view.write_at(*at, bytes).expect("in memory");
        }
        view
    }

    fn e2fsck(&self, how: &str) -> (i32, String) {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", "e2fsck", how]).arg(self.image.path());
        let output = command.output().expect("e2fsck runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code().unwrap_or(-1), text + &String::from_utf8_lossy(&output.stderr))
    }

    /// Puts the base back in the file. Returns what was different.
    fn restore(&self, subject: &Subject) -> Vec<(u64, Vec<u8>)> {
        let mut now = vec![0; subject.bytes.len()];
        std::os::unix::fs::FileExt::read_exact_at(&self.file, &mut now, 0).expect("the copy");
        subject.restore(&self.file, &now)
    }

    /// Calls `judge` while the file has these changes.
    fn with<T>(&self, subject: &Subject, state: &OverlayDevice, judge: impl FnOnce() -> T) -> T {
        let changes = state.changes();
        let len = |at: u64, bytes: &[u8]| bytes.len().min(subject.bytes.len() - at as usize);
        let ranges = changes.iter().map(|(at, bytes)| (*at, len(*at, bytes)));
        let old =
            ranges.map(|(at, len)| (at, subject.bytes[at as usize..at as usize + len].to_vec()));
        let old: Vec<_> = old.collect();
        put(&self.file, changes.iter().map(|(at, new)| (*at, new[..len(*at, new)].to_vec())));
        let judged = judge();
        put(&self.file, old.into_iter());
        judged
    }

    fn judge(&self, subject: &Subject, damage: &Damage, by_debugfs: bool) -> Outcome {
        let mut outcome = Outcome::default();
        put(&self.file, damage.writes.iter().cloned());
        let (status, text) = self.e2fsck("-fn");
        outcome.status = status;
        let is_refused = status & !7 != 0;
        let is_faulty = !is_refused && !verdicts(status, text.clone()).is_clean_for_e2fsck();
        let is_crashed = subject.set.2 != Left::Clean;
        // What e2fsck mends after the replay of the log; -n does not replay it.
        let mut mended = String::new();
        let mut is_judge = !is_refused;
        if is_faulty || is_crashed && !is_refused {
            let status;
            (status, mended) = self.e2fsck("-fy");
            outcome.is_unfinished = status & !3 != 0;
            // Some faults it sees only after it has mended others.
            let (status, _) = self.e2fsck("-fy");
            is_judge = status & !3 == 0;
        }
        let theirs = self.view(&self.restore(subject));
        let damaged = self.view(&damage.writes);
        let ours = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| repair(&damaged)));
        let ours = match ours {
            Ok(Ok(ours)) => ours,
            Ok(Err(_)) if is_refused => return outcome,
            Ok(Err(why)) => {
                outcome.found.push(why);
                return outcome;
            }
            Err(_) => {
                outcome.found.push(("a panic".into(), String::new()));
                return outcome;
            }
        };
        let found = &mut outcome.found;
        // e2fsck refuses unknown features too.
        let is_told = |what: &str| is_refused && what.contains("unchecked: feature");
        found.extend(ours.found.into_iter().filter(|(what, _)| !is_told(what)));
        let (after, complaints) = self.with(subject, &ours.view, || self.e2fsck("-fn"));
        let judges = is_judge || after & !7 == 0;
        if judges && !verdicts(after, complaints.clone()).is_clean_for_e2fsck() {
            let what = format!("e2fsck complains after the repair: {}", complaint(&complaints));
            found.push((what, complaints));
        }
        if !is_judge {
            return outcome;
        }
        // Of a crashed image, -fn judges the state before the replay of the log.
        let is_mended = is_crashed && mended.contains("? yes");
        let differs = verdict(&damaged, status, &text, &ours.before);
        found.extend(differs.filter(|(symptom, _)| !(is_mended && symptom.contains(NOTHING))));
        if is_faulty {
            self.judge_theirs(subject, &theirs, found);
        }
        let mut trees = Vec::new();
        for (whose, view) in [("e2fsck", &theirs), ("the repair", &ours.view)] {
            let Some(tree) = Tree::of(view) else {
                found.push((format!("the result of {whose} is not readable"), String::new()));
                return outcome;
            };
            // debugfs decrypts no names.
            if by_debugfs && !subject.is_encrypted() {
                let differs = self.with(subject, view, || tree.differs_from_debugfs(&self.image));
                found.extend(differs.map(|why| (format!("debugfs reads {whose} otherwise"), why)));
            }
            trees.push(tree);
        }
        let has_changed = ours.before.verdict() != Verdict::Clean;
        let (theirs, ours) = (&trees[0], &trees[1]);
        let trees = Trees { before: &subject.before, theirs, ours };
        let mut losses = trees.losses();
        if !is_crashed && has_changed {
            losses.extend(trees.changed(&subject.changed(damage)));
        }
        losses.sort();
        losses.dedup_by(|one, other| one.0 == other.0);
        found.extend(losses);
        outcome
    }

    /// Checks the result of e2fsck.
    fn judge_theirs(&self, subject: &Subject, theirs: &OverlayDevice, found: &mut Vec<Loss>) {
        let report = checked(Arc::new(theirs.fork()));
        if report.as_ref().is_ok_and(|report| report.verdict() == Verdict::Clean) {
            return;
        }
        let (status, text) = self.with(subject, theirs, || self.e2fsck("-fn"));
        if !verdicts(status, text.clone()).is_clean_for_e2fsck() {
            return;
        }
        match report {
            Err(why) => found.push(("verdict: check refuses after e2fsck".into(), why)),
            Ok(report) => {
                let (fault, detail) = (first(&report), shown(&report));
                let verdicts = Verdicts { report: Some(report), ..verdicts(status, text) };
                if verdicts.known().is_none() {
                    found.push((format!("verdict: check complains after e2fsck: {fault}"), detail));
                }
            }
        }
    }
}

const NOTHING: &str = "verdict: e2fsck finds nothing";

/// Returns a difference between the two verdicts on a damaged image.
fn verdict(damaged: &OverlayDevice, status: i32, text: &str, before: &Report) -> Option<Loss> {
    let by_e2fsck = verdicts(status, text.into());
    let (is_clean, finds) = (before.verdict() == Verdict::Clean, !by_e2fsck.is_clean_for_e2fsck());
    match (finds, is_clean) {
        // The repair has looked after it had put copies of descriptors in their places.
        (true, true) => checked(Arc::new(damaged.fork()))
            .is_ok_and(|report| report.verdict() == Verdict::Clean)
            .then(|| (format!("verdict: check finds nothing: {}", complaint(text)), text.into())),
        (false, false) => {
            let by_both = Verdicts { report: Some(before.clone()), ..by_e2fsck };
            let what = || format!("{NOTHING}: {}", first(before));
            by_both.known().is_none().then(|| (what(), shown(before)))
        }
        _ => None,
    }
}

fn verdicts(status: i32, text: String) -> Verdicts {
    Verdicts { status, text, report: None, error: String::new() }
}

/// Returns the first complaint of e2fsck, without its numbers and names.
fn complaint(text: &str) -> String {
    let is_complaint = |line: &&str| {
        (line.contains("? no") || line.contains("IGNORED"))
            && !line.contains(" extent tree (at level ")
    };
    let line = text.lines().find(is_complaint);
    normal(line.unwrap_or_else(|| text.lines().last().unwrap_or_default()))
}
