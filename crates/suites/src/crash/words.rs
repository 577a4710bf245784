//! The contents of files. Each word encodes the write that it comes from.

/// Returns the word that operation `op` writes to file `id` at `offset`, a multiple of 8.
pub fn word(id: u64, op: usize, offset: u64) -> u64 {
    (id << 48) | ((op as u64) << 32) | (offset / 8)
}

/// Returns bytes for a file at an offset that is a multiple of 8. Each word of 8 bytes encodes the
/// file, the operation that wrote the word, and the position in the file.
pub fn words(id: u64, op: usize, offset: u64, len: usize) -> Vec<u8> {
    let places = (0..len / 8).map(|n| offset + n as u64 * 8);
    places.flat_map(|place| word(id, op, place).to_le_bytes()).collect()
}

/// Describes a word for messages.
pub(super) fn described(word: u64) -> String {
    let (id, op, place) = (word >> 48, (word >> 32) & 0xffff, (word & 0xffff_ffff) * 8);
    format!("{word:#x} (file {id}, operation {op}, place {place})")
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
