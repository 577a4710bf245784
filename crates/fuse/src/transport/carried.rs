//! The transport of a session, and the reason for it.

use std::fmt;
use std::path::Path;

/// The transport of a session's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// io_uring, with this number of queues; FORGET and INTERRUPT come by read(2).
    ByRing(usize),
    /// All requests come by read(2).
    ByRead(ByRead),
}

/// Why requests come by read(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByRead {
    /// A mount option selected read(2).
    Wanted {
        /// Whether the kernel offers rings.
        has_rings: bool,
    },
    /// The kernel does not offer rings.
    NotOffered,
    /// The host or the kernel refused the rings.
    Refused(String),
}

/// The file in which root enables rings.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_read = match self {
            Carried::ByRing(queues) => return write!(f, "io_uring, {queues} queues"),
            Carried::ByRead(why) => why,
        };
        f.write_str("read(2)")?;
        match by_read {
            ByRead::Wanted { .. } => f.write_str(", as asked"),
            ByRead::NotOffered if Path::new(SWITCH).exists() => {
                write!(
                    f,
                    "; for io_uring, which is quicker, root writes Y to {SWITCH} before the mount"
                )
            }
            ByRead::NotOffered => f.write_str("; this kernel has no FUSE over io_uring"),
            ByRead::Refused(why) => write!(f, "; io_uring was refused: {why}"),
        }
    }
}
