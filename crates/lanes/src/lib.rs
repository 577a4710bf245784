//! Per-core building blocks: every lock, atomic, epoch and counter of Lanefs comes from here.
//!
//! One facade chooses between the production primitives, `shuttle` (`--cfg shuttle`) and `loom`
//! (`--cfg loom`), so that what is model-checked is what runs.

mod cell;
mod clock;
mod contention;
mod counter;
mod epoch;
mod hash;
mod held;
mod lane;
mod lane_arc;
mod limbo;
mod lock;
mod map;
mod membership;
mod number_set;
mod plant;
mod published;
mod rank;
mod shared;
pub mod sync;
mod wait;
mod words;
mod world;

pub use cell::SeqCell;
pub use clock::{CoarseTime, coarse_now};
pub use contention::{Contention, contention};
pub use counter::LaneCounter;
pub use epoch::{Pin, advance, limbo, pin};
pub use lane::{Lane, MAX_LANES, Padded, PerLane};
pub use lane_arc::LaneArc;
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwReadGuard, RwWriteGuard};
pub use map::{Change, Map};
pub use membership::{Member, Membership};
pub use number_set::NumberSet;
pub use published::Published;
pub use rank::Rank;
pub use shared::{ExclusiveHold, SharedHold, SharedLock};
pub use wait::WaitBuckets;
pub use words::{WordArray, Words};
