//! Writes fast commits. A fast commit makes a few changes of the running transaction durable before
//! the transaction is committed.
//!
//! The log has an area for fast commits. Fast commits of transaction T are replayed after T-1. When
//! T has been committed, they have no effect any more. So a thread that writes a fast commit takes
//! the committer role. While it has the role, T-1 is durable, and T keeps running and does not
//! close. The first fast commit of T may overwrite the fast commits of T-1, which have no effect
//! any more.
//!
//! A crash is harmless because of the order *data, flush, fast commit*. If a part of a fast commit
//! is missing, its checksum is wrong and recovery stops before it. An incomplete fast commit was
//! not acknowledged.
//!
//! A thread that arrives while a fast commit is being written waits. The next fast commit contains
//! the changes of all waiting threads ([`FastClient::gather`]).

use crate::client::Client;
use crate::committer::Committer;
use crate::error::Error;
use crate::flusher::FlushMark;
use crate::journal::Journal;
use crate::tid::Tid;
use lanefs_ondisk::jbd2::FastChange;

/// The changes for one fast commit.
#[derive(Debug, Default)]
pub struct FastBatch {
    /// The changes, in the order of their replay. A replay applies the last durable transaction,
    /// the earlier fast commits of the running transaction, and then these changes. As a crash may
    /// follow, these may be the last changes that a replay applies. So they must leave the file
    /// system consistent.
    pub changes: Vec<FastChange>,
    /// The mark of the data to which the changes refer; the data is flushed before the changes are
    /// written.
    pub mark: FlushMark,
}

/// The functions of the file system that a fast commit calls.
pub trait FastClient {
    /// Returns whether the calling thread has nothing to wait for: another thread has written the
    /// caller's changes, or a fast commit cannot contain them. The journal's lock is held.
    fn is_done(&self) -> bool;

    /// Takes the changes of all threads that wait. `tid` is running, and does not close during the
    /// call.
    fn gather(&mut self, tid: Tid) -> FastBatch;

    /// Called when the changes of [`FastClient::gather`] are durable.
    fn note_written(&mut self);

    /// Called instead of [`FastClient::note_written`] if the log's area had no room or a change
    /// cannot be encoded as a record; nothing was written.
    fn note_no_room(&mut self);
}

/// The outcome of [`Journal::fast_commit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastEnd {
    /// The client has nothing to wait for any more, or the transaction is durable.
    Done,
    /// The log takes no fast commits at present, so only a commit makes the changes durable.
    Refused,
}

impl<O, D> Journal<O, D> {
    /// Writes a fast commit in transaction `tid`, or waits until another thread has written one
    /// with the caller's changes.
    ///
    /// # Errors
    /// [`Error::Aborted`], [`Error::Stopped`].
    ///
    /// # Locking
    /// The caller becomes the committer for a round, so it must hold no lock at all.
    pub fn fast_commit(
        &self,
        tid: Tid,
        client: &dyn Client<O, D>,
        fast: &mut dyn FastClient,
    ) -> Result<FastEnd, Error> {
        self.check_process()?;
        let mut progress = self.progress.lock();
        let role = loop {
            self.check_abort()?;
            if progress.durable >= tid || fast.is_done() {
                return Ok(FastEnd::Done);
            }
            if progress.finished {
                return Err(Error::Stopped);
            }
            if let Some(role) = self.try_take_role(&mut progress) {
                break role;
            }
            progress.waiting_for_fast += 1;
            self.fast_free.wait(&mut progress);
            progress.waiting_for_fast -= 1;
        };
        drop(progress);
        let mut end = FastEnd::Refused;
        self.work_in(role, client, |journal, committer| {
            end = journal.write_fast(committer, tid, fast)?;
            Ok(())
        })?;
        Ok(end)
    }

    fn write_fast(
        &self,
        committer: &mut Committer,
        tid: Tid,
        fast: &mut dyn FastClient,
    ) -> Result<FastEnd, Error> {
        if self.running() != tid {
            // The transaction was committed before this thread took the role.
            return Ok(FastEnd::Done);
        }
        let Some(log) = committer.log.as_mut().filter(|log| log.takes_fast_commits()) else {
            return Ok(FastEnd::Refused);
        };
        let FastBatch { changes, mark } = fast.gather(tid);
        if changes.is_empty() {
            return Ok(FastEnd::Done);
        }
        let flushed = self.flusher.flush_if_needed(mark)?;
        self.counters.flushes.add(flushed.into());
        match log.write_fast_commit(&*self.device, &self.flusher, tid, &changes)? {
            Some(blocks) => {
                self.counters.durable_writes.add(1);
                self.counters.fast_commits.add(1);
                self.counters.fast_blocks.add(blocks.into());
                fast.note_written();
            }
            None => fast.note_no_room(),
        }
        Ok(FastEnd::Done)
    }
}
