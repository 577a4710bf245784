//! The transport of requests and replies: read(2) and write(2), or io_uring.

mod carried;
mod channel;
mod entry;
mod inbox;
pub mod ring;

pub use carried::{ByRead, Carried};
pub use channel::Channel;
pub use entry::Entry;
pub use inbox::Inbox;
pub use ring::{Event, Ring};
