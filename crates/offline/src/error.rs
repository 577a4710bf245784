//! The reasons why a change was not made.

use lanefs_device::DeviceError;
use lanefs_ext4::mkfs::resized::SizeError;
use lanefs_ondisk::Corruption;
use thiserror::Error;

/// The error of a failed change.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system is damaged or not supported, or its device failed.
    #[error(transparent)]
    Ext4(#[from] lanefs_ext4::Error),
    /// The file system must be checked before it can be changed.
    #[error("{what}: check it with lanefs repair or e2fsck -f first")]
    NeedsCheck {
        /// The fault that was found.
        what: &'static str,
    },
    /// The change needs a journal, or a longer one.
    #[error("{what}")]
    Journal {
        /// The reason, and the remedy.
        what: String,
    },
    /// The change is refused.
    #[error("{what}")]
    Refused {
        /// The object and the reason.
        what: String,
    },
}

impl Error {
    pub(crate) fn refused(what: impl Into<String>) -> Error {
        Error::Refused { what: what.into() }
    }
}

impl From<SizeError> for Error {
    fn from(error: SizeError) -> Error {
        match error {
            SizeError::Refused { what } => Error::Refused { what },
            SizeError::Corruption(cause) => cause.into(),
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        Error::Ext4(error.into())
    }
}

impl From<Corruption> for Error {
    fn from(error: Corruption) -> Error {
        Error::Ext4(error.into())
    }
}

impl From<lanefs_journal::Error> for Error {
    fn from(error: lanefs_journal::Error) -> Error {
        Error::Ext4(error.into())
    }
}
