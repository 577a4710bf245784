//! The journal as the file system sees it: joining, waiting, and the committer's loop.

use crate::commit::Committer;
use crate::credits::Credits;
use crate::flusher::{FlushMark, Flusher};
use crate::lists::LaneLists;
use crate::statistics::Counters;
use crate::store::Store;
use crate::{Client, Config, Error, Handle, Statistics, Tid};
use lanefs_device::Device;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Condvar, Lane, Membership, Mutex, Padded, Rank};
use lanefs_ondisk::{Block, BlockSize};
use std::time::Duration;

/// A journal: one running transaction that threads join, and at most one that is being committed.
///
/// # Locking
/// Joining takes no lock that lanes share, unless the transaction is closing or its credits run
/// low. A thread with a handle may call only methods of the handle.
pub struct Journal<O, D> {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) block_size: BlockSize,
    commit_interval: Duration,
    /// The limit for images in memory, in bytes; above it, images are written in place early.
    pub(crate) image_cap: u64,
    pub(crate) membership: Membership,
    pub(crate) credits: Credits,
    pub(crate) lists: LaneLists<O, D>,
    pub(crate) store: Arc<Store>,
    pub(crate) flusher: Flusher,
    pub(crate) counters: Counters,
    /// Read by every join, written at most twice.
    fate: Padded<Fate>,
    /// A copy of `durable` in `progress`, for threads that do not wait; written by each commit.
    durable: Padded<AtomicU64>,
    settled: Padded<AtomicU64>,
    /// [rank Journal] On its own lines, with its condition variables too: threads that wait for a
    /// commit must not share lines with those that read the fields above for every handle.
    progress: Padded<Mutex<Progress>>,
    /// Notified when the server has work.
    work: Padded<Condvar>,
    /// Notified when a transaction becomes durable, by the parity of its number: at most two are
    /// not durable at a time, and the waiters of one must not be woken by the other.
    moved: [Padded<Condvar>; 2],
    /// Notified when the committer role is free, for threads that wait for nothing else.
    role_free: Padded<Condvar>,
    /// Notified when no thread serves any more.
    ended: Padded<Condvar>,
}

struct Fate {
    cause: OnceLock<Arc<Error>>,
    /// Whether the journal was stopped: no thread can join any more.
    stopped: AtomicBool,
    /// Whether the client was told of the abort.
    told: AtomicBool,
}

struct Progress {
    /// The number of commit requests so far. A round serves all requests made before it started.
    requests: u64,
    served: u64,
    /// Whether the server has to make a round, even if another thread makes one.
    asked: bool,
    /// The number of threads that wait for `moved`, and for `role_free`: without waiters no wake-up
    /// is sent.
    waiting: [u32; 2],
    waiting_for_role: u32,
    durable: Tid,
    /// Like `durable`, for transactions whose deferred work is done too.
    settled: Tid,
    stopping: bool,
    finished: bool,
    /// The committer's state; absent while a thread has the role.
    role: Option<Box<Committer>>,
}

impl<O, D> Journal<O, D> {
    /// Creates a journal on an empty log; [`crate::recovery`] empties a log that has transactions.
    /// Writes nothing yet.
    ///
    /// # Errors
    /// [`Error::NeedsRecovery`] if the log has transactions; [`Error::LogTooSmall`],
    /// [`Error::Unsupported`] and [`Error::BadLogMap`] if the log cannot be written.
    pub fn start(config: Config) -> Result<Journal<O, D>, Error> {
        let Config { device, block_size, log, commit_interval, image_cap } = config;
        let committer = Committer::new(&*device, block_size, log)?;
        let limits = committer.limits(block_size, image_cap, busy_lanes())?;
        let tid = committer.first();
        let before = Tid(tid.0 - 1);
        let progress = Progress {
            requests: 0,
            served: 0,
            asked: false,
            waiting: [0; 2],
            waiting_for_role: 0,
            durable: before,
            settled: before,
            stopping: false,
            finished: false,
            role: Some(Box::new(committer)),
        };
        Ok(Journal {
            flusher: Flusher::new(device.clone()),
            device,
            block_size,
            commit_interval,
            image_cap,
            membership: Membership::new(tid.0),
            credits: Credits::new(limits, tid),
            lists: LaneLists::new(),
            store: Arc::new(Store::new()),
            counters: Counters::new(),
            fate: Padded(Fate {
                cause: OnceLock::new(),
                stopped: AtomicBool::new(false),
                told: AtomicBool::new(false),
            }),
            durable: Padded(AtomicU64::new(before.0)),
            settled: Padded(AtomicU64::new(before.0)),
            progress: Padded(Mutex::new(Rank::Journal, progress)),
            work: Padded(Condvar::new()),
            moved: [Padded(Condvar::new()), Padded(Condvar::new())],
            role_free: Padded(Condvar::new()),
            ended: Padded(Condvar::new()),
        })
    }

