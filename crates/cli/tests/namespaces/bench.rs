//! Tests of `lanefs bench`: the files that it leaves, the arguments that it refuses, and its
//! output.

use crate::mounting::{Image, LANEFS, can_mount, needs, run, scratch, try_run, wait_for};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A time limit that is long enough even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The output and exit code of a run.
struct Ended {
    code: Option<i32>,
    said: String,
}

/// Starts a benchmark that would run for very long, waits until `begun` returns true, and stops it
/// with `signal`.
fn interrupted(
    arguments: &[&str],
    signal: &str,
    temporary: &Path,
    begun: impl Fn() -> bool,
) -> Ended {
    let mut bench = Command::new(LANEFS)
        .args(["bench", "--seconds", "100", "--slices", "1000"])
        .args(arguments)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the benchmark to begin", PATIENCE, || still_runs(&mut bench) && begun());
    run(Command::new("kill").args([&format!("-{signal}"), &bench.id().to_string()]));
    let mut output = None;
    wait_for("its end", PATIENCE, || {
        output = bench.try_wait().unwrap();
        output.is_some()
    });
    let output = bench.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), said: text(&output.stdout) + &text(&output.stderr) }
}

fn still_runs(bench: &mut Child) -> bool {
    let ended = bench.try_wait().unwrap();
    assert!(ended.is_none(), "it ended by itself: {ended:?}");
    true
}

/// Returns whether this process ignores `signal`, as it does if a shell started it in the
/// background.
fn is_ignored(signal: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

#[test]
fn a_benchmark_that_a_signal_ends_leaves_nothing_in_the_directory() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        if signal == "INT" && is_ignored(2) {
            println!("SIGINT is ignored here: it is for nobody");
            continue;
        }
        let dir = scratch();
        let (target, temporary) = (dir.path().join("target"), dir.path().join("tmp"));
        std::fs::create_dir(&target).unwrap();
        std::fs::create_dir(&temporary).unwrap();
        let json = dir.path().join("figures.json");
        let spec = format!("dir:{}", target.display());
        let words = ["create", "stat", "--target", &spec, "--json", json.to_str().unwrap()];
        // The third slice has started, so two are complete.
        let third = target.join("bench-create-1/t0/r2");
        let ended = interrupted(&words, signal, &temporary, || third.exists());
        assert_eq!(ended.code, Some(code), "{}", ended.said);
        assert!(
            ended.said.contains("create") && ended.said.contains("interrupted"),
            "{}",
            ended.said
        );
        assert_eq!(target.read_dir().unwrap().count(), 0, "{}", ended.said);
        assert_eq!(temporary.read_dir().unwrap().count(), 0, "{}", ended.said);
        let figures: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(figures["interrupted"], true);
        let measured = figures["measured"].as_array().unwrap();
        assert_eq!(measured.len(), 1, "{figures}");
        assert!(measured[0]["targets"][0]["slices"].as_array().unwrap().len() >= 2);
    }
}

#[test]
fn a_benchmark_of_seeds_ends_at_a_signal_and_keeps_no_empty_file() {
    if !needs("mke2fs") {
        return;
    }
    let dir = scratch();
    let temporary = dir.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let report = dir.path().join("report.html");
    let words = ["--report", report.to_str().unwrap(), "seeds", "S1", "--threads", "1"];
    let ended = interrupted(&words, "TERM", &temporary, || report.exists());
    assert_eq!(ended.code, Some(143), "{}", ended.said);
    let left: Vec<_> = dir.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    // Either no slice was complete and the report was removed, or the report says that the run was
    // interrupted.
    let page = std::fs::read_to_string(&report).unwrap_or_default();
    assert!(left == [temporary.clone()] || page.contains("Interrupted"), "{left:?}");
    assert_eq!(temporary.read_dir().unwrap().count(), 0);
}

#[test]
#[ignore = "long: real mounts"]
fn a_benchmark_beside_others_that_a_signal_ends_takes_their_mounts_and_servers_along() {
    if !can_mount() || !needs("unshare") || !needs("setpriv") {
        return;
    }
    let dir = scratch();
    let name = dir.path().file_name().unwrap().to_str().unwrap().to_owned();
    let servers = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let words =
            processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        words.filter(|words| String::from_utf8_lossy(words).contains(&name)).count()
    };
    let words = ["statfs", "--peers"];
    // When at least one server runs, either the next image is being created or measuring has
    // started.
    let ended = interrupted(&words, "TERM", dir.path(), || servers() > 0);
    assert_eq!(ended.code, Some(143), "{}", ended.said);
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "{}", ended.said);
    wait_for("the servers' end", PATIENCE, || servers() == 0);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&name), "{mounts}");
    let loops =
        run(Command::new("losetup").args(["--list", "--noheadings", "--output", "BACK-FILE"]));
    assert!(!loops.contains(&name), "{loops}");
}

fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let (status, said) = try_run(Command::new(LANEFS).arg("bench").args(arguments));
    (status.code(), said)
}

