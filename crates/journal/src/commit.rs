//! Commit and checkpoint: the committer's steps and their order.
//!
//! The following orders make crashes harmless:
//! - *log blocks, flush, commit block*: if the commit block is on the device, the log blocks and
//!   the ordered data of its transaction are on the device too.
//! - *commit block durable, then acknowledge*: what an fsync acknowledged survives a crash.
//! - *commit, then write in place*: every change that was written in place belongs to a transaction
//!   with a commit block.
//! - *writes in place, flush, tail update, then reuse*: no log block is overwritten while replay
//!   needs it.
//! - *a block that programs read before a replay is written after the blocks that it refers to*
//!   ([`Images::write_in_place_last`]): for example, the superblock of a file system that became
//!   larger is written in place only after the new descriptors.
//! - *revoke durable, then reuse*: replay does not write an old image over a block's new content.

use crate::client::Client;
use crate::committer::Committer;
use crate::error::Error;
use crate::images::Images;
use crate::in_place;
use crate::journal::Journal;
use crate::lists::Gathered;
use crate::log::{LogWriter, Tail};
use crate::log_blocks::Captured;
use crate::tid::Tid;
use lanefs_ondisk::Block;

impl<O, D> Journal<O, D> {
    /// Closes the running transaction, takes its lists, and opens the next transaction.
    pub(crate) fn close(&self) -> (Tid, Gathered<O, D>) {
        let (tid, parts) = self.membership.close(|tid| {
            self.credits.open();
            (Tid(tid), self.lists.take())
        });
        (tid, Gathered::of(parts))
    }

    /// Commits `tid`, which is closed, while the next transaction runs.
    pub(crate) fn commit_closed(
        &self,
        committer: &mut Committer,
        client: &dyn Client<O, D>,
        tid: Tid,
        closed: Gathered<O, D>,
    ) -> Result<(), Error> {
        // If a thread panicked while it had a handle of `tid`, dropping the handle aborted the
        // journal.
        self.check_abort()?;
        let Gathered { objects, deferred, revokes } = closed;
        let mut images = Images::new(tid, self.block_size, self.store.clone());
        client.capture(tid, objects, &mut images)?;
        let last = images.last;
        let images = images.into_sorted();
        self.check_places(committer, &images)?;
        let revokes = standing(revokes, &images);
        match &mut committer.log {
            Some(log) => {
                self.commit_to_log(log, tid, &images, &revokes)?;
                // The checkpoint is made now, so that no later checkpoint has to know which block
                // must be written last.
                if last.is_some() {
                    self.checkpoint(log, tid, tid.next(), last)?;
                }
            }
            None => self.commit_in_place(tid, &images)?,
        }
        self.counters.commits.add(1);
        self.note_durable(tid);
        client.committed(tid, deferred)?;
        self.note_settled(tid);
        client.settled(tid);
        Ok(())
    }

    /// Makes a last commit, writes everything in place, and marks the log empty. No thread can join
    /// meanwhile.
    pub(crate) fn finish(
        &self,
        committer: &mut Committer,
        client: &dyn Client<O, D>,
    ) -> Result<(), Error> {
        let (tid, closed) = self.close();
        if closed.is_empty() {
            // Threads may wait for the transaction although nothing was changed in it.
            self.note_durable(tid);
            self.note_settled(tid);
        } else {
            self.commit_closed(committer, client, tid, closed)?;
        }
        let Some(log) = &mut committer.log else { return Ok(()) };
        if let Some(newest) = log.ring.newest() {
            self.write_in_place(log, newest, None)?;
            log.ring.release(newest);
        }
        if log.is_marked() {
            log.move_tail(&self.flusher, Tail::Empty { next: tid.next() })?;
            self.counters.durable_writes.add(1);
        }
        Ok(())
    }

    /// Refuses images of blocks that are beyond the device or belong to the log itself.
    fn check_places(&self, committer: &Committer, images: &[Captured]) -> Result<(), Error> {
        let end = self.device.len() >> self.block_size.bits();
        let wild = |block: Block| {
            block.0 >= end || committer.log.as_ref().is_some_and(|log| log.contains(block))
        };
        match images.iter().find(|(block, _)| wild(*block)) {
            Some((block, _)) => Err(Error::WildBlock { block: *block }),
            None => Ok(()),
        }
    }

