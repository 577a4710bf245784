//! How many threads read requests: a few, each of which answers what it read, and one more for each
//! that waits for the device.
//!
//! A quick request touches only the thread's own [`Post`]. Before a request that is expected to be
//! slow, the thread *leaves* the readers; if too few are left, a parked thread is woken or a new one
//! started. A request that was expected to be quick and takes longer than [`PATIENCE`] is found by
//! the watch, which makes the thread leave. When the slow request is answered, the thread joins the
//! readers again, or parks if there are enough.
//!
//! *Locking*: `spares` is a leaf, taken when threads are called or parked, never while serving.

use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use lanefs_lanes::{Condvar, Mutex, Padded, Rank};
use std::time::Duration;

/// Threads beyond the readers: as many requests may wait for the device at once. Further ones wait in
/// the kernel's queue.
pub const WAITING: usize = 64;
/// Fewest readers: with fewer, a thread is called before a slow request is served.
const FEWEST: usize = 1;
/// How long a request that is expected to be quick may take before another thread is called.
const PATIENCE: Duration = Duration::from_millis(5);
/// Looks without any request after which the session pauses: 40 ms.
const PAUSED_LOOKS: u32 = 8;
/// Looks without any request after which the watch sleeps until the next one.
const QUIET_LOOKS: u32 = 20;
/// A thread that was parked for so long gives its buffers back.
const IDLE: Duration = Duration::from_secs(2);

/// The threads of a session.
pub struct Readers {
    /// Threads that read or serve what is expected to be quick. Changes around slow requests only.
    ready: Padded<AtomicUsize>,
    /// Whether the watch waits for the next request. Changes seldom.
    watch_sleeps: Padded<AtomicBool>,
    spares: Mutex<Spares>,
    wake_watch: Condvar,
    pause: Condvar,
    posts: Vec<Padded<Post>>,
    /// For each ring, a number that grows with its requests.
    rings: Vec<Padded<AtomicU64>>,
    /// With more readers, a thread that comes back from a slow request parks. Changes at the start only.
    enough: AtomicUsize,
}

/// What one thread shares with the watch.
#[derive(Debug, Default)]
struct Post {
    /// Grows with each request; odd while it serves one that is expected to be quick. The watch makes the
    /// thread leave by changing an odd one.
    serving: AtomicU64,
    /// Where it is parked.
    parked: Condvar,
    /// The number that the host gave the thread; 0 before it runs and after it has ended.
    thread: AtomicU32,
}

#[derive(Debug)]
struct Spares {
    ended: bool,
    /// Requests have paused, and nobody was told yet.
    paused: bool,
    /// Parked threads, the last one to come at the end: its buffers are the warmest.
    parked: Vec<usize>,
    /// How many threads the watch has still to start.
    to_start: usize,
    /// How many more there may be.
    allowed: usize,
}

/// What a parked thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Reads on.
    Reader,
    /// Gives its buffers back and parks again.
    Idle,
    /// Ends: there is nothing more to read.
    End,
}

impl Readers {
    /// For `enough` readers, of which none is started yet.
    pub fn new(enough: usize) -> Readers {
        let parked = Vec::with_capacity(enough + WAITING);
        let spares =
            Spares { ended: false, paused: false, parked, to_start: enough, allowed: WAITING };
        Readers {
            ready: Padded(AtomicUsize::new(enough)),
            watch_sleeps: Padded::default(),
            // Rank: a leaf, like a bucket of a wait queue, and taken with nothing held.
            spares: Mutex::new(Rank::Bucket, spares),
            wake_watch: Condvar::new(),
            pause: Condvar::new(),
            posts: (0..enough + WAITING).map(|_| Padded::default()).collect(),
            rings: Vec::new(),
            enough: AtomicUsize::new(enough),
        }
    }

    /// Beside `rings` rings, whose requests count for the pauses; [`Readers::enlarge`] may add `later`
    /// readers.
    #[must_use]
    pub fn beside_rings(mut self, rings: usize, later: usize) -> Readers {
        self.rings = (0..rings).map(|_| Padded::default()).collect();
        self.posts.extend((0..later).map(|_| Padded::default()));
        self
    }

    /// So many more readers.
    pub fn enlarge(&self, more: usize) {
        let mut spares = self.spares.lock();
        spares.to_start += more;
        self.ready.fetch_add(more, Ordering::AcqRel);
        self.enough.fetch_add(more, Ordering::Relaxed);
        self.wake_watch.notify_one();
    }

