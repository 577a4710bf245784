//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Changes an ext4 file system that is not mounted: recovery after a crash, settings, journal, free
//! space, size.
//!
//! An [`Image`] is a clean file system that only this program uses. A change collects the new
//! contents of blocks in memory and commits them together, as one transaction of the file system's
//! own journal. After a crash, the kernel, e2fsck or Lanefs replays that journal. So after a crash
//! either the whole change is present or no part of it. `docs/images.md` describes what each change
//! promises.
#![forbid(unsafe_code)]

mod clone;
mod commit;
mod draft;
mod error;
mod grow;
mod image;
mod inodes;
mod journal;
mod mend;
mod mmp;
mod move_blocks;
mod move_inodes;
mod open;
mod orphan_file;
mod quota;
mod recover;
mod shrink;
mod space;
mod tree;
mod trim;
mod tune;
mod undo;

pub use clone::{copy_used, share_file, write_data};
pub use draft::{Draft, Published};
pub use error::{Error, JournalNeed, Refusal, Unchecked};
pub use image::Image;
pub use journal::JournalSize;
pub use mend::Repair;
pub use open::has_journal_elsewhere;
pub use recover::{
    Condition, Recovered, look, look_with, recover, recover_with, replay_elsewhere,
    view_without_fast_commits, view_without_log_elsewhere,
};
pub use trim::Trimmed;
pub use tune::{FeatureChange, JournalChange, OptionChange, Reserved, Settings};
pub use undo::Undo;
