//! Assigns each caller its region of groups, and new directories their groups.

use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::{Lane, MAX_LANES};
use lanefs_ondisk::{Group, Ino};
use std::cell::Cell;
use std::ops::Range;

/// Returns the region of `caller`: the groups in which it places inodes and blocks when other
/// callers work near the usual place. Regions of different callers do not overlap if there are at
/// least as many groups as [`MAX_LANES`], rounded up to a power of two. The bits of the caller's
/// number, in reverse order, are the number of its region. So the first lanes get regions far
/// apart: at halves, quarters and eighths of the file system.
pub(crate) fn of(caller: Caller, groups: u32) -> Range<u32> {
    let lanes = MAX_LANES.next_power_of_two();
    let bits = lanes.trailing_zeros();
    let place = match bits {
        0 => 0,
        bits => caller.index().reverse_bits() >> (32 - bits),
    };
    let border = |place: u32| (u64::from(place) * u64::from(groups) / lanes as u64) as u32;
    let (start, end) = (border(place), border(place + 1));
    start..end.max(start + 1)
}

/// Returns the group for a new directory at the top of a tree; `before` is the number of such
/// directories that exist already. The group is far from the groups of the existing directories. It
/// is in the middle of a caller's region, because that caller uses the start of the region first.
pub(crate) fn top(before: u32, groups: u32) -> u32 {
    let fraction = u64::from(before.reverse_bits());
    let middle = groups / (2 * MAX_LANES as u32);
    (((fraction * u64::from(groups)) >> 32) as u32 + middle) % groups
}

/// Returns the group for a new directory whose parent is in group `parent` and has `before`
/// subdirectories already. Takes the groups after `parent` in turn, so that siblings are near each
/// other but in different groups.
pub(crate) fn below(parent: u32, before: u32, groups: u32) -> u32 {
    ((u64::from(parent) + 1 + u64::from(before)) % u64::from(groups)) as u32
}

// The caller of an operation: a thread of a program that uses the library, or a client of a mount
// (several threads serve a client in turn).

/// A number below [`MAX_LANES`] that distinguishes callers: the lane of the thread, or the client's
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller(u16);

#[derive(Debug, Clone, Copy)]
enum Client {
    /// The thread works for itself.
    Itself,
    Unknown,
    Number(u16),
}

thread_local! { static CLIENT: Cell<Client> = const { Cell::new(Client::Itself) } }

/// Sets the client that the calling thread serves from now on. `client` is the client's process or
/// thread id, or `None` if the client is unknown. It is unknown, for example, when the kernel
/// writes pages back. The location of new files depends on the client. A thread that never calls
/// this function works for itself.
pub fn work_for(client: Option<u32>) {
    // Consecutive ids get different numbers.
    let number = |id| Client::Number((id as usize % MAX_LANES) as u16);
    CLIENT.with(|current| current.set(client.map_or(Client::Unknown, number)));
}

impl Caller {
    /// Returns the caller of the current operation; `None` if it is unknown.
    pub(crate) fn current() -> Option<Caller> {
        match CLIENT.with(Cell::get) {
            Client::Itself => Some(Caller::of_thread()),
            Client::Unknown => None,
            Client::Number(number) => Some(Caller(number)),
        }
    }

    /// Returns the caller that stands for the calling thread.
    pub(crate) fn of_thread() -> Caller {
        Caller::of(Lane::current())
    }

    fn of(lane: Lane) -> Caller {
        Caller(lane.index() as u16)
    }

    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Caller> {
        (0..MAX_LANES as u16).map(Caller)
    }

    /// Returns the caller's number.
    pub(crate) fn index(self) -> u32 {
        self.0.into()
    }
}

// Finds out whether several callers work in one place at the same time.

/// The number of returns (see [`Meetings`]) after which callers count as working at the same time.
const MANY: u32 = if cfg!(shuttle) { 1 } else { 8 };

/// Counts how often a caller *returns* to a place after another caller worked there for another
/// owner. Callers that come one after another, like the commands of a script, never return.
///
/// If several threads update the counts at once, updates may be lost, which only delays the result.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    /// The last owner in the upper half, and the index of the last caller, plus one, in the lower
    /// half.
    last: AtomicU64,
    /// Bit `n` is set when the caller with number `n` works in this place.
    seen: AtomicU64,
    returns: AtomicU32,
}

impl Meetings {
    /// Notes that `caller` works in this place for `owner`. Returns whether several callers work
    /// here at the same time.
    pub(crate) fn note(&self, caller: Caller, owner: Ino) -> bool {
        let new = u64::from(owner.0) << 32 | u64::from(caller.index() + 1);
        let last = self.last.load(Ordering::Relaxed);
        let returns = self.returns.load(Ordering::Relaxed);
        if last == new {
            return returns >= MANY;
        }
        self.last.store(new, Ordering::Relaxed);
        let is_other = (last ^ new) as u32 != 0 && last >> 32 != new >> 32;
        let (seen, bit) = (self.seen.load(Ordering::Relaxed), 1 << (caller.index() % 64));
        if seen & bit == 0 {
            // If all bits were set, every new caller would seem to have been here before. So when
            // the bit of this caller would fill the set, all other bits are cleared instead.
            self.seen
                .store(if seen | bit == u64::MAX { bit } else { seen | bit }, Ordering::Relaxed);
        } else if last != 0 && is_other && returns < MANY {
            self.returns.store(returns + 1, Ordering::Relaxed);
            return returns + 1 >= MANY;
        }
        returns >= MANY
    }

    /// Returns whether several callers work here at the same time.
    pub(crate) fn are_many(&self) -> bool {
        self.returns.load(Ordering::Relaxed) >= MANY
    }

    /// Resets the count of returns to zero, because one of the callers leaves.
    pub(crate) fn forget(&self) {
        self.returns.store(0, Ordering::Relaxed);
    }
}

// Where a directory's new inodes and a file's first blocks are placed.

/// The group for new inodes of a directory or the first blocks of a file. It is the inode's own
/// group until several callers claim in that group at the same time. The choice is kept only in
/// memory, so an inode that is loaded again starts with its own group.
#[derive(Debug, Default)]
pub(crate) struct WorkPlace {
    /// The number of the group plus one; 0 for the inode's own group.
    moved: AtomicU32,
    /// The callers that create files in this directory.
    callers: Meetings,
}

impl WorkPlace {
    /// Returns the group, unless it is the inode's own.
    pub(crate) fn moved(&self) -> Option<Group> {
        self.moved.load(Ordering::Relaxed).checked_sub(1).map(Group)
    }

    /// Selects another group.
    pub(crate) fn move_to(&self, group: Group) {
        self.moved.store(group.0 + 1, Ordering::Relaxed);
    }

    /// Notes that `caller` creates a file in this directory. Returns whether several callers create
    /// files in the directory, in which case each needs its own group.
    pub(crate) fn is_shared(&self, caller: Option<Caller>) -> bool {
        // After the directory has become shared, this function writes nothing any more.
        self.callers.are_many()
            || caller.is_some_and(|caller| {
                // `Meetings` counts the return of a caller only if both the caller and the owner
                // differ from those of the previous call. All callers work in the same directory,
                // so the directory cannot serve as the owner. The caller's number serves instead.
                self.callers.note(caller, Ino(caller.index() + 1))
            })
    }
}

#[cfg(test)]
mod tests;
