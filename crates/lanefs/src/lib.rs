//! ext4 in user space that keeps scaling as cores are added.
