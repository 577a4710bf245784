//! On which processor the reader sits: the one where its only client runs.
//!
//! A client waits for each reply, so client and reader take turns anyway. On one processor a turn
//! is a switch of context; across two, both are woken from idle each time, which cost seven times as
//! much where it was measured (`docs/fuse.md`). The scheduler keeps whichever of the two it began
//! with, and one request that nobody waits for (RELEASE, FORGET) is enough to part them again. So
//! while all requests come from one thread the reader holds itself to that thread's processor;
//! when several ask in turn, the scheduler decides.

use lanefs_lanes::sync::OnceLock;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fs::File;
use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

/// Requests in a row from one thread after which the reader goes where that thread is, and then
/// after each so many sees whether they came slowly.
const FAMILIAR: u32 = 8;
/// As many requests that take longer may have come from another processor, so the reader looks again
/// where its client is. A look is three system calls, a few microseconds.
const SLOWLY: Duration = Duration::from_micros(200);
/// Requests in a row after which it looks in any case.
const LOOK_EVERY: u32 = 64;
/// The most requests between two looks, where following the client is of no use.
const LOOK_AT_LEAST: u32 = 4096;
/// How long the processor that the reader leaves is given to fall asleep. The scheduler puts whoever
/// it wakes on an idle processor beside the waker's, so the client, answered from its own processor,
/// would go where the reader has just been. It does not take one whose virtual processor the host has
/// put to sleep, which hosts do after an idle time of up to 200 us.
const FALL_ASLEEP: Duration = Duration::from_micros(300);
/// What a request from another thread than the last adds to the doubt about a single client; one
/// from the same takes 1 away.
const STRANGER: u32 = 4;
/// As much doubt means several clients.
const SEVERAL: u32 = 32;

/// What the readers know of who asks; it goes with the baton.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The thread that asked last, as the kernel numbers it for us.
    thread: u32,
    /// Requests in a row from it.
    row: u32,
    /// When the row was last a multiple of [`FAMILIAR`].
    since: Option<Instant>,
    /// The row at the last look.
    looked: u32,
    /// Requests between two looks because of slowness: more after each that was of no use.
    pause: u32,
    /// Looks in a row that found it elsewhere than the one before.
    in_vain: u32,
    doubt: u32,
    /// Whether it was ever looked for.
    was_found: bool,
    /// Where the reader is to sit: where the client was found last; `None`: wherever.
    processor: Option<u32>,
}

/// What is to be done after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Stay,
    /// See where this thread is.
    Look(u32),
    /// There are several clients.
    Leave,
}

impl Default for Client {
    fn default() -> Client {
        Client {
            thread: 0,
            row: 0,
            since: None,
            looked: 0,
            pause: FAMILIAR,
            in_vain: 0,
            doubt: 0,
            was_found: false,
            processor: None,
        }
    }
}

impl Client {
    /// Whether all requests come from one thread, as far as is known.
    pub fn is_alone(&self) -> bool {
        self.row >= FAMILIAR
    }

    /// A request of `thread` was read; 0 is the kernel itself, for nobody who waits.
    fn asked(&mut self, thread: u32, now: impl FnOnce() -> Instant) -> Next {
        if thread == 0 {
            return Next::Stay;
        }
        if thread != self.thread {
            let Client { doubt, processor, .. } = *self;
            *self = Client { thread, row: 1, doubt, processor, ..Client::default() };
            return self.doubts();
        }
        if self.row == u32::MAX {
            // After a day of one client. As long a row as any, from which it is looked for again.
            (self.row, self.looked) = (LOOK_EVERY, 0);
        }
        self.row += 1;
        self.doubt = self.doubt.saturating_sub(1);
        if !self.row.is_multiple_of(FAMILIAR) {
            return Next::Stay;
        }
        let now = now();
        let before = self.since.replace(now);
        let slowly = before.is_none_or(|then| now.saturating_duration_since(then) > SLOWLY);
        let since = self.row - self.looked;
        let look = since >= if slowly { self.pause } else { self.pause.max(LOOK_EVERY) };
        if !look {
            return Next::Stay;
        }
        self.looked = self.row;
        Next::Look(thread)
    }

    /// It was looked for: where it is, if that could be seen. True if it had been found elsewhere, so
    /// that the processor which the reader leaves for it should be asleep before it is answered.
    fn found(&mut self, processor: Option<u32>) -> bool {
        let before = std::mem::replace(&mut self.processor, processor);
        let first = !std::mem::replace(&mut self.was_found, true);
        if first {
            return false;
        }
        if processor == before {
            // Slow for some other reason.
            self.in_vain = 0;
            self.pause = (self.pause * 2).min(LOOK_EVERY);
            return false;
        }
        self.in_vain = self.in_vain.saturating_add(1);
        self.pause = match self.in_vain {
            1 => FAMILIAR,
            _ => (self.pause * 2).min(LOOK_AT_LEAST),
        };
        self.row >= LOOK_EVERY
    }

