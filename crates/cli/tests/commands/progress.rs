//! The progress line of `lanefs mkfs --from` on a terminal, which script(1) provides.

use crate::mounting::{LANEFS, needs, scratch, shell};
use std::path::Path;

/// Runs the shell script `feed` on a terminal, and returns its output. In the script,
/// `$MKFS SOURCE` makes an image from SOURCE.
fn on_terminal(dir: &Path, feed: &str, arguments: &str) -> String {
    let mkfs = format!("{LANEFS} mkfs a.img --size auto -F {arguments} --from");
    std::fs::write(dir.join("feed"), feed.replace("$MKFS", &mkfs)).unwrap();
    // Sets the size of the terminal's window, since script(1) does not set it if its input is not a
    // terminal.
    shell(dir, "script -qec 'stty cols 100 rows 24; sh -e feed' /dev/null </dev/null")
}

fn tree(dir: &Path) {
    shell(dir, "mkdir t; head -c 4M /dev/urandom >t/data; tar -cf t.tar -C t .");
}

/// Sends the second half of the tar only after a progress line is due.
const SLOW: &str = "{ head -c 2M t.tar; sleep 1.2; tail -c +2097153 t.tar; }";

#[test]
fn a_pipe_shows_bytes_and_rate_and_no_end() {
    let dir = scratch();
    if !needs("script") {
        return;
    }
    tree(dir.path());
    let said = on_terminal(dir.path(), &format!("{SLOW} | $MKFS -"), "");
    assert!(said.contains(" read, ") && said.contains("/s"), "{said}");
    assert!(!said.contains(" left") && said.contains("1 file in "), "{said}");
    let said = on_terminal(dir.path(), &format!("{SLOW} | $MKFS -"), "-q");
    assert!(!said.contains(" read, "), "{said}");
    let feed = format!("{SLOW} | {LANEFS} mkfs a.img --size auto -F --from - 2>&1");
    let said = shell(dir.path(), &feed);
    assert!(!said.contains(" read, "), "without a terminal: {said}");
}

/// While another process holds a lease on the tar, opening the tar waits. The holder gives the
/// lease up only after a progress line is due.
#[test]
fn a_tar_shows_its_part_and_the_time_left() {
    let dir = scratch();
    if !needs("script") || !needs("perl") {
        return;
    }
    tree(dir.path());
    let lease = r#"perl -e '$SIG{IO} = "IGNORE"; open(F, "<", "t.tar") or die; fcntl(F, 1024, 1) or die $!;
        open(R, ">", "ready"); close R; sleep 2; fcntl(F, 1024, 2) or die' &
        until [ -e ready ]; do sleep 0.01; done; $MKFS tar:t.tar; wait"#;
    let said = on_terminal(dir.path(), lease, "");
    assert!(said.contains("% of 4.0") && said.contains(" left"), "{said}");
    assert!(said.contains("1 file in "), "{said}");
}
