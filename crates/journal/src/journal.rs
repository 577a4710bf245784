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

/// A journal: one running transaction that threads join, at most one that is being committed.
///
/// # Locking
/// Joining takes no lock that lanes share, unless the transaction is closing or its credits run
/// low. No method but those of the handle may be called with a handle in hand.
pub struct Journal<C: Client> {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) block_size: BlockSize,
    commit_interval: Duration,
    /// Bytes of images above which they are written home early.
    pub(crate) image_cap: u64,
    pub(crate) membership: Membership,
    pub(crate) credits: Credits,
    pub(crate) lists: LaneLists<C::Object, C::Deferred>,
    pub(crate) store: Arc<Store>,
    pub(crate) flusher: Flusher,
    pub(crate) counters: Counters,
    /// Read by every join, written once or twice in a lifetime.
    fate: Padded<Fate>,
    /// As in `progress`, for threads that only look; written by each commit.
    durable: Padded<AtomicU64>,
    settled: Padded<AtomicU64>,
    /// [rank Journal] On lines of its own, and what wakes too: who waits for a commit is not to meet
    /// those who read the fields above with every handle.
    progress: Padded<Mutex<Progress>>,
    /// The server has something to do.
    work: Padded<Condvar>,
    /// For who waits for a transaction, by its parity: at most two are not durable at a time, and who
    /// waits for the one is not to be woken by the other.
    moved: [Padded<Condvar>; 2],
    /// The books are there, for who waits for nothing but them.
    vacant: Padded<Condvar>,
    /// Nobody serves any more.
    ended: Padded<Condvar>,
}

struct Fate {
    cause: OnceLock<Arc<Error>>,
    /// Nobody joins any more.
    stopped: AtomicBool,
    /// The client knows of the abort.
    told: AtomicBool,
}

struct Progress {
    /// Numbers the requests to commit; a round serves all that came before it began.
    requests: u64,
    served: u64,
    /// The server is to make a round, whoever else does.
    asked: bool,
    /// How many wait for `moved`, and for `vacant`: nobody is woken where nobody waits.
    waiting: [u32; 2],
    sitting_down: u32,
    durable: Tid,
    /// As `durable`, and what was deferred has happened.
    settled: Tid,
    stopping: bool,
    finished: bool,
    /// The committer's books, taken out by whoever commits.
    seat: Option<Box<Committer>>,
}

