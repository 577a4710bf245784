//! Random commands, each of which runs twice: as a program of GNU, acl or findutils on the kernel's
//! ext4, and as the command of Lanefs on an equal image. [`modes`] draws modes and access control
//! lists, [`names`] draws names, contents, owners, times, searches and sums.

mod modes;
mod names;

use crate::mounting::{Image, KernelMounted, LANEFS, assert_clean, run, shell, wait_for};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub use modes::Modes;
pub use names::Names;

/// Options with which tar(1) packs a directory as `lanefs tar` does.
const PACKED: &str = "--sort=name --format=pax --xattrs --xattrs-include='*' --numeric-owner -c .";
/// Prints all that an archive says of its files.
const LISTED: &str = "tar -tvv --full-time --xattrs --numeric-owner -f -";

/// A generator of cases.
pub trait Generator {
    /// Cases that are rarely drawn: how they are filled, and the command.
    const ALWAYS: &'static [[&'static str; 2]];

    fn drawn(rng: &mut Rng) -> Case;

    /// What is compared of a state in which `command` has left the files of a case.
    fn compared(command: &str, state: &str) -> String;

    /// What may differ, since the table of differences in `docs/commands.md` has this command.
    fn listed(command: &str) -> Listed;
}

/// The differences of a command that the table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    Nothing,
    /// The exit code, but neither what is printed nor the files.
    ExitCode,
    /// The files, but not the exit code.
    Files,
    All,
}

/// A case: a directory of its own, how it is filled, and the command. `@` is the directory.
pub struct Case {
    fill: String,
    command: String,
}

/// Runs the fixed cases and `count` cases drawn from `seed`, and compares the files, what the
/// commands print, and exit codes.
pub fn compare<G: Generator>(seed: u64, count: usize) {
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let fixed = G::ALWAYS.iter().map(|[fill, command]| Case {
        fill: fill.to_string(),
        command: format!("umask 022; {command}"),
    });
    let drawn: Vec<Case> = (0..count).map(|_| G::drawn(&mut rng)).collect();
    let cases: Vec<Case> = fixed.chain(drawn).collect();
    // Equal seeds of the hash give equal orders of names; du(1) counts a file by its first name.
    let hashed = format!("hash_seed=00000000-0000-4000-8000-{seed:012x}");
    let [ours, theirs] = [(); 2].map(|()| Image::with("64M", &["-E", &hashed]));
    for image in [&ours, &theirs] {
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        let fills = cases.iter().enumerate();
        let fills: String = fills.map(|(number, case)| case.filled(number)).collect();
        shell(&kernel.path, &fills);
    }
    let results = {
        let kernel = KernelMounted::new(&theirs.path, "kernel", "rw").unwrap();
        run_all(&cases, &kernel.path, "", "")
    };
    // The kernel may detach the loop device of the first mount only now.
    wait_for("the end of the loop device", Duration::from_secs(60), || {
        run(Command::new("losetup").arg("-j").arg(&ours.path)).is_empty()
    });
    let place = format!("{}:/", ours.path.display());
    let our_results = run_all(&cases, ours.dir.path(), LANEFS, &place);
    let states = [&ours, &theirs].map(|image| {
        let kernel = KernelMounted::new(&image.path, "kernel", "ro").unwrap();
        states(&kernel.path, cases.len())
    });
    let mut differing = Vec::new();
    for (number, Case { fill, command }) in cases.iter().enumerate() {
        let [ours, theirs] =
            [(&our_results, &states[0]), (&results, &states[1])].map(|(results, states)| {
                let state = match command.contains("; cp ") {
                    true => without_times_of_directories(&states[number]),
                    false => states[number].clone(),
                };
                (&results[number], G::compared(command, &state))
            });
        let said_alike = match G::listed(command) {
            Listed::ExitCode => ours.0.lines == theirs.0.lines,
            Listed::All => true,
            Listed::Nothing | Listed::Files => ours.0 == theirs.0,
        };
        let is_left = matches!(G::listed(command), Listed::Files | Listed::All);
        if !said_alike || ours.1 != theirs.1 && !is_left {
            let [ours, theirs] = [ours, theirs].map(|(said, state)| format!("{said:?}\n{state}"));
            differing.push(format!(
                "seed {seed}, c{number}: {fill}\n{command}\nours: {ours}\nGNU's: {theirs}"
            ));
        }
    }
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n\n"));
    assert_clean(&ours.path);
}

/// What a command printed, as sorted lines, and its exit code. The code is 0 or 1, since Lanefs
/// gives 2 to some errors for which others give 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    code: u8,
    lines: Vec<String>,
}

