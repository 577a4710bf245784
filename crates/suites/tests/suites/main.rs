//! A fixed sample of each suite, for `make test`.

#[path = "../../../raid5/tests/rig/mod.rs"]
mod rig;

mod array;
mod array_crash;
mod bigalloc;
mod casefold;
mod changes;
mod crash;
mod cuts;
mod differs;
mod ea_inode;
mod encryption;
mod fast_commits;
mod faults;
mod fsx;
mod hostile;
mod images;
mod inline_data;
mod large_blocks;
mod large_dir;
mod mmp;
mod model;
mod operations;
mod quota;
mod quota_repair;
mod repair;
mod stripe;
mod superblock_state;
mod verity;
