//! Sizes with suffixes.

use std::str::FromStr;

/// A number of bytes given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(u64);

impl Size {
    /// Returns the bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        parse_size(text).map(Size)
    }
}

/// Parses a number with a suffix: K, M, G, T, P, E (powers of 1024, any case, "iB" may follow) or
/// KB, MB, ... (powers of 1000). A number without a suffix counts bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let bad = || format!("'{text}' is not a size (examples: 4096, 64K, 10M, 2G)");
    let number: u64 = number.parse().map_err(|_| bad())?;
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        suffix => {
            let (letter, rest) = suffix.split_at_checked(1).ok_or_else(bad)?;
            let power = "kmgtpe".find(letter).ok_or_else(bad)? as u32 + 1;
            match rest {
                "" | "ib" => 1u64.checked_shl(10 * power).ok_or_else(bad)?,
                "b" => 1000u64.pow(power),
                _ => return Err(bad()),
            }
        }
    };
    number.checked_mul(unit).ok_or_else(|| format!("'{text}' is too large"))
}

/// Formats `bytes` in at most four characters and a unit, rounded up, as `ls -h` and `df -h` do.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut scale = 1u64;
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        scale <<= 10;
        unit += 1;
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(scale));
    let suffix = UNITS.get(unit).copied().unwrap_or_default();
    match tenths {
        _ if unit == 0 => bytes.to_string(),
        0..100 => format!("{}.{}{suffix}", tenths / 10, tenths % 10),
        // Rounding up may reach the next unit.
        10_231.. if unit + 1 < UNITS.len() => {
            format!("1.0{}", UNITS.get(unit + 1).copied().unwrap_or_default())
        }
        _ => format!("{}{suffix}", tenths.div_ceil(10)),
    }
}

/// Returns a number with its noun, which is in the plural unless the number is 1.
pub fn counted(count: u64, noun: &str) -> String {
    match (count, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_multiply() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4kB", 4000),
            ("10M", 10 << 20),
            ("2G", 2 << 30),
            ("1T", 1 << 40),
            ("15E", 15 << 60),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn an_invalid_size_is_refused() {
        for text in ["", "K", "-1", "1X", "1KX", "16E", "1.5G", "99999999999999999999", "1é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn human_sizes_are_as_ls_shows_them() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1_048_575, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }
}
