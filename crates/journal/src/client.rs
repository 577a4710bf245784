//! The file system's part in the journal's work.

use crate::error::Error;
use crate::images::Images;
use crate::tid::Tid;

/// The file system above the journal. The file system knows the objects, and the journal knows the
/// transactions.
///
/// The committer calls all methods, one at a time, and holds no lock. The methods must not join a
/// transaction, because a join may wait for the committer.
///
/// A handle dirties objects of type `O`: inodes, groups, metadata blocks. A deferred action `D`
/// runs after the transaction has become durable; for example, it makes freed blocks available. A
/// handle uses no other types of the file system than `O` and `D`.
pub trait Client<O, D>: Send + Sync {
    /// Pushes to `images` the block images of `objects` as of `tid`, which is closed. The next
    /// transaction already runs and may change the same objects (see [`crate::Tracked`]).
    ///
    /// Do not push an image of an object that was deleted in `tid` (see [`crate::Tracked::bury`]),
    /// because the image would cancel the revoke of the object's block, as if the block were
    /// metadata again.
    ///
    /// # Errors
    /// Any error aborts the journal.
    fn capture(&self, tid: Tid, objects: Vec<O>, images: &mut Images) -> Result<(), Error>;

    /// Called when `tid` is durable and the journal has no image left of any block that `tid`
    /// revoked. So the revoked blocks can be overwritten.
    ///
    /// # Errors
    /// Any error aborts the journal.
    fn committed(&self, tid: Tid, deferred: Vec<D>) -> Result<(), Error>;

    /// Called when `tid` is settled, which means that no work is left for its objects
    /// ([`crate::Journal::settled`]). State kept in memory for that work can be dropped.
    fn settled(&self, tid: Tid) {
        let _ = tid;
    }

    /// Called by [`crate::Journal::serve`] after each of its commits, and after each commit
    /// interval without a change. Memory can be given back.
    fn served(&self) {}

    /// Called once, when the journal was aborted because of `cause`.
    fn aborted(&self, cause: &Error);
}
