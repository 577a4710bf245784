//! The FUSE server of Lanefs: an ext4 image as a directory of the host.
//!
//! [`MountPoint::attach`] makes the mount, [`Session::start`] shakes hands with the kernel and
//! [`Session::run`] serves until somebody unmounts; [`daemon`] is for doing so in the background.
//!
//! The server speaks the kernel's protocol itself ([`abi`]): requests are read into a thread's own
//! buffer and served from there, so bulk data is not copied between reading and the device, and what
//! the protocol has for set-user-ID, ACLs, unnamed files and creation times is all used.

pub mod abi;
mod buffer;
mod channel;
mod control;
pub mod daemon;
mod ending;
mod errno;
mod handshake;
mod mount_table;
mod mountpoint;
mod node;
mod options;
mod pace;
mod readers;
mod request;
mod server;
mod service;
mod session;
mod wake;

pub use buffer::Outbox;
pub use channel::Channel;
pub use control::Control;
pub use ending::{Ended, Ending, Watch};
pub use errno::Errno;
pub use mount_table::MountEntry;
pub use mountpoint::{Busy, MountError, MountPoint, detach};
pub use options::{OptionError, Options};
pub use request::Request;
pub use server::Server;
pub use service::{Answer, AsyncDirect, Caching, Opens, Service, Wishes};
pub use session::{Farewell, Session};
