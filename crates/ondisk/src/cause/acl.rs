use thiserror::Error;

/// The possible faults of an access control list. Offsets are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the offset and the value found there
pub enum Cause {
    #[error("{len} bytes do not make a list")]
    Length { len: usize },
    #[error("version {found}, not {expected}")]
    Version { found: u32, expected: u32 },
    #[error("the entry at {offset} has tag {found:#x}")]
    Tag { offset: usize, found: u16 },
    #[error("the entry at {offset} has permissions {found:#o}")]
    Permissions { offset: usize, found: u16 },
    #[error("the entry at {offset} has no valid id")]
    Id { offset: usize },
    #[error("an entry is missing, doubled or out of order")]
    Entries,
    #[error("named users or groups, but no mask")]
    NoMask,
}
