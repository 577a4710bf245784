//! A handle: it makes an operation a member of the running transaction, and holds credits for
//! changes in this transaction.

use crate::error::Error;
use crate::journal::Journal;
use crate::lists::Listed;
use crate::tid::Tid;
use lanefs_lanes::Member;
use lanefs_ondisk::Block;
use std::cell::Cell;
use std::marker::PhantomData;

/// One operation's part of the running transaction; the transaction cannot close before the handle
/// is dropped.
///
/// An operation passes its handle to the functions that it calls, because a thread must not join
/// while it has a handle. Dropping the handle leaves the transaction. If the handle's thread
/// panics, the drop aborts the journal before it leaves the transaction, because the operation is
/// half done.
///
/// # Locking
/// A thread with a handle must not wait and must not do I/O, because a commit waits for the handle,
/// and all joiners wait for the commit.
pub struct Handle<'a, O, D> {
    journal: &'a Journal<O, D>,
    member: Member<'a>,
    /// Grains that are drawn and not charged yet.
    left: u64,
    was_panicking: bool,
    _once: Joined,
    /// The blocks that the operation changes, and the grains with which it joined.
    #[cfg(debug_assertions)]
    changed: (std::collections::BTreeSet<String>, u64),
}

impl<'a, O, D> Handle<'a, O, D> {
    fn new(
        journal: &'a Journal<O, D>,
        member: Member<'a>,
        grains: u64,
        once: Joined,
    ) -> Handle<'a, O, D> {
        Handle {
            journal,
            member,
            left: grains,
            was_panicking: std::thread::panicking(),
            _once: once,
            #[cfg(debug_assertions)]
            changed: (Default::default(), grains),
        }
    }

    /// Returns the number of the transaction.
    pub fn tid(&self) -> Tid {
        Tid(self.member.tid())
    }

    /// Returns the remaining credits, in whole blocks.
    pub fn credits(&self) -> u32 {
        (self.left / self.journal.credits.limits.grains) as u32
    }

    /// Adds an object to the list of objects to capture. Call this once for each object that
    /// [`crate::Tracked::touch`] reports as newly dirty.
    pub fn dirty(&mut self, object: O) -> Listed {
        let lane = self.member.lane();
        Listed { lane, slot: self.journal.lists.of(lane).lock().objects.put(object) }
    }

    /// Removes an object that [`Handle::dirty`] has put on the list in this transaction. Call this
    /// after [`crate::Tracked::bury`] if no capture needs the object. Thus an object that is
    /// created and deleted within one transaction leaves nothing on the list.
    pub fn take_off(&mut self, listed: Listed) -> Option<O> {
        self.journal.lists.of(listed.lane).lock().objects.take_off(listed.slot)
    }

    /// Uses credits for `blocks` blocks that become part of the transaction now.
    ///
    /// # Panics
    /// If the handle has fewer credits left, because the operation's worst case was computed wrong.
    pub fn charge(&mut self, blocks: u32) {
        self.spend(u64::from(blocks) * self.journal.credits.limits.grains);
    }

    /// Notes that the operation changes the block that `what` denotes, before the block is charged.
    /// A block that is part of the transaction already costs nothing, so charges alone seldom show
    /// that an operation joined with too few credits. Debug builds therefore count the blocks that
    /// it changes.
    ///
    /// # Panics
    /// In debug builds, if the operation changes more blocks than it has joined with.
    #[inline]
    pub fn changes(&mut self, what: impl std::fmt::Debug) {
        #[cfg(debug_assertions)]
        {
            let (blocks, granted) = &mut self.changed;
            blocks.insert(format!("{what:?}"));
            let grains = blocks.len() as u64 * self.journal.credits.limits.grains;
            assert!(grains <= *granted, "more changed than asked for at join: {blocks:?}");
        }
        let _ = what;
    }

    /// Records that `block`, which may have images in the log, is freed. After this transaction has
    /// been committed, replay must not write these images, unless the block is used as metadata
    /// again. Costs a fraction of a credit: one credit pays for at least 64 revokes.
    ///
    /// # Panics
    /// If the credits are used up.
    pub fn revoke(&mut self, block: Block) {
        self.spend(1);
        self.journal.lists.of(self.member.lane()).lock().revokes.push(block);
    }

    /// Defers `deferred` until the transaction is durable.
    pub fn defer(&mut self, deferred: D) {
        self.journal.lists.of(self.member.lane()).lock().deferred.push(deferred);
    }

    fn spend(&mut self, grains: u64) {
        assert!(self.left >= grains, "more charged than asked for at join");
        self.left -= grains;
    }
}

impl<O, D> Journal<O, D> {
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
    /// May wait for a commit, so the caller must hold no state guard. The caller may hold operation
    /// locks, because a commit never takes them.
    pub fn join(&self, credits: u32) -> Result<Handle<'_, O, D>, Error> {
        self.check()?;
        let once = Joined::new();
        let grains = self.credits.grains(credits)?;
        let member = self.membership.join();
        // The check is repeated here. A stop or an abort of the journal is recorded before the last
        // transaction closes, so a thread that waited for this close sees the record now.
        self.check()?;
        if self.credits.draw(Tid(member.tid()), member.lane(), grains, None).is_ok() {
            return Ok(Handle::new(self, member, grains, once));
        }
        drop(member);
        self.join_later(grains, once)
    }

    /// Queues for credits until there are enough.
    #[cold]
    fn join_later(&self, grains: u64, once: Joined) -> Result<Handle<'_, O, D>, Error> {
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
}

impl<O, D> Drop for Handle<'_, O, D> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.journal.abort(Error::Panicked { tid: self.tid() });
        }
        self.journal.credits.give_back(self.tid(), self.member.lane(), self.left);
        // The handle leaves the transaction when its fields are dropped, after this function.
    }
}

/// Detects a thread that joins while it has a handle. Such a thread would wait for itself when the
/// transaction closes. Not `Send`: a handle must be dropped by the thread that joined.
struct Joined(PhantomData<*const ()>);

/// Release builds do not check. The schedule checkers run all threads on one real thread, so
/// thread-local memory does not distinguish them.
const CHECKS: bool = cfg!(all(debug_assertions, not(any(loom, shuttle))));

thread_local! { static JOINED: Cell<bool> = const { Cell::new(false) }; }

impl Joined {
    fn new() -> Joined {
        assert!(!CHECKS || !JOINED.replace(true), "a thread joins one transaction at a time");
        Joined(PhantomData)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if CHECKS {
            JOINED.set(false);
        }
    }
}
