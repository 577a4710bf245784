//! Tests of `lanefs quota`, and of projects on a mount.

use crate::mounting::{Image, LANEFS, Mounted, assert_clean, can_mount, run, shell, try_run};
use serde_json::Value;
use std::process::Command;

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn owner(kind: &str, id: u64, image: &str) -> Value {
    let all: Value = serde_json::from_str(&lanefs(&["quota", "--json", image])).unwrap();
    let quotas = all["quotas"].as_array().unwrap();
    let file = quotas.iter().find(|file| file["kind"] == kind).unwrap();
    let found = file["owners"].as_array().unwrap().iter().find(|owner| owner["id"] == id);
    found.cloned().unwrap_or(Value::Null)
}

#[test]
fn usage_is_shown_and_limits_are_set() {
    let image = Image::with("32M", &["-O", "quota,project"]);
    let path = image.path.to_str().unwrap();
    let place = format!("{path}:/f");
    lanefs(&["truncate", "-s", "0", &place]);
    lanefs(&["chown", "1000:50", &place]);
    let one = owner("user", 1000, path);
    assert_eq!((&one["bytes"], &one["inodes"]), (&0.into(), &1.into()));
    assert_eq!(owner("group", 50, path)["inodes"], 1);
    assert_eq!(owner("project", 50, path), Value::Null);
    let said = lanefs(&["quota", "-P", "7", "--space", "900K:1M", "--inodes", "10", path]);
    assert!(said.contains("project") && said.contains(" 1024 "), "{said}");
    let limited = owner("project", 7, path);
    assert_eq!((&limited["soft_kib"], &limited["hard_kib"]), (&900.into(), &1024.into()));
    assert_eq!((&limited["soft_inodes"], &limited["hard_inodes"]), (&0.into(), &10.into()));
    // Only the given limit changes, and all other limits stay.
    lanefs(&["quota", "--project", "7", "--inodes", "5:0", path]);
    let limited = owner("project", 7, path);
    assert_eq!((&limited["hard_kib"], &limited["soft_inodes"]), (&1024.into(), &5.into()));
    assert_clean(&image.path);
    let theirs = run(Command::new("debugfs").args(["-R", "get_quota project 7"]).arg(path));
    assert!(theirs.contains(" 900 ") && theirs.contains(" 1024 "), "{theirs}");
}

#[test]
fn an_image_without_quotas_and_wrong_usage_are_reported() {
    let image = Image::new("32M");
    let path = image.path.to_str().unwrap();
    let (status, said) = try_run(Command::new(LANEFS).args(["quota", path]));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("lacks the feature quota"), "{said}");
    let wrong = ["quota", "--space", "1M", path];
    assert_eq!(try_run(Command::new(LANEFS).args(wrong)).0.code(), Some(2));
    let users = Image::with("32M", &["-O", "quota", "-E", "quotatype=usrquota"]);
    let path = users.path.to_str().unwrap();
    let (status, said) = try_run(Command::new(LANEFS).args(["quota", "-g", "1", path]));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("no quotas of groups"), "{said}");
}

#[test]
#[ignore = "long: a real mount"]
fn projects_are_set_and_passed_on_through_a_mount() {
    if !can_mount() {
        return;
    }
    let image = Image::with("64M", &["-O", "quota,project"]);
    let mounted = Mounted::new(&image, &["rw"]);
    shell(
        &mounted.path,
        "mkdir d && chattr -p 42 d && chattr +P d && echo text >d/f && mkdir d/sub && echo x >g
         lsattr -p d/f | grep -q '^ *42 ' && lsattr -pd d/sub | grep -q '^ *42 .*P'
         ! ln g d/g 2>/dev/null",
    );
    mounted.umount();
    assert_clean(&image.path);
    assert_eq!(owner("project", 42, image.path.to_str().unwrap())["inodes"], 3);
}