impl<C: Client> Journal<C> {
    /// A journal on an empty log: see [`crate::recovery`] for one that is not. Writes nothing yet.
    ///
    /// # Errors
    /// [`Error::NeedsRecovery`] if the log has transactions, [`Error::LogTooSmall`],
    /// [`Error::Unsupported`] and [`Error::BadLogMap`] if it cannot be written.
    pub fn start(config: Config) -> Result<Journal<C>, Error> {
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
            sitting_down: 0,
            durable: before,
            settled: before,
            stopping: false,
            finished: false,
            seat: Some(Box::new(committer)),
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
            vacant: Padded(Condvar::new()),
            ended: Padded(Condvar::new()),
        })
    }

    /// Joins the running transaction with credits for `credits` blocks, the worst case of what
    /// the operation changes. Waits while the transaction closes or its credits are used up.
    ///
    /// # Errors
    /// [`Error::TooBig`] if no transaction can ever have that many, [`Error::Aborted`],
    /// [`Error::Stopped`].
    ///
    /// # Panics
    /// In debug builds, if the thread has a handle already.
    ///
    /// # Locking
    /// May wait for a commit: with no state guard held. Operation locks may be held, which a
    /// commit never takes.
    pub fn join(&self, credits: u32) -> Result<Handle<'_, C>, Error> {
        self.check()?;
        let once = crate::handle::Joined::new();
        let grains = self.credits.grains(credits)?;
        let member = self.membership.join();
        // Who stops the journal or aborts it says so before the last transaction closes.
        self.check()?;
        if self.credits.draw(Tid(member.tid()), member.lane(), grains, None).is_ok() {
            return Ok(Handle::new(self, member, grains, once));
        }
        drop(member);
        self.join_later(grains, once)
    }

    /// The credits are short: queues up until they suffice.
    #[cold]
    fn join_later(&self, grains: u64, once: crate::handle::Joined) -> Result<Handle<'_, C>, Error> {
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

    /// The most credits that [`Journal::join`] takes.
    pub fn max_credits(&self) -> u32 {
        self.credits.limits().capacity
    }

    /// The transaction that runs, or is closing.
    pub fn running(&self) -> Tid {
        Tid(self.membership.running())
    }

    /// The newest durable transaction.
    pub fn durable(&self) -> Tid {
        Tid(self.durable.load(Ordering::Acquire))
    }

    /// The newest transaction that is durable and whose deferred work is done: nothing is owed to
    /// any object that changed in it or before.
    pub fn settled(&self) -> Tid {
        Tid(self.settled.load(Ordering::Acquire))
    }

    /// Returns once everything that handles of `tid` had left with when this was called is
    /// durable. Many waiters share one commit. Data written outside the journal is another
    /// matter: fsync is this and then [`Journal::flush_if_needed`].
    ///
    /// # Errors
    /// [`Error::Aborted`], also if `tid` itself made it; [`Error::Stopped`] if it did not.
    pub fn commit(&self, tid: Tid) -> Result<(), Error> {
        if self.durable() >= tid {
            return self.check_abort();
        }
        self.wait(tid, None, |progress| progress.durable)
    }

    /// As [`Journal::commit`], on the calling thread if nobody commits at the moment: no other thread
    /// is woken then. Who comes while somebody commits waits, and when that is over one of those who
    /// wait commits for all of them.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    ///
    /// # Locking
    /// The caller becomes the committer for a round, so it must hold nothing at all.
    pub fn commit_here(&self, tid: Tid, client: &C) -> Result<(), Error> {
        if self.durable() >= tid {
            return self.check_abort();
        }
        self.wait(tid, Some(client), |progress| progress.durable)
    }

    /// As [`Journal::commit`], and what handles of `tid` deferred has happened: freed blocks are
    /// claimable.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn settle(&self, tid: Tid) -> Result<(), Error> {
        self.wait(tid, None, |progress| progress.settled)
    }

    /// With a client, who waits may commit.
    fn wait(
        &self,
        tid: Tid,
        client: Option<&C>,
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
                // A round that began after the request found nothing of `tid` left to commit.
                Some(mine) if progress.served >= mine => return Ok(()),
                Some(_) => {}
            }
            if progress.finished {
                return Err(Error::Stopped);
            }
            if let Some(client) = client
                && let Some(seat) = self.try_sit(&mut progress)
            {
                drop(progress);
                self.commit_in(seat, client)?;
                progress = self.progress.lock();
                continue;
            }
            let parity = parity(tid);
            progress.waiting[parity] += 1;
            self.moved[parity].wait(&mut progress);
            progress.waiting[parity] -= 1;
        }
    }

    /// Asks for a commit of the running transaction and does not wait.
    pub fn request_commit(&self) {
        self.ask(&mut self.progress.lock());
    }

    fn ask(&self, progress: &mut Progress) {
        progress.asked = true;
        self.work.notify_all();
    }

    /// A data write to the device completed; to be called before anybody is told. The mark says what
    /// makes it durable, to [`Journal::flush_if_needed`].
    pub fn note_write(&self) -> FlushMark {
        self.flusher.note_write()
    }

    /// The mark of the last of all data writes.
    pub fn last_write(&self) -> FlushMark {
        self.flusher.last_write()
    }

    /// Makes the data write of `mark`, and those before it, durable: flushes, if no flush was
    /// submitted since. Many callers share one flush.
    ///
    /// # Errors
    /// [`Error::Device`] the first time, which aborts the journal, since all that was written
    /// since the last good flush may be lost; then [`Error::Aborted`].
    pub fn flush_if_needed(&self, mark: FlushMark) -> Result<(), Error> {
        self.check_abort()?;
        match self.flusher.flush_if_needed(mark) {
            Ok(flushed) => {
                self.counters.flushes.add(flushed.into());
                // A failure that another met while this one waited is everybody's.
                self.check_abort()
            }
            Err(error) => {
                self.abort(error.clone().into());
                Err(error.into())
            }
        }
    }

    /// The newest image of a metadata block that is not home yet; `None`: read the device.
    ///
    /// # Errors
    /// None at present.
    pub fn image(&self, block: Block) -> Result<Option<Arc<[u8]>>, Error> {
        Ok(self.store.newest(block))
    }

    /// Bytes of images that wait to be written home.
    pub fn image_bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// What the journal did so far.
    pub fn statistics(&self) -> Statistics {
        self.counters.snapshot()
    }

    /// Nothing is promised any more: every join and wait from now on fails, nothing more is
    /// written, but that it was aborted into the journal's superblock. The first cause is kept.
    pub fn abort(&self, cause: Error) {
        // A cause that is itself the echo of an earlier abort says nothing new.
        if matches!(cause, Error::Aborted { .. }) || self.fate.cause.set(Arc::new(cause)).is_err() {
            return;
        }
        self.wake_everybody();
    }

    /// Takes the abort of an earlier mount out of the journal's superblock, durably: to be called once
    /// the file system's superblock says that there were errors.
    ///
    /// # Errors
    /// [`Error::Device`]
    pub fn forget_abort(&self) -> Result<(), Error> {
        match self.sit().committer.as_deref_mut() {
            Some(committer) => committer.forget_abort(&*self.device),
            None => Ok(()),
        }
    }

    fn wake_everybody(&self) {
        self.credits.wake_all();
        let _progress = self.progress.lock();
        for condvar in [&self.work, &self.vacant, &self.moved[0], &self.moved[1]] {
            condvar.notify_all();
        }
    }

    /// Why the journal was aborted, if it was.
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

    /// The server's loop: commits when asked, and at the latest when the commit interval is
    /// over. Returns after [`Journal::stop`] or an abort. To be run on a thread of its own.
    pub fn serve(&self, client: &C) {
        let _ends = Serving { journal: self };
        while self.wait_for_work() {
            let done =
                self.round(client, |journal, committer| journal.commit_running(committer, client));
            if done.is_err() {
                break;
            }
            // What idle lanes retired is freed by nobody else.
            lanefs_lanes::advance();
        }
        if self.check_abort().is_err() {
            self.tell(client);
        } else {
            // An error is kept as the cause, which stop() returns.
            let _ = self.stop_now(client);
        }
    }

    /// False: no more rounds.
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

    /// Has the server commit, write everything home and mark the log empty; waits for it. Joins
    /// fail from then on.
    ///
    /// # Errors
    /// [`Error::Aborted`] with what went wrong, now or earlier: the log needs recovery.
    pub fn stop(&self) -> Result<(), Error> {
        let mut progress = self.progress.lock();
        progress.stopping = true;
        self.work.notify_all();
        while !progress.finished {
            self.ended.wait(&mut progress);
        }
        self.check_abort()
    }

    /// As [`Journal::stop`], on the calling thread, where nobody serves.
    ///
    /// # Errors
    /// As [`Journal::stop`].
    pub fn stop_now(&self, client: &C) -> Result<(), Error> {
        self.fate.stopped.store(true, Ordering::Release);
        self.credits.wake_all();
        let _ends = Serving { journal: self };
        self.round(client, |journal, committer| journal.finish(committer, client))
    }

    /// One round on the calling thread: commits what the running transaction holds, if it holds
    /// anything. The server does nothing else; for tests and model checkers.
    ///
    /// # Errors
    /// [`Error::Aborted`]
    pub fn commit_now(&self, client: &C) -> Result<(), Error> {
        self.commit_in(self.sit(), client)
    }

    /// A round that commits, by whoever has the seat.
    fn commit_in(&self, seat: Seat<'_, C>, client: &C) -> Result<(), Error> {
        self.round_in(seat, client, |journal, committer| journal.commit_running(committer, client))
    }

    fn commit_running(&self, committer: &mut Committer, client: &C) -> Result<(), Error> {
        // Joiners may wait for credits of members that have changed nothing yet: a round that passes
        // over that would leave them waiting for another.
        if self.lists.are_empty() && !self.credits.ran_short_in(self.running()) {
            return Ok(());
        }
        let (tid, lists) = self.close();
        self.commit_closed(committer, client, tid, lists)
    }

    /// Takes the seat, runs `work`, serves the requests that came before it.
    fn round(
        &self,
        client: &C,
        work: impl FnOnce(&Self, &mut Committer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.round_in(self.sit(), client, work)
    }

    fn round_in(
        &self,
        mut seat: Seat<'_, C>,
        client: &C,
        work: impl FnOnce(&Self, &mut Committer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let result = match (self.check_abort(), seat.committer.as_deref_mut()) {
            (Ok(()), Some(committer)) => work(self, committer),
            (aborted, _) => aborted,
        };
        if let Err(cause) = result {
            self.abort(cause);
        }
        seat.serves = seat.asked;
        drop(seat);
        self.check_abort().inspect_err(|_| self.tell(client))
    }

    fn sit(&self) -> Seat<'_, C> {
        let mut progress = self.progress.lock();
        loop {
            if let Some(seat) = self.try_sit(&mut progress) {
                return seat;
            }
            progress.sitting_down += 1;
            self.vacant.wait(&mut progress);
            progress.sitting_down -= 1;
        }
    }

    fn try_sit(&self, progress: &mut Progress) -> Option<Seat<'_, C>> {
        let committer = progress.seat.take()?;
        Some(Seat {
            journal: self,
            committer: Some(committer),
            asked: progress.requests,
            serves: progress.served,
            running: self.running(),
        })
    }

    fn tell(&self, client: &C) {
        let Some(cause) = self.cause() else { return };
        if !self.fate.told.swap(true, Ordering::AcqRel) {
            if let Some(committer) = self.sit().committer.as_deref_mut() {
                // A device that takes no more writes cannot remember it either.
                let _ = committer.record_abort(&*self.device);
            }
            client.aborted(&cause);
        }
    }

    /// `tid` is durable: tells the waiters.
    pub(crate) fn is_durable(&self, tid: Tid) {
        // Release: who sees it sees the image store without what the transaction freed.
        self.durable.store(tid.0, Ordering::Release);
        let mut progress = self.progress.lock();
        progress.durable = tid;
        self.wake(&progress, tid);
    }

    /// What was deferred in `tid` has happened.
    pub(crate) fn is_settled(&self, tid: Tid) {
        // Release: the deferred work comes before whatever waited for it.
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

/// How many lanes are likely to join at the same time. More may: what lanes have drawn and do not
/// use is taken back when credits are short, so this decides only how much one lane keeps.
fn busy_lanes() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors).min(Lane::limit())
}

