//! Walks two trees at the same time, both in the same order of paths.

use crate::cli::Failure;
use crate::copy::Tree;
use crate::walk::{Entry, Order, Visit, Walk, is_spare_lost_and_found};
use lanefs::FileType;
use std::cmp::Ordering;

/// The entries of a path: in the first tree, in the second tree, or in both.
pub enum Side<A, B> {
    First(Entry<A>),
    Second(Entry<B>),
    Both(Entry<A>, Entry<B>),
}

/// The next path, with its entry in each tree that has this path; or the failure to read a file.
type Step<A, B> = Result<Side<<A as Tree>::Node, <B as Tree>::Node>, Failure>;

/// Two walks in the same order. A directory that only one tree has is not entered.
pub struct Pair<'s, A: Tree, B: Tree> {
    first: Half<'s, A>,
    second: Half<'s, B>,
}

/// A walk, and the entry that was read ahead.
struct Half<'s, S: Tree> {
    source: &'s S,
    walk: Walk<'s, S>,
    ahead: Option<Entry<S::Node>>,
    /// Whether the entry that was read ahead has been compared.
    is_used: bool,
}

impl<'s, S: Tree> Half<'s, S> {
    fn new(source: &'s S, top: S::Node) -> Half<'s, S> {
        let walk = Walk::new(source, top, Order::Sorted);
        Half { source, walk, ahead: None, is_used: true }
    }

    /// Reads the next entry, if the previous one was compared.
    fn advance(&mut self) -> Result<(), Failure> {
        if !self.is_used {
            return Ok(());
        }
        self.ahead = None;
        while let Some(step) = self.walk.step() {
            let Visit::File(entry) = step? else { continue };
            if is_spare_lost_and_found(self.source, &self.walk, &entry)? {
                self.walk.prune();
                continue;
            }
            self.ahead = Some(entry);
            self.is_used = false;
            return Ok(());
        }
        Ok(())
    }

    fn take(&mut self) -> Option<Entry<S::Node>> {
        self.is_used = true;
        self.ahead.take()
    }
}

impl<'s, A: Tree, B: Tree> Pair<'s, A, B> {
    /// Begins both walks, each at one of the two `tops`.
    pub fn new(a: &'s A, b: &'s B, tops: (A::Node, B::Node)) -> Pair<'s, A, B> {
        Pair { first: Half::new(a, tops.0), second: Half::new(b, tops.1) }
    }

    /// Returns the path of a step, relative to the top directories of the two trees.
    pub fn path(&self, side: &Side<A::Node, B::Node>) -> &[u8] {
        match side {
            Side::First(_) | Side::Both(..) => self.first.walk.path(),
            Side::Second(_) => self.second.walk.path(),
        }
    }

    /// Returns the next path that either tree has; `None` at the end.
    pub fn step(&mut self) -> Option<Step<A, B>> {
        if let Err(failure) = self.first.advance().and_then(|()| self.second.advance()) {
            return Some(Err(failure));
        }
        let order = match (&self.first.ahead, &self.second.ahead) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), Some(_)) => in_order(self.first.walk.path(), self.second.walk.path()),
        };
        Some(Ok(match order {
            Ordering::Less => {
                self.first.walk.prune();
                Side::First(self.first.take()?)
            }
            Ordering::Greater => {
                self.second.walk.prune();
                Side::Second(self.second.take()?)
            }
            Ordering::Equal => {
                let (first, second) = (self.first.take()?, self.second.take()?);
                let is_dir = |file_type| file_type == FileType::Directory;
                if is_dir(first.meta.file_type) != is_dir(second.meta.file_type) {
                    self.first.walk.prune();
                    self.second.walk.prune();
                }
                Side::Both(first, second)
            }
        }))
    }
}

/// Compares paths name by name, which is the order of a walk.
fn in_order(a: &[u8], b: &[u8]) -> Ordering {
    let names = |path: &[u8]| !path.is_empty();
    match (names(a), names(b)) {
        (true, true) => a.split(|byte| *byte == b'/').cmp(b.split(|byte| *byte == b'/')),
        (a, b) => a.cmp(&b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_before_names_that_continue_its_name() {
        let mut paths: Vec<&[u8]> = vec![b"a.b", b"a/x", b"", b"a", b"a/x/y", b"b"];
        paths.sort_by(|a, b| in_order(a, b));
        assert_eq!(paths, [&b""[..], b"a", b"a/x", b"a/x/y", b"a.b", b"b"]);
    }
}
