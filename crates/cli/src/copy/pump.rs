//! Moves the data of a file from its start to its end.

/// Calls `read` for the bytes from an offset on until it finds none, and `write` with each piece
/// and its offset. A piece is at most as long as `buffer`.
pub fn pump<E>(
    mut buffer: Vec<u8>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = 0;
    loop {
        let len = read(at, &mut buffer)?;
        let piece = buffer.get(..len).unwrap_or_default();
        if piece.is_empty() {
            return Ok(());
        }
        write(at, piece)?;
        at += len as u64;
    }
}
