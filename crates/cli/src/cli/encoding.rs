//! Converts bytes to text and back, in the encodings of getfattr(1).

/// Encodes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hexadecimal digits; spaces are ignored.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|letter| !letter.is_ascii_whitespace())
        .map(|letter| letter.to_digit(16).map(|digit| digit as u8))
        .collect();
    match digits?.as_chunks() {
        (pairs, []) => Some(pairs.iter().map(|[high, low]| high << 4 | low).collect()),
        _ => None,
    }
}

/// Replaces the backslash, and bytes that would end a line or a quoted text, by `\` and three octal
/// digits.
pub fn quoted(bytes: &[u8], special: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\n' | b'\r' | b'\\' => text.extend(format!("\\{byte:03o}").bytes()),
            byte if special.contains(byte) => text.extend(format!("\\{byte:03o}").bytes()),
            byte => text.push(*byte),
        }
    }
    text
}

/// Decodes the output of [`quoted`]. A backslash and a character that is not an octal digit
/// together mean that character.
pub fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let octal = after.first_chunk::<3>().and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match (octal, after.split_first()) {
            (Some(byte), _) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            (None, Some((byte, after))) => {
                bytes.push(*byte);
                rest = after;
            }
            (None, None) => bytes.push(b'\\'),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_back() {
        for text in ["", "a", "ab", "abc", "hello\0\u{e9}"] {
            let bytes = text.as_bytes();
            assert_eq!(from_hex(&hex(bytes)).as_deref(), Some(bytes));
        }
        assert_eq!(from_hex("abc"), None);
        assert_eq!(from_hex("00 ff"), Some(vec![0, 255]));
    }

    #[test]
    fn quoted_text_is_read_back() {
        for bytes in [&b"a b"[..], b"a\nb\\c\r", b"\"\0\x01", b"\\012"] {
            assert_eq!(unquoted(&quoted(bytes, b"\"\0")), bytes);
        }
        assert_eq!(unquoted(b"a\\"), b"a\\");
        assert_eq!(unquoted(br#"a\"b"#), b"a\"b");
    }
}
