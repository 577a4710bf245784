//! What a file system gives to the journal.

use crate::{Error, Images, Tid};

/// The file system above: it knows its objects, the journal knows transactions.
///
/// All methods are called by the committer, one at a time, with no lock held, and must not join
/// a transaction, which might wait for the committer itself.
pub trait Client: Send + Sync {
    /// What a handle dirties: an inode, a group, a metadata block.
    type Object: Send;
    /// What is to happen once the transaction is durable: blocks become claimable, and the like.
    type Deferred: Send;

    /// Pushes the block images of `objects` as of `tid`, which is closed; the next transaction
    /// runs meanwhile and may change the same objects (see [`crate::Tracked`]).
    ///
    /// An object that died in `tid` has no image as of `tid` (see [`crate::Tracked::bury`]): pushing
    /// one would say that its block, revoked in `tid`, is metadata again.
    ///
    /// # Errors
    /// Aborts the journal.
    fn capture(
        &self,
        tid: Tid,
        objects: Vec<Self::Object>,
        images: &mut Images,
    ) -> Result<(), Error>;

    /// `tid` is durable; the revoked blocks have no image left that could be written over them.
    ///
    /// # Errors
    /// Aborts the journal.
    fn committed(&self, tid: Tid, deferred: Vec<Self::Deferred>) -> Result<(), Error>;

    /// `tid` is settled: nothing is owed to it any more ([`crate::Journal::settled`]). What was kept
    /// in memory for that can go.
    fn settled(&self, tid: Tid) {
        let _ = tid;
    }

    /// The journal was aborted because of `cause`; called once.
    fn aborted(&self, cause: &Error);
}
