//! The file system's part in the journal's work.

use crate::{Error, Images, Tid};

/// The file system above: it knows its objects, the journal knows transactions.
///
/// All methods are called by the committer, one at a time, with no lock held, and must not join
/// a transaction, which might wait for the committer itself.
pub trait Client: Send + Sync {
    /// An object that a handle dirties: an inode, a group, a metadata block.
    type Object: Send;
    /// Work for the time when the transaction is durable: making blocks claimable, for example.
    type Deferred: Send;

    /// Pushes the block images of `objects` as of `tid`, which is closed. The next transaction runs
    /// meanwhile and may change the same objects (see [`crate::Tracked`]).
    ///
    /// An object that was deleted in `tid` has no image as of `tid` (see [`crate::Tracked::bury`]):
    /// pushing one would say that its block, revoked in `tid`, is metadata again.
    ///
    /// # Errors
    /// Aborts the journal.
    fn capture(
        &self,
        tid: Tid,
        objects: Vec<Self::Object>,
        images: &mut Images,
    ) -> Result<(), Error>;

    /// `tid` is durable; no image of a revoked block is left that could be written over it.
    ///
    /// # Errors
    /// Aborts the journal.
    fn committed(&self, tid: Tid, deferred: Vec<Self::Deferred>) -> Result<(), Error>;

    /// `tid` is settled: no work is left for its objects ([`crate::Journal::settled`]). State kept
    /// in memory for that work can be dropped.
    fn settled(&self, tid: Tid) {
        let _ = tid;
    }

    /// The journal was aborted because of `cause`; called once.
    fn aborted(&self, cause: &Error);
}
