//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Suites that test whole file systems through the library interface of ext4.
//!
//! Each suite is a module here, and can run for any length of time. `tests/` runs a fixed sample of
//! each suite, and the program `lanefs-suites` runs the long forms (`docs/testing.md`).
//!
//! | suite | question | oracle |
//! |---|---|---|
//! | `model` | do four threads get the results of a tree in memory (the model)? | the model, e2fsck, a remount |
//! | `fsx` | after each operation, are all bytes of the file correct? | a copy in memory, e2fsck |
//! | `crash` | does a crash keep every promised change, and leave no change that the workload did not make? | the history of the workload, e2fsck, `lanefs check` |
//! | `fast-commits` | does a crash after fast commits keep what each fsync promised? | the versions of each file; e2fsck and the kernel replay too |
//! | `faults` | is each failing read, write and flush reported, and nothing lost? | the model, e2fsck |
//! | `hostile` | does a damaged image do harm? | the expected words of the error; limits of time and memory |
//! | `changes` | do the checker and e2fsck agree on an image with one change of metadata? | e2fsck |
//! | `--power-cuts` | if the power is cut at any write of recover, tune, resize, trim or edit, does another run of the command finish the work? | e2fsck, the files before and after |
//! | `--repairs` | is an image with one change clean after a repair, with all other files as before? | e2fsck, `lanefs check`, the files before |
//! | `--repair-differs` | does a repair keep what e2fsck -fy keeps? | e2fsck, `lanefs check`, the tree before the damage |
//! | `lanefs-formats` | do all formats pass these suites, and does the kernel accept their images? | those of the suites, debugfs |
//! | `arrays` | do `model` and `fsx` pass on a RAID-5 array: whole, degraded, rebuilding? | those of the two suites |
//!
//! A *crash state* is what a crash between two device events of a workload can leave on the device.
//! Each write after the last flush is kept, lost, or kept sector by sector at random. Lanefs
//! recovers the state. The resulting tree must have every promised change, and no change that the
//! workload did not make. `lanefs check` checks the image. e2fsck replays the log in a copy of the
//! state, and must find nothing else to repair; with the option `--states`, e2fsck does this for
//! only one state in eight.
//!
//! Most *damaged images* have no checksums. With checksums, most damage would be reported as a
//! wrong checksum, and the checks that follow would not be tested.
#![forbid(unsafe_code)]

pub mod array;
pub mod both;
pub mod changes;
pub mod conditions;
pub mod crash;
pub mod cuts;
pub mod data;
pub mod differs;
pub mod fast_commits;
pub mod faults;
pub mod fill;
pub mod formats;
pub mod fsx;
pub mod home;
pub mod hostile;
pub mod image;
pub mod kernel;
pub mod large_dir;
pub mod library;
pub mod limits;
pub mod listing;
pub mod model;
pub mod op;
pub mod planted;
pub mod random;
pub mod sample;
pub mod sequence;
pub mod together;
