//! Walks over every file of a tree, in an image or on the host.
//!
//! The walk uses an explicit stack, since a recursive walk of a deep tree could overflow the
//! thread's stack. It uses inodes instead of paths, since a path may be longer than path resolution
//! accepts. It needs memory for one open directory at each level, and one bit for each directory.

use crate::cli::{Failure, ImagePath, Report};
use crate::copy::{ImageNode, ImageTree, Listing, Meta, Seen, Tree};
use lanefs::{FileSystem, FileType, Follow};

/// Why a directory is not entered a second time.
pub const ENTERED: &str =
    "damaged: this directory has another name too (lanefs repair removes one)";

/// The order of the names in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The order in which the directory stores the names; they are read in batches.
    Stored,
    /// Sorted by the bytes of the names; all names of a directory are read at once.
    Sorted,
}

/// A file of the tree.
#[derive(Debug, Clone)]
pub struct Entry<N> {
    pub node: N,
    pub meta: Meta,
    /// The number of directories above this file in the walk; 0 for the top.
    pub depth: usize,
}

/// A step of the walk.
#[derive(Debug)]
pub enum Visit<N> {
    /// A file of any type. A directory comes before its entries.
    File(Entry<N>),
    /// A directory for the second time, after its entries were visited.
    Left(Entry<N>),
}

/// A walk in progress.
pub struct Walk<'s, S: Tree> {
    source: &'s S,
    order: Order,
    /// The file at the top, where the walk starts; `None` after it has been visited.
    top: Option<S::Node>,
    levels: Vec<Level<'s, S>>,
    /// The directory that was visited last. Its entries are visited next.
    next_dir: Option<Entry<S::Node>>,
    /// The path of the file visited last, relative to the top.
    path: Vec<u8>,
    entered: Seen,
}

struct Level<'s, S: Tree + 's> {
    dir: Entry<S::Node>,
    names: Names<S::Listing<'s>>,
    /// The length of the directory's path, relative to the top.
    path: usize,
}

enum Names<L> {
    Stored(L),
    Sorted(std::vec::IntoIter<Vec<u8>>),
    /// The directory has no names to visit, because it cannot be read or the walk does not enter
    /// it.
    None,
}

impl<'s, S: Tree> Walk<'s, S> {
    /// Prepares a walk over `top` and everything below it.
    pub fn new(source: &'s S, top: S::Node, order: Order) -> Walk<'s, S> {
        Walk {
            source,
            order,
            top: Some(top),
            levels: Vec::new(),
            next_dir: None,
            path: Vec::new(),
            entered: Seen::default(),
        }
    }

    /// Returns the path of the file visited last, relative to the top; for the top itself, the path
    /// is empty.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the name of the file visited last; for the top, the name is empty.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Skips the entries of the directory visited last.
    pub fn prune(&mut self) {
        if let Some(dir) = self.next_dir.take() {
            self.levels.push(Level { dir, names: Names::None, path: self.path.len() });
        }
    }

    /// Returns whether the file visited last is the empty `lost+found` of a root directory. mkfs
    /// makes this directory, so it is not one of the files with which the user filled the image.
    pub fn is_spare_lost_and_found(&self, entry: &Entry<S::Node>) -> Result<bool, Failure> {
        let above = self.levels.last().map(|above| above.dir.meta.identity.inode);
        if self.path() != b"lost+found" || above != Some(ROOT) {
            return Ok(false);
        }
        let is_dir = entry.meta.file_type == FileType::Directory;
        Ok(is_dir && self.source.list(&entry.node)?.next()?.is_none())
    }

    /// Returns the next step; `None` at the end. After an error the walk continues without the file
    /// that caused it.
    pub fn step(&mut self) -> Option<Result<Visit<S::Node>, Failure>> {
        if let Some(top) = self.top.take() {
            return Some(self.visit(top, 0));
        }
        if let Some(dir) = self.next_dir.take()
            && let Err(failure) = self.enter(dir)
        {
            return Some(Err(failure));
        }
        let level = self.levels.last_mut()?;
        self.path.truncate(level.path);
        let name = match &mut level.names {
            Names::Stored(listing) => listing.next().transpose(),
            Names::Sorted(names) => names.next().map(Ok),
            Names::None => None,
        };
        Some(match name {
            Some(Ok(name)) => {
                let child = self.source.child(&level.dir.node, &name);
                let depth = level.dir.depth + 1;
                if !self.path.is_empty() {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(&name);
                child.and_then(|child| self.visit(child, depth))
            }
            Some(Err(failure)) => {
                level.names = Names::None;
                Err(failure)
            }
            None => Ok(Visit::Left(self.levels.pop()?.dir)),
        })
    }

    fn visit(&mut self, node: S::Node, depth: usize) -> Result<Visit<S::Node>, Failure> {
        let meta = self.source.meta(&node)?;
        let entry = Entry { node, meta, depth };
        if meta.file_type == FileType::Directory {
            self.next_dir = Some(entry.clone());
        }
        Ok(Visit::File(entry))
    }

    /// Begins to read a directory. Returns the error of a directory that cannot be read; the walk
    /// goes on with the names that can.
    fn enter(&mut self, dir: Entry<S::Node>) -> Result<(), Failure> {
        let is_first = self.entered.insert(dir.meta.identity) || !S::DIRECTORIES_HAVE_ONE_NAME;
        let (names, done) = match (is_first, self.order) {
            // The directories of a damaged image may form a cycle. This check keeps the walk from
            // following it forever.
            (false, _) => (Names::None, Err(Failure::new(self.source.show(&dir.node), ENTERED))),
            (true, Order::Stored) => match self.source.list(&dir.node) {
                Ok(listing) => (Names::Stored(listing), Ok(())),
                Err(failure) => (Names::None, Err(failure)),
            },
            (true, Order::Sorted) => {
                let (names, read) = self.source.names(&dir.node);
                (Names::Sorted(names.into_iter()), read)
            }
        };
        self.levels.push(Level { dir, names, path: self.path.len() });
        done
    }
}

/// The inode of the root directory.
const ROOT: u64 = 2;

/// Whether an operand stands for everything below it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only the file.
    Itself,
    /// The file, and everything below it.
    Tree,
}

/// A function that handles a file of a tree. Its `ImagePath` argument is the file's name in
/// messages.
pub type Act<'a> =
    dyn FnMut(&ImageTree<'_>, &ImagePath, &Entry<ImageNode>) -> Result<(), Failure> + 'a;

/// Calls `act` for the file at `place` and, if requested, for everything below it. A directory
/// comes before its entries. Symbolic links below `place` are not followed. Reports failures and
/// continues.
///
/// # Errors
/// If there is no file at `place`.
pub fn each_file(
    fs: &FileSystem,
    place: &ImagePath,
    depth: Depth,
    follow: Follow,
    report: &Report,
    act: &mut Act<'_>,
) -> Result<(), Failure> {
    let tree = ImageTree::new(fs, &place.image);
    let top = tree.find(&place.path, follow)?;
    let mut walk = Walk::new(&tree, top, Order::Sorted);
    while let Some(step) = walk.step() {
        let Some(Visit::File(entry)) = report.given(step) else { continue };
        if depth == Depth::Itself {
            walk.prune();
        }
        report.check(act(&tree, &place.below(walk.path()), &entry));
    }
    Ok(())
}
