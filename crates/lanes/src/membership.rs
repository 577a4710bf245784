//! Membership of the running transaction. Members write no cache line that they share.
//!
//! A member writes its lane's slot and reads the state, which is written only when a transaction
//! closes. The member and the closing thread each write their own word, fence (sequentially
//! consistent), and then read the other's word. So at least one of the two sees what the other
//! wrote:
//!
//! ```text
//! join:   loop { if !closed(state) { slot[lane] += 1; FENCE; if !closed(state) { member of tid }
//!                                    leave(lane) }
//!                lock; while closed(state) { wait for opened } }
//! leave:  slot[lane] -= 1; FENCE; if closed(state) { lock; notify drained }
//! close:  lock; state = closed; FENCE; while sum(slots) != 0 { wait for drained }
//!         swap; state = open, tid + 1; notify opened
//! ```
//!
//! *Invariant*: while `swap` runs, there are no members. (`swap` is the function that the caller of
//! [`Membership::close`] passes to take over the transaction's lists.) A thread that enters
//! meanwhile sees the closed state and undoes its entry. To undo the entry it does the same as a
//! member that leaves, including the notification, since the closing thread may have counted the
//! entry and be waiting for its end. No thread spins, because the member for which it would spin
//! may be preempted.
//!
//! *Locking*: [`Rank::Membership`], held only for condition waits and for `swap`.

use crate::lane::{Lane, Padded, PerLane};
use crate::lock::{Condvar, Mutex, MutexGuard};
use crate::rank::Rank;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::world;

/// The members of the running transaction, counted by lane. The transaction closes when all members
/// have left.
#[derive(Debug)]
pub struct Membership {
    /// `tid << 1 | closed`; only the closing thread writes it.
    state: Padded<AtomicU64>,
    /// The number of members that entered on each lane, including threads that are about to undo
    /// their entry.
    slots: PerLane<AtomicU64>,
    door: Mutex<Door>,
    opened: Condvar,
    drained: Condvar,
}

#[derive(Debug)]
struct Door {
    /// Whether a thread is closing the transaction. Only one thread at a time does this.
    closing: bool,
}

/// A member of transaction `tid`, until dropped. A member may move to another thread, because it
/// leaves on the lane on which it entered.
#[derive(Debug)]
#[must_use = "dropping it leaves the transaction"]
pub struct Member<'a> {
    membership: &'a Membership,
    lane: Lane,
    tid: u64,
}

fn is_closed(state: u64) -> bool {
    state & 1 == 1
}

impl Membership {
    /// Creates a membership without members, with transaction `tid` running. Transaction numbers
    /// have 63 bits in this type; the journal converts them to the numbers of jbd2, which wrap.
    pub fn new(tid: u64) -> Membership {
        Membership {
            state: Padded(AtomicU64::new(tid << 1)),
            slots: PerLane::new(|_| AtomicU64::new(0)),
            door: Mutex::new(Rank::Membership, Door { closing: false }),
            opened: Condvar::new(),
            drained: Condvar::new(),
        }
    }

    /// Returns the number of the transaction that is running or closing.
    pub fn running(&self) -> u64 {
        self.state.load(Ordering::Acquire) >> 1
    }

