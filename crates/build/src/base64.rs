//! Base 64, as in getfattr(1) and in extended attributes of tars.

/// Encodes in base 64 with padding.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS.get((word >> (18 - 6 * place) & 63) as usize);
            text.push(if place <= chunk.len() { char::from(*digit.unwrap_or(&b'=')) } else { '=' });
        }
    }
    text
}

/// Decodes base 64, with or without padding.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    for byte in &text[..text.len() - padding] {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(digit)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        for bytes in [&b""[..], b"a", b"ab", b"abc", b"\0\xff\x80", b"hello world"] {
            assert_eq!(decode(encode(bytes).as_bytes()).as_deref(), Some(bytes));
        }
        assert_eq!(encode(b"hello"), "aGVsbG8=");
        assert_eq!(encode(b"a"), "YQ==");
    }

    #[test]
    fn padding_may_be_missing_and_other_bytes_are_refused() {
        assert_eq!(decode(b"aGVsbG8=").as_deref(), Some(&b"hello"[..]));
        assert_eq!(decode(b"aGVsbG8").as_deref(), Some(&b"hello"[..]));
        assert_eq!(decode(b"aGVs bG8"), None);
        assert_eq!(decode(b"aG=sbG8"), None);
    }
}
