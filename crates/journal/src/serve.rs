//! Waits for commits and runs them. Only a thread with the *committer role* commits. One turn of
//! the role is a *round*. The *server* is the thread in [`Journal::serve`], which runs rounds in a
//! loop.

use crate::client::Client;
use crate::committer::Committer;
use crate::error::Error;
use crate::journal::{Journal, Progress, parity};
use crate::tid::Tid;
use lanefs_lanes::sync::atomic::Ordering;

impl<O, D> Journal<O, D> {
    /// Waits until the changes of all handles of `tid` that were dropped before this call are
    /// durable. Many waiters share one commit. Data written outside the journal is not covered, so
    /// fsync also calls [`Journal::flush_if_needed`] afterwards.
    ///
    /// # Errors
    /// [`Error::Aborted`] if the journal was aborted, even if `tid` itself is durable;
    /// [`Error::Stopped`] if the journal was stopped and `tid` is not durable.
    pub fn commit(&self, tid: Tid) -> Result<(), Error> {
        if self.durable() >= tid {
            return self.check_abort();
        }
        self.wait(tid, None, |progress| progress.durable)
    }

    /// Does the same as [`Journal::commit`], but if no thread is committing, the calling thread
    /// itself commits, without waking the server. Threads that call this during a commit wait for
    /// its end, and then one of them commits for all.
    ///
    /// # Errors
    /// The same as for [`Journal::commit`].
    ///
    /// # Locking
    /// The caller becomes the committer for a round, so it must hold no lock at all.
    pub fn commit_here(&self, tid: Tid, client: &dyn Client<O, D>) -> Result<(), Error> {
        if self.durable() >= tid {
            return self.check_abort();
        }
        self.wait(tid, Some(client), |progress| progress.durable)
    }

    /// Works like [`Journal::commit`], but also waits for the deferred work of `tid`. Afterwards
    /// the blocks that `tid` freed are available.
    ///
    /// # Errors
    /// The same as for [`Journal::commit`].
    pub fn settle(&self, tid: Tid) -> Result<(), Error> {
        self.wait(tid, None, |progress| progress.settled)
    }

    /// Waits until the transaction number that `reached` returns is `tid` or later; `reached`
    /// returns the newest durable or the newest settled transaction. If a client is given, the
    /// calling thread may commit.
    fn wait(
        &self,
        tid: Tid,
        client: Option<&dyn Client<O, D>>,
        reached: impl Fn(&Progress) -> Tid,
    ) -> Result<(), Error> {
        debug_assert!(tid <= self.running(), "waiting for {tid}, which does not run yet");
        self.check_process()?;
        let mut progress = self.progress.lock();
        let mut mine = None;
        loop {
            self.check_abort()?;
            if reached(&progress) >= tid {
                return Ok(());
            }
            match mine {
                None => {
                    progress.requests += 1;
                    mine = Some(progress.requests);
                    if client.is_none() {
                        self.ask(&mut progress);
                    }
                }
                // A round has started after this thread's request, and has found that no change of
                // `tid` was left to commit.
                Some(mine) if progress.served >= mine => return Ok(()),
                Some(_) => {}
            }
            if progress.finished {
                return Err(Error::Stopped);
            }
            if let Some(client) = client
                && let Some(role) = self.try_take_role(&mut progress)
            {
                drop(progress);
                self.commit_in(role, client)?;
                progress = self.progress.lock();
                continue;
            }
            let parity = parity(tid);
            progress.waiting[parity] += 1;
            self.moved[parity].wait(&mut progress);
            progress.waiting[parity] -= 1;
        }
    }

    /// Runs the server's loop, which commits on request, and at the latest after the commit
    /// interval. Returns after [`Journal::stop`] or an abort. Runs on its own thread.
    pub fn serve(&self, client: &dyn Client<O, D>) {
        let _ends = Serving { journal: self };
        while self.wait_for_work() {
            let done =
                self.round(client, |journal, committer| journal.commit_running(committer, client));
            if done.is_err() {
                break;
            }
            client.served();
            // Without this call, nothing would free the memory that lanes retired before they
            // became idle.
            lanefs_lanes::advance();
        }
        if self.check_abort().is_err() {
            self.report_abort(client);
        } else {
            // The journal keeps an error as the cause of its abort, and stop() returns this cause.
            let _ = self.stop_now(client);
        }
    }

