//! Tests of the command lines and the files of `lanefs bench`.

use super::task::{self, Task};
use super::*;
use crate::older::Policies;
use crate::{Mounting, StripeWake, TargetSpec, Workload};
use clap::Parser;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    bench: Arguments,
}

fn parse(line: &str) -> Result<Arguments, clap::Error> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    Line::try_parse_from(words).map(|line| line.bench)
}

#[test]
fn the_default_is_all_workloads_on_the_library_in_memory() {
    let arguments = parse("").unwrap();
    assert_eq!(arguments.wanted(), [(TargetSpec::Ram, None, Mounting::default())]);
    assert_eq!(arguments.threads(&[1]), [1]);
    let peers = parse("--peers create").unwrap();
    assert!(peers.wanted().is_empty());
    let task = Task::of(&peers).unwrap();
    assert!(matches!(task, Task::Workloads(w) if w == [Workload::Create]));
}

#[test]
fn lists_and_seconds_are_understood() {
    let line = "stat --threads 1,2,16 --seconds 0.5 --slices 2 --target lib:a --target dir:/b";
    let arguments = parse(line).unwrap();
    assert_eq!(arguments.threads, [1, 2, 16]);
    assert_eq!(arguments.wanted().len(), 2);
    assert_eq!(arguments.slice(), Duration::from_millis(250));
}

#[test]
fn each_set_of_policies_is_a_target() {
    let arguments = parse("create --policies before,after,overwrite=exclusive --cache 64").unwrap();
    let wanted = arguments.wanted();
    assert_eq!(wanted.len(), 3);
    assert_eq!(wanted[0].1.as_deref(), Some("before"));
    assert_eq!(wanted[0].2.policies, Policies::before());
    assert!(wanted.iter().all(|(_, _, how)| how.cache_bytes == Some(64 << 20)));
}

