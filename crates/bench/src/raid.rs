//! Measures RAID-5 arrays in memory: how threads wait for stripes (seed S4 in `docs/seeds.md`), and
//! how fast rows are written.

pub(crate) mod array;
mod distant;
mod fsmark;
mod sequential;
mod stripes;

pub use fsmark::{FsMark, FsMarkLine, FsMarkPlan};
pub use sequential::{Sequential, SequentialPlan, sequential};
pub use stripes::{Bound, SmallWrites, Streaming, small_writes, streaming};
