//! Runs every operation on a file system, and collects the errors.

use super::guard::Guarded;
use crate::home;
use crate::op::IN_PLACE;
use lanefs_device::Device;
use lanefs_ext4::{
    Error, Fallocate, Fs, InodeRef, Mount, MountOptions, NewInode, NewKind, Privilege, Rename,
    Seek, SetAttr, SetXattr, SyncMode,
};
use lanefs_ondisk::{FileType, Ino};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The outcome of the operations on an image.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Whether the image could be mounted.
    pub mounted: bool,
    /// All distinct error messages.
    pub errors: BTreeSet<String>,
    /// The number of inodes that were visited.
    pub visited: usize,
    /// Inode numbers that were given to new inodes although other inodes in use already have these
    /// numbers.
    pub given_twice: BTreeSet<Ino>,
}

impl Outcome {
    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.errors.insert(error.to_string())).ok()
    }

    /// Returns whether an error contains these words.
    pub fn says(&self, words: &str) -> bool {
        self.errors.iter().any(|error| error.contains(words))
    }
}

/// The largest number of names that are visited in one directory.
const NAMES: usize = 400;
/// `VISITS` limits how many inodes are visited, and `CHANGES` limits how many are changed.
const VISITS: usize = 600;
const CHANGES: usize = 25;

/// Mounts the file system, reads everything, changes something in each object, and unmounts.
pub fn exercise(device: Arc<Guarded>) -> Outcome {
    let mut outcome = Outcome::default();
    let options = MountOptions { cache_bytes: 16 << 20, ..home::options() };
    let Some(mount) = outcome.note(Mount::open(device.clone() as Arc<dyn Device>, options)) else {
        return outcome;
    };
    outcome.mounted = true;
    let found = walk(mount.fs(), &mut outcome);
    outcome.visited = found.len();
    change(mount.fs(), &found, &mut outcome);
    drop(found);
    let _ = outcome.note(mount.close());
    outcome
}

/// An inode, with the directory and name where it was found.
struct Found {
    inode: InodeRef,
    parent: InodeRef,
    name: Vec<u8>,
}

fn walk(fs: &Fs, outcome: &mut Outcome) -> Vec<Found> {
    let mut seen: BTreeSet<Ino> = BTreeSet::new();
    let mut found = Vec::new();
    let mut todo: Vec<InodeRef> = outcome.note(fs.root()).into_iter().collect();
    while let Some(dir) = todo.pop() {
        read(fs, &dir, outcome);
        let mut names = Vec::new();
        let _ = outcome.note(fs.read_dir(&dir, 0, &mut |entry| {
            names.push((entry.name.to_vec(), entry.ino));
            if names.len() < NAMES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }));
        for (name, ino) in names {
            let _ = outcome.note(fs.lookup(&dir, &name));
            if found.len() >= VISITS || !seen.insert(ino) {
                continue;
            }
            let Some(inode) = outcome.note(fs.get(ino, None)) else { continue };
            read(fs, &inode, outcome);
            if inode.file_type() == FileType::Directory && ino != dir.ino() {
                todo.push(inode.clone());
            }
            found.push(Found { inode, parent: dir.clone(), name });
        }
        let _ = outcome.note(fs.lookup(&dir, b"no such name"));
    }
    let _ = fs.stat_fs();
    found
}

fn read(fs: &Fs, inode: &InodeRef, outcome: &mut Outcome) {
    let attr = inode.attr();
    for name in outcome.note(fs.list_xattr(inode)).into_iter().flatten().take(50) {
        let _ = outcome.note(fs.get_xattr(inode, &name));
    }
    let _ = fs.get_xattr(inode, b"user.none");
    match attr.file_type {
        FileType::Symlink => drop(outcome.note(fs.read_link(inode))),
        FileType::Regular => {
            let mut buffer = vec![0; 64 << 10];
            let middle = attr.size / 2;
            // The end of the last block that a file can have.
            let limit = u64::from(fs.stat_fs().block_size) << 32;
            let near_limit = [limit - 5000, limit - 1, limit, limit + 1];
            for at in near_limit {
                let _ = fs.seek(inode, Seek::Data, at);
                let _ = fs.seek(inode, Seek::Hole, at);
            }
            let places = [0, 64 << 10, middle, attr.size.saturating_sub(5000)];
            for at in places.into_iter().chain(near_limit) {
                let _ = outcome.note(fs.read_at(inode, at, &mut buffer));
            }
            let mut at = 0;
            for _ in 0..40 {
                let Ok(data) = fs.seek(inode, Seek::Data, at) else { break };
                let Some(hole) = outcome.note(fs.seek(inode, Seek::Hole, data)) else { break };
                at = hole;
            }
        }
        _ => {}
    }
}

