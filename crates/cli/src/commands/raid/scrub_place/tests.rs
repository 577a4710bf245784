//! Tests of `scrub_place.rs`.

use super::*;

#[test]
fn a_repair_goes_on_only_from_the_place_of_a_repair() {
    let found = ScrubReport { rows: 9, skipped: 1, wrong_rows: 2, ..ScrubReport::default() };
    for repairs in [true, false] {
        let text = json!(Scrubbed { found, repaired: repairs }).to_string();
        assert!(place_in(&text, repairs, 10).is_some_and(|place| place.rows == 9));
        assert!(place_in(&text, !repairs, 10).is_none());
        assert!(place_in(&text, repairs, 9).is_none(), "it was done");
    }
    for wrong in [
        ScrubReport { skipped: 10, ..found },
        ScrubReport { wrong_rows: u64::MAX, ..found },
        ScrubReport { rows: u64::MAX, ..found },
    ] {
        assert!(
            place_in(&json!(Scrubbed { found: wrong, repaired: false }).to_string(), false, 10)
                .is_none()
        );
    }
    assert!(place_in("{\"rows\": 1}", false, 10).is_none());
}

#[test]
fn a_place_is_read_from_a_plain_file_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    keep(&file, &Value::from("text")).unwrap();
    assert_eq!(read(&file).as_deref(), Some("\"text\""));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!(read(&link), None);
    std::os::unix::fs::symlink(&file, dir.path().join("other.new")).unwrap();
    keep(&dir.path().join("other"), &Value::from("other")).unwrap();
    assert_eq!(read(&file).as_deref(), Some("\"text\""), "not through a link");
    let _pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&_pipe).status().unwrap().success());
    assert_eq!(read(&_pipe), None);
}

#[test]
fn the_place_is_in_the_folder_for_states() {
    let set = Uuid([1; 16]);
    let with = |wanted: &'static str, path: &'static str| {
        file_of(set, move |name| (name == wanted).then(|| path.into()))
    };
    let name = "lanefs/scrub-01010101-01010101-01010101-01010101.json";
    assert_eq!(with("XDG_STATE_HOME", "/s"), Some(PathBuf::from("/s").join(name)));
    assert_eq!(with("HOME", "/h"), Some(PathBuf::from("/h/.local/state").join(name)));
    assert_eq!(with("HOME", "h"), None);
}
