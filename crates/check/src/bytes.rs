//! Reads little-endian fields at given offsets. If a field extends beyond the end of the slice, its
//! value is 0, so no input can panic.

/// Returns the 16-bit word at `at`.
pub fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// Returns the 32-bit word at `at`.
pub fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// Returns the `len` bytes from `at` on; `None` if some of them are beyond the end.
pub fn part(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    part(bytes, at, N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_end_are_zeros() {
        assert_eq!((le16(&[1, 2, 3], 1), le16(&[1, 2, 3], 2)), (0x0302, 0));
        assert_eq!(le32(&[1], usize::MAX), 0);
    }
}
