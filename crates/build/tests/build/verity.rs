//! Compares the hash tree that Lanefs writes for dm-verity with the tree that veritysetup writes,
//! and its root hash with the result of a simple computation.

use crate::image::{scratch, shell};
use lanefs_build::Verity;
use lanefs_device::{Access, FileDevice, OpenOptions};
use sha2::{Digest, Sha256};
use std::path::Path;

const UUID: &str = "0f0e0d0c-0b0a-4908-8706-050403020100";
const UUID_BYTES: [u8; 16] = [15, 14, 13, 12, 11, 10, 0x49, 8, 0x87, 6, 5, 4, 3, 2, 1, 0];

/// Returns the root hash, computed with all levels in memory.
fn naive(data: &[u8], salt: &[u8]) -> Vec<u8> {
    let hash = |block: &[u8]| Sha256::digest([salt, block].concat()).to_vec();
    let mut level = data.to_vec();
    while level.len() > 4096 {
        level = level.chunks(4096).flat_map(hash).collect();
        level.resize(level.len().next_multiple_of(4096), 0);
    }
    hash(&level)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn has_veritysetup(dir: &Path) -> bool {
    let found = shell(dir, "PATH=$PATH:/sbin:/usr/sbin; command -v veritysetup || true");
    if found.is_empty() {
        println!("skipped: veritysetup (package cryptsetup-bin) is missing");
    }
    !found.is_empty()
}

#[test]
fn the_hash_tree_is_that_of_veritysetup() {
    let dir = scratch();
    let has_veritysetup = has_veritysetup(dir.path());
    let path = |name: &str| dir.path().join(name);
    for (blocks, salt, threads) in [
        (1, vec![], 1),
        (2, vec![7; 32], 1),
        (128, vec![1, 2, 3], 2),
        (129, vec![0xab; 256], 3),
        (128 * 128, vec![9; 32], 4),
        (128 * 128 + 1, vec![9; 32], 2),
    ] {
        let mut data: Vec<u8> = Vec::new();
        while data.len() < blocks * 4096 {
            data.extend((data.len() as u64 / 3).to_le_bytes());
        }
        // Some blocks of the data hold only zeros.
        data.chunks_mut(4096).step_by(5).for_each(|block| block.fill(0));
        std::fs::write(path("data"), &data).unwrap();
        let verity = Verity::new(salt.clone(), UUID_BYTES).unwrap();
        let sealed = {
            let open = |name| {
                FileDevice::open(path(name), Access::ReadOnly, OpenOptions::default()).unwrap()
            };
            let _ = std::fs::remove_file(path("ours"));
            let bytes = Verity::hash_bytes(data.len() as u64).unwrap();
            let out = FileDevice::create(path("ours"), bytes).unwrap();
            verity.write(&open("data"), data.len() as u64, &out, 0, threads).unwrap()
        };
        assert_eq!(hex(&sealed.root_hash), hex(&naive(&data, &salt)), "{blocks} blocks");
        if !has_veritysetup {
            continue;
        }
        let salt = if salt.is_empty() { "-".into() } else { hex(&salt) };
        let root = hex(&sealed.root_hash);
        shell(
            dir.path(),
            &format!(
                "export PATH=$PATH:/sbin:/usr/sbin; rm -f theirs
                veritysetup format data theirs --salt={salt} --uuid={UUID} --root-hash-file=root
                test $(cat root) = {root}
                head -c $(stat -c %s theirs) ours | cmp - theirs
                test $(stat -c %s ours) -ge $(stat -c %s theirs)
                veritysetup verify data ours {root}"
            ),
        );
    }
    assert_eq!(Verity::hash_bytes(4097), None);
    assert_eq!(Verity::hash_bytes(0), None);
    assert!(Verity::new(vec![0; 257], UUID_BYTES).is_none());
}

#[test]
fn derived_values_follow_from_the_uuid() {
    assert_eq!(Verity::derived([1; 16]), Verity::derived([1; 16]));
    assert_ne!(Verity::derived([1; 16]), Verity::derived([2; 16]));
}
