//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! jbd2 for file systems whose metadata is kept as live objects in memory.
//!
//! A file system changes its objects inside a [`Handle`] of the running transaction, and adds the
//! changed objects to the handle's list. When the transaction closes, a committer requests their
//! block images from the file system ([`Client::capture`]) and writes the images to the log; later
//! a checkpoint writes them in place. The log has the jbd2 format, so any kernel and e2fsck can
//! replay it. `docs/journal.md` describes the design.
//!
//! Invariants:
//! - No transaction is reported durable before its commit block is durable.
//! - No block is written in place before the transaction that changed it is durable.
//! - No log block is reused before its images are in place and the tail on the device has moved.
//! - After the first failure no transaction is reported durable.
#![forbid(unsafe_code)]

mod client;
mod commit;
mod committer;
mod config;
mod credits;
mod error;
mod fast_commit;
mod flusher;
mod handle;
mod images;
mod in_place;
mod journal;
mod limits;
mod lists;
mod log;
mod log_blocks;
mod log_map;
pub mod recovery;
mod ring;
mod serve;
mod single;
mod statistics;
mod store;
mod tid;
mod tracked;

pub use client::Client;
pub use config::{Config, Log};
pub use error::Error;
pub use fast_commit::{FastBatch, FastClient, FastEnd};
pub use flusher::FlushMark;
pub use handle::Handle;
pub use images::Images;
pub use journal::Journal;
pub use lists::Listed;
pub use log_map::LogMap;
pub use single::Single;
pub use statistics::Statistics;
pub use tid::Tid;
pub use tracked::Tracked;
