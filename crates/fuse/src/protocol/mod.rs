//! The kernel's protocol: bytes of a request taken apart, bytes of a reply put together. No I/O.

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
pub use wishes::{AsyncDirect, Caching, Opens, Transport, Wishes};
