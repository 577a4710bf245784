//! Writes the bytes of an archive in blocks.

use std::io::{self, Write};

/// The size of a block in bytes.
pub const BLOCK: usize = 512;
/// How many bytes are collected before they are written.
const BUFFER: usize = 1 << 20;

/// An archive that is being written.
pub struct Archive {
    out: io::BufWriter<Box<dyn Write>>,
}

impl Archive {
    /// Begins an archive.
    pub fn new(out: Box<dyn Write>) -> Archive {
        Archive { out: io::BufWriter::with_capacity(BUFFER, out) }
    }

    /// Writes bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Writes zeros after `len` bytes of data, up to the end of their last block.
    pub fn pad(&mut self, len: u64) -> io::Result<()> {
        let rest = (len % BLOCK as u64) as usize;
        let padding = if rest == 0 { 0 } else { BLOCK - rest };
        self.bytes([0; BLOCK].get(..padding).unwrap_or_default())
    }

    /// Writes the end mark: two blocks of zeros.
    pub fn finish(&mut self) -> io::Result<()> {
        self.bytes(&[0; 2 * BLOCK])?;
        self.out.flush()
    }
}
