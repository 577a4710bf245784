//! Calls a function for each file that an operand denotes.

use super::walker::{Entry, Order, Visit, Walk};
use crate::cli::{Failure, ImagePath, Report};
use crate::copy::{ImageNode, ImageTree};
use lanefs::{FileSystem, Follow};

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
        match step {
            Ok(Visit::File(entry)) => {
                if depth == Depth::Itself {
                    walk.prune();
                }
                report.check(act(&tree, &place.below(walk.path()), &entry));
            }
            Ok(Visit::Left(_)) => {}
            Err(failure) => report.fail(failure),
        }
    }
    Ok(())
}
