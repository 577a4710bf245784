//! Kills commands that change a whole image, at a random moment. After a recovery, the image must
//! have the contents from before the command or from after it. If the command is run again on the
//! image that the kill left, the image must then have the contents from after the command. In both
//! cases, e2fsck must find nothing. If several kills leave the same bytes, only one of them is
//! checked. `LANEFS_KILLS` sets the number of kills for each command, 4 by default.

use crate::mounting::{LANEFS, Mounted, assert_clean, can_mount, needs, run, scratch, seed, shell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

/// Returns whether two images have the same files.
fn same(a: &Path, b: &Path, times: Times) -> bool {
    let mut diff = Command::new(LANEFS);
    diff.args(["diff", "-q"]).args(if times == Times::Compared { &["--times"][..] } else { &[] });
    let output = diff.arg(a).arg(b).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    output.status.success()
}

/// Whether the times of files are compared. `lanefs edit` sets them to the time of the run, so they
/// are ignored for this command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    Compared,
    Ignored,
}

/// Makes an image with many files, which take most of its blocks.
fn make(path: &str, dir: &Path) {
    lanefs(&["mkfs", "-q", "--size", "24M", "-b", "1024", path]);
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("big"), "0123456789abcde\n".repeat(1 << 16)).unwrap();
    for n in 0..20 {
        let sub = tree.join(format!("d{n}"));
        std::fs::create_dir(&sub).unwrap();
        for m in 0..10 {
            std::fs::write(sub.join(format!("f{m}")), format!("{n} {m}\n").repeat(200)).unwrap();
        }
    }
    lanefs(&["cp", "-a", tree.to_str().unwrap(), &format!("{path}:/")]);
}

/// Makes an image whose log has to be replayed, by killing the server of its mount.
fn tear(base: &Path, torn: &Path) {
    std::fs::copy(base, torn).unwrap();
    let mount_point = torn.with_file_name("mnt");
    std::fs::create_dir(&mount_point).unwrap();
    let mounted = Mounted::in_foreground_at(torn, &mount_point, &[]);
    for n in 0..5 {
        shell(&mount_point, &format!("cp -r tree/d{n} copy{n}; rm tree/d{n}/f*"));
        std::fs::File::open(&mount_point).unwrap().sync_all().unwrap();
    }
    // This file is deleted while it is open, so the recovery has to free its space.
    let open = std::fs::File::open(mount_point.join("tree/big")).unwrap();
    std::fs::remove_file(mount_point.join("tree/big")).unwrap();
    std::fs::File::open(&mount_point).unwrap().sync_all().unwrap();
    mounted.kill();
    drop(open);
    let looked = Command::new(LANEFS).args(["recover", "-n"]).arg(torn).output().unwrap();
    let said = String::from_utf8_lossy(&looked.stdout);
    assert!(looked.status.code() == Some(4) && !said.contains(" 0 transactions"), "{said}");
}

/// Runs a command to its end. The exit code 1 of recover means that there was something to recover.
fn complete(command: &[&str]) {
    let output = Command::new(LANEFS).args(command).output().unwrap();
    let is_done = output.status.success()
        || command.first() == Some(&"recover") && output.status.code() == Some(1);
    assert!(is_done, "{command:?}: {output:?}");
}

/// A command, and the image on which it runs.
struct Case<'a> {
    command: Vec<&'a str>,
    before: &'a Path,
    image: &'a Path,
}

/// Counts the kills of a case by the contents that the image has after the recovery.
#[derive(Debug, Default)]
struct Counts {
    before: u32,
    after: u32,
    /// How many kills came too late, after the command had ended.
    ended: u32,
    /// The number of different images that the kills left.
    states: usize,
}

/// Whether the files in an image after a recovery are those from before the command, or those from
/// after it.
#[derive(Debug, Clone, Copy)]
enum Files {
    Before,
    After,
}

/// Returns a digest of a file's bytes.
fn digest(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let bytes = std::fs::read(path).unwrap();
    // Most blocks hold only zeros. They need no hashing, since every block that is not zero is
    // hashed together with its position.
    for (at, block) in
        bytes.chunks(1024).enumerate().filter(|(_, block)| block.iter().any(|b| *b != 0))
    {
        hasher.write_usize(at);
        hasher.write(block);
    }
    hasher.finish()
}

