//! Commands of `lanefs raid` in which one system call on one member fails, or the command is killed
//! there. Afterwards the array must start from the files that are left, with its data. strace makes
//! the calls fail.
//!
//! A fault is one call of one member: its name, and its number among the calls of this name that a
//! thread makes.

use super::{LANEFS, script};
use crate::mounting::{needs, scratch};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const CALLS: &str =
    "openat,pread64,preadv,preadv2,pwrite64,pwritev,pwritev2,fsync,fdatasync,fallocate,ftruncate";

/// A command, and the state of the array before it. `file` is in the array's file system.
struct Case {
    setup: &'static str,
    command: &'static str,
    /// The files that the command may use.
    files: &'static [&'static str],
    /// The slots of the array.
    slots: usize,
    /// Whether the command makes a new array, so that there is no data to be kept.
    creates: bool,
}

const WHOLE: &str = "$L raid create a b c --size 5M -c 256K -k ppl -q; $L mkfs md:a,b,c -q
    head -c 700000 /dev/urandom > file; $L cp file md:a,b,c:/file";
const DEGRADED: &str = "$L raid create a b c d --size 5M -c 256K -k ppl -q; $L mkfs md:a,b,c,d -q
    head -c 700000 /dev/urandom > file; $L cp file md:a,b,c,d:/file
    $L raid fail md:a,b,c,d d; rm d";

const CASES: [Case; 11] = [
    Case {
        setup: DEGRADED,
        command: "replace md:a,b,c,missing b n",
        files: &["a", "b", "c", "n"],
        slots: 4,
        creates: false,
    },
    Case {
        setup: "truncate -s 5M a b c",
        command: "create a b c -c 256K -q",
        files: &["a", "b", "c"],
        slots: 3,
        creates: true,
    },
    Case {
        setup: WHOLE,
        command: "replace md:a,b,c b n",
        files: &["a", "b", "c", "n"],
        slots: 3,
        creates: false,
    },
    Case {
        setup: DEGRADED,
        command: "add md:a,b,c,missing n",
        files: &["a", "b", "c", "n"],
        slots: 4,
        creates: false,
    },
    Case {
        setup: "$L raid create a b c --size 5M -c 64K -k bitmap --bitmap-chunk 64K -q
            $L mkfs md:a,b,c -q; head -c 700000 /dev/urandom > file
            $L raid fail md:a,b,c b; $L cp file md:a,missing,c:/file",
        command: "add md:a,missing,c b",
        files: &["a", "b", "c"],
        slots: 3,
        creates: false,
    },
    Case {
        setup: WHOLE,
        command: "fail md:a,b,c b",
        files: &["a", "b", "c"],
        slots: 3,
        creates: false,
    },
    Case {
        setup: DEGRADED,
        command: "remove md:a,b,c,missing",
        files: &["a", "b", "c"],
        slots: 4,
        creates: false,
    },
    Case {
        setup: "$L raid create a b c --size 5M -c 256K -k ppl -q; $L mkfs md:a,b,c -q
            head -c 700000 /dev/urandom > file; $L cp file md:a,b,c:/file
            strace -f -o log -P $PWD/a -e trace=pwrite64,pwritev,pwritev2 \
                -e inject=pwritev2:signal=SIGKILL:when=7 $L cp file md:a,b,c:/second || true",
        command: "recover md:a,b,c",
        files: &["a", "b", "c"],
        slots: 3,
        creates: false,
    },
    // Parity is wrong in a row that the file system does not use: a member that fails before the
    // repair is computed from the parity as it is.
    Case {
        setup: "$L raid create a b c --size 5M -c 256K -k ppl -q; $L mkfs md:a,b,c -q
            head -c 700000 /dev/urandom > file; $L cp file md:a,b,c:/file
            head -c 4096 /dev/urandom | dd of=c bs=256K seek=17 conv=notrunc status=none",
        command: "scrub --repair md:a,b,c",
        files: &["a", "b", "c"],
        slots: 3,
        creates: false,
    },
    Case {
        setup: WHOLE,
        command: "add --spare md:a,b,c n",
        files: &["a", "b", "c", "n"],
        slots: 3,
        creates: false,
    },
    Case {
        setup: "truncate -s 5M a",
        command: "create a n m --size 5M -c 256K -q",
        files: &["a", "n", "m"],
        slots: 3,
        creates: true,
    },
];

#[derive(Debug, Clone)]
struct Fault {
    file: &'static str,
    call: String,
    nth: usize,
    kills: bool,
}

/// A case that is set up: the folder `base` has the files before the command.
struct Ready<'a> {
    case: &'a Case,
    folder: tempfile::TempDir,
    faults: Vec<Fault>,
}

impl Case {
    fn words(&self) -> impl Iterator<Item = &str> {
        ["raid"].into_iter().chain(self.command.split(' '))
    }

