//! Changes of file systems that are not mounted.

mod cuts;

mod draft;
mod failing_device;
mod fast_commits;
mod fast_commits_hostile;
mod grow_mounted;
mod recover;
mod resize;
mod tune;
