//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Checks an ext4, ext3 or ext2 image: everything that e2fsck checks, independently of the code
//! that Lanefs uses to read and write images.
//!
//! The checker and the code that mounts images share only the definitions of the formats
//! (`lanefs_ondisk`), the access to devices (`lanefs_device`) and the locks (`lanefs_lanes`). So an
//! error in the code that mounts images cannot hide its own effects from the checker. The checker
//! writes nothing. A log that has to be replayed is replayed into memory, and the result is
//! checked.
//!
//! ```no_run
//! use lanefs_check::{Options, Verdict, check};
//! use lanefs_device::{Access, FileDevice, OpenOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = FileDevice::open("disk.img", Access::ReadOnly, OpenOptions::default())?;
//! let report = check(std::sync::Arc::new(device), &Options::default(), &|_| {})?;
//! report.findings.iter().for_each(|finding| println!("{finding}"));
//! assert_eq!(report.verdict(), Verdict::Clean);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod attributes;
mod backup;
mod bitmaps;
mod blocks;
mod bytes;
mod checker;
mod claims;
mod directories;
mod encryption;
mod fault;
mod field;
mod groups;
mod harm;
mod inodes;
mod journal;
mod links;
mod mapping;
mod named;
mod orphans;
mod parallel;
mod parents;
mod place;
mod quota;
mod record;
pub mod repair;
mod report;
mod run;
mod special;
mod states;
mod superblock;
mod table;
mod volume;

pub use backup::{Backup, Base};
pub use checker::{Error, Options, Phase, Progress, check};
pub use fault::{Fault, TargetFault, Unit};
pub use field::{Feature, Field};
pub use harm::Harm;
pub use place::Place;
pub use report::{Finding, Report, Totals, Verdict};