/// Runs the command of each case.
fn run_all(cases: &[Case], dir: &Path, program: &str, place: &str) -> Vec<Said> {
    let mut script = String::from("set +e\n");
    for (number, case) in cases.iter().enumerate() {
        let mut command = case.command.clone();
        if !program.is_empty() {
            command = command.replace(PACKED, "").replacen("-C", "", 1);
        }
        // Only now: a random name of the folder may begin with "-C", too.
        let command = command.replace('@', &format!("{place}c{number}"));
        let (before, command) = command.split_once("; ").unwrap();
        let _ = writeln!(
            script,
            "({before}; {program} {command}) </dev/null 2>errors; [ $? = 0 ]; echo \"end $?\"
             if grep -e panicked -e 'disk.img: in use' errors; then exit 1; fi"
        );
    }
    let said = shell(dir, &format!("{script}true"));
    let mut lines = said.lines();
    let case = |_| {
        let mut printed = Vec::new();
        for line in lines.by_ref() {
            if let Some(code) = line.strip_prefix("end ") {
                printed.sort();
                return Said { code: code.parse().unwrap(), lines: printed };
            }
            // getfacl(1) -R DIR/ prints DIR//FILE.
            printed.push(line.replace(place, "").replace("//", "/"));
        }
        panic!("a command without an end: {said}");
    };
    (0..cases.len()).map(case).collect()
}

/// Returns for each case names, types, modes, owners, sizes, times, links, contents and extended
/// attributes of all files. A time of the present is `now`.
fn states(mount: &Path, count: usize) -> Vec<String> {
    let said = shell(mount, "getfattr -R -P -h -m - -d -e hex . 2>/dev/null || true");
    let mut attributes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for block in said.split("\n\n") {
        let mut lines = block.trim_start().lines();
        let name = lines.next().and_then(|line| line.strip_prefix("# file: "));
        attributes.entry(name.unwrap_or_default()).or_default().extend(lines);
    }
    let state = |number| {
        let mut state = String::new();
        let mut first_names = BTreeMap::new();
        let top = format!("c{number}");
        listed(mount, &top, &top, &attributes, &mut first_names, &mut state);
        state
    };
    (0..count).map(state).collect()
}

/// Appends the state of the file `name` below `mount` and of all below it.
fn listed(
    mount: &Path,
    top: &str,
    name: &str,
    attributes: &BTreeMap<&str, Vec<&str>>,
    first_names: &mut BTreeMap<u64, String>,
    state: &mut String,
) {
    let path = mount.join(name);
    let meta = path.symlink_metadata().unwrap();
    let kind = meta.file_type();
    let shown = name.replacen(top, ".", 1);
    let (mode, uid, gid, links) = (meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.nlink());
    let time = if meta.mtime() < 1 << 30 { meta.mtime().to_string() } else { "now".into() };
    let _ = write!(state, "{shown} {mode:o} {uid}:{gid} {links} {time} ");
    match () {
        () if kind.is_dir() => state.push_str("dir"),
        () if kind.is_symlink() => {
            let _ = write!(state, "link to {}", path.read_link().unwrap().display());
        }
        () if kind.is_file() => {
            let text = std::fs::read(&path).unwrap();
            let start = String::from_utf8_lossy(&text[..text.len().min(20)]);
            let _ = write!(state, "{} bytes {start:?}", text.len());
        }
        () if kind.is_fifo() => state.push_str("fifo"),
        () => {
            let _ = write!(state, "device {:x}", meta.rdev());
        }
    }
    if !kind.is_dir() && links > 1 {
        let first = first_names.entry(meta.ino()).or_insert_with(|| shown.clone());
        let _ = write!(state, " as {first}");
    }
    let mut own: Vec<_> = attributes.get(name).into_iter().flatten().collect();
    own.sort();
    let _ = writeln!(state, " {own:?}");
    if kind.is_dir() {
        let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
        let mut entries: Vec<_> = entries.collect();
        entries.sort();
        for entry in entries {
            let name = format!("{name}/{}", entry.to_str().unwrap());
            listed(mount, top, &name, attributes, first_names, state);
        }
    }
}

/// Returns a state without the times of directories. In place of a file that it overwrites, `lanefs
/// cp` puts a new one, which changes the times of the directory.
fn without_times_of_directories(state: &str) -> String {
    let line = |line: &str| match line.split_once(" dir ") {
        Some((start, rest)) => {
            let start = start.rsplit_once(' ').map_or(start, |(start, _time)| start);
            format!("{start} dir {rest}\n")
        }
        None => format!("{line}\n"),
    };
    state.lines().map(line).collect()
}

impl Case {
    fn filled(&self, number: usize) -> String {
        let fill = self.fill.replace('@', &format!("c{number}"));
        format!(
            "umask 022; mkdir c{number}\n{fill}\nfind c{number} -exec touch -h -d @1000 {{}} +\n"
        )
    }
}

/// Draws one of several words.
fn one<'a>(rng: &mut Rng, words: &[&'a str]) -> &'a str {
    words[rng.usize(..words.len())]
}
