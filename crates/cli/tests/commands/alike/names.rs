//! Random commands on names, contents, owners and times, searches and sums.

use super::{Case, Generator, LISTED, Listed, PACKED, one};
use fastrand::Rng;
use std::fmt::Write;

/// Draws commands on a directory with files of all types that have several names, links to a
/// file, to a directory and to nothing, contents, holes, owners and attributes.
pub struct Names;

/// What exists in the directory of a case, and what does not; some with a slash or a dot behind.
const PLACES: [&str; 21] = [
    "@/f", "@/g", "@/h", "@/l", "@/k", "@/n", "@/d", "@/d/", "@/d/.", "@/d/..", "@/e", "@/p",
    "@/d/x", "@/d/s", "@/d/s/y", "@/f/", "@/k/", "@/l/", "@/none", "@/none/", "@/none/.",
];

/// Where something may be made.
const NEW: [&str; 13] = [
    "@/new",
    "@/new/",
    "@/new/.",
    "@/none/new",
    "@/d/new",
    "@/e",
    "@/e/",
    "@/d",
    "@/k",
    "@/n",
    "@/f",
    "@/l",
    "@/d/x",
];

impl Generator for Names {
    const ALWAYS: &'static [[&'static str; 2]] = &[
        ["mkdir @/d; echo a > @/d/f", "cp @/d/. @/out"],
        ["echo a > @/f; ln -s f @/l", "rm -f @/f/ @/l/"],
        ["true", "mkdir -p @/new/."],
        ["true", "mkdir -pm 700 @/new/."],
        ["echo a > @/f", "chown bin: @/f"],
        ["echo a > @/f; ln -s f @/l", "cp -a @/f @/l"],
        ["echo a > @/f; ln @/f @/h; ln -s f @/l", "cp -a @/f @/l"],
        ["echo a > @/f; ln @/f @/h; ln -s f @/l; echo b > @/g", "cp -a @/g @/l"],
        ["echo a > @/f; ln -s f @/l", "cp -n @/l @/f"],
        ["mkdir @/d; setfacl -d -m u:1:r @/d", "setfacl -m u:2:rwx -x d:m @/d"],
        ["mkdir @/d; echo a > @/d/f; ln -s d @/k", "chmod -R 700 @/k"],
        ["echo a > @/f", "setfacl --set u:1:rw @/f"],
        ["echo a > @/f", "setfacl -x d:u:1 @/f"],
    ];

    fn drawn(rng: &mut Rng) -> Case {
        let mut fill = String::from(
            "mkdir -p @/d/s @/e; echo f > @/f; echo longer > @/g; ln @/f @/h; ln -s f @/l
             ln -s d @/k; ln -s nowhere @/n; mkfifo @/p; echo x > @/d/x; echo y > @/d/s/y
             ln -s ../f @/d/up; truncate -s 100K @/d/hole; mknod @/d/dev c 1 3\n",
        );
        for path in ["@/f", "@/g", "@/d", "@/d/x", "@/d/s"] {
            match rng.u8(..8) {
                0 => drop(writeln!(fill, "chown 1:2 {path}")),
                1 => drop(writeln!(fill, "setfattr -n user.a -v {} {path}", rng.u8(..))),
                2 => drop(writeln!(fill, "chmod {} {path}", one(rng, &["0", "4755", "711"]))),
                3 => drop(writeln!(fill, "setfacl -m u:1:rwx {path}")),
                _ => {}
            }
        }
        Case { fill, command: format!("umask 022; {}", command(rng)) }
    }

    fn compared(_: &str, state: &str) -> String {
        state.to_owned()
    }

    fn listed(command: &str) -> Listed {
        let words: Vec<&str> = command.split_whitespace().collect();
        let has = |word| words.contains(&word);
        let (is_it, listed) = match words.get(2).copied() {
            Some("rm") => (has("@/k/") && ["-r", "-rf", "-R"].into_iter().any(has), Listed::All),
            // GNU copies a part of a directory into itself before it fails.
            Some("cp") => {
                let places: Vec<String> = words
                    .iter()
                    .filter(|word| word.starts_with('@'))
                    .map(|word| real(word))
                    .collect();
                let (target, sources) = places.split_last().unwrap();
                let within = |source: &String| {
                    target
                        .strip_prefix(source)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                let is_it = words.iter().any(|word| word.starts_with("-r") || *word == "-a")
                    && sources.iter().any(within);
                (is_it, Listed::Files)
            }
            Some("mv") => (has("-n"), Listed::ExitCode),
            // GNU's exit code is that of the last file.
            Some("setfacl") => {
                (words.iter().filter(|word| word.starts_with('@')).count() > 1, Listed::ExitCode)
            }
            _ => (false, Listed::Nothing),
        };
        if is_it { listed } else { Listed::Nothing }
    }
}

/// Returns a place without links to directories and dots.
fn real(place: &str) -> String {
    let place = place.replace("@/k", "@/d").replace("@/d/..", "@");
    place.trim_end_matches('.').trim_end_matches('/').to_owned()
}

