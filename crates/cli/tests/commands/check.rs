//! Tests of `lanefs check`: exit codes, findings, JSON.

use crate::mounting::{Image, KernelMounted, LANEFS, can_mount, shell, try_run};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

fn check(arguments: &[&str]) -> (Option<i32>, String) {
    let (status, said) = try_run(Command::new(LANEFS).arg("check").args(arguments));
    (status.code(), said)
}

fn write(path: &Path, at: u64, bytes: &[u8]) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn a_clean_image_exits_with_0_and_a_damaged_one_with_4() {
    let image = Image::new("32M");
    let path = image.path.to_str().unwrap();
    let (status, said) = check(&[path]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains(": clean; "), "{said}");
    let before = std::fs::read(&image.path).unwrap();
    // Changes the free block count in the superblock, but not the superblock's checksum.
    write(&image.path, 1024 + 12, &[1, 2]);
    let (status, said) = check(&["--json", path]);
    assert_eq!(status, Some(4), "{said}");
    let facts: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(facts["verdict"], "damaged");
    assert_eq!(facts["findings"][0]["place"], "superblock");
    assert_eq!(facts["findings"][0]["harm"], "unmountable");
    let (status, said) = check(&["--quiet", path]);
    assert_eq!((status, said.as_str()), (Some(4), ""));
    write(&image.path, 0, &before);
    assert_eq!(check(&[path]).0, Some(0));
}

/// When an indexed directory gets more than 65,000 subdirectories, the kernel sets its link count
/// to 1. The count stays 1 when subdirectories are removed.
#[test]
fn an_indexed_directory_may_have_a_link_count_of_1_as_for_e2fsck() {
    let image = Image::new("32M");
    let path = image.path.to_str().unwrap();
    let dir = image.dir.path().join("t");
    shell(
        image.dir.path(),
        "i=0; while [ $i -lt 600 ]; do mkdir -p t/d/subdirectory-$i; i=$((i+1)); done",
    );
    let copied = format!("{path}:/");
    let (status, said) =
        try_run(Command::new(LANEFS).args(["cp", "-r", &format!("{}/d", dir.display()), &copied]));
    assert!(status.success(), "{said}");
    for (links, verdict) in [(602, 0), (1, 0), (7, 4)] {
        let set = format!("sif /d links_count {links}");
        assert!(Command::new("debugfs").args(["-w", "-R", &set, path]).status().unwrap().success());
        let checked = Command::new("e2fsck").args(["-fn", path]).output().unwrap();
        assert_eq!(checked.status.code(), Some(verdict), "{links} links: {checked:?}");
        let (status, said) = check(&[path]);
        assert_eq!(status, Some(verdict), "{links} links: {said}");
    }
}

/// Many files, in several groups, claim the same block, which belongs to another file. The threads
/// of `lanefs check` meet these files in any order, but the report must always be the same.
#[test]
fn a_block_of_two_files_is_reported_for_the_later_one_by_any_number_of_threads() {
    let image = Image::with("64M", &["-b", "1024", "-g", "1024"]);
    let path = image.path.to_str().unwrap();
    let dirs = 0..40;
    let made: String =
        dirs.clone().map(|n| format!("mkdir -p t/{n}; echo {n} >t/{n}/f; ")).collect();
    shell(image.dir.path(), &made);
    let source = format!("{}/t", image.dir.path().display());
    let (status, said) =
        try_run(Command::new(LANEFS).args(["cp", "-r", &source, &format!("{path}:/")]));
    assert!(status.success(), "{said}");
    let debugfs = |request: &str| {
        let output = Command::new("debugfs").args(["-w", "-R", request, path]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let block = debugfs("bmap /t/0/f 0").trim().to_owned();
    for n in dirs.skip(1) {
        debugfs(&format!("sif /t/{n}/f block[5] {block}"));
    }
    let (status, alone) = check(&["--json", "--threads", "1", path]);
    assert_eq!(status, Some(4), "{alone}");
    let report: Value = serde_json::from_str(&alone).unwrap();
    let doubled = report["findings"].as_array().unwrap().iter();
    let doubled =
        doubled.filter(|f| f["fault"].as_str().unwrap().contains("in use more than once")).count();
    assert_eq!(doubled, 39, "{alone}");
    for _ in 0..20 {
        assert_eq!(check(&["--json", "--threads", "8", path]).1, alone);
    }
}

#[test]
fn without_a_superblock_the_check_fails_with_8() {
    let image = Image::new("32M");
    let none = image.dir.path().join("zeros.img");
    std::fs::write(&none, vec![0; 1 << 20]).unwrap();
    let (status, said) = check(&[none.to_str().unwrap()]);
    assert_eq!(status, Some(8), "{said}");
    assert!(said.contains("no ext4 file system"), "{said}");
    assert_eq!(check(&["--no-such-option", "x"]).0, Some(2));
}

#[test]
fn a_log_that_has_to_be_replayed_is_checked_as_replayed_and_nothing_is_written() {
    if !can_mount() {
        return;
    }
    let image = Image::new("32M");
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
    shell(&kernel.path, "mkdir d; echo text >d/f; sync");
    if !kernel.crash() {
        return;
    }
    let before = std::fs::read(&image.path).unwrap();
    let (status, said) = check(&[image.path.to_str().unwrap()]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("as after the replay"), "{said}");
    assert!(said.contains("3 directories"), "{said}");
    assert_eq!(std::fs::read(&image.path).unwrap(), before);
}

#[test]
fn fast_commits_are_checked_and_repaired_as_replayed() {
    if !can_mount() {
        return;
    }
    let image = Image::new("32M");
    let said = try_run(
        Command::new("mke2fs").args(["-Fq", "-t", "ext4", "-O", "fast_commit"]).arg(&image.path),
    );
    assert!(said.0.success(), "{}", said.1);
    let path = image.path.to_str().unwrap();
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw,commit=300") else { return };
    shell(&kernel.path, "mkdir d; sync -f .; echo text >d/f; mkdir d/e; sync d/f");
    if !kernel.crash() {
        return;
    }
    let (_, said) = try_run(Command::new(LANEFS).args(["recover", "-n", path]));
    if !said.contains("and 1 fast commits") {
        return println!("skipped: the kernel made no fast commit: {said}");
    }
    let before = std::fs::read(&image.path).unwrap();
    let (status, said) = check(&[path]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("4 directories"), "{said}");
    let repair =
        |arguments: &[&str]| try_run(Command::new(LANEFS).arg("repair").args(arguments).arg(path));
    assert_eq!(repair(&["-n"]).0.code(), Some(4));
    assert_eq!(std::fs::read(&image.path).unwrap(), before);
    let repairs = || {
        let (status, said) = repair(&[]);
        assert_eq!(status.code(), Some(1), "{said}");
        let (_, text) = try_run(Command::new(LANEFS).arg("cat").arg(format!("{path}:/d/f")));
        assert_eq!(text, "text\n", "{said}");
        assert_eq!(check(&[path]).0, Some(0));
    };
    repairs();
    // The log is found again by the copy of its mapping in the superblock.
    std::fs::write(&image.path, &before).unwrap();
    let lost = try_run(Command::new("debugfs").args(["-w", "-R", "clri <8>", path]));
    assert!(lost.0.success(), "{}", lost.1);
    let damaged = std::fs::read(&image.path).unwrap();
    assert!(damaged != before);
    let (status, said) = repair(&["-n"]);
    assert_eq!(status.code(), Some(4), "{said}");
    assert_eq!(std::fs::read(&image.path).unwrap(), damaged);
    repairs();
}
