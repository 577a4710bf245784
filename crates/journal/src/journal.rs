//! The journal: its state, and the calls that do not wait.

use crate::committer::Committer;
use crate::config::Config;
use crate::credits::Credits;
use crate::error::Error;
use crate::flusher::{FlushMark, Flusher};
use crate::lists::LaneLists;
use crate::statistics::{Counters, Statistics};
use crate::store::Store;
use crate::tid::Tid;
use lanefs_device::Device;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Condvar, Membership, Mutex, Padded, Process, Rank};
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
    pub(crate) commit_interval: Duration,
    /// The limit for images in memory, in bytes; above it, images are written in place early.
    pub(crate) image_cap: u64,
    pub(crate) membership: Membership,
    pub(crate) credits: Credits,
    pub(crate) lists: LaneLists<O, D>,
    pub(crate) store: Arc<Store>,
    pub(crate) flusher: Flusher,
    pub(crate) counters: Counters,
    /// Whether the journal was stopped or aborted; read by every join, and rarely written.
    pub(crate) fate: Padded<Fate>,
    /// A copy of `durable` in `progress`, for threads that do not wait; written by each commit.
    pub(crate) durable: Padded<AtomicU64>,
    pub(crate) settled: Padded<AtomicU64>,
    /// The lock and its condition variables have cache lines of their own, because threads that
    /// wait for a commit must not share lines with threads that read the fields above for every
    /// handle. Lock rank: [`Rank::Journal`].
    pub(crate) progress: Padded<Mutex<Progress>>,
    /// Notified when the server (the thread in [`Journal::serve`]) has work.
    pub(crate) work: Padded<Condvar>,
    /// Notified when a transaction becomes durable or settled, and when a round ends. One of the
    /// two condition variables is for transactions with even numbers, the other for transactions
    /// with odd numbers. At any time at most two transactions are not durable yet, and the commit
    /// of one must not wake the waiters of the other.
    pub(crate) moved: [Padded<Condvar>; 2],
    /// Notified when the committer role is free, for threads that wait only for the role.
    pub(crate) role_free: Padded<Condvar>,
    /// Notified when the committer role is free, for threads that wait for a fast commit.
    pub(crate) fast_free: Padded<Condvar>,
    /// Notified when no thread runs [`Journal::serve`] or [`Journal::stop_now`] any more.
    pub(crate) ended: Padded<Condvar>,
    /// The process that has the thread in [`Journal::serve`].
    opener: Process,
}

pub(crate) struct Fate {
    pub(crate) cause: OnceLock<Arc<Error>>,
    /// Whether the journal was stopped or is paused, so that no thread can join.
    pub(crate) stopped: AtomicBool,
    /// Whether the abort was reported to the client.
    pub(crate) reported: AtomicBool,
}