    /// Makes the caller a member of the running transaction; waits while the transaction is
    /// closing.
    ///
    /// # Locking
    /// A thread that is a member already must not call this, because it would wait for itself.
    #[track_caller]
    pub fn join(&self) -> Member<'_> {
        loop {
            if let Some(member) = self.try_join() {
                return member;
            }
            let mut door = self.door.lock();
            while is_closed(self.state.load(Ordering::Acquire)) {
                self.opened.wait(&mut door);
            }
        }
    }

    /// Works like [`Membership::join`], but returns `None` instead of waiting.
    #[track_caller]
    pub fn try_join(&self) -> Option<Member<'_>> {
        if is_closed(self.state.load(Ordering::Acquire)) {
            return None;
        }
        let lane = Lane::current();
        self.slots.of(lane).fetch_add(1, Ordering::Relaxed);
        world::fence_after_update();
        let state = self.state.load(Ordering::Acquire);
        if is_closed(state) {
            self.leave(lane);
            return None;
        }
        Some(Member { membership: self, lane, tid: state >> 1 })
    }

    fn leave(&self, lane: Lane) {
        // Release: if the closing thread reads zero, it sees the member's work.
        self.slots.of(lane).fetch_sub(1, Ordering::Release);
        world::fence_after_update();
        if is_closed(self.state.load(Ordering::Acquire)) {
            let _door = self.door.lock();
            self.drained.notify_all();
        }
    }

    /// Closes the running transaction: prevents joins, waits until all members have left, runs
    /// `swap` with the transaction's number, and opens the next transaction. Concurrent closes run
    /// one after another.
    ///
    /// # Locking
    /// A member must not call this, because it would wait for itself. `swap` runs under
    /// [`Rank::Membership`].
    #[track_caller]
    pub fn close<R>(&self, swap: impl FnOnce(u64) -> R) -> R {
        let mut door = self.door.lock();
        while door.closing {
            self.opened.wait(&mut door);
        }
        door.closing = true;
        let tid = self.state.load(Ordering::Relaxed) >> 1;
        self.state.store(tid << 1 | 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !self.is_drained() {
            self.drained.wait(&mut door);
        }
        // Opens the next transaction even if `swap` panics, because otherwise all threads that join
        // would wait for ever.
        let _open = Opening { membership: self, door: &mut door, tid };
        swap(tid)
    }

    fn is_drained(&self) -> bool {
        Lane::given().all(|lane| self.slots.of(lane).load(Ordering::Acquire) == 0)
    }
}

/// Opens the transaction after `tid` when dropped.
struct Opening<'a, 'g> {
    membership: &'a Membership,
    door: &'a mut MutexGuard<'g, Door>,
    tid: u64,
}

impl Drop for Opening<'_, '_> {
    fn drop(&mut self) {
        self.door.closing = false;
        // Release: a thread that joins the next transaction sees the effects of `swap`.
        self.membership.state.store((self.tid + 1) << 1, Ordering::Release);
        self.membership.opened.notify_all();
    }
}

impl Member<'_> {
    /// Returns the number of the transaction.
    pub fn tid(&self) -> u64 {
        self.tid
    }

    /// Returns the lane on which the member joined. The member uses the lists of this lane.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Leaves the transaction, as a drop does.
    pub fn leave(self) {}
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.membership.leave(self.lane);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::unscheduled::atomic::AtomicBool;

    #[test]
    fn closing_opens_the_next_transaction() {
        let membership = Membership::new(7);
        assert_eq!(membership.join().tid(), 7);
        assert_eq!(membership.close(|tid| tid), 7);
        assert_eq!(membership.running(), 8);
        assert_eq!(membership.join().tid(), 8);
    }

    #[test]
    fn a_closer_waits_for_members_and_joiners_wait_for_the_closer() {
        let membership = Membership::new(1);
        let swapped = AtomicBool::new(false);
        std::thread::scope(|s| {
            let member = membership.join();
            s.spawn(|| membership.close(|_| swapped.store(true, Ordering::SeqCst)));
            while membership.try_join().is_some() {
                std::thread::yield_now();
            }
            assert!(!swapped.load(Ordering::SeqCst));
            s.spawn(|| {
                assert_eq!(membership.join().tid(), 2);
                assert!(swapped.load(Ordering::SeqCst));
            });
            std::thread::sleep(std::time::Duration::from_millis(5));
            member.leave();
        });
    }

    #[test]
    fn members_of_many_threads_are_never_met_by_a_swap() {
        const MEMBERS: usize = 4;
        let membership = Membership::new(0);
        let inside = [const { AtomicU64::new(0) }; 2];
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..MEMBERS {
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let member = membership.join();
                        let inside = &inside[(member.tid() % 2) as usize];
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for expected in 0..3000 {
                membership.close(|tid| {
                    assert_eq!(tid, expected);
                    assert!(inside.iter().all(|n| n.load(Ordering::SeqCst) == 0));
                });
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_panic_in_the_swap_locks_no_thread_out() {
        let membership = Membership::new(1);
        let close = std::panic::AssertUnwindSafe(|| membership.close(|_| panic!("planned")));
        assert!(std::panic::catch_unwind(close).is_err());
        assert_eq!(membership.join().tid(), 2);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
