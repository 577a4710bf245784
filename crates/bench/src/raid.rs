//! Arrays of level 5 in memory: the seed of the stripe waits, and how fast rows are written.

pub(crate) mod array;
mod distant;
mod fsmark;
mod stripes;

pub use fsmark::{FsMark, FsMarkLine, FsMarkPlan};
pub use stripes::{Bound, SmallWrites, Streaming, small_writes, streaming};
