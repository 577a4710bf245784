//! The ways in which older kernels lock and allocate, which the benchmark compares with those of
//! Lanefs (`docs/seeds.md`, which also explains S1 to S5). No other part of Lanefs knows them.

mod allocation;
mod lru;
mod one_lock;
mod policies;

pub use allocation::lost_bits;
pub(crate) use one_lock::OneLock;
pub use policies::{
    BusyGroup, GroupSearch, InodeClaiming, NameCachePolicy, Overwrite, Placement, Policies,
    StreamGoal, UnknownPolicy,
};
