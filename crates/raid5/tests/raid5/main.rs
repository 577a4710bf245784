//! Arrays of the library: their engine on members in memory, their lives, faults and crashes.

#[path = "../golden_arrays/mod.rs"]
mod golden_arrays;
#[path = "../rig/mod.rs"]
mod rig;

mod assembled;
mod bad_sectors;
mod crash;
mod engine;
mod exchange;
mod faults;
mod gather;
mod golden;
mod hanging;
mod life;
mod replace;
mod right_blocks;