    /// What moves much data goes on beside its client, which needs its own processor then.
    fn moved_much(&mut self) -> Next {
        (self.row, self.looked, self.since) = (0, 0, None);
        self.doubts()
    }

    fn doubts(&mut self) -> Next {
        self.doubt = (self.doubt + STRANGER).min(SEVERAL);
        if self.doubt == SEVERAL { Next::Leave } else { Next::Stay }
    }
}

/// The processors of one serving thread, and of the watchdog over it. Without the right to choose, or
/// with one processor only, they stay where they are put.
pub struct Seat<'w> {
    /// Where it may run at all.
    allowed: Option<CpuSet>,
    /// The one to which it holds itself.
    sits: Option<u32>,
    watchdog: &'w Watchdog,
}

/// The thread that looks after the reader every few milliseconds. It sits beside the reader: on
/// another processor each of its looks would wake that one, and the scheduler moves the next thread
/// that wakes to a processor that is awake and idle (see [`FALL_ASLEEP`]).
#[derive(Debug, Default)]
pub struct Watchdog {
    thread: OnceLock<Pid>,
}

impl Watchdog {
    /// The calling thread is the one.
    pub fn is_me(&self) {
        // There is one watchdog in a session.
        let _ = self.thread.set(gettid());
    }

    fn sit(&self, processors: &CpuSet) {
        if let Some(thread) = self.thread.get() {
            // It works wherever it is.
            let _ = sched_setaffinity(Some(*thread), processors);
        }
    }
}

impl<'w> Seat<'w> {
    /// The calling thread's.
    pub fn new(watchdog: &'w Watchdog) -> Seat<'w> {
        let allowed = sched_getaffinity(None).ok().filter(|set| set.count() > 1);
        Seat { allowed, sits: None, watchdog }
    }

    /// Goes where the reader is to be.
    pub fn take(&mut self, client: &Client) {
        self.sit(client.processor);
    }

    /// Goes wherever the scheduler likes, for work beside the reader.
    pub fn leave(&mut self) {
        if let Some(allowed) = &self.allowed {
            self.sits = self.sits.filter(|_| sched_setaffinity(None, allowed).is_err());
        }
    }

    /// A quick request was read from `thread`.
    pub fn asked(&mut self, client: &mut Client, thread: u32) {
        match client.asked(thread, Instant::now) {
            Next::Stay => {}
            Next::Leave => self.let_go(client),
            Next::Look(_) if self.allowed.is_none() => {}
            Next::Look(thread) => {
                let moved = client.found(processor_of(thread));
                let leaves = sched_getcpu();
                self.sit(client.processor);
                if moved && self.sits.is_some_and(|sits| sits as usize != leaves) {
                    thread::sleep(FALL_ASLEEP);
                }
            }
        }
    }

    /// A request was read that moves much data.
    pub fn moved_much(&mut self, client: &mut Client) {
        if client.moved_much() == Next::Leave {
            self.let_go(client);
        }
    }

    fn let_go(&mut self, client: &mut Client) {
        client.processor = None;
        self.sit(None);
    }

    fn sit(&mut self, processor: Option<u32>) {
        let Some(allowed) = &self.allowed else { return };
        if self.sits == processor {
            return;
        }
        let held = match processor.map(|n| n as usize) {
            Some(n) if n < CpuSet::MAX_CPU && allowed.is_set(n) => {
                let mut one = CpuSet::new();
                one.set(n);
                self.watchdog.sit(&one);
                sched_setaffinity(None, &one)
            }
            _ => {
                self.watchdog.sit(allowed);
                sched_setaffinity(None, allowed)
            }
        };
        match held {
            Ok(()) => self.sits = processor,
            // The host's rules changed under us.
            Err(_) => (self.allowed, self.sits) = (None, None),
        }
    }
}

/// Where a thread runs, or ran last; `None` if this process may not know.
fn processor_of(thread: u32) -> Option<u32> {
    // Some 50 numbers; the rest of a longer line does not matter.
    let mut stat = [0; 1024];
    let len = File::open(format!("/proc/{thread}/stat")).ok()?.read(&mut stat).ok()?;
    parse_processor(stat.get(..len)?)
}

/// The 39th field; the 2nd, the name in parentheses, may hold anything.
fn parse_processor(stat: &[u8]) -> Option<u32> {
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(after..)?).ok()?;
    fields.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many rounds of requests of `threads`, at once.
    fn many(client: &mut Client, threads: &[u32], times: usize) -> Vec<Next> {
        let now = Instant::now();
        let requests = threads.iter().cycle().take(threads.len() * times);
        requests.map(|&thread| client.asked(thread, || now)).collect()
    }