    /// Sets the case up, and lists the calls of the command on each file.
    fn ready(&self) -> Ready<'_> {
        let folder = scratch();
        let base = folder.path().join("base");
        std::fs::create_dir(&base).expect("a folder");
        script(&base, self.setup);
        let mut ready = Ready { case: self, folder, faults: Vec::new() };
        for file in self.files {
            let run = ready.begin();
            let traced = ready.strace(&run, file, &[]);
            assert!(traced.status.success(), "{}: {traced:?}", self.command);
            let log = std::fs::read_to_string(ready.folder.path().join("log")).expect("a log");
            for (call, count) in calls(&log) {
                let fault = |(nth, kills)| Fault { file, call: call.clone(), nth, kills };
                let numbers = (1..=count).flat_map(|nth| [(nth, false), (nth, true)]);
                ready.faults.extend(numbers.map(fault));
            }
        }
        assert!(ready.faults.len() > 8, "{}: too few calls are seen", self.command);
        ready
    }
}

/// Returns for each call how often a thread makes it, at most.
fn calls(log: &str) -> BTreeMap<String, usize> {
    let mut by_thread: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        if CALLS.split(',').any(|name| name == call) {
            *by_thread.entry((thread, call)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((_, call), count) in by_thread {
        let most: &mut usize = most.entry(call.to_owned()).or_default();
        *most = count.max(*most);
    }
    most
}

impl Ready<'_> {
    /// Copies the files into a new folder for a run.
    fn begin(&self) -> std::path::PathBuf {
        let run = self.folder.path().join("run");
        let _ = std::fs::remove_dir_all(&run);
        let copied = Command::new("cp")
            .args(["-r", "--sparse=always"])
            .arg(self.folder.path().join("base"))
            .arg(&run)
            .status();
        assert!(copied.expect("cp").success());
        run
    }

    fn strace(&self, run: &Path, file: &str, inject: &[String]) -> Output {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o"]).arg(self.folder.path().join("log"));
        command.arg("-P").arg(run.join(file)).args(["-e", &format!("trace={CALLS}")]);
        command.args(inject).arg(LANEFS).args(self.case.words());
        command.current_dir(run).output().expect("strace")
    }

    /// Runs the command with this fault, and checks what is left.
    fn check(&self, fault: &Fault) {
        let run = self.begin();
        let how = if fault.kills { "signal=SIGKILL" } else { "error=EIO" };
        let inject = format!("inject={}:{how}:when={}", fault.call, fault.nth);
        let output = self.strace(&run, fault.file, &["-e".into(), inject]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let about = format!("{}, {fault:?}: {said}", self.case.command);
        assert!(!said.contains("panicked"), "{about}");
        for file in self.case.files {
            let was_there = self.folder.path().join("base").join(file).exists();
            assert!(!was_there || run.join(file).exists(), "{about}: {file} is removed");
        }
        let is_member = |file: &&&str| {
            let mut examine = Command::new(LANEFS);
            examine.args(["raid", "examine", file]).current_dir(&run);
            examine.output().expect("lanefs").status.success()
        };
        let members: Vec<&str> = self.case.files.iter().filter(is_member).copied().collect();
        let absent = vec!["missing"; self.case.slots.saturating_sub(members.len())];
        let array = format!("md:{}", [&members[..], &absent[..]].concat().join(","));
        // A scrub that was killed has not repaired all parity.
        let scrub = if self.case.command.starts_with("scrub") { "scrub --repair" } else { "scrub" };
        let check = match self.case.creates {
            true => format!(
                "for f in {}; do truncate -s 5M $f; done
                 $L raid create -F {0} -c 256K -q; $L raid scrub md:{}",
                self.case.files.join(" "),
                self.case.files.join(",")
            ),
            false => format!(
                "$L cat {array}:/file | cmp - file; $L raid recover {array}
                 $L cat {array}:/file | cmp - file
                 $L raid status {array} > seen; if grep -q whole seen; then $L raid {scrub} {array}; fi"
            ),
        };
        let checked = std::panic::catch_unwind(|| script(&run, &check));
        assert!(checked.is_ok(), "{about}");
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_replacement_that_fails_or_is_killed_leaves_an_array_that_starts() {
    if !needs("strace") {
        return;
    }
    let ready = CASES[0].ready();
    // The last writes of the superblocks decide which device has the slot.
    let writes = ready.faults.iter().rev().filter(|fault| fault.call == "pwritev2");
    let (c, n): (Vec<&Fault>, Vec<&Fault>) =
        writes.filter(|fault| ["c", "n"].contains(&fault.file)).partition(|f| f.file == "c");
    c.into_iter().take(4).chain(n.into_iter().take(2)).for_each(|fault| ready.check(fault));
}

/// Lets system calls of each command fail once, and kills the command at them.
pub fn each_command_fails_or_is_killed() {
    if !needs("strace") {
        return;
    }
    let seed = from_environment("LANEFS_SEED")
        .or_else(|| from_environment("LANEFS_FIRST_SEED"))
        .unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let only = std::env::var("LANEFS_RAID_COMMAND").unwrap_or_default();
    let cases = CASES.iter().filter(|case| case.command.starts_with(&only));
    let mut all: Vec<Ready<'_>> = cases.map(Case::ready).collect();
    all.iter_mut().for_each(|ready| rng.shuffle(&mut ready.faults));
    let total: usize = all.iter().map(|ready| ready.faults.len()).sum();
    let time = Duration::from_secs(from_environment("LANEFS_SECONDS").unwrap_or(5));
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time && all.iter().any(|ready| !ready.faults.is_empty()) {
        for ready in &mut all {
            if let Some(fault) = ready.faults.pop() {
                ready.check(&fault);
                count += 1;
            }
        }
    }
    println!("{count} of {total} faults");
}