    /// Joins the running transaction with credits for `credits` blocks, the worst case of the
    /// operation's changes. Waits while the transaction closes or its credits are used up.
    ///
    /// # Errors
    /// [`Error::TooBig`] if no transaction can ever have this many credits; [`Error::Aborted`];
    /// [`Error::Stopped`].
    ///
    /// # Panics
    /// In debug builds, if the thread has a handle already.
    ///
    /// # Locking
    /// May wait for a commit: no state guard may be held. Operation locks may be held, since a
    /// commit never takes them.
    pub fn join(&self, credits: u32) -> Result<Handle<'_, O, D>, Error> {
        self.check()?;
        let once = crate::handle::Joined::new();
        let grains = self.credits.grains(credits)?;
        let member = self.membership.join();
        // A thread that stops or aborts the journal records that before the last transaction
        // closes.
        self.check()?;
        if self.credits.draw(Tid(member.tid()), member.lane(), grains, None).is_ok() {
            return Ok(Handle::new(self, member, grains, once));
        }
        drop(member);
        self.join_later(grains, once)
    }

    /// Queues for credits until there are enough.
    #[cold]
    fn join_later(
        &self,
        grains: u64,
        once: crate::handle::Joined,
    ) -> Result<Handle<'_, O, D>, Error> {
        self.counters.credit_waits.add(1);
        let ticket = self.credits.queue(grains);
        loop {
            ticket.wait(|| self.check().is_err());
            self.check()?;
            let member = self.membership.join();
            self.check()?;
            let tid = Tid(member.tid());
            if self.credits.draw(tid, member.lane(), grains, Some(&ticket)).is_ok() {
                return Ok(Handle::new(self, member, grains, once));
            }
            drop(member);
            self.request_commit();
        }
    }

    /// Returns the largest number of credits that [`Journal::join`] accepts.
    pub fn max_credits(&self) -> u32 {
        self.credits.limits().capacity
    }

    /// Returns the transaction that is running or closing.
    pub fn running(&self) -> Tid {
        Tid(self.membership.running())
    }

    /// Returns the newest durable transaction.
    pub fn durable(&self) -> Tid {
        Tid(self.durable.load(Ordering::Acquire))
    }

    /// Returns the newest transaction that is durable and whose deferred work is done: nothing is
    /// left to do for the objects that it or an earlier one changed.
    pub fn settled(&self) -> Tid {
        Tid(self.settled.load(Ordering::Acquire))
    }

    /// Waits until the changes of all handles of `tid` that were dropped before this call are
    /// durable. Many waiters share one commit. Data written outside the journal is not covered:
    /// fsync calls this and then [`Journal::flush_if_needed`].
    ///
    /// # Errors
    /// [`Error::Aborted`], even if `tid` itself became durable; [`Error::Stopped`] if it did not.
    pub fn commit(&self, tid: Tid) -> Result<(), Error> {
        if self.durable() >= tid {
            return self.check_abort();
        }
        self.wait(tid, None, |progress| progress.durable)
    }

    /// Works as [`Journal::commit`]. If no thread is committing, the calling thread commits, and no
    /// other thread is woken. Threads that call during a commit wait, and after it one of them
    /// commits for all.
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

    /// Works as [`Journal::commit`], and waits for the deferred work of `tid` too: then freed
    /// blocks are available.
    ///
    /// # Errors
    /// The same as for [`Journal::commit`].
    pub fn settle(&self, tid: Tid) -> Result<(), Error> {
        self.wait(tid, None, |progress| progress.settled)
    }

    /// Waits until `tid` is durable or settled. If a client is given, the calling thread may
    /// commit.
    fn wait(
        &self,
        tid: Tid,
        client: Option<&dyn Client<O, D>>,
        reached: impl Fn(&Progress) -> Tid,
    ) -> Result<(), Error> {
        debug_assert!(tid <= self.running(), "waiting for {tid}, which does not run yet");
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
                // A round that started after the request found nothing of `tid` left to commit.
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

    /// Requests a commit of the running transaction without waiting for it.
    pub fn request_commit(&self) {
        self.ask(&mut self.progress.lock());
    }

    fn ask(&self, progress: &mut Progress) {
        progress.asked = true;
        self.work.notify_all();
    }

    /// Records that a data write to the device completed. Called before the write is acknowledged.
    /// The mark tells [`Journal::flush_if_needed`] which flush makes it durable.
    pub fn note_write(&self) -> FlushMark {
        self.flusher.note_write()
    }

    /// Returns the mark of the last data write.
    pub fn last_write(&self) -> FlushMark {
        self.flusher.last_write()
    }

    /// Makes the data write of `mark` and earlier ones durable. Flushes only if no flush was
    /// submitted since. Concurrent callers share one flush.
    ///
    /// # Errors
    /// [`Error::Device`] at the first failed flush, which aborts the journal, since all writes
    /// after the last successful flush may be lost; [`Error::Aborted`] from then on.
    pub fn flush_if_needed(&self, mark: FlushMark) -> Result<(), Error> {
        self.check_abort()?;
        match self.flusher.flush_if_needed(mark) {
            Ok(flushed) => {
                self.counters.flushes.add(flushed.into());
                // A failure during another thread's flush concerns this thread too.
                self.check_abort()
            }
            Err(error) => {
                self.abort(error.clone().into());
                Err(error.into())
            }
        }
    }

    /// Returns the newest image of a metadata block that is not written in place yet; `None` if the
    /// device has the newest content.
    ///
    /// # Errors
    /// Returns no error at present.
    pub fn image(&self, block: Block) -> Result<Option<Arc<[u8]>>, Error> {
        Ok(self.store.newest(block))
    }

    /// Returns the bytes of all images that are not written in place yet.
    pub fn image_bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// Returns counts of the journal's work so far.
    pub fn statistics(&self) -> Statistics {
        self.counters.snapshot()
    }

    /// Aborts the journal: every join and wait from now on fails, and nothing more is written
    /// except the record of the abort in the journal's superblock. The first cause is kept.
    pub fn abort(&self, cause: Error) {
        // A cause that comes from an earlier abort is not a new one.
        if matches!(cause, Error::Aborted { .. }) || self.fate.cause.set(Arc::new(cause)).is_err() {
            return;
        }
        self.wake_everybody();
    }

    /// Removes the abort of an earlier mount from the journal's superblock, durably. Called once
    /// the file system's superblock records that there were errors.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn forget_abort(&self) -> Result<(), Error> {
        match self.take_role().committer.as_deref_mut() {
            Some(committer) => committer.forget_abort(&*self.device),
            None => Ok(()),
        }
    }

    fn wake_everybody(&self) {
        self.credits.wake_all();
        let _progress = self.progress.lock();
        for condvar in [&self.work, &self.role_free, &self.moved[0], &self.moved[1]] {
            condvar.notify_all();
        }
    }

    /// Returns why the journal was aborted, if it was.
    pub fn cause(&self) -> Option<Error> {
        self.fate.cause.get().map(|cause| (**cause).clone())
    }

    pub(crate) fn check_abort(&self) -> Result<(), Error> {
        match self.fate.cause.get() {
            None => Ok(()),
            Some(cause) => Err(Error::Aborted { cause: cause.clone() }),
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.check_abort()?;
        if self.fate.stopped.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    /// Runs the server's loop: commits on request, and at the latest after the commit interval.
    /// Returns after [`Journal::stop`] or an abort. Runs on its own thread.
    pub fn serve(&self, client: &dyn Client<O, D>) {
        let _ends = Serving { journal: self };
        while self.wait_for_work() {
            let done =
                self.round(client, |journal, committer| journal.commit_running(committer, client));
            if done.is_err() {
                break;
            }
            // Nothing else frees the memory that idle lanes retired.
            lanefs_lanes::advance();
        }
        if self.check_abort().is_err() {
            self.tell(client);
        } else {
            // An error is kept as the cause, which stop() returns.
            let _ = self.stop_now(client);
        }
    }

    /// Waits for the next round; returns `false` if there is none.
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

    /// Requests that the server commits, writes everything in place and marks the log empty; waits
    /// for this. Joins fail from now on.
    ///
    /// # Errors
    /// [`Error::Aborted`] with the failure, recent or earlier: the log needs recovery.
    pub fn stop(&self) -> Result<(), Error> {
        let mut progress = self.progress.lock();
        progress.stopping = true;
        self.work.notify_all();
        while !progress.finished {
            self.ended.wait(&mut progress);
        }
        self.check_abort()
    }

    /// Works as [`Journal::stop`], on the calling thread if no thread serves.
    ///
    /// # Errors
    /// The same as for [`Journal::stop`].
    pub fn stop_now(&self, client: &dyn Client<O, D>) -> Result<(), Error> {
        self.fate.stopped.store(true, Ordering::Release);
        self.credits.wake_all();
        let _ends = Serving { journal: self };
        self.round(client, |journal, committer| journal.finish(committer, client))
    }

    /// Runs one round on the calling thread: commits the running transaction unless it is empty.
    /// The server's rounds do the same. For tests and model checkers.
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
        // Joiners may wait for credits of handles that have changed nothing yet. Without this check
        // they would wait for another round.
        if self.lists.are_empty() && !self.credits.ran_short_in(self.running()) {
            return Ok(());
        }
        let (tid, lists) = self.close();
        self.commit_closed(committer, client, tid, lists)
    }

    /// Takes the committer role, runs `work`, and serves the requests made before it.
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
        let result = match (self.check_abort(), role.committer.as_deref_mut()) {
            (Ok(()), Some(committer)) => work(self, committer),
            (aborted, _) => aborted,
        };
        if let Err(cause) = result {
            self.abort(cause);
        }
        role.serves = role.asked;
        drop(role);
        self.check_abort().inspect_err(|_| self.tell(client))
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

    fn try_take_role(&self, progress: &mut Progress) -> Option<CommitterRole<'_, O, D>> {
        let committer = progress.role.take()?;
        Some(CommitterRole {
            journal: self,
            committer: Some(committer),
            asked: progress.requests,
            serves: progress.served,
            running: self.running(),
        })
    }

    fn tell(&self, client: &dyn Client<O, D>) {
        let Some(cause) = self.cause() else { return };
        if !self.fate.told.swap(true, Ordering::AcqRel) {
            if let Some(committer) = self.take_role().committer.as_deref_mut() {
                // If the device accepts no writes, this record fails too.
                let _ = committer.record_abort(&*self.device);
            }
            client.aborted(&cause);
        }
    }

    /// `tid` is durable: wakes the waiters.
    pub(crate) fn is_durable(&self, tid: Tid) {
        // Release: a thread that reads this number also sees the image store without the blocks
        // that the transaction freed.
        self.durable.store(tid.0, Ordering::Release);
        let mut progress = self.progress.lock();
        progress.durable = tid;
        self.wake(&progress, tid);
    }

    /// Records that the deferred work of `tid` is done.
    pub(crate) fn is_settled(&self, tid: Tid) {
        // Release: a thread that waited for this number also sees the effects of the deferred work.
        self.settled.store(tid.0, Ordering::Release);
        let mut progress = self.progress.lock();
        progress.settled = tid;
        self.wake(&progress, tid);
    }

    fn wake(&self, progress: &Progress, tid: Tid) {
        let parity = parity(tid);
        if progress.waiting[parity] != 0 {
            self.moved[parity].notify_all();
        }
    }
}