fn command(rng: &mut Rng) -> String {
    let place = one(rng, &PLACES);
    let new = one(rng, &NEW);
    let sources = match rng.u8(..4) {
        0 => format!("{place} {}", one(rng, &PLACES)),
        _ => place.into(),
    };
    match rng.u8(..22) {
        0..4 => {
            let options = ["", "-r", "-a", "-p", "-d", "-P", "-L", "-rL", "-n", "-T", "-rT", "-rn"];
            let option = one(rng, &options);
            // Without -r or -a, cp(1) waits until somebody writes to the FIFO.
            let sources = match option.contains('r') || option == "-a" {
                true => sources,
                false => sources.replace("@/p", "@/g"),
            };
            format!("cp {option} {sources} {new}")
        }
        4..6 => format!("mv {} {sources} {new}", one(rng, &["", "-n", "-T"])),
        6 => format!("ln {} {place} {new}", one(rng, &["", "-f"])),
        7 => format!("ln -s {} {} {new}", one(rng, &["", "-f"]), one(rng, &["f", "d", "../f"])),
        8..10 => {
            let options = ["", "-f", "-r", "-rf", "-d", "-R"];
            format!("rm {} {sources}", one(rng, &options))
        }
        10 => format!("mkdir {} {new}", one(rng, &["", "-p", "-m 700", "-pm 1755"])),
        11 => {
            let date = one(rng, &["", "-d @5000", "-d @5000.25"]);
            format!("touch {} {date} {sources}", one(rng, &["", "-c", "-a", "-m", "-h", "-cm"]))
        }
        12 => {
            let owner = ["1", "1:2", ":2", "1:", "bin", "bin:", "bin:daemon", ":", "nobody9"];
            format!("chown {} {} {sources}", one(rng, &["", "-h", "-R"]), one(rng, &owner))
        }
        13 => {
            let size = ["0", "5", "+5", "-3", "<3", ">3", "/4096", "%4096", "1K", "1KB", "-9", "x"];
            format!("truncate {} -s '{}' {sources}", one(rng, &["", "-c"]), one(rng, &size))
        }
        14 => {
            let mode = ["700", "u+s", "go=", "a+X", "-x", "=r"];
            format!("chmod {} {} {sources}", one(rng, &["", "-R"]), one(rng, &mode))
        }
        15 => {
            format!("du {} {place}", one(rng, &["", "-a", "-s", "-b", "-sc", "-d1", "-l", "-ab"]))
        }
        16 => format!("getfacl {} {place}", one(rng, &["", "-n", "-c", "-a", "-d", "-R"])),
        17 => {
            let entries = ["u:1:rw", "u::rw,g::r,o::-", "u::rwx,u:3:x,g::r,o::-", "d:u:1:r", "u:1"];
            format!("setfacl --set {} {sources}", one(rng, &entries))
        }
        18 => format!("setfacl -x {} {sources}", one(rng, &["u:1", "d:u:1", "m", "u:", "g"])),
        19 => {
            let dir = one(rng, &["@/d", "@/d/s", "@/e", "@"]);
            let exclude = one(rng, &["", "--exclude=x", "--exclude='*[xl]'"]);
            format!("tar {exclude} -C {dir} {PACKED} | {LISTED}")
        }
        _ => format!("find {place} {}", expression(rng)),
    }
}

/// Returns an expression of find(1).
fn expression(rng: &mut Rng) -> String {
    let test = |rng: &mut Rng| {
        let patterns = ["'*'", "f", "'[[:alpha:]]'", "'[!d]'", "'?'", "'[[:upper:]]*'", "'[e-g]'"];
        let paths = ["'*s*'", "'*/d/*'", "'*[xy]'"];
        let types = ["f", "d", "l", "p", "c", "f,d"];
        let sizes = ["0", "1", "+1", "-1", "7c", "-7c", "+99k", "100k", "1M", "-1M"];
        let (owner, links) = (one(rng, &["0", "1", "bin"]), one(rng, &["1", "2", "+1", "-2"]));
        match rng.u8(..10) {
            0..3 => format!("{} {}", one(rng, &["-name", "-iname"]), one(rng, &patterns)),
            3 => format!("-path {}", one(rng, &paths)),
            4 => format!("-type {}", one(rng, &types)),
            5 => format!("-size {}", one(rng, &sizes)),
            6 => format!("-perm {}", one(rng, &["755", "-111", "/6000", "-u+w", "/0", "0"])),
            7 => format!("-user {owner}"),
            8 => format!("-links {links}"),
            _ => one(rng, &["-empty", "-lname 'f*'", "-mtime +1", "-mmin -5", "-prune"]).into(),
        }
    };
    let depth = one(rng, &["", "-maxdepth 1", "-mindepth 1", "-depth", "-maxdepth 0"]);
    let (a, b) = (test(rng), test(rng));
    match rng.u8(..4) {
        0 => format!("{depth} {a} -o {b}"),
        1 => format!("{depth} ! {a} {b}"),
        2 => format!(r"{depth} \( {a} -o {b} \) -print"),
        _ => format!("{depth} {a}"),
    }
}
