//! The errors of creating a file system.

use lanefs_device::DeviceError;
use lanefs_ondisk::Corruption;
use thiserror::Error;

/// The reason why a file system was not created.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values
pub enum MkfsError {
    #[error("{bytes} bytes are too few for a file system of this kind")]
    TooSmall { bytes: u64 },
    #[error("{blocks} blocks are too many for a file system of this kind")]
    TooLarge { blocks: u64 },
    #[error("the device has {device} bytes, not {wanted}")]
    BeyondDevice { device: u64, wanted: u64 },
    #[error("{inodes} inodes are too many")]
    TooManyInodes { inodes: u64 },
    #[error("a journal of {blocks} blocks is too short, or too large for the file system")]
    JournalSize { blocks: u32 },
    #[error("the device wants writes of {device} bytes, blocks have {block_size}")]
    Alignment { device: u32, block_size: u32 },
    /// An option is out of range.
    #[error("{option} out of range")]
    Option { option: &'static str },
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The chosen layout violates the format: a bug of this crate.
    #[error("the layout is wrong: {0}")]
    Layout(#[from] Corruption),
}
