//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! The FUSE server of Lanefs: an ext4 image as a directory of the host.
//!
//! [`MountPoint::attach`] mounts. [`Session::start`] agrees with the kernel on the protocol, and
//! then [`Session::run`] serves requests until the unmount. [`daemon`] moves the server to the
//! background.
//!
//! The server implements the kernel's protocol itself ([`abi`]). A thread reads a request into its
//! own buffer and serves the request from there, so bulk data is not copied before it reaches the
//! device. The server uses the protocol's features for set-user-ID, ACLs, unnamed files and
//! creation times.
//!
//! The crate `fuser` 0.18 is not used. It copies a write's data before another thread can process
//! the request, does not honour `HANDLE_KILLPRIV_V2`, and lacks `TMPFILE` (O_TMPFILE), `STATX`
//! (creation times) and `SYNCFS`.
//!
//! The modules form layers, from the top: `mount`, `session`, `service`, `transport`, `protocol`
//! and `ids`. A module imports only lower modules.

mod ids;
mod mount;
mod protocol;
mod service;
mod session;
mod transport;

pub use ids::{Caller, Conflict, IdOptions, Ids};
pub use mount::daemon;
pub use mount::{
    Busy, DirectIo, Ended, Ending, MountEntry, MountError, MountPoint, OptionError, Options, Watch,
    detach, grow_mounted, remount, trim_mounted,
};
pub use protocol::{
    AsyncDirect, Caching, Checks, Errno, Opens, Outbox, Request, Transport, Wishes, abi,
};
pub use service::{Answer, Control, Server, Service};
pub use session::{Farewell, Session};
pub use transport::{ByRead, Carried, Channel};
