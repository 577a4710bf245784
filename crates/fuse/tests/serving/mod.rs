//! The transport of the tests in this run: `scripts/with-ring` runs them by io_uring.

#![allow(dead_code, reason = "each test program uses its own part")]

use lanefs_fuse::{Options, Wishes};

/// Returns the wishes, with the transport in `LANEFS_TRANSPORT` if it is set.
pub fn by_wanted_transport(wishes: Wishes) -> Wishes {
    let Ok(transport) = std::env::var("LANEFS_TRANSPORT") else { return wishes };
    let mut options = Options { wishes, ..Options::default() };
    options.add(&format!("transport={transport}")).unwrap();
    options.wishes
}

/// Returns whether requests come by io_uring.
pub fn is_by_ring() -> bool {
    std::env::var_os("LANEFS_TRANSPORT").is_some_and(|name| name == "ring")
}