#[test]
fn invalid_arguments_are_refused() {
    let wrong = [
        "creat",
        "--threads 0",
        "--threads 1,x",
        "--seconds 0",
        "--seconds NaN",
        "--seconds -1",
        "--slices 0",
        "--target ram",
        "--policies now",
        "--policies stripe_wake=some",
        "--access-size 3",
        "--mix stat",
    ];
    for line in wrong {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn stripe_wake_is_a_policy_of_arrays() {
    let policies = |line: &str| {
        let arguments = parse(line).unwrap();
        arguments.wanted().into_iter().map(|(_, _, how)| how).collect::<Vec<_>>()
    };
    let wanted = policies(
        "fsync --target lib:raid5 --policies before,after,stripe_wake=all,before+stripe_wake=one",
    );
    let wakes: Vec<StripeWake> = wanted.iter().map(|how| how.stripe_wake).collect();
    assert_eq!(wakes, [StripeWake::All, StripeWake::One, StripeWake::All, StripeWake::One]);
    assert_eq!(wanted[2].policies, Policies::default());
    assert_eq!(wanted[3].policies, Policies::before());
}

fn refusal(line: &str) -> String {
    Task::of(&parse(line).unwrap()).expect_err(line)
}

#[test]
fn options_without_effect_are_refused() {
    let refused = [
        ("seeds --target lib:ram", "--target: seeds has its own targets"),
        ("seeds --policies before", "--policies: seeds"),
        ("seeds S3 --cache 64", "--cache: seeds"),
        ("seeds --files 10", "--files: seeds"),
        ("seeds --peers", "--peers: seeds"),
        ("efficiency --target dir:/", "--target: efficiency has its own targets"),
        ("efficiency stat --file-size 1", "--file-size: only used by "),
        ("create --files 10", "--files: only used by stat"),
        ("stat --tree-files 10", "--tree-files: only used by untar, git-status"),
        ("stat --target dir:/ --cache 64", "--cache: only lib: targets"),
        ("stat --target lib:a --policies before", "--policies: only lib:ram and lib:raid5"),
        ("stat --peers --cache 64", "--cache: only lib:"),
        ("stat --policies stripe_wake=all", "--policies: stripe_wake is only for lib:raid5"),
        ("stat --access-size 8", "--access-size: only used by"),
        ("stat --mix stat=1", "--mix: only used by mix"),
        ("mix --mix stat=1 --access-size 8", "--access-size: only used by"),
        (
            "overwrite --file-size 1 --access-size 2048",
            "--access-size: larger than the file size of 1 MiB",
        ),
        ("stat --json a --report a", "--json and --report: the same file"),
    ];
    for (line, why) in refused {
        assert!(refusal(line).starts_with(why), "{line}: {}", refusal(line));
    }
    for fine in [
        "--files 10 --file-size 1 --tree-files 5 --cache 1 --policies before",
        "stat --peers --policies before",
        "stat --target dir:/ --target lib:raid5 --cache 64 --policies before",
        "efficiency stat --files 10",
        "--mix stat=3,append=1 --access-size 8",
        "mix --mix stat=3,append=1 --access-size 8 --files 10",
        "fsync --target lib:ram --target lib:raid5 --policies stripe_wake=all,after",
        "readdir-stat --files 10 --target lib:md:a,b,c --cache 1",
    ] {
        Task::of(&parse(fine).unwrap()).expect(fine);
    }
}

#[test]
fn seeds_are_chosen_by_workload_or_by_name() {
    let names = |line: &str| match Task::of(&parse(line).unwrap()).expect(line) {
        Task::Seeds(seeds, arrays) => {
            let names = seeds.iter().map(|seed| format!("{} {}", seed.name, seed.workload));
            (names.collect::<Vec<_>>(), arrays == task::Arrays::Measured)
        }
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(names("seeds S4"), (vec![], true));
    assert_eq!(names("seeds fsmark"), (vec![], true));
    assert_eq!(names("seeds s3").0, ["S3 direct-write", "S3 direct-read"]);
    assert_eq!(names("seeds tree-diff").0, ["S5 tree-diff", "S5 tree-diff"]);
    let of_inodes = ["S1 create-stat-remove", "S1 create", "S1 stat", "S1 remove"];
    assert_eq!(names("seeds S1 fsmark"), (of_inodes.map(String::from).to_vec(), true));
    assert_eq!(names("seeds S1 --log 512").0, of_inodes);
    assert!(refusal("seeds S4 --log 512").starts_with("--log: S4 has arrays"));
    assert!(refusal("create --log 512").starts_with("--log: only seeds"));
    assert!(names("seeds").1 && names("seeds").0.len() == 14);
    let known = "S1 create, S1 create-stat-remove, S1 remove, S1 stat, S2 fallocate2, \
                 S3 direct-read, S3 direct-write, S4 fsmark, S5 anonymous, S5 create-unlink, \
                 S5 create-unlink-shared, S5 open-close, S5 open-close-shared, S5 tree-diff";
    assert_eq!(refusal("seeds mix"), format!("mix: no such seed; there are {known}"));
}

#[test]
fn efficiency_accepts_only_its_own_workloads() {
    assert!(
        refusal("efficiency create")
            .starts_with("create: not a workload of efficiency; there are create-unlink, ")
    );
    let some = Task::of(&parse("efficiency stat fallocate2").unwrap()).unwrap();
    let wanted = [Workload::Stat, Workload::Fallocate2];
    assert!(matches!(some, Task::Efficiency(w) if w == wanted));
    assert!(refusal("stat seeds").contains("comes first"));
    assert!(refusal("stat S4").contains("lanefs bench seeds S4"));
    assert!(refusal("fsmark").contains("lanefs bench seeds fsmark"));
}

#[test]
fn a_file_is_there_once_something_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    let before = "what was there before, and longer";
    std::fs::write(&old, before).unwrap();
    let places = [&new, &old].map(|path| task::OutputFile::open(path).unwrap());
    assert_eq!(std::fs::read_to_string(&old).unwrap(), before);
    drop(places);
    assert!(!new.exists() && old.exists());
    for path in [&new, &old] {
        task::OutputFile::open(path).unwrap().write("figures").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "figures");
    }
    task::OutputFile::open(Path::new("/dev/null")).unwrap().write("figures").unwrap();
    assert!(task::OutputFile::open(&dir.path().join("no/such")).is_err());
    assert!(task::OutputFile::open(dir.path()).is_err());
}
