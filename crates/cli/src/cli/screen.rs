//! Standard output for lines with names of files.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Buffered standard output. On a terminal, control characters other than newline and tab become
/// question marks, because a name in an image must not steer the terminal.
pub struct Screen {
    out: BufWriter<StdoutLock<'static>>,
    is_terminal: bool,
}

impl Screen {
    /// Locks standard output.
    pub fn new() -> Screen {
        let out = io::stdout().lock();
        Screen { is_terminal: out.is_terminal(), out: BufWriter::new(out) }
    }
}

/// Returns the width of each column in characters.
pub fn widths<'a, const N: usize>(rows: impl Iterator<Item = &'a [String; N]>) -> [usize; N] {
    let width = |widths: [usize; N], row: &[String; N]| {
        std::array::from_fn(|n| widths[n].max(row[n].chars().count()))
    };
    rows.fold([0; N], width)
}

/// Replaces control characters by question marks, for a terminal.
fn harmless(bytes: &[u8]) -> Vec<u8> {
    let mut before = 0;
    let shown = bytes.iter().map(|byte| {
        // In UTF-8 a control character from U+0080 on is the byte 0xc2 followed by a byte below
        // 0xa0.
        let is_second = before == 0xc2 && (0x80..0xa0).contains(byte);
        before = *byte;
        match byte {
            b'\n' | b'\t' => *byte,
            0..=0x1f | 0x7f => b'?',
            _ if is_second => b'?',
            byte => *byte,
        }
    });
    shown.collect()
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.is_terminal {
            true => self.out.write_all(&harmless(bytes)).map(|()| bytes.len()),
            false => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(harmless(b"a\x1b[2Jb\tc\n\x07\0"), b"a?[2Jb\tc\n??");
        assert_eq!(harmless("\u{e9}".as_bytes()), "\u{e9}".as_bytes());
        assert!(!harmless("\u{9b}2J".as_bytes()).contains(&0x9b));
    }
}
