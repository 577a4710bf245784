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
        ("7E", 7 << 60),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
}

#[test]
fn an_invalid_size_is_refused() {
    for text in ["", "K", "-1", "1X", "1KX", "8E", "16E", "1.5G", "99999999999999999999", "1é"] {
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

#[test]
fn a_name_cannot_steer_the_terminal() {
    assert_eq!(harmless(b"a\x1b[2Jb\tc\n\x07\0"), b"a?[2Jb\tc\n??");
    assert_eq!(harmless("\u{e9}".as_bytes()), "\u{e9}".as_bytes());
    assert!(!harmless("\u{9b}2J".as_bytes()).contains(&0x9b));
}
