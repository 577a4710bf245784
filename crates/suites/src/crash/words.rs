//! The contents of files: words that name the write that they belong to.

/// Returns bytes for a file at an offset that is a multiple of 8: each 8 bytes name the file, the
/// operation that wrote them and the position in the file.
pub fn words(id: u64, op: usize, offset: u64, len: usize) -> Vec<u8> {
    let word = |n: usize| (id << 48) | ((op as u64) << 32) | (offset / 8 + n as u64);
    (0..len / 8).flat_map(|n| word(n).to_le_bytes()).collect()
}

/// Returns the operation that wrote a word of file `id` at `offset`; `Some(0)` for zeros; `None` if
/// the word belongs to another file or position.
pub fn writer(word: u64, id: u64, offset: u64) -> Option<usize> {
    match word {
        0 => Some(0),
        _ if word >> 48 == id && word & 0xffff_ffff == offset / 8 => {
            Some((word >> 32) as usize & 0xffff)
        }
        _ => None,
    }
}
