//! Bytes on their own cache lines.

use std::ops::Deref;

/// Bytes that many threads read, on lines without other data. Without this type, data of the
/// allocator or of other objects would be on the same lines.
pub struct Lines {
    lines: Box<[Line]>,
    len: usize,
}

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u8; Line::BYTES]);

impl Line {
    const BYTES: usize = 64;
}

impl From<&[u8]> for Lines {
    fn from(bytes: &[u8]) -> Lines {
        let line = |part: &[u8]| {
            let mut line = Line([0; Line::BYTES]);
            line.0[..part.len()].copy_from_slice(part);
            line
        };
        Lines { lines: bytes.chunks(Line::BYTES).map(line).collect(), len: bytes.len() }
    }
}

impl Deref for Lines {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the lines are contiguous, initialised bytes, and there are enough of them for
        // `len` bytes.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast::<u8>(), self.len) }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_lines_of_their_own() {
        for len in [0, 1, 63, 64, 65, 4096] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let lines = Lines::from(&*bytes);
            assert_eq!(*lines, *bytes);
            assert_eq!(lines.lines.as_ptr().addr() % 64, 0);
        }
    }
}
