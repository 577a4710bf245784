use thiserror::Error;

/// The possible faults of the block of multiple mount protection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
    #[error("{len} bytes are too few")]
    Length { len: usize },
    #[error("magic is {found:#010x}")]
    Magic { found: u32 },
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
}
