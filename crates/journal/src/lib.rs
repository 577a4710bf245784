//! jbd2 for file systems whose metadata are live objects in memory.

/// The journal failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("journal")]
pub struct Error;
