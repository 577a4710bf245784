//! The mounted file system, which a [`crate::FileSystem`] shares with its open files.

use crate::source::Source;
use lanefs_lanes::LaneArc;
use lanefs_vfs::{Credentials, Vfs};

/// A mounted file system, whose operations run with one set of credentials.
pub(crate) struct Mounted {
    pub vfs: Vfs,
    pub credentials: Credentials,
    /// The image or array, if the file system was opened from a [`Source`]. This field is dropped
    /// after the file system.
    pub source: Option<Source>,
}

/// A handle that keeps the file system mounted. Each open file has a handle. Creating or dropping a
/// handle writes only the reference count of the thread's lane (see [`LaneArc`]), and using a
/// handle writes no shared memory.
pub(crate) type Shared = LaneArc<Mounted>;
