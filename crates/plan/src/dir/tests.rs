//! Tests in which a `Vec` of blocks is the directory, and a `BTreeMap` has the expected entries.

mod collisions;
mod cookies;
mod hostile;
mod images;
mod model;

use crate::Error;
use crate::dir::*;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::dirent::{DirFormat, Name, NameForm};
use lanefs_ondisk::hash::{HashVersion, NameBytes, NameHasher};
use lanefs_ondisk::{BlockSize, FileBlock, FileType, Ino, dirent, htree};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(crate) const INO: Ino = Ino(12);
const PARENT: Ino = Ino(2);
pub(crate) const INODES: u32 = 1 << 24;

/// A directory in memory, and its expected entries.
pub(crate) struct Directory {
    pub(crate) cx: DirContext,
    pub(crate) parent: Ino,
    pub(crate) blocks: Vec<Arc<[u8]>>,
    pub(crate) model: BTreeMap<Vec<u8>, Ino>,
}

impl DirBlocks for Vec<Arc<[u8]>> {
    fn block(&self, n: FileBlock) -> Result<Arc<[u8]>, Error> {
        assert!((n.0 as usize) < self.len(), "{n} was asked for, which is not there");
        Ok(self[n.0 as usize].clone())
    }

    fn count(&self) -> u32 {
        self.len() as u32
    }
}

/// Returns the context of a directory in the format that the tests use.
pub(crate) fn context(block_size: u32, version: HashVersion) -> DirContext {
    DirContext {
        ino: INO,
        generation: 7,
        file_system_seed: Seed::from_raw(0x1234_5678),
        format: DirFormat {
            block_size: BlockSize::new(block_size).expect("a block size"),
            has_file_types: true,
            has_checksums: true,
            has_large_dirs: false,
            inodes: INODES,
            names: NameForm::Plain,
        },
        hasher: NameHasher {
            version,
            bytes: NameBytes::Signed,
            seed: [1, 2, 3, 4],
            folding: Folding::None,
        },
        indexing: Indexing::Possible,
    }
}

pub(crate) fn name(bytes: &[u8]) -> Name<'_> {
    Name::new(bytes).expect("a name")
}

impl Directory {
    pub(crate) fn new(cx: DirContext) -> Directory {
        let blocks = vec![new_directory(&cx, PARENT)];
        Directory { cx, parent: PARENT, blocks, model: BTreeMap::new() }
    }

    pub(crate) fn insert(&mut self, bytes: &[u8], ino: Ino) -> Result<(), Error> {
        let plan = plan_insert(&self.cx, &self.blocks, name(bytes), ino, FileType::Regular)?;
        self.apply(plan);
        self.model.insert(bytes.to_vec(), ino);
        Ok(())
    }

    pub(crate) fn remove(&mut self, bytes: &[u8]) {
        let found = find(&self.cx, &self.blocks, name(bytes)).expect("sound").expect("there");
        assert_eq!(Some(&found.ino), self.model.get(bytes));
        let block = Arc::make_mut(&mut self.blocks[found.block.0 as usize]);
        dirent::remove(&self.cx.format, block, found.before as usize, found.offset).expect("sound");
        self.model.remove(bytes);
    }

    /// Makes the entry ".." refer to another directory.
    pub(crate) fn reparent(&mut self, parent: Ino) {
        let found = find(&self.cx, &self.blocks, name(b"..")).expect("sound").expect("there");
        let block = Arc::make_mut(&mut self.blocks[found.block.0 as usize]);
        dirent::replace(&self.cx.format, block, found.offset, parent, FileType::Directory)
            .expect("sound");
        let found = find(&self.cx, &self.blocks, name(b"..")).expect("sound").expect("there");
        assert_eq!(found.ino, parent);
    }

    pub(crate) fn apply(&mut self, plan: Plan) {
        assert!(plan.updates.len() <= MOST_UPDATED && plan.appended.len() <= MOST_APPENDED);
        for (n, block) in plan.updates {
            self.blocks[n.0 as usize] = block;
        }
        self.blocks.extend(plan.appended);
        if plan.becomes_indexed {
            assert_eq!(self.cx.indexing, Indexing::Possible);
            self.cx.indexing = Indexing::Indexed;
        }
    }