    fn commit_to_log(
        &self,
        log: &mut LogWriter,
        tid: Tid,
        images: &[Captured],
        revokes: &[Block],
    ) -> Result<(), Error> {
        let need = log.size(images.len(), revokes.len())?;
        let upto = if self.store.bytes() > self.image_cap {
            log.ring.newest()
        } else if log.ring.free() < need {
            log.ring.enough(need)
        } else {
            None
        };
        if let Some(upto) = upto {
            self.checkpoint(log, upto, tid, None)?;
        }
        let written = log.write(&*self.device, tid, images, revokes)?;
        // This flush comes first even if the log is on another device, because the data of files
        // must be durable before the transaction that refers to it.
        self.flush()?;
        log.flush()?;
        log.commit(&self.flusher, tid, written)?;
        self.counters.durable_writes.add(1);
        self.counters.log_blocks.add(i64::from(need));
        self.counters.blocks_logged.add(images.len() as i64);
        self.counters.revokes_logged.add(revokes.len() as i64);
        log.ring.push(tid, need, images.iter().map(|(block, _)| *block).collect());
        images.iter().for_each(|(block, _)| self.store.promote(*block));
        // From here on no checkpoint writes older images of freed blocks. No such write is in
        // flight, because only the committer makes checkpoints, and the committer runs this
        // function.
        revokes.iter().for_each(|block| self.store.revoke(*block));
        Ok(())
    }

    /// Commits without a log: writes the images in place and flushes.
    fn commit_in_place(&self, tid: Tid, images: &[Captured]) -> Result<(), Error> {
        in_place::write(&*self.device, self.block_size, images)?;
        self.flush()?;
        self.counters.blocks_in_place.add(images.len() as i64);
        for (block, _) in images {
            self.store.promote(*block);
            self.store.note_in_place(*block, tid);
        }
        Ok(())
    }

    /// Frees log space: writes the transactions up to `upto` in place, and moves the tail past
    /// them. `next` is the transaction that will be written to the log next. `last` is the block
    /// that is written in place after all others.
    fn checkpoint(
        &self,
        log: &mut LogWriter,
        upto: Tid,
        next: Tid,
        last: Option<Block>,
    ) -> Result<(), Error> {
        self.write_in_place(log, upto, last)?;
        let (start, tid) = log.ring.start_after(upto);
        log.move_tail(&self.flusher, Tail::At { start, tid: tid.unwrap_or(next) })?;
        self.counters.durable_writes.add(1);
        log.ring.release(upto);
        Ok(())
    }

    /// Writes the durable images of the transactions up to `upto` in place, except images of blocks
    /// that a later transaction in the log contains. The tail does not move yet. After a crash
    /// before the tail moves, a replay writes the same images again.
    fn write_in_place(&self, log: &LogWriter, upto: Tid, last: Option<Block>) -> Result<(), Error> {
        let mut blocks: Vec<Block> =
            log.ring.until(upto).flat_map(|segment| &segment.blocks).copied().collect();
        blocks.sort_unstable();
        blocks.dedup();
        let images: Vec<Captured> = blocks
            .into_iter()
            .filter_map(|block| Some((block, self.store.durable(block, upto)?)))
            .collect();
        in_place::write_durably(&*self.device, self.block_size, &images, last, || self.flush())?;
        self.counters.checkpoints.add(1);
        self.counters.blocks_in_place.add(images.len() as i64);
        images.iter().for_each(|(block, _)| self.store.note_in_place(*block, upto));
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        self.flusher.flush()?;
        self.counters.flushes.add(1);
        Ok(())
    }
}

/// Returns the effective revokes, without duplicates. A revoke has no effect if its block became
/// metadata again in the same transaction.
fn standing(mut revokes: Vec<Block>, images: &[Captured]) -> Vec<Block> {
    revokes.sort_unstable();
    revokes.dedup();
    revokes.retain(|block| images.binary_search_by_key(block, |(b, _)| *b).is_err());
    revokes
}