    #[test]
    fn a_thread_that_asks_alone_is_looked_for_now_and_then() {
        let mut client = Client::default();
        let said = many(&mut client, &[7], 200);
        let looks = |next: &&Next| **next == Next::Look(7);
        assert_eq!(said.iter().filter(looks).count(), 4, "after 8, 72, 136 and 200 requests");
        assert!(said.iter().all(|next| *next != Next::Leave));
    }

    /// At which requests of one thread, each of which took long, it was looked for, when it was then
    /// found on `processors` in turn; and how often the reader waited for one to fall asleep.
    fn looks(client: &mut Client, requests: u32, processors: &[u32]) -> (Vec<u32>, usize) {
        let mut now = Instant::now();
        let (mut at, mut waits) = (Vec::new(), 0);
        for n in 1..=requests {
            now += SLOWLY / 4;
            if client.asked(7, || now) == Next::Look(7) {
                let place = processors[at.len() % processors.len()];
                waits += usize::from(client.found(Some(place)));
                assert_eq!(client.processor, Some(place));
                at.push(n);
            }
        }
        (at, waits)
    }

    #[test]
    fn a_thread_whose_requests_come_slowly_is_looked_for_sooner() {
        let (at, waits) = looks(&mut Client::default(), 200, &[1]);
        assert_eq!(
            (at, waits),
            (vec![8, 16, 32, 64, 128, 192], 0),
            "it is slow for some other reason"
        );
    }

    #[test]
    fn a_thread_that_is_always_elsewhere_is_followed_ever_less() {
        let (at, waits) = looks(&mut Client::default(), 100_000, &[0, 1]);
        assert_eq!(at[..6], [8, 16, 24, 40, 72, 136]);
        assert!(at.len() < 40 && waits < 40, "{} looks, {waits} waits", at.len());
    }

    #[test]
    fn a_thread_that_was_moved_once_is_followed_at_once() {
        let mut client = Client::default();
        let places = [vec![0; 20], vec![1; 20]].concat();
        let (at, waits) = looks(&mut client, 2000, &places);
        assert_eq!((client.processor, waits), (Some(1), 1));
        assert!(at[21] - at[20] == FAMILIAR, "and seen to be still there");
    }

    #[test]
    fn a_client_of_many_days_is_still_looked_for() {
        let mut client = Client::default();
        many(&mut client, &[7], 200);
        (client.row, client.looked) = (u32::MAX - 3, u32::MAX - 7);
        let said = many(&mut client, &[7], 2 * LOOK_EVERY as usize);
        assert!(said.contains(&Next::Look(7)));
        assert!(client.is_alone());
    }

    #[test]
    fn the_kernels_own_requests_say_nothing_about_the_client() {
        let mut client = Client::default();
        assert!(!client.is_alone());
        many(&mut client, &[7], 20);
        assert!(client.is_alone());
        let before = client;
        many(&mut client, &[0], 20);
        assert_eq!(client, before);
    }

    #[test]
    fn threads_that_ask_in_turn_are_several_clients() {
        for pattern in [&[7, 8][..], &[7, 7, 8, 8], &[7, 7, 7, 7, 8], &[7, 8, 9]] {
            let mut client = Client::default();
            many(&mut client, &[7], 100);
            assert!(many(&mut client, pattern, 40).contains(&Next::Leave), "{pattern:?}");
            assert!(!client.is_alone(), "{pattern:?}");
        }
    }

    #[test]
    fn one_client_after_another_is_followed() {
        let mut client = Client::default();
        for thread in 1..20 {
            assert!(!many(&mut client, &[thread], 50).contains(&Next::Leave));
        }
    }

    #[test]
    fn bulk_data_lets_the_reader_go() {
        let mut client = Client::default();
        assert!((0..20).any(|_| client.moved_much() == Next::Leave));
    }

    #[test]
    fn a_thread_sits_where_it_is_told_and_gets_up_again() {
        let thread = std::thread::spawn(|| {
            let watchdog = Watchdog::default();
            let mut seat = Seat::new(&watchdog);
            let Some(before) = seat.allowed else { return };
            let last = (0..CpuSet::MAX_CPU).rev().find(|&n| before.is_set(n)).unwrap() as u32;
            seat.take(&Client { processor: Some(last), ..Client::default() });
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            assert_eq!(processor_of(own), Some(last));
            seat.leave();
            assert_eq!(sched_getaffinity(None).unwrap(), before);
            // Not a processor that we may use: no holding then.
            seat.take(&Client { processor: Some(u32::from(u16::MAX)), ..Client::default() });
            assert_eq!(sched_getaffinity(None).unwrap(), before);
        });
        thread.join().unwrap();
    }

    #[test]
    fn the_processor_is_found_behind_any_name() {
        let numbers = (3..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        for name in ["sh", "a b", ") 1 2 (", "\u{fc}"] {
            assert_eq!(parse_processor(format!("1 ({name}) {numbers}").as_bytes()), Some(39));
        }
        assert_eq!(parse_processor(b""), None);
        assert_eq!(parse_processor(b"1 (sh) S 1"), None);
    }
}
