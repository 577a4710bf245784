//! How requests arrive and replies leave.

mod channel;
mod inbox;

pub use channel::Channel;
pub use inbox::Inbox;
