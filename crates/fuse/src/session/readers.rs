//! Manages the threads that read requests. There are as many readers as clients, up to a maximum,
//! and each reader serves the requests that it reads. In addition, each request that waits for the
//! device has a thread of its own.
//!
//! The number of wanted readers is learned ([`super::clients`]): each reader records which client
//! sends each request. With one client, only one thread reads. A second reader would be woken for
//! every second request, on a processor where the client does not run.
//!
//! A quick request touches only the thread's own [`Post`]. Before a request that is expected to be
//! slow, the thread *leaves* the readers; if too few remain, a parked thread is woken or a new one
//! started. If a request that was expected to be quick takes longer than [`PATIENCE`], the watch
//! thread makes the request's thread leave. After a slow request, the thread joins the readers
//! again, or parks if there are enough.
//!
//! *Locking*: the lock `spares` is a leaf. A thread takes it to wake or park threads, and never
//! holds it while it serves a request.

use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use lanefs_lanes::{Condvar, Mutex, MutexGuard, Padded, Rank};
use std::time::Duration;

/// The maximum number of threads in addition to the readers. It limits how many requests may wait
/// for the device at once. Further requests wait in the kernel's queue.
pub const WAITING: usize = 64;
/// The minimum number of readers. If fewer would remain, a thread is woken or started before a slow
/// request is served.
const FEWEST: usize = 1;
/// The minimum number of threads in a session without rings. With one thread, a search for holes
/// would wait for ever, because the kernel first writes the file's dirty pages, and another thread
/// must serve these writes.
pub const FEWEST_THREADS: usize = 2;
/// How long a request that is expected to be quick may take before its thread leaves the readers.
const PATIENCE: Duration = Duration::from_millis(5);
/// If the watch has looked this many times in succession and seen no request, the session counts as
/// paused. All these looks together take 40 ms.
const PAUSED_LOOKS: u32 = 8;
/// If the watch has looked this many times and seen no request, it sleeps until the next request.
const QUIET_LOOKS: u32 = 20;
/// The time after which a parked thread returns its buffers.
const IDLE: Duration = Duration::from_secs(2);

/// The threads of a session.
pub struct Readers {
    /// The number of threads that read, or serve a quick request. It changes when a slow request
    /// begins or ends, and with the number of clients.
    ready: Padded<AtomicUsize>,
    /// Whether the watch waits for the next request. Changes rarely.
    watch_sleeps: Padded<AtomicBool>,
    spares: Mutex<Spares>,
    wake_watch: Condvar,
    pause: Condvar,
    posts: Vec<Padded<Post>>,
    /// With this many readers or more, a thread parks after a slow request. Changes with the number
    /// of clients.
    enough: Padded<AtomicUsize>,
    /// The maximum number of wanted readers. Changes only at the start.
    most: AtomicUsize,
}

/// State that one thread shares with the watch.
#[derive(Debug, Default)]
struct Post {
    /// A number that grows with each request; it is odd while the thread serves a request that is
    /// expected to be quick. If the watch changes the number while it is odd, the thread has left
    /// the readers.
    serving: AtomicU64,
    /// The thread waits on this condition variable while it is parked.
    parked: Condvar,
    /// The host's thread id; 0 before the thread runs and after it has terminated.
    thread: AtomicU32,
}

#[derive(Debug)]
struct Spares {
    ended: bool,
    /// Whether all initial threads have started, and may read.
    begun: bool,
    /// Whether requests have paused and the service has not been called for this pause yet.
    paused: bool,
    /// The parked threads; the last to park is at the end, since its buffers are the warmest in
    /// caches.
    parked: Vec<usize>,
    /// The number of threads that the watch has to start.
    to_start: usize,
    /// The number of further threads that may be started.
    allowed: usize,
}

/// What a thread does next; it may have been parked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// The thread continues to read requests.
    Reader,
    /// The thread was parked, and reads requests again.
    Called,
    /// The thread returns its buffers and parks again.
    Idle,
    /// The thread terminates: no more requests will come.
    End,
}

impl Readers {
    /// Creates the state of `enough` readers, which are not started yet. Later there may be up to
    /// `most` readers.
    pub fn new(enough: usize, most: usize) -> Readers {
        let most = most.max(enough);
        let parked = Vec::with_capacity(most + WAITING);
        let spares = Spares {
            ended: false,
            begun: false,
            paused: false,
            parked,
            to_start: enough,
            allowed: most - enough + WAITING,
        };
        Readers {
            ready: Padded(AtomicUsize::new(enough)),
            watch_sleeps: Padded::default(),
            // Rank: a leaf, like a bucket of a wait queue. No lock is held when this lock is taken.
            spares: Mutex::new(Rank::Bucket, spares),
            wake_watch: Condvar::new(),
            pause: Condvar::new(),
            posts: (0..most + WAITING).map(|_| Padded::default()).collect(),
            enough: Padded(AtomicUsize::new(enough)),
            most: AtomicUsize::new(most),
        }
    }

    /// Adds entries for `later` more readers, which [`Readers::enlarge`] may need.
    #[must_use]
    pub fn with_room(mut self, later: usize) -> Readers {
        self.posts.extend((0..later).map(|_| Padded::default()));
        self
    }

