//! What can go wrong while measuring.

use std::io;

/// The result of something that is measured, or set up to be.
pub type Result<T> = std::result::Result<T, Error>;

/// A workload or a target failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host said no.
    #[error("{path}: {source}")]
    Host {
        /// The path, within the target or on the host.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Lanefs said no.
    #[error("{path}: {source}")]
    Lanefs {
        /// The path within the image.
        path: String,
        /// Why.
        source: lanefs_ext4::Error,
    },
    /// An image could not be opened.
    #[error(transparent)]
    Image(#[from] lanefs_device::OpenError),
    /// An array could not be put together.
    #[error(transparent)]
    Array(#[from] lanefs_raid5::AssembleError),
    /// A device that is measured by itself failed.
    #[error(transparent)]
    Device(#[from] lanefs_device::DeviceError),
    /// A program that the benchmark runs failed.
    #[error("{program}: {said}")]
    Program {
        /// Its name.
        program: String,
        /// The end of what it said.
        said: String,
    },
    /// Somebody asked for the end before that was done.
    #[error("interrupted")]
    Interrupted,
    /// A file gave or took fewer bytes than it was asked to.
    #[error("{path}: {done} of {wanted} bytes")]
    Short {
        /// The path within the target.
        path: String,
        /// Bytes moved.
        done: usize,
        /// Bytes asked for.
        wanted: usize,
    },
}

impl Error {
    /// Whether something of that name is there already.
    pub(crate) fn says_exists(&self) -> bool {
        match self {
            Error::Host { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
            Error::Lanefs { source, .. } => matches!(source, lanefs_ext4::Error::Exists),
            _ => false,
        }
    }

    /// The host's error on `path`.
    pub fn host(path: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Host { path: path.into(), source: source.into() }
    }
}
