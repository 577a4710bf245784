//! Measures RAID-5 arrays in memory: the waits for stripes (seed S4), and the speed of row writes.

pub(crate) mod array;
mod distant;
mod fsmark;
mod sequential;
mod stripes;

pub use fsmark::{FsMark, FsMarkLine, FsMarkPlan};
pub use sequential::{Sequential, SequentialPlan, sequential};
pub use stripes::{Bound, SmallWrites, Streaming, small_writes, streaming};