    /// Replaces the number of readers and their maximum. Called before [`Readers::watch`] starts
    /// any reader.
    pub fn enlarge(&self, enough: usize, most: usize) {
        let mut spares = self.spares.lock();
        spares.to_start = enough;
        spares.allowed += most - enough;
        self.ready.store(enough, Ordering::Release);
        self.enough.store(enough, Ordering::Relaxed);
        self.most.store(most, Ordering::Relaxed);
    }

    /// Waits until all initial threads have started; returns false if the session ended.
    pub fn wait_for_start(&self, me: usize) -> bool {
        let mut spares = self.spares.lock();
        while !spares.ended && !spares.begun {
            self.posts[me].parked.wait(&mut spares);
        }
        !spares.ended
    }

    /// Returns whether the calling reader is the only one.
    pub fn is_alone(&self) -> bool {
        self.ready.load(Ordering::Relaxed) <= FEWEST
    }

    /// Raises the number of wanted readers by one, since several clients send requests.
    pub fn grow(&self) {
        if self.enough.load(Ordering::Relaxed) >= self.most.load(Ordering::Relaxed) {
            return;
        }
        let mut spares = self.spares.lock();
        let enough = self.enough.load(Ordering::Relaxed);
        if enough < self.most.load(Ordering::Relaxed) {
            self.enough.store(enough + 1, Ordering::Relaxed);
            if self.ready.load(Ordering::Acquire) <= enough {
                self.call_another(&mut spares);
            }
        }
    }

    /// Reduces the number of wanted readers by one, since thread `me` gets only requests of one
    /// client. Returns the next step of the thread.
    pub fn shrink(&self, me: usize) -> Join {
        if self.enough.load(Ordering::Relaxed) <= FEWEST {
            return Join::Reader;
        }
        let spares = self.spares.lock();
        let enough = self.enough.load(Ordering::Relaxed);
        if enough <= FEWEST {
            return Join::Reader;
        }
        self.enough.store(enough - 1, Ordering::Relaxed);
        if self.ready.load(Ordering::Acquire) < enough {
            return Join::Reader;
        }
        self.stand_back(me, spares)
    }

    /// Records that thread `me` starts a request that is expected to be quick. Returns the argument
    /// for [`Readers::done`].
    pub fn begin(&self, me: usize) -> u64 {
        self.note(me, 1)
    }

    fn note(&self, me: usize, step: u64) -> u64 {
        let post = &self.posts[me].serving;
        let serving = post.load(Ordering::Relaxed) + step;
        post.store(serving, Ordering::Relaxed);
        self.tell_watch();
        serving
    }

    /// Wakes the watch thread if it sleeps. The caller has recorded a request.
    pub fn tell_watch(&self) {
        // Pairs with the fence in `watch`: either the watch sees this request, or this thread sees
        // that the watch sleeps.
        fence(Ordering::SeqCst);
        if self.watch_sleeps.load(Ordering::Relaxed) {
            let _spares = self.spares.lock();
            self.wake_watch.notify_one();
        }
    }

