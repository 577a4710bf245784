//! Which transport a session has, and why.

use std::fmt;
use std::path::Path;

/// How the requests of a session come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// By io_uring, with so many queues; FORGET and INTERRUPT by read(2).
    ByRing(usize),
    /// All by read(2).
    ByRead(ByRead),
}

/// Why requests come by read(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByRead {
    /// The mount was told so.
    Wanted,
    /// The kernel does not offer rings.
    NotOffered,
    /// The host or the kernel refused them.
    Refused(String),
}

/// Where root switches rings on.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_read = match self {
            Carried::ByRing(queues) => return write!(f, "io_uring, {queues} queues"),
            Carried::ByRead(why) => why,
        };
        f.write_str("read(2)")?;
        match by_read {
            ByRead::Wanted => f.write_str(", as asked"),
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
