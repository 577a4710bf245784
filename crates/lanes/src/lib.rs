#![doc = include_str!("../README.md")]

mod budget;
mod cell;
mod clock;
mod contention;
mod counter;
mod epoch;
// Under the checkers `Mutex` is that of the checker; loom's tests check the real one.
#[cfg(any(all(loom, test), not(any(loom, shuttle))))]
mod futex;
mod hash;
mod heap;
mod held;
mod hold;
mod lane;
mod lane_arc;
mod limbo;
mod lines;
mod lock;
#[cfg(any(all(loom, test), not(any(loom, shuttle))))]
mod lock_word;
mod map;
mod membership;
mod number_set;
mod published;
mod rank;
#[cfg(all(test, loom))]
mod schedules;
mod shared;
pub mod sync;
mod versioned;
mod wait;
mod words;
mod world;
mod xor;

pub use budget::{Budget, Wake};
pub use cell::SeqCell;
pub use clock::{CoarseTime, coarse_now};
pub use contention::{Contention, contention};
pub use counter::{LaneCounter, LaneCounters};
pub use epoch::{Pin, advance, limbo, pin};
pub use hash::{fix_hash_keys, hash_of};
pub use heap::LineHeap;
pub use hold::{Hold, Holdable, Holds, Nameless, Shares, end_as_only_holder, evict, set_nameless};
pub use lane::{Lane, MAX_LANES, Padded, PerLane};
pub use lane_arc::LaneArc;
pub use lines::Lines;
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwReadGuard, RwWriteGuard};
pub use map::{Change, Map};
pub use membership::{Member, Membership};
pub use number_set::NumberSet;
pub use published::{Cached, Published, Slot};
pub use rank::Rank;
pub use shared::{ExclusiveHold, SharedHold, SharedLock};
pub use versioned::{Seen, VersionedWord};
pub use wait::WaitBuckets;
pub use words::{WordArray, Words};
pub use xor::{xor, xor_with};
