//! Sizes, times and the width of a screen, as text.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use lanefs::Time;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
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
    // No file is larger than this.
    let bytes = number.checked_mul(unit).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| format!("'{text}' is too large"))
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

/// The precision of a printed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// To the minute, as `ls -l --time-style=long-iso` does.
    Minutes,
    /// To the nanosecond, with the time zone.
    Nanoseconds,
    /// To the second.
    Seconds,
}

/// Formats `time` in the zone of the host.
pub fn show_time(time: Time, shown: Shown) -> String {
    let Ok(timestamp) = Timestamp::new(time.secs, time.nanos.min(999_999_999) as i32) else {
        return format!("@{}", time.secs);
    };
    let zoned = timestamp.to_zoned(TimeZone::system());
    let format = match shown {
        Shown::Minutes => "%Y-%m-%d %H:%M",
        Shown::Nanoseconds => "%Y-%m-%d %H:%M:%S.%9f %z",
        Shown::Seconds => "%Y-%m-%d %H:%M:%S %z",
    };
    zoned.strftime(format).to_string()
}

/// Parses a time: RFC 3339, `2024-05-01`, `2024-05-01 12:30`, or `@` and the seconds since 1970. A
/// time without a zone is in the zone of the host.
pub fn parse_time(text: &str) -> Result<Time, String> {
    let bad = || format!("'{text}' is not a time (examples: 2024-05-01 12:30, @1714559400)");
    if let Some(secs) = text.strip_prefix('@') {
        return Ok(Time { secs: secs.parse().map_err(|_| bad())?, nanos: 0 });
    }
    let timestamp = match text.parse::<Timestamp>() {
        Ok(timestamp) => timestamp,
        Err(_) => {
            let local: jiff::civil::DateTime = text.parse().map_err(|_| bad())?;
            let zoned: Zoned = local.to_zoned(TimeZone::system()).map_err(|_| bad())?;
            zoned.timestamp()
        }
    };
    // Nanoseconds count forward from the previous whole second, even before 1970.
    let nanos = timestamp.as_nanosecond();
    let secs = i64::try_from(nanos.div_euclid(1_000_000_000)).map_err(|_| bad())?;
    let nanos = u32::try_from(nanos.rem_euclid(1_000_000_000)).map_err(|_| bad())?;
    Ok(Time { secs, nanos })
}

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
mod tests;
