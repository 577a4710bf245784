//! Formats and parses times.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use lanefs::Time;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_usual_forms() {
        let time = |secs, nanos| Ok(Time { secs, nanos });
        assert_eq!(parse_time("@1714559400"), time(1_714_559_400, 0));
        assert_eq!(parse_time("@-1"), time(-1, 0));
        assert_eq!(parse_time("2024-05-01T10:30:00Z"), time(1_714_559_400, 0));
        assert_eq!(parse_time("2024-05-01T12:30:00.5+02:00"), time(1_714_559_400, 500_000_000));
        assert_eq!(parse_time("1969-12-31T23:59:59.25Z"), time(-1, 250_000_000));
        for text in ["2024-05-01", "2024-05-01 12:30", "2024-05-01 12:30:15"] {
            assert!(parse_time(text).is_ok(), "{text}");
        }
        assert!(parse_time("yesterday").is_err());
    }

    #[test]
    fn a_time_beyond_the_calendar_is_shown_as_a_number() {
        assert_eq!(
            show_time(Time { secs: i64::MAX, nanos: 0 }, Shown::Minutes),
            format!("@{}", i64::MAX)
        );
    }
}
