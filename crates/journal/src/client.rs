//! The file system's part in the journal's work.

use crate::{Error, Images, Tid};

/// The file system above: it knows its objects, the journal knows transactions.
///
/// All methods are called by the committer, one at a time, with no lock held, and must not join
/// a transaction, which might wait for the committer itself.
///
/// A handle dirties objects of type `O`: inodes, groups, metadata blocks. A deferred `D` happens once
/// the transaction is durable: blocks become claimable, and the like. Handles know these two types
/// and nothing else of the file system.
pub trait Client<O, D>: Send + Sync {
    /// Pushes the block images of `objects` as of `tid`, which is closed. The next transaction runs
    /// meanwhile and may change the same objects (see [`crate::Tracked`]).
    ///
    /// An object that was deleted in `tid` has no image as of `tid` (see [`crate::Tracked::bury`]):
    /// pushing one would say that its block, revoked in `tid`, is metadata again.
    ///
    /// # Errors
    /// Aborts the journal.
    fn capture(&self, tid: Tid, objects: Vec<O>, images: &mut Images) -> Result<(), Error>;

    /// `tid` is durable; no image of a revoked block is left that could be written over it.
    ///
    /// # Errors
    /// Aborts the journal.
    fn committed(&self, tid: Tid, deferred: Vec<D>) -> Result<(), Error>;

    /// `tid` is settled: no work is left for its objects ([`crate::Journal::settled`]). State kept
    /// in memory for that work can be dropped.
    fn settled(&self, tid: Tid) {
        let _ = tid;
    }

    /// The journal was aborted because of `cause`; called once.
    fn aborted(&self, cause: &Error);
}