    /// Waits until a round is necessary; returns `false` if no further round runs.
    fn wait_for_work(&self) -> bool {
        let mut progress = self.progress.lock();
        loop {
            if progress.stopping || self.check_abort().is_err() {
                return false;
            }
            if std::mem::take(&mut progress.asked) {
                return true;
            }
            if !self.work.wait_for(&mut progress, self.commit_interval) {
                return true;
            }
        }
    }

    /// Asks the server to commit, to write everything in place and to mark the log empty; waits
    /// until that is done. Joins fail from now on.
    ///
    /// # Errors
    /// [`Error::Aborted`] if the journal was aborted, now or earlier. The log then needs recovery.
    pub fn stop(&self) -> Result<(), Error> {
        self.check_process()?;
        let mut progress = self.progress.lock();
        progress.stopping = true;
        self.work.notify_all();
        while !progress.finished {
            self.ended.wait(&mut progress);
        }
        self.check_abort()
    }

    /// Does the work of [`Journal::stop`] on the calling thread. No other thread may run
    /// [`Journal::serve`].
    ///
    /// # Errors
    /// The same as for [`Journal::stop`].
    pub fn stop_now(&self, client: &dyn Client<O, D>) -> Result<(), Error> {
        let _ends = Serving { journal: self };
        self.pause(client)
    }

    /// Commits, writes everything in place and marks the log empty, on the calling thread. Joins
    /// fail from now on, until [`Journal::resume`].
    ///
    /// # Errors
    /// The same as for [`Journal::stop`].
    ///
    /// # Locking
    /// The same as for [`Journal::commit_here`].
    pub fn pause(&self, client: &dyn Client<O, D>) -> Result<(), Error> {
        self.check_process()?;
        self.fate.stopped.store(true, Ordering::Release);
        self.credits.wake_all();
        self.round(client, |journal, committer| journal.finish(committer, client))
    }

    /// Lets threads join again after [`Journal::pause`]. The caller makes sure that the journal is
    /// not being stopped.
    pub fn resume(&self) {
        self.fate.stopped.store(false, Ordering::Release);
    }

    /// Runs one round on the calling thread: commits the running transaction unless it is empty.
    /// The server's rounds do the same. This call is for tests and model checkers.
    ///
    /// # Errors
    /// [`Error::Aborted`]
    pub fn commit_now(&self, client: &dyn Client<O, D>) -> Result<(), Error> {
        self.commit_in(self.take_role(), client)
    }

    /// Runs a round that commits; the calling thread has the committer role.
    fn commit_in(
        &self,
        role: CommitterRole<'_, O, D>,
        client: &dyn Client<O, D>,
    ) -> Result<(), Error> {
        self.round_in(role, client, |journal, committer| journal.commit_running(committer, client))
    }

    fn commit_running(
        &self,
        committer: &mut Committer,
        client: &dyn Client<O, D>,
    ) -> Result<(), Error> {
        // Joiners may wait for credits that belong to handles which have changed nothing yet. So a
        // transaction that ran short of credits is closed even if it is empty. Otherwise the
        // joiners would have to wait for another round.
        if self.lists.are_empty() && !self.credits.ran_short_in(self.running()) {
            return Ok(());
        }
        let (tid, lists) = self.close();
        self.commit_closed(committer, client, tid, lists)
    }