fn parity(tid: Tid) -> usize {
    (tid.0 & 1) as usize
}

/// Returns the number of lanes that probably join concurrently. If there are more, grains that
/// lanes have drawn and not used are taken back when credits are short. So this affects only how
/// many grains a lane keeps.
fn busy_lanes() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors).min(Lane::limit())
}

/// The committer role, given back when dropped.
struct CommitterRole<'a, O, D> {
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
            // There was nothing to commit; the threads that requested it wait only for this
            // wake-up.
            self.journal.wake(&progress, running);
        } else if progress.waiting[parity(running)] != 0 {
            // All of them wait for one commit, so it is enough to wake one thread to do it. If
            // another thread starts a round earlier, it serves all of them too. If the woken thread
            // may not commit, it requests that from the server.
            self.journal.moved[parity(running)].notify_one();
        }
        if progress.waiting_for_role != 0 {
            self.journal.role_free.notify_one();
        }
    }
}

/// Marks that a thread serves; after it is dropped, `stop` does not wait.
struct Serving<'a, O, D> {
    journal: &'a Journal<O, D>,
}

impl<O, D> Drop for Serving<'_, O, D> {
    fn drop(&mut self) {
        self.journal.progress.lock().finished = true;
        self.journal.ended.notify_all();
        self.journal.moved.iter().for_each(|moved| {
            moved.notify_all();
        });
    }
}
