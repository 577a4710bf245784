//! The mounted file system, beside e2fsck, debugfs and the kernel, under failures and attacks.

#[path = "../image/mod.rs"]
mod image;

mod access;
mod attack_credits;
mod attack_errors;
mod attack_frees;
mod attack_images;
mod attack_memory;
mod attack_mount;
mod attack_names;
mod block_maps;
mod contended_directory;
mod evict;
mod external_journal;
mod full;
mod mkfs;
mod operations;
mod orphans;
mod placement;
mod synchronous;
