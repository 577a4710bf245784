//! The limits of one owner, and the usage that is compared with them.
//!
//! This usage is counted only for an owner with limits, and only in a mount that obeys limits. All
//! threads that work for such an owner share the counts, since together they must not exceed the
//! limits.

use super::counted::{Wanted, limited};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::Ino;
use lanefs_ondisk::quota::{Limits, Quota, Usage};
use std::collections::BTreeMap;

/// For how many seconds soft limits may be exceeded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grace {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

/// An owner's limits.
pub(super) struct Limited {
    grace: Grace,
    live: Mutex<Live>,
}

struct Live {
    /// The entry; its usage includes operations that are not committed yet.
    quota: Quota,
    /// The reservations of operations in progress, by the inode that they change.
    held: BTreeMap<Ino, Holding>,
}

/// What operations in progress have reserved for one inode.
#[derive(Default)]
struct Holding {
    reserved: Usage,
    /// The part of `reserved` that the owner's usage includes already. Without it, this part would
    /// be counted twice until the operation ends, and others would be refused below the limit.
    used: Usage,
}

/// The space and inodes that an operation in progress has reserved for an inode. When the inode's
/// usage grows, the reservation shrinks by as much. Dropping this value gives back the rest.
pub(crate) struct Held {
    owner: Arc<Limited>,
    ino: Ino,
    amount: Usage,
}

impl Limited {
    pub(super) fn new(quota: Quota, grace: Grace) -> Limited {
        let live = Live { quota, held: BTreeMap::new() };
        Limited { grace, live: Mutex::new(Rank::LaneList, live) }
    }

    /// Reserves for the inode `ino`: `inodes` inodes, and up to `most` units of `unit` bytes, as
    /// many as the limits permit at the time `now`, in seconds. Returns the reservation and its
    /// number of units. Returns `None` if the limits do not permit all wanted inodes, or do not
    /// permit even one of the wanted units.
    pub(super) fn hold(
        self: &Arc<Self>,
        ino: Ino,
        Wanted { inodes, unit, units: most }: Wanted,
        now: u64,
    ) -> Option<(Held, u64)> {
        let mut live = self.live.lock();
        let Limits { kib_hard, kib_soft, inodes_hard, inodes_soft } = live.quota.limits;
        let used =
            live.held.values().fold(live.quota.usage, |sum, held| plus(sum, held.not_used()));
        let is_over = |until: u64| until != 0 && now >= until;
        let space = limit_now(kib_hard, kib_soft, is_over(live.quota.bytes_until));
        let room = space.saturating_mul(1024).saturating_sub(used.bytes);
        let units = most.min(room / unit.max(1));
        let numbers = limit_now(inodes_hard, inodes_soft, is_over(live.quota.inodes_until));
        if (most > 0 && units == 0) || (inodes > 0 && numbers.saturating_sub(used.inodes) < inodes)
        {
            return None;
        }
        let amount = Usage { bytes: units * unit, inodes };
        let holding = live.held.entry(ino).or_default();
        holding.reserved = plus(holding.reserved, amount);
        Some((Held { owner: self.clone(), ino, amount }, units))
    }

    /// Counts a change of an inode's usage from `less` to `more` at the time `now`. The inode's
    /// reservations shrink by what is now used. The grace time of a soft limit starts when the
    /// usage exceeds the limit, and is cleared when the usage no longer exceeds it.
    pub(super) fn change(&self, ino: Ino, less: Usage, more: Usage, now: u64) {
        let mut live = self.live.lock();
        if let Some(holding) = live.held.get_mut(&ino) {
            holding.used = least(plus(holding.used, minus(more, less)), holding.reserved);
        }
        let quota = &mut live.quota;
        let Usage { bytes, inodes } = quota.usage;
        quota.usage = Usage {
            bytes: bytes.saturating_add(more.bytes).saturating_sub(less.bytes),
            inodes: inodes.saturating_add(more.inodes).saturating_sub(less.inodes),
        };
        let soft = quota.limits.kib_soft.saturating_mul(1024);
        quota.bytes_until =
            until(soft, quota.usage.bytes, quota.bytes_until, now, self.grace.bytes);
        let soft = quota.limits.inodes_soft;
        quota.inodes_until =
            until(soft, quota.usage.inodes, quota.inodes_until, now, self.grace.inodes);
    }

    /// Sets the limits that are obeyed from now on.
    pub(super) fn set(&self, limits: Limits) {
        let mut live = self.live.lock();
        live.quota = limited(live.quota, limits);
    }

    /// Returns the end of the grace time for bytes, and the end of the grace time for inodes.
    pub(super) fn ends(&self) -> (u64, u64) {
        let live = self.live.lock();
        (live.quota.bytes_until, live.quota.inodes_until)
    }
}

impl Held {
    /// Keeps `units` units of `unit` bytes, and gives back the rest of the reserved space.
    pub(crate) fn keep(&mut self, units: u64, unit: u64) {
        let kept = units.saturating_mul(unit).min(self.amount.bytes);
        let more = Usage { bytes: self.amount.bytes - kept, inodes: 0 };
        let mut live = self.owner.live.lock();
        if let Some(holding) = live.held.get_mut(&self.ino) {
            holding.reserved = minus(holding.reserved, more);
        }
        self.amount.bytes = kept;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut live = self.owner.live.lock();
        let Some(holding) = live.held.get_mut(&self.ino) else { return };
        // Several operations may have reserved for the inode, and `used` does not say whose
        // reservation is used. It is taken to be this one. At worst, a used part of another one is
        // counted twice until that operation ends.
        holding.reserved = minus(holding.reserved, self.amount);
        holding.used = minus(holding.used, self.amount);
        if holding.reserved == Usage::default() {
            live.held.remove(&self.ino);
        }
    }
}

