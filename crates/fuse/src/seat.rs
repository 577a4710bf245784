//! On which processor the reader sits: the one where its only client runs.
//!
//! A client waits for each reply, so client and reader take turns anyway. On one processor a turn
//! is a switch of context; across two, both are woken from idle each time, which cost seven times as
//! much where it was measured (`docs/fuse.md`). The scheduler keeps whichever of the two it began
//! with, and one request that nobody waits for (RELEASE, FORGET) is enough to part them again. So
//! while all requests come from one thread the reader holds itself to that thread's processor;
//! when several ask in turn, the scheduler decides.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::time::{Duration, Instant};

/// Requests in a row from one thread after which the reader goes where that thread is, and then
/// after each so many sees whether they came slowly.
const FAMILIAR: u32 = 8;
/// As many requests that take longer may have come from another processor, so the reader looks again
/// where its client is. A look is three system calls, a few microseconds.
const SLOWLY: Duration = Duration::from_micros(200);
/// Requests in a row after which it looks in any case.
const LOOK_EVERY: u32 = 64;
/// What a request from another thread than the last adds to the doubt about a single client; one
/// from the same takes 1 away.
const STRANGER: u32 = 4;
/// As much doubt means several clients.
const SEVERAL: u32 = 32;

/// What the readers know of who asks; it goes with the baton.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Client {
    /// The thread that asked last, as the kernel numbers it for us.
    thread: u32,
    /// Requests in a row from it.
    row: u32,
    /// When the row was last a multiple of [`FAMILIAR`].
    since: Option<Instant>,
    doubt: u32,
    /// Where the reader is to sit; `None`: wherever.
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

impl Client {
    /// A request of `thread` was read; 0 is the kernel itself, for nobody who waits.
    fn asked(&mut self, thread: u32, now: impl FnOnce() -> Instant) -> Next {
        if thread == 0 {
            return Next::Stay;
        }
        if thread == self.thread {
            self.row = self.row.saturating_add(1);
            self.doubt = self.doubt.saturating_sub(1);
            if !self.row.is_multiple_of(FAMILIAR) {
                return Next::Stay;
            }
            let now = now();
            let before = self.since.replace(now);
            let slowly = before.is_none_or(|then| now.saturating_duration_since(then) > SLOWLY);
            let look = slowly || self.row.is_multiple_of(LOOK_EVERY);
            return if look { Next::Look(thread) } else { Next::Stay };
        }
        (self.thread, self.row, self.since) = (thread, 1, None);
        self.doubts()
    }

    /// What moves much data goes on beside its client, which needs its own processor then.
    fn moved_much(&mut self) -> Next {
        (self.row, self.since) = (0, None);
        self.doubts()
    }

    fn doubts(&mut self) -> Next {
        self.doubt = (self.doubt + STRANGER).min(SEVERAL);
        if self.doubt == SEVERAL { Next::Leave } else { Next::Stay }
    }
}

/// The processors of one serving thread. Without the right to choose, or with one processor only,
/// it stays where it is put.
pub struct Seat {
    /// Where it may run at all.
    allowed: Option<CpuSet>,
    /// The one to which it holds itself.
    sits: Option<u32>,
}

impl Seat {
    /// The calling thread's.
    pub fn new() -> Seat {
        Seat { allowed: sched_getaffinity(None).ok().filter(|set| set.count() > 1), sits: None }
    }

    /// Goes where the reader is to be.
    pub fn take(&mut self, client: &Client) {
        self.sit(client.processor);
    }

    /// Goes wherever the scheduler likes, for work beside the reader.
    pub fn leave(&mut self) {
        self.sit(None);
    }

    /// A quick request was read from `thread`.
    pub fn asked(&mut self, client: &mut Client, thread: u32) {
        let next = client.asked(thread, Instant::now);
        self.follow(client, next);
    }

    /// A request was read that moves much data.
    pub fn moved_much(&mut self, client: &mut Client) {
        let next = client.moved_much();
        self.follow(client, next);
    }

    fn follow(&mut self, client: &mut Client, next: Next) {
        match next {
            Next::Stay => return,
            Next::Look(thread) if self.allowed.is_some() => client.processor = processor_of(thread),
            Next::Look(_) | Next::Leave => client.processor = None,
        }
        self.sit(client.processor);
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
                sched_setaffinity(None, &one)
            }
            _ => sched_setaffinity(None, allowed),
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
    parse_processor(&fs::read(format!("/proc/{thread}/stat")).ok()?)
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
        assert_eq!(said.iter().filter(looks).count(), 4, "after 8, 64, 128 and 192 requests");
        assert!(said.iter().all(|next| *next != Next::Leave));
    }

    #[test]
    fn a_thread_whose_requests_come_slowly_is_looked_for_more_often() {
        let mut client = Client::default();
        let mut now = Instant::now();
        let looks = (0..200).filter(|_| {
            now += SLOWLY / 4;
            client.asked(7, || now) == Next::Look(7)
        });
        assert_eq!(looks.count(), 25);
    }

    #[test]
    fn the_kernels_own_requests_say_nothing_about_the_client() {
        let mut client = Client::default();
        many(&mut client, &[7], 20);
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
            let mut seat = Seat::new();
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
