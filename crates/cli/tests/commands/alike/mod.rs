//! Random commands that change modes and access control lists. Each runs twice: by the programs of
//! GNU on the kernel's ext4, and by Lanefs on an equal image.

use crate::mounting::{Image, KernelMounted, LANEFS, assert_clean, shell, try_run};
use fastrand::Rng;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// A case: a directory of its own, how it is filled, and the command. `@` is the directory.
struct Case {
    fill: String,
    command: String,
}

/// Cases that are rarely drawn: how they are filled, and the command.
const ALWAYS: [[&str; 2]; 3] = [
    ["touch @/f; chmod 640 @/f", "setfacl -n -m u:1:rwx @/f"],
    ["mkdir @/d; chmod 1777 @/d", "cp -r @/d @/new"],
    ["mkdir @/d; chmod 3775 @/d; setfacl -m d:u:1:rwx @/d", "cp -r @/d @/new"],
];

/// Runs a few fixed cases and `count` cases drawn from `seed`, and compares modes, lists and exit
/// codes.
pub fn compare(seed: u64, count: usize) {
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let fixed = ALWAYS.map(|[fill, command]| Case {
        fill: fill.into(),
        command: format!("umask 022; {command}"),
    });
    let drawn = (0..count).map(|_| Case::drawn(&mut rng));
    let cases: Vec<Case> = fixed.into_iter().chain(drawn).collect();
    let (ours, theirs) = (Image::new("16M"), Image::new("16M"));
    for image in [&ours, &theirs] {
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        let fills = cases.iter().enumerate();
        let fills: String = fills.map(|(number, case)| case.filled(number)).collect();
        shell(&kernel.path, &fills);
    }
    let codes = {
        let kernel = KernelMounted::new(&theirs.path, "kernel", "rw").unwrap();
        run_all(&cases, &kernel.path, "", "")
    };
    let place = format!("{}:/", ours.path.display());
    let our_codes = run_all(&cases, Path::new("/"), LANEFS, &place);
    let states = [&ours, &theirs].map(|image| {
        let kernel = KernelMounted::new(&image.path, "kernel", "ro").unwrap();
        (0..cases.len()).map(|number| state(&kernel.path, number)).collect::<Vec<_>>()
    });
    for (number, case) in cases.iter().enumerate() {
        let Case { fill, command } = case;
        // For a mode without special bits, cp(1) -p sets a list, and the copy keeps its own bits.
        let [ours, theirs] = [&states[0][number], &states[1][number]].map(|state| {
            let keeps_mode = command.contains(" -p ") || command.contains(" -a ");
            if keeps_mode || command.contains(" -rp ") { plain(state) } else { state.clone() }
        });
        let told = format!("seed {seed}, c{number}: {fill}\n{command}");
        assert_eq!(our_codes[number], codes[number], "exit codes of {told}");
        assert_eq!(ours, theirs, "ours, GNU's: {told}");
    }
    assert_clean(&ours.path);
}

/// Runs the command of each case, and returns the exit codes. An exit code is 0 or 1, since Lanefs
/// gives 2 to some errors for which others give 1.
fn run_all(cases: &[Case], dir: &Path, program: &str, place: &str) -> Vec<String> {
    let mut script = String::new();
    for (number, case) in cases.iter().enumerate() {
        let command = case.command.replace('@', &format!("{place}c{number}"));
        let (before, command) = command.split_once("; ").unwrap();
        let _ = writeln!(
            script,
            "({before}; {program} {command}) >/dev/null 2>&1; [ $? = 0 ]; echo $?"
        );
    }
    shell(dir, &format!("set +e\n{script}true")).lines().map(str::to_owned).collect()
}

/// Returns modes, owners and lists of all files of a case. An image has the same times only by
/// chance.
fn state(mount: &Path, number: usize) -> String {
    let script = format!(
        "cd c{number} && find . | LC_ALL=C sort | while read f; do
           stat -c '%n %a %u:%g %F %h' $f
           [ -L $f ] || getfattr -h -m system.posix -d -e hex $f 2>/dev/null | grep system || true
         done"
    );
    let (_, said) = try_run(Command::new("sh").args(["-c", &script]).current_dir(mount));
    said
}

/// Returns a state without the set-ID and sticky bits.
fn plain(state: &str) -> String {
    let line = |line: &str| match line.split_once(' ') {
        Some((name, rest)) if name.starts_with('.') => {
            let (mode, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let mode = u16::from_str_radix(mode, 8).unwrap_or_default() & 0o777;
            format!("{name} {mode:o} {rest}\n")
        }
        _ => format!("{line}\n"),
    };
    state.lines().map(line).collect()
}

impl Case {
    fn filled(&self, number: usize) -> String {
        let fill = self.fill.replace('@', &format!("c{number}"));
        format!("umask 022; mkdir c{number}\n{fill}\n")
    }

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