pub(crate) struct Progress {
    /// The number of commit requests so far. A round (one turn of the committer role) serves all
    /// requests made before it started.
    pub(crate) requests: u64,
    pub(crate) served: u64,
    /// Whether the server (the thread in [`Journal::serve`]) has to run a round, even if another
    /// thread is already running one.
    pub(crate) asked: bool,
    /// The number of threads that wait for each of the two condition variables in `moved`. Without
    /// waiters no wake-up is sent.
    pub(crate) waiting: [u32; 2],
    /// The number of threads that wait for `role_free`.
    pub(crate) waiting_for_role: u32,
    /// The number of threads that wait for `fast_free`.
    pub(crate) waiting_for_fast: u32,
    pub(crate) durable: Tid,
    /// The newest transaction that is durable and whose deferred work is done.
    pub(crate) settled: Tid,
    pub(crate) stopping: bool,
    pub(crate) finished: bool,
    /// The committer's state; absent while a thread has the role.
    pub(crate) role: Option<Box<Committer>>,
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
        let limits = committer.limits(block_size, image_cap)?;
        let tid = committer.first();
        let before = Tid(tid.0 - 1);
        let progress = Progress {
            requests: 0,
            served: 0,
            asked: false,
            waiting: [0; 2],
            waiting_for_role: 0,
            waiting_for_fast: 0,
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
                reported: AtomicBool::new(false),
            }),
            durable: Padded(AtomicU64::new(before.0)),
            settled: Padded(AtomicU64::new(before.0)),
            progress: Padded(Mutex::new(Rank::Journal, progress)),
            work: Padded(Condvar::new()),
            moved: [Padded(Condvar::new()), Padded(Condvar::new())],
            role_free: Padded(Condvar::new()),
            fast_free: Padded(Condvar::new()),
            ended: Padded(Condvar::new()),
            opener: Process::this(),
        })
    }

    /// Returns the largest number of credits that [`Journal::join`] accepts.
    pub fn max_credits(&self) -> u32 {
        self.credits.limits.capacity
    }

    /// Returns the transaction that is running or closing.
    pub fn running(&self) -> Tid {
        Tid(self.membership.running())
    }

    /// Returns the newest durable transaction.
    pub fn durable(&self) -> Tid {
        Tid(self.durable.load(Ordering::Acquire))
    }

    /// Returns the newest transaction that is durable and whose deferred work is done. So nothing
    /// is left to do for the objects that this or an earlier transaction changed.
    pub fn settled(&self) -> Tid {
        Tid(self.settled.load(Ordering::Acquire))
    }

    /// Requests a commit of the running transaction without waiting for it.
    pub fn request_commit(&self) {
        self.ask(&mut self.progress.lock());
    }

    pub(crate) fn ask(&self, progress: &mut Progress) {
        progress.asked = true;
        self.work.notify_all();
    }

    /// Records that a data write to the device completed. Called before the write is acknowledged.
    /// The returned mark tells [`Journal::flush_if_needed`] which flush makes the write durable.
    pub fn note_write(&self) -> FlushMark {
        self.flusher.note_write()
    }

    /// Returns the mark of the last data write.
    pub fn last_write(&self) -> FlushMark {
        self.flusher.last_write()
    }

    /// Makes the data write that got `mark`, and all earlier data writes, durable. Flushes only if
    /// no flush was submitted since that write. Concurrent callers share one flush.
    ///
    /// # Errors
    /// [`Error::Device`] at the first failed flush, which aborts the journal because all writes
    /// after the last successful flush may be lost. [`Error::Aborted`] from then on.
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

    /// Returns the newest image of a metadata block if that image is not written in place yet;
    /// `None` if the device has the newest content.
    ///
    /// # Errors
    /// Returns no error at present.
    pub fn image(&self, block: Block) -> Result<Option<Arc<[u8]>>, Error> {
        Ok(self.store.newest(block))
    }

    /// Returns the size in bytes of all images that are not written in place yet.
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
        // An error that only reports an earlier abort is not recorded as a new cause.
        if matches!(cause, Error::Aborted { .. }) || self.fate.cause.set(Arc::new(cause)).is_err() {
            return;
        }
        self.wake_everybody();
    }

    fn wake_everybody(&self) {
        self.credits.wake_all();
        let _progress = self.progress.lock();
        let waits = [&self.work, &self.role_free, &self.fast_free, &self.moved[0], &self.moved[1]];
        for condvar in waits {
            condvar.notify_all();
        }
    }

    /// Returns the cause of the journal's abort, if it was aborted.
    pub fn cause(&self) -> Option<Error> {
        self.fate.cause.get().map(|cause| (**cause).clone())
    }

    /// Returns whether the journal was aborted; unlike [`Journal::cause`], copies no error.
    #[inline]
    pub fn is_aborted(&self) -> bool {
        self.fate.cause.get().is_some()
    }

    /// Fails in a child of fork(2). The child lacks the threads that it would wait for.
    ///
    /// # Errors
    /// [`Error::Forked`]
    #[inline]
    pub fn check_process(&self) -> Result<(), Error> {
        if self.opener.is_this() { Ok(()) } else { Err(Error::Forked) }
    }

    pub(crate) fn check_abort(&self) -> Result<(), Error> {
        self.check_process()?;
        match self.fate.cause.get() {
            None => Ok(()),
            Some(cause) => Err(Error::Aborted { cause: cause.clone() }),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_abort()?;
        if self.fate.stopped.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    /// Records that `tid` is durable, and wakes the waiters.
    pub(crate) fn note_durable(&self, tid: Tid) {
        // Release: a thread that reads this number also sees the image store without the blocks
        // that the transaction freed.
        self.durable.store(tid.0, Ordering::Release);
        let mut progress = self.progress.lock();
        progress.durable = tid;
        self.wake(&progress, tid);
    }

    /// Records that the deferred work of `tid` is done.
    pub(crate) fn note_settled(&self, tid: Tid) {
        // Release: a thread that waited for this number also sees the effects of the deferred work.
        self.settled.store(tid.0, Ordering::Release);
        let mut progress = self.progress.lock();
        progress.settled = tid;
        self.wake(&progress, tid);
    }

    pub(crate) fn wake(&self, progress: &Progress, tid: Tid) {
        let parity = parity(tid);
        if progress.waiting[parity] != 0 {
            self.moved[parity].notify_all();
        }
    }
}

pub(crate) fn parity(tid: Tid) -> usize {
    (tid.0 & 1) as usize
}
