//! Per-core building blocks: every lock, atomic, epoch and counter of Lanefs comes from here.
//!
//! One facade chooses between the production primitives, `shuttle` (`--cfg shuttle`) and `loom`
//! (`--cfg loom`), so that what is model-checked is what runs.

mod cell;
mod clock;
mod counter;
mod epoch;
mod lane;
mod lock;
mod map;
mod rank;
mod shared;
pub mod sync;

pub use cell::SeqCell;
pub use clock::{coarse_now, CoarseTime};
pub use counter::LaneCounter;
pub use epoch::{pin, Pin, Published};
pub use lane::{Lane, PerLane, MAX_LANES};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwReadGuard, RwWriteGuard};
pub use map::Map;
pub use rank::Rank;
pub use shared::{ExclusiveHold, SharedHold, SharedLock};
