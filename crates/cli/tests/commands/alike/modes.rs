//! Random commands that change modes and access control lists.

use super::{Case, Generator, Listed};
use fastrand::Rng;
use std::fmt::Write;

/// Draws modes and access control lists.
pub struct Modes;

impl Generator for Modes {
    const ALWAYS: &'static [[&'static str; 2]] = &[
        ["touch @/f; chmod 640 @/f", "setfacl -n -m u:1:rwx @/f"],
        ["mkdir @/d; chmod 1777 @/d", "cp -r @/d @/new"],
        ["mkdir @/d; chmod 3775 @/d; setfacl -m d:u:1:rwx @/d", "cp -r @/d @/new"],
    ];

    fn drawn(rng: &mut Rng) -> Case {
        let mut fill = String::from("mkdir -p @/d/s; touch @/f @/d/x @/d/s/y; ln -s x @/d/l\n");
        for path in ["@/f", "@/d/x", "@/d/s/y", "@/d/s", "@/d"] {
            let _ = writeln!(fill, "chmod {:o} {path}", mode(rng));
            if rng.u8(..3) == 0 {
                let _ = writeln!(fill, "setfacl -m {} {path}", entries(rng, ""));
            }
            if rng.bool() && path.ends_with(['d', 's']) {
                let _ = writeln!(fill, "setfacl -m {} {path}", entries(rng, "d:"));
            }
        }
        let umask = ["022", "0", "077", "027", "002", "0777"][rng.usize(..6)];
        let command = command(rng);
        Case { fill, command: format!("umask {umask}; {command}") }
    }

    /// For a mode without special bits, cp(1) -p sets a list, and the copy keeps its own bits.
    fn compared(command: &str, state: &str) -> String {
        let keeps = [" -p ", " -a ", " -rp "].iter().any(|option| command.contains(option));
        let keeps_mode = keeps && command.contains("cp ");
        if keeps_mode { plain(state) } else { state.to_owned() }
    }

    fn listed(_: &str) -> Listed {
        Listed::Nothing
    }
}

/// Returns a state without the set-ID and sticky bits.
fn plain(state: &str) -> String {
    let line = |line: &str| match line.split_once(' ') {
        Some((name, rest)) => {
            let (mode, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let mode = u16::from_str_radix(mode, 8).unwrap_or_default() & 0o777;
            format!("{name} {mode:o} {rest}\n")
        }
        None => format!("{line}\n"),
    };
    state.lines().map(line).collect()
}

fn command(rng: &mut Rng) -> String {
    let target = ["@/f", "@/d", "@/d/x", "@/d/s", "@/none"][rng.usize(..5)];
    let (dir, tree) = (["@/d", "@/d/s"][rng.usize(..2)], ["", "-R"][rng.usize(..2)]);
    let default = ["", "d:"][rng.usize(..2)];
    match rng.u8(..16) {
        0..3 => format!("chmod {tree} {} {target}", change(rng)),
        3 => format!("mkdir {dir}/new"),
        4 => format!("mkdir -m {} {dir}/new", change(rng).trim_start_matches("-- ")),
        5 => format!("mkdir -p {dir}/new/a/b"),
        6 => format!("touch {dir}/new"),
        7 => format!("truncate -s 5 {dir}/new"),
        8 => format!("cp {} @/f {dir}/new", ["", "-p", "-a"][rng.usize(..3)]),
        9 => format!("cp {} @/f @/d/x", ["", "-p", "-a"][rng.usize(..3)]),
        10 => format!("cp {} @/d @/new", ["-r", "-rp", "-a"][rng.usize(..3)]),
        11 => format!("cp {} @/d/s {dir}/new", ["-r", "-rp", "-a"][rng.usize(..3)])
            .replace("@/d/s @/d/s/new", "@/d/s @/d/new"),
        12 => format!("setfacl {tree} {} {target}", ["-b", "-k"][rng.usize(..2)]),
        13 => {
            let what = ["u:1", "g:2", "m", "u:3"][rng.usize(..4)];
            let mask = ["", "-n"][rng.usize(..2)];
            format!("setfacl {mask} {tree} -x {default}{what} {target}")
        }
        _ => {
            let mask = ["", "-n"][rng.usize(..2)];
            format!("setfacl {mask} {tree} -m {} {target}", entries(rng, default))
        }
    }
}

/// Returns a mode; often with few bits, or all.
fn mode(rng: &mut Rng) -> u16 {
    match rng.u8(..6) {
        0 => 0,
        1 => 0o7777,
        2 => [0o755, 0o644, 0o700, 0o1777, 0o2775, 0o4711][rng.usize(..6)],
        _ => rng.u16(..0o10000),
    }
}

/// Returns a change of a mode, numeric or symbolic.
fn change(rng: &mut Rng) -> String {
    if rng.bool() {
        return format!("{:o}", mode(rng));
    }
    let clause = |rng: &mut Rng| {
        let who = ["", "u", "g", "o", "a", "ug", "go"][rng.usize(..7)];
        let action = ["+", "-", "="][rng.usize(..3)];
        let what = ["r", "w", "x", "X", "rw", "rwx", "s", "t", "u", "g", "o", "", "rX"];
        format!("{who}{action}{}", what[rng.usize(..what.len())])
    };
    let clauses: Vec<String> = (0..rng.usize(1..3)).map(|_| clause(rng)).collect();
    // A change that begins with "-" looks like an option.
    format!("-- {}", clauses.join(","))
}

/// Returns entries of a list, such as "d:u:1:rw-,d:m::r".
fn entries(rng: &mut Rng, default: &str) -> String {
    let whom = ["u:1", "u:2", "g:1", "g:2", "u:", "g:", "o:", "m:"];
    let count = rng.usize(1..4);
    let entry = |rng: &mut Rng, whom: &str| {
        let rights = ["-", "r", "w", "rx", "rw", "rwx", "x", "rX"][rng.usize(..8)];
        format!("{default}{whom}:{rights}")
    };
    let mut chosen: Vec<&str> = whom.to_vec();
    rng.shuffle(&mut chosen);
    let entries: Vec<String> = chosen.iter().take(count).map(|whom| entry(rng, whom)).collect();
    entries.join(",")
}
