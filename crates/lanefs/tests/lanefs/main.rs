//! The public face, beside the kernel and std.

#[path = "../images/mod.rs"]
mod images;

mod against_kernel;
mod as_std;
mod encryption;
mod library;
mod names;
mod nbd;
mod verity;
