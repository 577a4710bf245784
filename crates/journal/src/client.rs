//! The file system's part in the journal's work.

use crate::error::Error;
use crate::images::Images;
use crate::tid::Tid;

/// The file system above the journal: it knows its objects, the journal knows transactions.
///
/// The committer calls all methods, one at a time, and holds no lock. The methods must not join a
/// transaction: a join may wait for the committer itself.
///
/// A handle dirties objects of type `O`: inodes, groups, metadata blocks. A deferred `D` runs once
/// the transaction is durable: for example, freed blocks become available. Handles use only these
/// two types of the file system.
pub trait Client<O, D>: Send + Sync {
    /// Pushes the block images of `objects` as of `tid`, which is closed. The next transaction runs
    /// meanwhile and may change the same objects (see [`crate::Tracked`]).
    ///
    /// Do not push an image of an object that was deleted in `tid` (see [`crate::Tracked::bury`]):
    /// such an image would cancel the revoke of the block, as if the block were metadata again.
    ///
    /// # Errors
    /// Any error aborts the journal.
    fn capture(&self, tid: Tid, objects: Vec<O>, images: &mut Images) -> Result<(), Error>;

    /// Called when `tid` is durable, and no image of a block that `tid` revoked is left. So these
    /// blocks can be overwritten.
    ///
    /// # Errors
    /// Any error aborts the journal.
    fn committed(&self, tid: Tid, deferred: Vec<D>) -> Result<(), Error>;

    /// Called when `tid` is settled: no work is left for its objects ([`crate::Journal::settled`]).
    /// State kept in memory for that work can be dropped.
    fn settled(&self, tid: Tid) {
        let _ = tid;
    }

    /// Called once, when the journal was aborted because of `cause`.
    fn aborted(&self, cause: &Error);
}
