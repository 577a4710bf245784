//! The journal under cuts and failures, and beside the kernel's and debugfs.

mod host;
mod toy;

mod crash;
mod debugfs_logs;
mod faults;
mod hostile;
mod kernel_logs;
mod our_logs;
mod threads;
