//! The pass that checks the paths from the root to every directory, and link counts.

use crate::fault::Fault;
use crate::field::Feature;
use crate::parallel;
use crate::parents::Parents;
use crate::place::Place;
use crate::record::Record;
use crate::run::Run;
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileType, Group, Ino};

/// The largest link count of a directory. With `dir_nlink`, a directory that would need more links
/// has a link count of 1.
const MOST_LINKS: u32 = 65_000;

/// Checks that every directory has a path from the root, and that its ".." refers to its parent.
pub fn check_paths(run: &Run<'_>, parents: &Parents) {
    match parents.position(Ino::ROOT) {
        Some(root) => {
            let found = parents.dot_dot(root);
            if found != Some(Ino::ROOT) {
                let fault = Fault::Parent { found, expected: Ino::ROOT };
                run.add(Place::Inode { ino: Ino::ROOT }, fault);
            }
        }
        None => run.add(Place::Superblock, Fault::NoRoot),
    }
    if !parents.has_lost_and_found() {
        run.add(Place::Inode { ino: Ino::ROOT }, Fault::NoLostAndFound);
    }
    let reached = reached(parents);
    for (n, ino) in parents.inos().iter().enumerate() {
        if *ino == Ino::ROOT {
            continue;
        }
        let place = Place::Inode { ino: *ino };
        match (reached.get(n), parents.parent(n)) {
            (Some(true), Some(expected)) => {
                let found = parents.dot_dot(n);
                if found != Some(expected) {
                    run.add(place, Fault::Parent { found, expected });
                }
            }
            _ => run.add(place, Fault::Unconnected),
        }
    }
}

/// Returns for each directory whether the chain of its parents ends at the root. In a ring of
/// directories, and below such a ring, the chain has no end.
fn reached(parents: &Parents) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        Unknown,
        OnPath,
        Reached,
        Lost,
    }
    let mut marks = vec![Mark::Unknown; parents.inos().len()];
    let mut path = Vec::new();
    for start in 0..marks.len() {
        let mut at = Some(start);
        let end = loop {
            let Some(n) = at else { break Mark::Lost };
            if parents.inos().get(n) == Some(&Ino::ROOT) {
                break Mark::Reached;
            }
            match marks.get(n) {
                Some(Mark::Unknown) => {}
                Some(Mark::Reached) => break Mark::Reached,
                _ => break Mark::Lost,
            }
            if let Some(mark) = marks.get_mut(n) {
                *mark = Mark::OnPath;
            }
            path.push(n);
            at = parents.parent(n).and_then(|parent| parents.position(parent));
        };
        for n in path.drain(..) {
            if let Some(mark) = marks.get_mut(n) {
                *mark = end;
            }
        }
    }
    marks.into_iter().map(|mark| mark == Mark::Reached).collect()
}

/// Compares the link counts of all inodes with the number of names that were found.
pub fn check_counts(run: &Run<'_>, threads: usize) {
    let geometry = &run.volume.geometry;
    parallel::each(
        threads,
        geometry.group_count().into(),
        || (),
        |(), n| {
            let group = Group(n as u32);
            let Some(desc) = run.groups.get(group) else { return };
            for bit in 0..crate::groups::used_inodes(run.volume, desc) {
                if let Some(ino) = geometry.ino_at(group, bit) {
                    check_links(run, ino);
                }
            }
        },
    );
}

/// Returns whether a directory with this number of names may have a link count of 1, because it
/// has, or once had, more subdirectories than can be counted. For an indexed directory, the kernel
/// keeps the count of 1 even after subdirectories are removed, and e2fsck accepts that.
fn may_be_uncounted(run: &Run<'_>, ino: Ino, expected: u32) -> bool {
    let has_many = run.volume.ro_compat(RoCompat::DIR_NLINK) && expected > MOST_LINKS;
    let is_indexed = |bytes: Vec<u8>| Record::decode(&bytes).flags.contains(InodeFlags::INDEX);
    has_many || run.read_inode(ino).is_some_and(is_indexed)
}

fn check_links(run: &Run<'_>, ino: Ino) {
    let state = run.states.get(ino);
    let is_deleted = || state.links() == 0 && state.names() == 0 && run.orphans.contains(&ino);
    if !state.is_used() || run.volume.is_hidden(ino) || is_deleted() {
        return;
    }
    if state.has_values() && state.names() == 0 {
        // An inode that holds an attribute's value has no name, because only attributes refer to
        // it.
        if !run.values.lock().contains_key(&ino) {
            run.add(Place::Inode { ino }, Fault::NoName);
        }
        return;
    }
    let place = Place::Inode { ino };
    if state.names() > 0 && run.volume.is_unused_quota_file(ino) {
        run.add(place, Fault::NamedAsQuota);
    }
    let is_directory = state.file_type() == Some(FileType::Directory);
    let (found, expected) = (state.links(), state.names());
    if is_directory && expected > MOST_LINKS && !run.volume.ro_compat(RoCompat::DIR_NLINK) {
        run.add(Place::Superblock, Fault::Feature { feature: Feature::DirNlink });
    }
    if expected == 0 {
        return run.add(place, Fault::NoName);
    }
    let is_uncounted = || is_directory && found == 1 && may_be_uncounted(run, ino, expected);
    if found != expected && !is_uncounted() {
        run.add(place, Fault::Links { found, expected });
    }
}
