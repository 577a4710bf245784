use super::*;

fn change(text: &str, old: u16, file_type: FileType) -> u16 {
    text.parse::<ModeChange>().unwrap().apply(old, file_type, 0o022)
}

#[test]
fn letters_change_only_the_named_bits() {
    for (text, old, new) in [
        ("u+x", 0o644, 0o744),
        ("go-rwx", 0o777, 0o700),
        ("a=r", 0o751, 0o444),
        ("+x", 0o644, 0o755),
        ("+w", 0o444, 0o644),
        ("a+w", 0o444, 0o666),
        ("u=rw,go=", 0o777, 0o600),
        ("g=u", 0o640, 0o660),
        ("u+s,g+s,+t", 0o755, 0o7755),
        ("u-s", 0o4755, 0o755),
        ("a+X", 0o644, 0o644),
        ("a+X", 0o744, 0o755),
        ("u+r-w", 0o200, 0o400),
        ("=", 0o755, 0),
    ] {
        assert_eq!(change(text, old, FileType::Regular), new, "{text} of {old:o}");
    }
}

#[test]
fn directories_count_as_executable_and_keep_their_set_id_bits() {
    assert_eq!(change("a+X", 0o644, FileType::Directory), 0o755);
    assert_eq!(change("755", 0o2700, FileType::Directory), 0o2755);
    assert_eq!(change("1755", 0o6700, FileType::Directory), 0o7755);
    assert_eq!(change("4755", 0o2700, FileType::Directory), 0o6755);
    assert_eq!(change("00755", 0o6700, FileType::Directory), 0o755);
    assert_eq!(change("755", 0o2700, FileType::Regular), 0o755);
    assert_eq!(change("g=rx", 0o2770, FileType::Directory), 0o2750);
}

#[test]
fn an_invalid_mode_is_refused() {
    for text in ["", "u", "888", "77777", "u+q", "x+u+", "u+rwg,", "u~r"] {
        assert!(text.parse::<ModeChange>().is_err(), "{text}");
    }
}

#[test]
fn modes_are_shown_as_ls_shows_them() {
    assert_eq!(mode_string(0o100644), "-rw-r--r--");
    assert_eq!(mode_string(0o041777), "drwxrwxrwt");
    assert_eq!(mode_string(0o106644), "-rwSr-Sr--");
    assert_eq!(mode_string(0o120777), "lrwxrwxrwx");
}