/// The right to commit, given back when dropped.
struct Seat<'a, C: Client> {
    journal: &'a Journal<C>,
    committer: Option<Box<Committer>>,
    /// The requests that had come when it was taken.
    asked: u64,
    /// Requests up to this one are served.
    serves: u64,
    /// The transaction that ran when it was taken.
    running: Tid,
}

impl<C: Client> Drop for Seat<'_, C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.journal.abort(Error::Panicked { tid: self.journal.running() });
        }
        let running = self.journal.running();
        let mut progress = self.journal.progress.lock();
        progress.seat = self.committer.take();
        progress.served = progress.served.max(self.serves);
        if running == self.running {
            // There was nothing to commit, which is all that those who asked before want to know.
            self.journal.wake(&progress, running);
        } else if progress.waiting[parity(running)] != 0 {
            // All of them wait for one commit, so one is enough to make it. Should somebody else have
            // been quicker, then that one's round is for all of them too. Where the one that is
            // woken may not commit, it has asked the server.
            self.journal.moved[parity(running)].notify_one();
        }
        if progress.sitting_down != 0 {
            self.journal.vacant.notify_one();
        }
    }
}

/// While it lives somebody serves; after it `stop` need not wait.
struct Serving<'a, C: Client> {
    journal: &'a Journal<C>,
}

impl<C: Client> Drop for Serving<'_, C> {
    fn drop(&mut self) {
        self.journal.progress.lock().finished = true;
        self.journal.ended.notify_all();
        self.journal.moved.iter().for_each(|moved| {
            moved.notify_all();
        });
    }
}
