//! The mount around a session: mounting, the mount table, unmounting, options and the background
//! process.

pub mod daemon;
mod ending;
mod options;
mod point;
mod table;
mod whole;

pub use ending::{Ended, Ending, Watch};
pub use options::{DirectIo, OptionError, Options};
pub use point::{Busy, MountError, MountPoint, detach};
pub use table::MountEntry;
pub use whole::{grow_mounted, remount, trim_mounted};
