//! RAID-5 in Linux md's own format: a block device made of block devices.
#![forbid(unsafe_code)]
