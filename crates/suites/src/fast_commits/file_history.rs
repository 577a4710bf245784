//! The versions of each file, and which of these versions a crash may leave.

use crate::crash::writer;
use crate::op::{Path, show};
use std::collections::{BTreeMap, BTreeSet};

/// A file after one of its changes.
#[derive(Debug, Clone)]
pub(super) struct Version {
    /// The number of events before the operation.
    pub(super) begun: usize,
    pub(super) op: usize,
    /// The file's names; none if the file was removed.
    pub(super) paths: BTreeSet<Path>,
    pub(super) mode: u16,
    pub(super) bytes: Vec<u8>,
    /// What the operation changed: the file itself, or the name of a directory above it. The
    /// difference matters because an fsync of the file promises nothing about the names of
    /// directories.
    pub(super) what: Changed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    File,
    Directory,
}

/// A promise that a crash at event `mark` or later leaves version `version` or a later one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    pub(super) mark: usize,
    pub(super) version: usize,
}

/// All versions of a file, oldest first.
#[derive(Debug, Default)]
pub(super) struct FileHistory {
    pub(super) versions: Vec<Version>,
    pub(super) promises: Vec<Promise>,
}

/// The operations of a workload, and the versions of its files.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) histories: BTreeMap<u64, FileHistory>,
    /// The operations in words.
    pub(super) ops: Vec<String>,
}

/// The tree after a replay by one of the programs: the modes and contents of the regular files.
pub(super) type View = BTreeMap<Path, (u16, Vec<u8>)>;

/// A crash: `cut` events had started, and `ended` events had ended.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) cut: usize,
    pub(super) ended: usize,
}

/// Checks that each file is equal to one of its allowed versions.
pub(super) fn compare(record: &Record, at: Moment, view: &View) -> Result<(), String> {
    let mut left: BTreeSet<&Path> = view.keys().collect();
    for (id, history) in &record.histories {
        let kept = history.promises.iter().filter(|promise| promise.mark <= at.ended);
        let sure = kept.map(|promise| promise.version).max();
        let begun = history.versions.iter().rposition(|version| version.begun < at.cut);
        // An operation that needs no write can make its promise exactly at this cut, although it
        // does not count as started at this cut. In this case `begun` is older than the promised
        // version.
        let Some(last) = begun.max(sure) else { continue };
        let allowed = &history.versions[sure.unwrap_or(0)..=last];
        // Several versions may fit if the file is empty and its name belongs to another file in an
        // earlier or later version: an empty file does not show which of the two files it is.
        let fits = |version: &&Version| is_version(*id, version, allowed, view);
        let fitting: Vec<&Version> = allowed.iter().filter(fits).collect();
        if fitting.is_empty() {
            if sure.is_none() && allowed.iter().all(|version| !is_there(*id, version, view)) {
                continue;
            }
            return Err(format!("file {id} is none of {}", describe(record, allowed, view)));
        }
        left.retain(|path| !fitting.iter().any(|version| version.paths.contains(*path)));
    }
    match left.first() {
        None => Ok(()),
        Some(path) => {
            let had = |version: &Version| version.paths.contains(*path);
            let versions = record.histories.values().flat_map(|history| &history.versions);
            let versions: Vec<Version> = versions.filter(|version| had(version)).cloned().collect();
            let histories = describe(record, &versions, view);
            Err(format!("{}: no file that may be there{histories}", show(path)))
        }
    }
}

/// Returns whether a file at one of the version's paths contains a word that was written to file
/// `id`.
fn is_there(id: u64, version: &Version, view: &View) -> bool {
    let own = |bytes: &[u8]| {
        (0..).zip(bytes.chunks_exact(8)).any(|(n, word)| {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            word != 0 && writer(word, id, n * 8).is_some()
        })
    };
    version.paths.iter().any(|path| view.get(path).is_some_and(|(_, bytes)| own(bytes)))
}

fn is_version(id: u64, version: &Version, allowed: &[Version], view: &View) -> bool {
    let everywhere: BTreeSet<&Path> = allowed.iter().flat_map(|v| &v.paths).collect();
    let gone = everywhere.into_iter().filter(|path| !version.paths.contains(*path));
    let mut gone = gone.map(|path| Version { paths: [path.clone()].into(), ..version.clone() });
    version.paths.iter().all(|path| {
        view.get(path).is_some_and(|(mode, bytes)| {
            *mode == version.mode
                && bytes.len() == version.bytes.len()
                && (0..bytes.len()).step_by(8).all(|at| {
                    let word = bytes.get(at..at + 8);
                    let of = |v: &Version| {
                        v.bytes.get(at..at + 8).map_or(word == Some(&[0; 8]), |w| word == Some(w))
                    };
                    allowed.iter().any(of)
                })
        })
    }) && !gone.any(|other| is_there(id, &other, view))
}

fn describe(record: &Record, allowed: &[Version], view: &View) -> String {
    let mut text = String::new();
    for version in allowed.iter().rev().take(6) {
        let paths: Vec<String> = version.paths.iter().map(|path| show(path)).collect();
        let (op, len) = (version.op, version.bytes.len());
        let words = record.ops.get(op.saturating_sub(1)).cloned().unwrap_or_default();
        text += &format!(
            "\n  after operation {op} ({words}): {paths:?}, {len} bytes, mode {:o}",
            version.mode
        );
        for path in &version.paths {
            let found = view.get(path).map(|(mode, bytes)| {
                let first = bytes.chunks_exact(8).zip(version.bytes.chunks_exact(8));
                let differs = first.enumerate().find(|(_, (a, b))| a != b).map(|(n, (a, _))| {
                    (n * 8, u64::from_le_bytes(a.try_into().expect("eight bytes")))
                });
                (format!("{mode:o}"), bytes.len(), differs)
            });
            text += &format!("; found {found:x?}");
        }
    }
    text
}
