//! Texts in which a backslash stands before what cannot be written as it is.

/// Decodes a text. A backslash before three octal digits is a byte; before any other character, or
/// at the end, `named` says which byte is meant.
///
/// Returns `None` if `named` does.
pub fn unescape(text: &[u8], named: impl Fn(Option<u8>) -> Option<u8>) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after)
            }
            (b'\\', [letter, after @ ..]) => (named(Some(*letter))?, after),
            (b'\\', []) => (named(None)?, after),
            (byte, after) => (byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Some(bytes)
}
