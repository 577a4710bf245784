//! Tests in mount namespaces of their own. They are a separate program, because a new mount
//! namespace copies each existing mount. If other tests were in the same program, the servers of
//! their mounts would therefore run until the namespace ends.

#[path = "../mounting/mod.rs"]
mod mounting;
#[path = "../pjdfstest/mod.rs"]
mod pjdfstest;
mod rootless;

mod bench;
mod namespace;
mod ordinary_user;
mod rootless_suites;