impl Holding {
    fn not_used(&self) -> Usage {
        minus(self.reserved, self.used)
    }
}

fn plus(a: Usage, b: Usage) -> Usage {
    let bytes = a.bytes.saturating_add(b.bytes);
    Usage { bytes, inodes: a.inodes.saturating_add(b.inodes) }
}

fn minus(a: Usage, b: Usage) -> Usage {
    let bytes = a.bytes.saturating_sub(b.bytes);
    Usage { bytes, inodes: a.inodes.saturating_sub(b.inodes) }
}

fn least(a: Usage, b: Usage) -> Usage {
    Usage { bytes: a.bytes.min(b.bytes), inodes: a.inodes.min(b.inodes) }
}

/// Returns the limit that applies now; `u64::MAX` if there is none. The soft limit applies after
/// its grace time has ended.
fn limit_now(hard: u64, soft: u64, is_over: bool) -> u64 {
    let hard = if hard == 0 { u64::MAX } else { hard };
    if is_over && soft != 0 { hard.min(soft) } else { hard }
}

/// Returns the time at which the grace period ends, for the usage after a change; 0 if that usage
/// does not exceed the soft limit.
fn until(soft: u64, used: u64, before: u64, now: u64, grace: u64) -> u64 {
    match (soft == 0 || used <= soft, before) {
        (true, _) => 0,
        (false, 0) => now.saturating_add(grace),
        (false, before) => before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(12);
    const OTHER: Ino = Ino(13);
    const GRACE: Grace = Grace { bytes: 100, inodes: 50 };

    fn owner_with(limits: Limits) -> Arc<Limited> {
        Arc::new(Limited::new(Quota { limits, ..Quota::default() }, GRACE))
    }

    fn use_up(owner: &Arc<Limited>, bytes: u64, now: u64) {
        owner.change(FILE, Usage::default(), Usage { bytes, inodes: 0 }, now);
    }

    fn wanted(inodes: u64, unit: u64, units: u64) -> Wanted {
        Wanted { inodes, unit, units }
    }

    #[test]
    fn no_more_is_held_than_the_hard_limit_leaves() {
        let owner = owner_with(Limits { kib_hard: 10, inodes_hard: 1, ..Limits::default() });
        let (first, units) = owner.hold(FILE, wanted(1, 4096, 5), 0).expect("room");
        assert_eq!(units, 2);
        assert!(owner.hold(FILE, wanted(1, 1024, 0), 0).is_none(), "one inode");
        assert!(owner.hold(FILE, wanted(0, 4096, 1), 0).is_none(), "2 KiB are left");
        assert_eq!(owner.hold(FILE, wanted(0, 1024, 9), 0).expect("room").1, 2);
        use_up(&owner, 4096, 0);
        drop(first);
        assert_eq!(owner.hold(FILE, wanted(1, 1024, 9), 0).expect("room").1, 6);
    }

    #[test]
    fn a_soft_limit_holds_after_its_grace_time() {
        let owner = owner_with(Limits { kib_soft: 4, kib_hard: 100, ..Limits::default() });
        use_up(&owner, 5000, 1000);
        assert_eq!(owner.ends(), (1100, 0));
        use_up(&owner, 1000, 1050);
        assert_eq!(owner.ends(), (1100, 0));
        assert!(owner.hold(FILE, wanted(0, 1024, 1), 1099).is_some());
        assert!(owner.hold(FILE, wanted(0, 1024, 1), 1100).is_none());
        owner.change(FILE, Usage { bytes: 1904, inodes: 0 }, Usage::default(), 1200);
        assert_eq!(owner.ends(), (0, 0));
        assert!(owner.hold(FILE, wanted(0, 1024, 1), 1200).is_some());
    }

    #[test]
    fn what_an_operation_has_used_is_not_held_too() {
        let owner = owner_with(Limits { kib_hard: 8, inodes_hard: 2, ..Limits::default() });
        let (mut first, _) = owner.hold(FILE, wanted(1, 1024, 4), 0).expect("room");
        owner.change(FILE, Usage::default(), Usage { bytes: 3072, inodes: 1 }, 0);
        assert_eq!(owner.hold(OTHER, wanted(1, 1024, 9), 0).expect("room").1, 4);
        first.keep(3, 1024);
        let (other, units) = owner.hold(OTHER, wanted(1, 1024, 9), 0).expect("room");
        assert_eq!(units, 5);
        assert!(owner.hold(FILE, wanted(0, 1024, 1), 0).is_none());
        drop((first, other));
        assert_eq!(owner.hold(FILE, wanted(1, 1024, 9), 0).expect("room").1, 5);
    }

    #[test]
    fn what_one_operation_has_used_does_not_end_the_reservation_of_another() {
        let owner = owner_with(Limits { kib_hard: 8, ..Limits::default() });
        let (first, _) = owner.hold(FILE, wanted(0, 1024, 4), 0).expect("room");
        let (second, _) = owner.hold(FILE, wanted(0, 1024, 4), 0).expect("room");
        use_up(&owner, 4096, 0);
        drop(first);
        assert!(owner.hold(FILE, wanted(0, 1024, 1), 0).is_none());
        drop(second);
        assert_eq!(owner.hold(FILE, wanted(0, 1024, 9), 0).expect("room").1, 4);
    }
}
