//! Checks a file system that is not in use, both by walking its whole tree and with e2fsck.

use super::words;
use lanefs_ext4::{Fs, InodeRef};
use lanefs_ondisk::{FileType, Ino};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::process::Command;

/// The result of walking the tree.
#[derive(Default, Debug)]
pub struct Tree {
    /// The contents of regular files by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// For each file, the number of its names and its link count.
    names: HashMap<Ino, (u32, u32)>,
    directories: u64,
    sectors: u64,
}

/// The sum of free and used space, which never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub blocks: u64,
    pub inodes: u64,
}

impl Tree {
    /// Walks the whole tree.
    ///
    /// # Panics
    /// If any inconsistency is found.
    pub fn of(fs: &Fs) -> Tree {
        let mut tree = Tree::default();
        let root = fs.root().unwrap();
        tree.directory(fs, &root, Ino::ROOT, "");
        for (ino, (found, says)) in &tree.names {
            assert_eq!(found, says, "{ino}: names found and links");
        }
        tree
    }

    fn directory(&mut self, fs: &Fs, dir: &InodeRef, parent: Ino, path: &str) {
        self.directories += 1;
        assert!(self.directories < 1000, "directories form a loop");
        self.sectors += dir.attr().sectors;
        let mut entries = Vec::new();
        fs.read_dir(dir, 0, &mut |entry| {
            entries.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
            ControlFlow::Continue(())
        })
        .unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut names: Vec<&String> = entries.iter().map(|(name, _)| name).collect();
        names.sort();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{path}: a name twice: {names:?}");
        let mut subdirectories = 0;
        for (name, ino) in entries {
            match name.as_str() {
                "." => assert_eq!(ino, dir.ino(), "{path}: its own name"),
                ".." => assert_eq!(ino, parent, "{path}: its parent"),
                _ => {
                    let path = format!("{path}/{name}");
                    let inode = fs.get(ino, None).unwrap_or_else(|e| panic!("{path}: {e}"));
                    if inode.file_type() == FileType::Directory {
                        subdirectories += 1;
                        self.directory(fs, &inode, dir.ino(), &path);
                    } else {
                        self.file(fs, &inode, path);
                    }
                }
            }
        }
        assert_eq!(dir.attr().links, 2 + subdirectories, "{path}: links of a directory");
    }

    fn file(&mut self, fs: &Fs, inode: &InodeRef, path: String) {
        let attr = inode.attr();
        let names = self.names.entry(inode.ino()).or_insert((0, attr.links));
        names.0 += 1;
        if names.0 == 1 {
            self.sectors += attr.sectors;
        }
        // Large files only fill space, so they are not read each time.
        if inode.file_type() == FileType::Regular && attr.size < 1 << 20 {
            let mut contents = vec![0; attr.size as usize];
            let n = fs.read_at(inode, 0, &mut contents).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(n, contents.len(), "{path}: a short read");
            words::check(&path, 0, &contents);
            self.files.insert(path, contents);
        }
    }

    /// Returns the sum of free and used space.
    pub fn totals(&self, fs: &Fs) -> Totals {
        let free = fs.stat_fs();
        let per_block = u64::from(free.block_size / 512);
        Totals {
            blocks: free.blocks_free + self.sectors / per_block,
            inodes: free.inodes_free + self.directories + self.names.len() as u64,
        }
    }
}

/// Checks an image with e2fsck.
pub fn e2fsck(contents: &[u8]) {
    let dir = if std::path::Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let file = tempfile::Builder::new().prefix("lanefs-schedule").tempfile_in(dir).unwrap();
    std::fs::write(file.path(), contents).unwrap();
    let found = Command::new("e2fsck").arg("-fn").arg(file.path()).output().expect("e2fsck runs");
    assert!(found.status.success(), "e2fsck:\n{}", String::from_utf8_lossy(&found.stdout));
}
