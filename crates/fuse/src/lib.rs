//! The FUSE server of Lanefs: an ext4 image as a directory of the host.
//!
//! [`MountPoint::attach`] makes the mount, [`Session::start`] shakes hands with the kernel and
//! [`Session::run`] serves until somebody unmounts; [`daemon`] is for doing so in the background.
//!
//! The server speaks the kernel's protocol itself ([`abi`]): requests are read into a thread's own
//! buffer and served from there, so bulk data is not copied between reading and the device, and what
//! the protocol has for set-user-ID, ACLs, unnamed files and creation times is all used.
//!
//! Floors, from the top, with imports downward only: `mount`, `session`, `service`, `transport`,
//! `protocol`.

mod mount;
mod protocol;
mod service;
mod session;
mod transport;

pub use mount::daemon;
pub use mount::{
    Busy, Ended, Ending, MountEntry, MountError, MountPoint, OptionError, Options, Watch, detach,
};
pub use protocol::{AsyncDirect, Caching, Errno, Opens, Outbox, Request, Transport, Wishes, abi};
pub use service::{Answer, Control, Server, Service};
pub use session::{Farewell, Session};
pub use transport::{ByRead, Carried, Channel};