    /// Returns the names and inodes that `read_from` delivers, `batch` entries at a time.
    pub(crate) fn read_all(&self, batch: usize) -> Vec<(Vec<u8>, Ino)> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let before = all.len();
            read_from(&self.cx, &self.blocks, cookie, &mut |entry| {
                all.push((entry.name.to_vec(), entry.ino));
                assert!(entry.next > cookie, "cookies ascend");
                cookie = entry.next;
                if all.len() - before == batch {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .expect("sound");
            if all.len() == before {
                return all;
            }
        }
    }

    /// Checks all invariants by reading the blocks without the planners.
    pub(crate) fn check(&self) {
        let mut entries = BTreeMap::new();
        for (n, block) in self.blocks.iter().enumerate() {
            let mut sealed = block.to_vec();
            seal(&self.cx, &mut sealed);
            verify(&self.cx, FileBlock(n as u32), &sealed).expect("sealed blocks verify");
        }
        if self.cx.indexing == Indexing::Indexed {
            let root = htree::root(&self.cx.format, &self.blocks[0]).expect("a root");
            assert_eq!((root.ino, root.parent), (self.cx.ino, self.parent));
            let mut seen = vec![false; self.blocks.len()];
            seen[0] = true;
            let mut last = 0;
            self.check_index(root.index, root.levels, 0, &mut last, &mut seen, &mut entries);
            assert!(seen.iter().all(|seen| *seen), "every block is in the index");
        } else {
            for n in 0..self.blocks.len() {
                self.check_leaf(n, |_| true, &mut entries);
            }
        }
        assert_eq!(entries, self.model);
        assert_eq!(is_empty(&self.cx, &self.blocks).expect("sound"), self.model.is_empty());
    }

    fn check_index(
        &self,
        index: htree::Index<'_>,
        levels: u8,
        low: u32,
        last: &mut u32,
        seen: &mut [bool],
        entries: &mut BTreeMap<Vec<u8>, Ino>,
    ) {
        for (i, entry) in index.iter().enumerate() {
            let bound = if i == 0 { low } else { entry.hash };
            assert!(bound >= *last, "the hashes of a leaf are below those of the next");
            let n = entry.block.0 as usize;
            assert!(!std::mem::replace(&mut seen[n], true), "block {n} is in the index once");
            if levels > 0 {
                let node = htree::node(&self.cx.format, &self.blocks[n]).expect("a node");
                self.check_index(node, levels - 1, bound, last, seen, entries);
                continue;
            }
            let mut highest = bound & !1;
            self.check_leaf(
                n,
                |name| {
                    let hash = self.cx.hasher.hash(name).major;
                    highest = highest.max(hash);
                    hash >= bound & !1
                },
                entries,
            );
            // The next leaf may start with the highest hash of this leaf only if the next leaf's
            // bound is odd.
            *last = highest | 1;
        }
    }

    fn check_leaf(
        &self,
        n: usize,
        mut belongs: impl FnMut(&[u8]) -> bool,
        entries: &mut BTreeMap<Vec<u8>, Ino>,
    ) {
        for entry in dirent::entries(&self.cx.format, &self.blocks[n]).expect("a leaf") {
            let entry = entry.expect("sound");
            let Some(ino) = entry.ino else { continue };
            if entry.is_dot() {
                assert!(n == 0 && self.cx.indexing != Indexing::Indexed);
                continue;
            }
            assert!(belongs(entry.name), "{} is in the wrong leaf", entry.name.escape_ascii());
            if self.cx.format.has_file_types {
                assert_eq!(entry.file_type, Some(FileType::Regular));
            }
            assert_eq!(entries.insert(entry.name.to_vec(), ino), None, "a name is there once");
        }
    }
}

/// Returns a random generator; the seed is printed, and `LANEFS_SEED` sets it to repeat a failure.
pub(crate) fn rng(test: &str) -> fastrand::Rng {
    let seed = match std::env::var("LANEFS_SEED") {
        Ok(seed) => seed.parse().expect("LANEFS_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("{test}: LANEFS_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// Returns a random name of at most `longest` bytes, with any byte that is valid in a name.
pub(crate) fn random_name(rng: &mut fastrand::Rng, longest: usize) -> Vec<u8> {
    loop {
        let bytes: Vec<u8> = (0..rng.usize(1..=longest)).map(|_| rng.u8(..)).collect();
        if Name::new(&bytes).is_ok() && bytes != b"." && bytes != b".." {
            return bytes;
        }
    }
}