impl Case<'_> {
    fn begin(&self) {
        std::fs::copy(self.before, self.image).unwrap();
    }

    fn times(&self) -> Times {
        if self.command.first() == Some(&"edit") { Times::Ignored } else { Times::Compared }
    }

    /// Runs the command three times without a kill, copies the result to `after`, and returns the
    /// shortest time.
    fn undisturbed(&self, after: &Path) -> Duration {
        let mut shortest = Duration::MAX;
        for _ in 0..3 {
            self.begin();
            let began = Instant::now();
            complete(&self.command);
            shortest = shortest.min(began.elapsed());
        }
        std::fs::copy(self.image, after).unwrap();
        shortest
    }

    fn kill(&self, kills: u32, rng: &mut fastrand::Rng) -> Counts {
        let after = self.image.with_extension("after");
        let took = self.undisturbed(&after);
        let mut counts = Counts::default();
        let mut known = HashMap::new();
        for _ in 0..kills {
            self.begin();
            let mut command = Command::new(LANEFS);
            let mut child = command.args(&self.command).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(rng.u64(..took.as_micros() as u64 + 1)));
            child.kill().unwrap();
            counts.ended += u32::from(child.wait().unwrap().success());
            let files = *known.entry(digest(self.image)).or_insert_with(|| self.check_left(&after));
            match files {
                Files::Before => counts.before += 1,
                Files::After => counts.after += 1,
            }
        }
        counts.states = known.len();
        counts
    }

    /// Checks the image that a kill left.
    fn check_left(&self, after: &Path) -> Files {
        let killed = self.image.with_extension("killed");
        std::fs::copy(self.image, &killed).unwrap();
        let recovered = Command::new(LANEFS).arg("recover").arg(&killed).output().unwrap();
        assert!(matches!(recovered.status.code(), Some(0 | 1)), "{:?} {recovered:?}", self.command);
        assert_clean(&killed);
        let files = match same(&killed, after, self.times()) {
            true => Files::After,
            false => {
                // `self.before` may need a recovery too, but `same` reads such an image as a
                // recovery would leave it.
                assert!(same(&killed, self.before, self.times()), "{:?}: neither", self.command);
                Files::Before
            }
        };
        complete(&self.command);
        assert_clean(self.image);
        assert!(same(self.image, after, self.times()), "{:?}: run again", self.command);
        files
    }
}

#[test]
#[ignore = "long: kills of each command"]
fn killed_commands_are_finished_by_another_run() {
    if !needs("e2fsck") || !can_mount() {
        return;
    }
    let kills = std::env::var("LANEFS_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let mut rng = fastrand::Rng::with_seed(seed());
    let dir = scratch();
    let [base, torn, image] =
        ["base.img", "torn.img", "disk.img"].map(|name| dir.path().join(name));
    let path = image.to_str().unwrap();
    make(base.to_str().unwrap(), dir.path());
    tear(&base, &torn);
    let uuid = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let put = format!("put {} /tree/d4/f4", dir.path().join("tree/big").display());
    let edit = ["edit", path, "-c", "write /new text", "-c", "rm -rf /tree/d3", "-c", &put];
    let edit_torn = [&edit[..], &["-c", "mkdir -p /a/b"]].concat();
    let cases: Vec<(&Path, Vec<&str>)> = vec![
        (&torn, vec!["recover", path]),
        (&base, vec!["tune", "-L", "killed", "-U", uuid, path]),
        (&base, vec!["tune", "-J", "size=2", path]),
        (&base, vec!["tune", "-O", "^has_journal", path]),
        (&base, vec!["trim", path]),
        (&torn, vec!["trim", path]),
        (&base, vec!["resize", path, "60M"]),
        (&base, vec!["resize", path, "12M"]),
        (&base, edit.to_vec()),
        (&torn, edit_torn),
    ];
    for (before, command) in cases {
        let case = Case { command, before, image: &image };
        let counts = case.kill(kills, &mut rng);
        println!("{kills} kills of {:?} on {before:?}: {counts:?}", &case.command);
    }
}
