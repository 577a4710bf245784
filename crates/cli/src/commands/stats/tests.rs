use super::*;
use crate::cli::parse_counters;

const TEXT: &str = "journal.commits 3\ncache.inodes 7\nlock.guard.waits 2\nlock.guard.ns 5000\n\
    request.lookup.count 100\nrequest.lookup.ns 300000\nrequest.lookup.under_us.1 0\n\
    request.lookup.under_us.4 98\nrequest.lookup.under_us.16 1\nrequest.lookup.under_us.more 1\n";

fn parsed(text: &str) -> Counters {
    Counters(parse_counters(text))
}

#[test]
fn counters_become_a_table() {
    let table = parsed(TEXT).table();
    let words = |start: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.starts_with(start)).unwrap_or_default();
        line.split_whitespace().map(String::from).collect()
    };
    assert_eq!(words("lookup"), ["lookup", "100", "3.0", "4", "us", "16", "us"], "{table}");
    assert_eq!(words("guard"), ["guard", "2", "0.01", "2.5"]);
    assert!(table.contains("3 commits") && table.contains("7 inodes"), "{table}");
}

#[test]
fn the_map_of_ids_is_shown_if_there_is_one() {
    assert!(!parsed(TEXT).table().contains("ids:"));
    let text = "ids.fakeroot 1000\nids.uid 7\nids.map.gid.1000.0 65536\n";
    let table = parsed(text).table();
    for line in [
        "ids: user 1000 acts as root of the image",
        "ids: all files are shown with user 7",
        "ids: idmap g:1000:0:65536",
    ] {
        assert!(table.lines().any(|shown| shown == line), "{line} in {table}");
    }
}

#[test]
fn counters_of_an_array_are_shown_if_there_is_one() {
    assert!(!parsed(TEXT).table().contains("array:"));
    let text = "array.full_row 5\narray.reconstruct 2\narray.modify 1\narray.old_reads 4\n\
        array.gathered 6\narray.state.members 4\narray.state.rows 256\n";
    let before = parsed(text);
    let table = before.table();
    for part in
        ["5 strips of rows written whole, 3 in part", "4 member reads", "6 parts", "256 rows"]
    {
        assert!(table.contains(part), "{part} in {table}");
    }
    let none = before.since(&before);
    assert_eq!((none.get("array.gathered"), none.get("array.state.rows")), (0, 256));
}

#[test]
fn the_table_says_if_no_thread_waited_for_a_lock() {
    assert!(!parsed(TEXT).table().contains("no waits"));
    let quiet = parsed("journal.commits 3\nlock.guard.waits 0\nlock.guard.ns 0\n");
    assert!(quiet.table().contains("no waits"));
}

#[test]
fn a_watch_shows_differences_of_counters_and_present_levels() {
    let before = parsed(TEXT);
    let mut now = before.clone();
    now.0.insert("request.lookup.count".into(), 130);
    let shown = now.since(&before);
    assert_eq!(shown.get("request.lookup.count"), 30);
    assert_eq!(shown.get("journal.commits"), 0);
    assert_eq!(shown.get("cache.inodes"), 7);
    let line = shown.json(Some(Duration::from_secs(2)), true);
    assert_eq!(line.lines().count(), 1);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["interval_ns"], 2_000_000_000u64);
    let value: serde_json::Value = serde_json::from_str(&now.json(None, false)).unwrap();
    assert!(value["interval_ns"].is_null());
    assert_eq!(heading(None), "since it was mounted");
    assert_eq!(heading(Some(Duration::from_millis(2004))), "in 2.00 s");
}
