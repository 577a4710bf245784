//! The kernel's protocol: parses the bytes of requests and builds the bytes of replies, without
//! I/O.

pub mod abi;
mod errno;
mod handshake;
mod outbox;
pub mod pages;
mod request;
mod wishes;

pub use errno::Errno;
pub use handshake::Offer;
pub use outbox::{MAX_DATA, Outbox};
pub use request::Request;
pub use wishes::{AsyncDirect, Caching, Checks, Opens, Times, Transport, Wishes};
