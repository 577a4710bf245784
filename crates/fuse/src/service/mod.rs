//! Serving requests: the trait that a session calls, and its implementation on ext4.

mod api;
mod control;
mod node;
mod server;

pub use api::{Answer, Service};
pub use control::Control;
pub use server::Server;
