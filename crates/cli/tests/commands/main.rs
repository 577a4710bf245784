//! The commands, each run as a program and judged by the tools that people compare it with.

mod alike;
#[path = "../mounting/mod.rs"]
mod mounting;
#[path = "../trees/mod.rs"]
mod trees;

mod attributes;
mod change;
mod check;
mod copy;
mod disk;
mod external_journal;
mod in_use;
mod installed;
mod look;
mod mkfs;
mod mkfs_words;
mod offline;
mod offline_kill;
mod pipes;
mod progress;
mod quota;
mod raid;
mod repair;
mod tree_walks;