/// Moves a directory from the root into `dir` and back. Before such a move, Lanefs walks up from
/// `dir`, to check that the move makes no loop.
fn move_into(fs: &Fs, dir: &InodeRef, outcome: &mut Outcome) {
    let new = NewInode { kind: NewKind::Directory, permissions: 0o755, umask: 0, uid: 0, gid: 0 };
    let Some(root) = outcome.note(fs.root()) else { return };
    match fs.create(&root, b"moving", &new) {
        Ok(_) | Err(Error::Exists) => {}
        Err(error) => drop(outcome.note::<()>(Err(error))),
    }
    let there = outcome.note(fs.rename(&root, b"moving", dir, b"moved", Rename::NoReplace));
    if there.is_some() {
        let _ = outcome.note(fs.rename(dir, b"moved", &root, b"moving", Rename::NoReplace));
    }
}

fn change(fs: &Fs, found: &[Found], outcome: &mut Outcome) {
    let new = |kind| NewInode { kind, permissions: 0o644, umask: 0, uid: 0, gid: 0 };
    let of = |kind: FileType| found.iter().filter(move |f| f.inode.file_type() == kind);
    for dir in of(FileType::Directory).take(CHANGES).map(|f| &f.inode) {
        let made = outcome.note(fs.create(dir, b"new file", &new(NewKind::Regular)));
        if let Some(file) = made {
            if found.iter().any(|held| held.inode.ino() == file.ino()) {
                outcome.given_twice.insert(file.ino());
            }
            let _ = outcome.note(fs.write_at(&file, 0, &[1; 9000], Privilege::Root));
        }
        let _ = outcome.note(fs.create(dir, b"new directory", &new(NewKind::Directory)));
        move_into(fs, dir, outcome);
        let _ = outcome.note(fs.create(dir, &[b'l'; 250], &new(NewKind::Symlink(&[b't'; 100]))));
        let _ = outcome.note(fs.set_xattr(dir, b"user.new", b"value", SetXattr::Any));
    }
    for (n, Found { inode, parent, name }) in of(FileType::Regular).take(CHANGES * 2).enumerate() {
        let size = inode.attr().size;
        let _ = outcome.note(fs.write_at(inode, 0, &[2; 5000], Privilege::Root));
        let _ = outcome.note(fs.append(inode, &[3; 700], Privilege::Root));
        let value = vec![b'v'; if n % 2 == 0 { 30 } else { 700 }];
        let _ = outcome.note(fs.set_xattr(inode, b"user.new", &value, SetXattr::Any));
        for old in fs.list_xattr(inode).unwrap_or_default().iter().take(2) {
            let _ = outcome.note(fs.remove_xattr(inode, old));
        }
        let how = [Fallocate::PunchHole, Fallocate::Allocate, Fallocate::ZeroRange][n % 3];
        let _ = outcome.note(fs.fallocate(inode, how, 2000, 30_000, Privilege::Root));
        let how = IN_PLACE[n % IN_PLACE.len()];
        let _ = outcome.note(fs.fallocate(inode, how, size / 2, 1, Privilege::Root));
        let set = SetAttr { size: Some(size / 2), ..SetAttr::default() };
        let _ = outcome.note(fs.set_attr(inode, &set));
        match n % 4 {
            0 => drop(outcome.note(fs.unlink(parent, name))),
            1 => drop(outcome.note(fs.rename(parent, name, parent, b"renamed", Rename::Replace))),
            2 => drop(outcome.note(fs.link(inode, parent, b"linked"))),
            _ => drop(outcome.note(fs.fsync(inode, SyncMode::Full))),
        }
    }
    for Found { parent, name, .. } in of(FileType::Symlink).take(5) {
        let _ = outcome.note(fs.unlink(parent, name));
    }
    for Found { parent, name, .. } in of(FileType::Directory).take(CHANGES) {
        let _ = fs.rmdir(parent, name);
    }
    let _ = outcome.note(fs.sync());
}
