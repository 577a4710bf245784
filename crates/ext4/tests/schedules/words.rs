//! Data in which each word names its file and offset.

/// The bytes of free space, which must not appear in any file.
pub const JUNK: u8 = 0xee;

/// Returns the bytes for a file at an offset: every group of 8 bytes names the file and the offset
/// in it.
pub fn of(file: u8, offset: u64, len: usize) -> Vec<u8> {
    let word = |n: u64| u64::from(file) << 56 | 0x11 << 48 | (offset / 8 + n);
    (0..(len / 8) as u64).flat_map(|n| word(n).to_le_bytes()).collect()
}

/// Checks that a file contains only zeros and the words of a single file, each at its offset.
///
/// # Panics
/// If the file contains other bytes.
pub fn check(path: &str, offset: u64, contents: &[u8]) {
    let mut owner = None;
    for (n, bytes) in contents.chunks_exact(8).enumerate() {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        if word == 0 {
            continue;
        }
        let place = offset / 8 + n as u64;
        let file = (word >> 56) as u8;
        assert!(
            word == u64::from(file) << 56 | 0x11 << 48 | place
                && *owner.get_or_insert(file) == file,
            "{path}: {word:#x} at {} in a file of {owner:?}",
            place * 8
        );
    }
}
