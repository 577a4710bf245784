//! Mounts by the command, and suites that run on them.

#[path = "../mounting/mod.rs"]
mod mounting;
#[path = "../pjdfstest/mod.rs"]
mod pjdfstest;
mod rights;

mod block;
mod by_rights;
mod casefold;
mod encryption;
mod files;
mod fsx;
mod kill;
mod life;
mod privileges;
mod suites;
mod transport;
mod verity;
mod whole;