    /// Takes the committer role, runs `work`, and marks the requests made before the round as
    /// served.
    fn round(
        &self,
        client: &dyn Client<O, D>,
        work: impl FnOnce(&Self, &mut Committer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.round_in(self.take_role(), client, work)
    }

    fn round_in(
        &self,
        mut role: CommitterRole<'_, O, D>,
        client: &dyn Client<O, D>,
        work: impl FnOnce(&Self, &mut Committer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        role.serves = role.asked;
        self.work_in(role, client, work)
    }

    /// Runs `work` with the committer role `role`, and marks no request as served. An error aborts
    /// the journal.
    pub(crate) fn work_in(
        &self,
        mut role: CommitterRole<'_, O, D>,
        client: &dyn Client<O, D>,
        work: impl FnOnce(&Self, &mut Committer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let result = match (self.check_abort(), role.committer.as_deref_mut()) {
            (Ok(()), Some(committer)) => work(self, committer),
            (aborted, _) => aborted,
        };
        if let Err(cause) = result {
            self.abort(cause);
        }
        drop(role);
        self.check_abort().inspect_err(|_| self.report_abort(client))
    }

    fn take_role(&self) -> CommitterRole<'_, O, D> {
        let mut progress = self.progress.lock();
        loop {
            if let Some(role) = self.try_take_role(&mut progress) {
                return role;
            }
            progress.waiting_for_role += 1;
            self.role_free.wait(&mut progress);
            progress.waiting_for_role -= 1;
        }
    }

    pub(crate) fn try_take_role(&self, progress: &mut Progress) -> Option<CommitterRole<'_, O, D>> {
        let committer = progress.role.take()?;
        Some(CommitterRole {
            journal: self,
            committer: Some(committer),
            asked: progress.requests,
            serves: progress.served,
            running: self.running(),
        })
    }

    fn report_abort(&self, client: &dyn Client<O, D>) {
        let Some(cause) = self.cause() else { return };
        if !self.fate.reported.swap(true, Ordering::AcqRel) {
            if let Some(committer) = self.take_role().committer.as_deref_mut() {
                // If the device accepts no writes, this record fails too.
                let _ = committer.record_abort(&*self.device);
            }
            client.aborted(&cause);
        }
    }

    /// Makes durable every write that returned before this call, also those outside of the journal.
    ///
    /// The users of a journal flush its device only by this method and
    /// [`Journal::flush_if_needed`], because the host may report lost writes to only one flush. Any
    /// other flush could take the report, and a later fsync would say that the writes are durable.
    ///
    /// # Errors
    /// The same as for [`Journal::flush_if_needed`].
    ///
    /// # Locking
    /// The same as for [`Journal::commit_here`].
    pub fn flush_all(&self, client: &dyn Client<O, D>) -> Result<(), Error> {
        self.check_abort()?;
        if let Err(error) = self.flusher.flush() {
            self.abort(error.clone().into());
            self.report_abort(client);
            return Err(error.into());
        }
        self.counters.flushes.add(1);
        self.check_abort()
    }

    /// Durably clears the record (`s_errno` in the journal's superblock) that an earlier mount
    /// aborted the journal. Called after the file system's superblock has recorded that there were
    /// errors.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn forget_abort(&self) -> Result<(), Error> {
        match self.take_role().committer.as_deref_mut() {
            Some(committer) => committer.forget_abort(&*self.device),
            None => Ok(()),
        }
    }
}

/// The committer role, given back when dropped.
pub(crate) struct CommitterRole<'a, O, D> {
    journal: &'a Journal<O, D>,
    committer: Option<Box<Committer>>,
    /// The number of the newest request when the role was taken.
    asked: u64,
    /// This round serves requests up to this number.
    serves: u64,
    /// The transaction that was running when the role was taken.
    running: Tid,
}

impl<O, D> Drop for CommitterRole<'_, O, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.journal.abort(Error::Panicked { tid: self.journal.running() });
        }
        let running = self.journal.running();
        let mut progress = self.journal.progress.lock();
        progress.role = self.committer.take();
        progress.served = progress.served.max(self.serves);
        if running == self.running {
            // There was nothing to commit, so only this wake-up reaches the threads that requested
            // a commit.
            self.journal.wake(&progress, running);
        } else if progress.waiting[parity(running)] != 0 {
            // All waiters wait for the same commit, so it is enough to wake one thread, which
            // commits. If a thread that was not woken starts a round earlier, that round serves all
            // waiters too. If the woken thread is not allowed to commit, it has already requested
            // the commit from the server.
            self.journal.moved[parity(running)].notify_one();
        }
        if progress.waiting_for_role != 0 {
            self.journal.role_free.notify_one();
        }
        if progress.waiting_for_fast != 0 {
            // One fast commit serves all threads that waited for it.
            self.journal.fast_free.notify_all();
        }
    }
}

/// Marks that a thread runs the server's loop; [`Journal::stop`] waits until the mark is dropped.
struct Serving<'a, O, D> {
    journal: &'a Journal<O, D>,
}

impl<O, D> Drop for Serving<'_, O, D> {
    fn drop(&mut self) {
        self.journal.progress.lock().finished = true;
        self.journal.ended.notify_all();
        self.journal.fast_free.notify_all();
        self.journal.moved.iter().for_each(|moved| {
            moved.notify_all();
        });
    }
}