#[test]
fn invalid_combinations_are_wrong_usage_and_the_message_names_valid_ones() {
    for (line, why) in [
        ("seeds mix", "S3 direct-write, S4 fsmark, S5"),
        ("seeds --files 10", "--files: seeds has its own targets"),
        ("efficiency create", "efficiency; there are create-unlink, open-close, stat"),
        ("create --files 10", "--files: only used by stat, open-close"),
        ("creat", "there are: create, stat"),
        ("stat --policies overwrite", "policy overwrite is one of shared, exclusive"),
        ("stat --policies now", "there are before, after, inode_claim=one-step|two-step"),
        ("stat --target ram", "lib:raid5=N"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let (code, said) = refused(&words);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(why), "{line}: {said}");
    }
}

#[test]
fn an_unwritable_output_file_is_reported_before_measuring() {
    let dir = scratch();
    let spec = format!("dir:{}", dir.path().display());
    for option in ["--json", "--report"] {
        let words = ["create", "--target", &spec, option, "/proc/no/such", "--seconds", "86400"];
        let (code, said) = refused(&words);
        assert_eq!(code, Some(1), "{said}");
        assert_eq!(said, "lanefs bench: /proc/no/such: no such file or directory\n");
    }
}

#[test]
fn figures_are_not_written_over_each_other_nor_over_what_is_measured() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let contents = vec![0x5a; 1 << 20];
    std::fs::write(path("image"), &contents).unwrap();
    std::os::unix::fs::symlink("image", path("link")).unwrap();
    std::os::unix::fs::symlink("figures", path("again")).unwrap();
    let (figures, again) = (path("figures"), path("again"));
    let (plain, array) = (format!("lib:{}", path("image")), format!("lib:md:{}", path("image")));
    for words in [
        ["--json", &figures, "--report", &again],
        ["--json", &path("link"), "--target", &plain],
        ["--target", &array, "--report", &path("image")],
    ] {
        let (code, said) = refused(&[&["stat"], &words[..]].concat());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.ends_with(", which would be overwritten\n"), "{said}");
    }
    assert_eq!(std::fs::read(path("image")).unwrap(), contents);
    assert!(!std::fs::exists(&figures).unwrap());
}

#[test]
fn a_report_is_written_though_the_figures_beside_it_cannot_be() {
    let dir = scratch();
    let report = dir.path().join("report.html").display().to_string();
    let spec = format!("dir:{}", dir.path().display());
    let words = ["stat", "--files", "3", "--seconds", "0.01", "--slices", "1", "--target", &spec];
    let (code, said) =
        refused(&[&words[..], &["--json", "/dev/full", "--report", &report]].concat());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("/dev/full: no space left on device"), "{said}");
    assert!(std::fs::read_to_string(&report).unwrap().ends_with("</html>\n"), "{said}");
}

#[test]
fn an_image_that_is_none_is_named() {
    let dir = scratch();
    let image = dir.path().join("garbage.img");
    std::fs::write(&image, vec![0x5a; 1 << 20]).unwrap();
    let (code, said) = refused(&["stat", "--target", &format!("lib:{}", image.display())]);
    assert_eq!(code, Some(1));
    let wanted = format!(
        "lanefs bench: cannot measure: {}: the file system is damaged: superblock",
        image.display()
    );
    assert!(said.starts_with(&wanted), "{said}");
}

#[test]
fn an_array_of_members_is_measured_and_clean_afterwards() {
    let dir = scratch();
    let members = ["a", "b", "c"].map(|name| dir.path().join(name).display().to_string());
    run(Command::new(LANEFS).args(["raid", "create", "--size", "64M"]).args(&members));
    let array = format!("md:{}", members.join(","));
    run(Command::new(LANEFS).args(["mkfs", &array]));
    let report = dir.path().join("report.json");
    let said = run(Command::new(LANEFS)
        .args(["bench", "create-unlink", "direct-write", "--file-size", "1", "--seconds", "0.05"])
        .args(["--slices", "2", "--threads", "2", "--target", &format!("lib:{array}")])
        .arg("--json")
        .arg(&report));
    assert!(said.contains(&format!("lib:{array}")) && !said.contains("source tree"), "{said}");
    let figures: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let counts = &figures["measured"][1]["targets"][0]["counts"];
    assert!(counts["data_writes"].as_f64().unwrap() >= 1.0, "{figures}");
    let status = run(Command::new(LANEFS).args(["raid", "status", &array]));
    assert!(status.contains("clean") && !status.contains("dirty"), "{status}");
    let listed = run(Command::new(LANEFS).args(["ls", &format!("{array}:/")]));
    assert_eq!(listed.trim(), "lost+found");
}

#[test]
fn an_image_is_clean_after_it_was_measured() {
    if !needs("mke2fs") {
        return;
    }
    let image = Image::new("64M");
    let spec = format!("lib:{}", image.path.display());
    run(Command::new(LANEFS).args([
        "bench",
        "create",
        "append",
        "--seconds",
        "0.05",
        "--slices",
        "2",
        "--target",
        &spec,
    ]));
    image.assert_clean();
}
