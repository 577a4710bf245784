//! Checks that every lock and atomic of the workspace comes from this crate. Locks from elsewhere
//! would have no rank, and no model checker would schedule them.
#![cfg(not(any(loom, shuttle)))]

use std::fs;
use std::path::{Path, PathBuf};

/// The files that may take primitives from `std` and other crates: the definitions of the worlds
/// (production, loom and shuttle), and this test.
const FACADE: [&str; 3] = ["lanes/src/world/", "lanes/src/sync.rs", "lanes/tests/facade.rs"];
/// The types of shared ownership, which every file may take from `std`. Tests of `ondisk` may also
/// take `LazyLock`, because `ondisk` depends on no other crate of the workspace, and has neither
/// locks nor threads.
const FREE: [&str; 2] = ["Arc", "Weak"];
const FREE_IN_ONDISK: &str = "LazyLock";
/// Crates whose locks would bypass the facade.
const OTHERS: [&str; 3] = ["parking_lot", "crossbeam", "spin"];

/// Returns the names of locks and atomics that the file at `path` takes from elsewhere, with line
/// numbers from 1. `text` is the file's contents.
fn taken(path: &str, text: &str) -> Vec<(usize, String)> {
    let code: Vec<&str> = text.lines().map(|l| l.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for root in ["std::sync::", "core::sync::"] {
        for (at, _) in code.match_indices(root) {
            let rest = &code[at + root.len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap_or_default(),
                None => rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""),
            };
            let line = code[..at].matches('\n').count() + 1;
            for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                let free = FREE.contains(&name.split([':', ' ']).next().unwrap_or(name))
                    || path.starts_with("ondisk/tests/") && name == FREE_IN_ONDISK;
                if !free {
                    found.push((line, format!("{root}{name}")));
                }
            }
        }
    }
    for (line, text) in code.lines().enumerate() {
        let other = OTHERS.iter().find(|name| text.contains(&format!("{name}::")));
        found.extend(other.map(|name| (line + 1, (*name).to_owned())));
    }
    found
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn every_lock_and_atomic_comes_from_the_facade() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let mut files = Vec::new();
    sources(crates, &mut files);
    assert!(files.len() > 100, "the sources are not where they were");
    let mut found = Vec::new();
    for file in files {
        let path = file.strip_prefix(crates).expect("below it").to_str().expect("a plain name");
        if !FACADE.iter().any(|part| path.starts_with(part)) {
            let text = fs::read_to_string(&file).expect("text");
            found.extend(
                taken(path, &text).into_iter().map(|(n, what)| format!("{path}:{n}: {what}")),
            );
        }
    }
    assert!(found.is_empty(), "not from lanefs_lanes (see its `sync`):\n{}", found.join("\n"));
}

/// The parts of `ext4` that flush a device themselves: the log's replay before the mount; the MMP
/// block, whose failed store ends all writes; the record of an abort, after which
/// every fsync fails.
const FLUSHES: [&str; 4] = ["mount/find_log.rs", "mount/log.rs", "mount/mmp", "object/orphan.rs"];

/// A host may report a lost write to only one flush. So of a mounted file system, only the journal
/// flushes the device, and remembers a failure.
#[test]
fn only_the_journal_flushes_the_device_of_a_mount() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    for part in ["ext4", "vfs", "fuse", "lanefs"] {
        let (folder, mut files) = (crates.join(part).join("src"), Vec::new());
        sources(&folder, &mut files);
        for file in files {
            let path = file.strip_prefix(&folder).expect("below it").to_str().expect("plain");
            if part == "ext4" && FLUSHES.iter().any(|part| path.starts_with(part)) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("text");
            let flushes = ["device.flush()", "device().flush()", "durable_at("];
            let found = flushes.iter().find(|call| text.contains(**call));
            assert_eq!(found, None, "{part}/src/{path} flushes a device itself");
        }
    }
}

#[test]
fn a_primitive_from_elsewhere_is_found() {
    let seen =
        |text| taken("ext4/src/fs.rs", text).into_iter().map(|(n, what)| format!("{n} {what}"));
    let all = |text| seen(text).collect::<Vec<_>>();
    assert_eq!(all("use std::sync::Mutex;"), ["1 std::sync::Mutex"]);
    assert_eq!(all("\nlet x = core::sync::atomic::fence(o);"), ["2 core::sync::atomic"]);
    assert_eq!(all("use std::sync::{\n    Arc, Condvar,\n    atomic::AtomicU8};").len(), 2);
    assert_eq!(all("use parking_lot::RwLock;"), ["1 parking_lot"]);
    assert_eq!(all("use std::sync::{Arc, Weak}; // not std::sync::Mutex"), [""; 0]);
}