    /// A ring's thread has a request.
    pub fn ring_serves(&self, ring: usize) {
        let Some(served) = self.rings.get(ring) else { return };
        served.store(served.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.tell_watch();
    }

    /// Thread `me` begins a request that is expected to be quick; gives what [`Readers::done`] wants.
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

    fn tell_watch(&self) {
        // Against the watch's: either it sees this request, or this thread sees that it sleeps.
        fence(Ordering::SeqCst);
        if self.watch_sleeps.load(Ordering::Relaxed) {
            let _spares = self.spares.lock();
            self.wake_watch.notify_one();
        }
    }

    /// The quick request is answered: whether the thread is still one of the readers. If not, it joins
    /// them again.
    pub fn done(&self, me: usize, serving: u64) -> bool {
        let post = &self.posts[me].serving;
        post.compare_exchange(serving, serving + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Thread `me` is about to serve a request that is expected to be slow: it is no reader until it
    /// joins again.
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

    /// Thread `me` has answered a slow request: reads on, or parks if there are readers enough.
    pub fn join(&self, me: usize) -> Join {
        // The slow request is over: whatever pauses, pauses from now on.
        self.note(me, 2);
        if self.ready.fetch_add(1, Ordering::AcqRel) < self.enough.load(Ordering::Relaxed) {
            return Join::Reader;
        }
        let mut spares = self.spares.lock();
        if self.ready.fetch_sub(1, Ordering::AcqRel) <= FEWEST {
            // Others have left meanwhile.
            self.ready.fetch_add(1, Ordering::AcqRel);
            return Join::Reader;
        }
        spares.parked.push(me);
        drop(spares);
        self.park(me, true)
    }

    /// Waits until thread `me` is called.
    pub fn park(&self, me: usize, may_be_idle: bool) -> Join {
        let mut spares = self.spares.lock();
        while !spares.ended && spares.parked.contains(&me) {
            if !may_be_idle {
                self.posts[me].parked.wait(&mut spares);
            } else if !self.posts[me].parked.wait_for(&mut spares, IDLE) {
                return Join::Idle;
            }
        }
        if spares.ended { Join::End } else { Join::Reader }
    }

    /// The connection is over: nothing more is to be read.
    pub fn end(&self) {
        self.spares.lock().ended = true;
        self.posts.iter().for_each(|post| {
            post.parked.notify_one();
        });
        self.wake_watch.notify_all();
        self.pause.notify_all();
    }

    /// Whether [`Readers::end`] was called.
    pub fn is_over(&self) -> bool {
        self.spares.lock().ended
    }

    /// Thread `me` has the number `thread` of the host; 0 when it ends.
    pub fn runs_as(&self, me: usize, thread: u32) {
        self.posts[me].thread.store(thread, Ordering::Relaxed);
    }

    /// The host's numbers of the threads that run.
    pub fn running(&self) -> impl Iterator<Item = u32> {
        let numbers = self.posts.iter().map(|post| post.thread.load(Ordering::Relaxed));
        numbers.filter(|number| *number != 0)
    }

    /// Waits until there were requests and then none for [`PAUSED_LOOKS`] looks; false at the end.
    pub fn wait_for_pause(&self) -> bool {
        let mut spares = self.spares.lock();
        while !spares.ended && !spares.paused {
            self.pause.wait(&mut spares);
        }
        spares.paused = false;
        !spares.ended
    }

    /// The watch: starts threads as they are needed, and calls one for each that is found serving one
    /// request for too long. `start` gets the number of a thread; false if the host has no room for it.
    /// Returns at the end, or if no thread can be started.
    pub fn watch(&self, mut start: impl FnMut(usize) -> bool) {
        let mut seen = Vec::with_capacity(self.posts.len());
        let mut seen_rings = vec![0; self.rings.len()];
        let mut quiet = 0;
        let mut spares = self.spares.lock();
        while !spares.ended {
            self.start_threads(&mut spares, &mut seen, &mut start);
            if seen.is_empty() {
                return;
            }
            let busy = self.look(&mut seen, &mut spares) | self.look_at_rings(&mut seen_rings);
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
            if none_read && !self.look_at_rings(&mut seen_rings) {
                self.wake_watch.wait(&mut spares);
            }
            self.watch_sleeps.store(false, Ordering::Relaxed);
            quiet = 0;
        }
    }

    /// Starts what is to be started; `seen` has an entry for each thread.
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
                // There are as many as the host has room for.
                spares.allowed = 0;
                self.ready.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Whether there were requests on rings.
    fn look_at_rings(&self, seen: &mut [u64]) -> bool {
        let mut busy = false;
        for (served, seen) in self.rings.iter().zip(seen) {
            let before = std::mem::replace(seen, served.load(Ordering::Relaxed));
            busy |= before != *seen;
        }
        busy
    }

    /// Makes threads leave that serve what they served at the last look. Whether there were requests.
    fn look(&self, seen: &mut [u64], spares: &mut Spares) -> bool {
        let mut busy = false;
        for (post, seen) in self.posts.iter().zip(seen) {
            let now = post.serving.load(Ordering::Relaxed);
            busy |= now != *seen;
            if now == *seen && now % 2 == 1 {
                // Even again, but a number that the thread does not expect.
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
