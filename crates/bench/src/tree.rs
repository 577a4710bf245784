//! A source tree in memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest size of a file in bytes. Larger files are left out, because their unpacking would
/// mainly measure bandwidth.
const LARGEST: u64 = 256 << 10;

/// Directories and files. Each directory comes before its entries.
#[derive(Debug, Default)]
pub struct Tree {
    entries: Vec<Entry>,
    files: u32,
    bytes: u64,
}

/// An entry, as in an archive.
#[derive(Debug)]
pub(crate) struct Entry {
    pub path: String,
    pub kind: Kind,
    /// Seconds since 1970.
    pub modified: i64,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Directory,
    File(Vec<u8>),
}

impl Tree {
    /// Returns up to `files` files of the source trees on this machine: the sources of cargo's
    /// packages and, if these are too few, headers and documentation. The files are sorted by name,
    /// so that the same machine always has the same tree.
    pub fn of_this_machine(files: u32) -> Tree {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), Into::into);
        let roots = [cargo.join("registry/src"), "/usr/include".into(), "/usr/share/doc".into()];
        let mut tree = Tree::default();
        for (number, root) in roots.iter().enumerate() {
            if tree.files < files && root.is_dir() {
                let top = format!("t{number}");
                tree.push_directory(&top);
                tree.gather(root, &top, files);
            }
        }
        if tree.files == 0 { Tree::made_up(files) } else { tree }
    }

    /// Returns `files` small files, 20 in each directory. The result is the same on every machine.
    pub fn made_up(files: u32) -> Tree {
        let mut tree = Tree::default();
        for n in 0..files {
            let dir = format!("d{}", n / 20);
            if n % 20 == 0 {
                tree.push_directory(&dir);
            }
            let content = vec![b'a' + (n % 26) as u8; 100 + (n as usize * 997) % 20_000];
            tree.push_file(format!("{dir}/f{n}.txt"), content, 1_000_000_000);
        }
        tree
    }

    /// Returns the number of files.
    pub fn files(&self) -> u32 {
        self.files
    }

    /// Returns the total size of the files' contents in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn push_directory(&mut self, path: &str) {
        self.entries.push(Entry { path: path.into(), kind: Kind::Directory, modified: 0 });
    }

    fn push_file(&mut self, path: String, content: Vec<u8>, modified: i64) {
        self.files += 1;
        self.bytes += content.len() as u64;
        self.entries.push(Entry { path, kind: Kind::File(content), modified });
    }

    /// Adds the files of `dir`. Leaves out files that are unreadable or whose names are not UTF-8.
    fn gather(&mut self, dir: &Path, prefix: &str, files: u32) {
        let Ok(listing) = fs::read_dir(dir) else { return };
        let mut found: Vec<_> = listing.flatten().collect();
        found.sort_by_key(fs::DirEntry::file_name);
        for entry in found {
            if self.files >= files {
                return;
            }
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else {
                continue;
            };
            // Leaves out `.git`, because git does not look into a repository inside another
            // repository.
            if name == ".git" {
                continue;
            }
            let path = format!("{prefix}/{name}");
            if kind.is_dir() {
                self.push_directory(&path);
                self.gather(&entry.path(), &path, files);
            } else if kind.is_file() {
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.len() > LARGEST {
                    continue;
                }
                let Ok(content) = fs::read(entry.path()) else { continue };
                self.push_file(path, content, metadata.mtime());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_their_entries() {
        let tree = Tree::of_this_machine(300);
        assert!(tree.files() <= 300 && tree.files() > 0);
        let mut known = std::collections::HashSet::new();
        for entry in tree.entries() {
            if let Some((dir, _)) = entry.path.rsplit_once('/') {
                assert!(known.contains(dir), "{}", entry.path);
            }
            if matches!(entry.kind, Kind::Directory) {
                known.insert(entry.path.clone());
            }
        }
    }
}
