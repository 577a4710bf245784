//! A handle: membership of the running transaction with the credits to change something in it.

use crate::lists::Listed;
use crate::{Error, Journal, Tid};
pub(crate) use once::Joined;

use lanefs_lanes::Member;
use lanefs_ondisk::Block;

/// One operation's part of the running transaction; the transaction cannot close while it lives.
///
/// An operation passes it down; a thread never joins twice. Dropping it leaves the transaction. If
/// its thread panics, the drop aborts the journal first, since the operation is half done.
///
/// # Locking
/// No wait and no I/O while it lives: a commit waits for it, and all joiners wait for the commit.
pub struct Handle<'a, O, D> {
    journal: &'a Journal<O, D>,
    member: Member<'a>,
    /// Grains drawn and not charged yet.
    left: u64,
    was_panicking: bool,
    _once: Joined,
}

impl<'a, O, D> Handle<'a, O, D> {
    pub(crate) fn new(
        journal: &'a Journal<O, D>,
        member: Member<'a>,
        grains: u64,
        once: Joined,
    ) -> Handle<'a, O, D> {
        let was_panicking = std::thread::panicking();
        Handle { journal, member, left: grains, was_panicking, _once: once }
    }

    /// The transaction.
    pub fn tid(&self) -> Tid {
        Tid(self.member.tid())
    }

    /// Credits left, in whole blocks.
    pub fn credits(&self) -> u32 {
        (self.left / self.journal.credits.limits().grains) as u32
    }

    /// Puts an object on the list of objects to capture: to be called once for each object that
    /// [`crate::Tracked::touch`] says is newly dirty.
    pub fn dirty(&mut self, object: O) -> Listed {
        let lane = self.member.lane();
        Listed { lane, slot: self.journal.lists.of(lane).lock().objects.put(object) }
    }

    /// Takes an object off the list again that this transaction has put there and that
    /// [`crate::Tracked::bury`] says has no image: an object made and deleted within one
    /// transaction leaves nothing behind.
    pub fn take_off(&mut self, listed: Listed) -> Option<O> {
        self.journal.lists.of(listed.lane).lock().objects.take_off(listed.slot)
    }

    /// Uses credits for `blocks` blocks that become part of the transaction now.
    ///
    /// # Panics
    /// If they were not asked for at join: the worst case of the operation was computed wrong.
    pub fn charge(&mut self, blocks: u32) {
        self.spend(u64::from(blocks) * self.journal.credits.limits().grains);
    }

    /// Records that `block` is freed, which may have images in the log: no replay may write it
    /// after this transaction, unless it is used as metadata again. Costs a fraction of a credit,
    /// so an operation asks for one credit for all its revokes, or two beyond a hundred.
    ///
    /// # Panics
    /// If the credits are used up.
    pub fn revoke(&mut self, block: Block) {
        self.spend(1);
        self.journal.lists.of(self.member.lane()).lock().revokes.push(block);
    }

    /// Puts off `deferred` until the transaction is durable.
    pub fn defer(&mut self, deferred: D) {
        self.journal.lists.of(self.member.lane()).lock().deferred.push(deferred);
    }

    fn spend(&mut self, grains: u64) {
        assert!(self.left >= grains, "more charged than asked for at join");
        self.left -= grains;
    }
}

impl<O, D> Drop for Handle<'_, O, D> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.journal.abort(Error::Panicked { tid: self.tid() });
        }
        self.journal.credits.give_back(self.tid(), self.member.lane(), self.left);
        // The member leaves after this.
    }
}

/// A thread with a handle that joins again would wait for itself once the transaction closes.
mod once {
    #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
    pub(crate) use checked::Joined;
    #[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
    pub(crate) use unchecked::Joined;

    #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
    mod checked {
        use std::cell::Cell;
        use std::marker::PhantomData;

        thread_local! { static JOINED: Cell<bool> = const { Cell::new(false) }; }

        /// Not `Send`: the thread that joined is the one that leaves.
        pub(crate) struct Joined(PhantomData<*const ()>);

        impl Joined {
            pub(crate) fn new() -> Joined {
                let before = JOINED.replace(true);
                assert!(!before, "a thread joins one transaction at a time");
                Joined(PhantomData)
            }
        }

        impl Drop for Joined {
            fn drop(&mut self) {
                JOINED.set(false);
            }
        }
    }

    /// The checkers run all threads as one, so thread-local memory says nothing there; release
    /// builds do not check.
    #[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
    mod unchecked {
        use std::marker::PhantomData;

        pub(crate) struct Joined(PhantomData<*const ()>);

        impl Joined {
            pub(crate) fn new() -> Joined {
                Joined(PhantomData)
            }
        }
    }
}
