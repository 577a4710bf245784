//! Mounts by the command, and suites that run on them.

#[path = "../mounting/mod.rs"]
mod mounting;
mod pjdfstest;
mod rights;
mod rootless;

mod block;
mod by_rights;
mod casefold;
mod encryption;
mod files;
mod fsx;
mod kill;
mod life;
mod namespace;
mod ordinary_user;
mod privileges;
mod rootless_suites;
mod suites;
mod transport;
mod verity;
mod whole;