    /// Records that the quick request is done. Returns whether the thread is still a reader; if
    /// not, it must join the readers again.
    pub fn done(&self, me: usize, serving: u64) -> bool {
        let post = &self.posts[me].serving;
        post.compare_exchange(serving, serving + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Makes thread `me` leave the readers before it serves a request that is expected to be slow.
    pub fn leave(&self, me: usize) {
        self.note(me, 2);
        if self.ready.fetch_sub(1, Ordering::AcqRel) <= FEWEST {
            self.call_another(&mut self.spares.lock());
        }
    }

    fn call_another(&self, spares: &mut Spares) {
        if let Some(spare) = spares.parked.pop() {
            self.ready.fetch_add(1, Ordering::AcqRel);
            self.posts[spare].parked.notify_one();
        } else if spares.allowed > 0 {
            self.ready.fetch_add(1, Ordering::AcqRel);
            spares.allowed -= 1;
            spares.to_start += 1;
            self.wake_watch.notify_one();
        }
    }

    /// Joins thread `me` to the readers after a slow request, or parks it if there are enough
    /// readers.
    pub fn join(&self, me: usize) -> Join {
        // Records the end of the slow request, because a pause in the requests can begin only now.
        self.note(me, 2);
        if self.ready.fetch_add(1, Ordering::AcqRel) < self.enough.load(Ordering::Relaxed) {
            return Join::Reader;
        }
        self.stand_back(me, self.spares.lock())
    }

    /// Removes thread `me` from the readers and parks it, unless no other thread reads.
    fn stand_back(&self, me: usize, mut spares: MutexGuard<'_, Spares>) -> Join {
        if self.ready.fetch_sub(1, Ordering::AcqRel) <= FEWEST {
            // Other readers have left meanwhile, so this one is needed.
            self.ready.fetch_add(1, Ordering::AcqRel);
            return Join::Reader;
        }
        spares.parked.push(me);
        drop(spares);
        self.park(me, true)
    }

    /// Waits until thread `me` is woken as a reader, is idle, or must terminate.
    pub fn park(&self, me: usize, may_be_idle: bool) -> Join {
        let mut spares = self.spares.lock();
        while !spares.ended && spares.parked.contains(&me) {
            if !may_be_idle {
                self.posts[me].parked.wait(&mut spares);
            } else if !self.posts[me].parked.wait_for(&mut spares, IDLE) {
                return Join::Idle;
            }
        }
        if spares.ended { Join::End } else { Join::Called }
    }

    /// Ends the session: no more requests will come.
    pub fn end(&self) {
        self.spares.lock().ended = true;
        self.posts.iter().for_each(|post| {
            post.parked.notify_one();
        });
        self.wake_watch.notify_all();
        self.pause.notify_all();
    }

    /// Returns whether [`Readers::end`] was called.
    pub fn is_over(&self) -> bool {
        self.spares.lock().ended
    }

    /// Records the host's id of thread `me`; 0 when the thread terminates.
    pub fn runs_as(&self, me: usize, thread: u32) {
        self.posts[me].thread.store(thread, Ordering::Relaxed);
    }

    /// Returns the host's ids of the running threads.
    pub fn running(&self) -> impl Iterator<Item = u32> {
        let numbers = self.posts.iter().map(|post| post.thread.load(Ordering::Relaxed));
        numbers.filter(|number| *number != 0)
    }

    /// Waits until requests came and then paused for [`PAUSED_LOOKS`] looks; returns false when the
    /// session ends.
    pub fn wait_for_pause(&self) -> bool {
        let mut spares = self.spares.lock();
        while !spares.ended && !spares.paused {
            self.pause.wait(&mut spares);
        }
        spares.paused = false;
        !spares.ended
    }

    /// Runs the watch: starts threads as needed. If a thread serves one request for too long and no
    /// reader is left, wakes or starts another thread. `start` gets the number of a thread, and
    /// returns false if the host cannot start another. `look_at_rings` starts threads for queues of
    /// rings that make no progress, and returns whether requests came by rings. This function
    /// returns true when the session has ended. It returns false at once if too few of the initial
    /// threads can be started.
    pub fn watch(
        &self,
        mut start: impl FnMut(usize) -> bool,
        mut look_at_rings: impl FnMut() -> bool,
    ) -> bool {
        let mut seen = Vec::with_capacity(self.posts.len());
        let mut quiet = 0;
        let mut spares = self.spares.lock();
        let needed = spares.to_start.min(FEWEST_THREADS);
        while !spares.ended {
            self.start_threads(&mut spares, &mut seen, &mut start);
            if !spares.begun {
                if seen.len() < needed {
                    return false;
                }
                spares.begun = true;
                self.posts.iter().for_each(|post| {
                    post.parked.notify_one();
                });
            }
            let busy = self.look(&mut seen, &mut spares) | look_at_rings();
            quiet = if busy { 0 } else { quiet + 1 };
            if spares.to_start > 0 {
                continue;
            }
            if quiet == PAUSED_LOOKS {
                spares.paused = true;
                self.pause.notify_one();
            }
            if quiet < QUIET_LOOKS {
                self.wake_watch.wait_for(&mut spares, PATIENCE);
                continue;
            }
            self.watch_sleeps.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let mut now = self.posts.iter().map(|post| post.serving.load(Ordering::Relaxed));
            let none_read = seen.iter().all(|seen| now.next() == Some(*seen));
            if none_read && !look_at_rings() {
                self.wake_watch.wait(&mut spares);
            }
            self.watch_sleeps.store(false, Ordering::Relaxed);
            quiet = 0;
        }
        true
    }

    /// Starts `to_start` threads, and adds an entry to `seen` for each of them.
    fn start_threads(
        &self,
        spares: &mut Spares,
        seen: &mut Vec<u64>,
        start: &mut impl FnMut(usize) -> bool,
    ) {
        while spares.to_start > 0 {
            spares.to_start -= 1;
            if start(seen.len()) {
                seen.push(0);
            } else {
                // The host cannot start more threads: the running threads must be enough.
                spares.allowed = 0;
                self.ready.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// If a thread still serves the quick request that it served at the last look, makes the thread
    /// leave the readers. Returns whether there were requests.
    fn look(&self, seen: &mut [u64], spares: &mut Spares) -> bool {
        let mut busy = false;
        for (post, seen) in self.posts.iter().zip(seen) {
            let now = post.serving.load(Ordering::Relaxed);
            busy |= now != *seen;
            if now == *seen && now % 2 == 1 {
                // The new number is even, and differs from `now + 1`, the number that `done` would
                // leave.
                let (old, new) = (now, now + 3);
                let relaxed = Ordering::Relaxed;
                if post.serving.compare_exchange(old, new, relaxed, relaxed).is_ok()
                    && self.ready.fetch_sub(1, Ordering::AcqRel) <= FEWEST
                {
                    self.call_another(spares);
                }
                busy = true;
            }
            *seen = post.serving.load(Ordering::Relaxed);
        }
        busy
    }
}

#[cfg(test)]
mod tests;
