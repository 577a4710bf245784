//! Each command that has a jail, taken over by what it reads: nothing it tries outside succeeds.
//! The program is built with `misbehaving/mod.rs` in it. Without the jail the attempts succeed.

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a command tries, by the names in `misbehaving/mod.rs`.
const TRIED: usize = 23;
/// What only root may do without a jail.
const OF_ROOT: [&str; 3] = ["shadow", "chown", "lchown"];

/// The commands with a jail; `IMAGE` stands for an image with a file `/f`.
const COMMANDS: &[&str] = &[
    "ls -l IMAGE",
    "tree IMAGE",
    "cat IMAGE:/f",
    "stat IMAGE:/f",
    "find IMAGE -name f",
    "getfattr IMAGE:/f",
    "getfacl IMAGE:/f",
    "df IMAGE",
    "du IMAGE",
    "filefrag IMAGE:/f",
    "info IMAGE",
    "disk IMAGE",
    "check IMAGE",
    "diff IMAGE:/ IMAGE:/",
    "tar IMAGE",
    "chmod 600 IMAGE:/f",
    "chown 5:6 IMAGE:/f",
    "touch IMAGE:/f",
    "truncate -s 5 IMAGE:/f",
    "fallocate -l 4096 IMAGE:/f",
    "mkdir IMAGE:/d",
    "ln -s f IMAGE:/l",
    "rm IMAGE:/l",
    "setfattr -n user.x -v y IMAGE:/f",
    "setfacl -m u:5:r IMAGE:/f",
    "defrag IMAGE:/f",
    "tune -L label IMAGE",
    "recover IMAGE",
    "repair IMAGE",
    "quota IMAGE",
];

fn lanefs(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanefs"));
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("lanefs runs")
}

/// Makes an image with a file.
fn image(at: &Path) {
    let image = at.to_str().unwrap();
    let made = run(lanefs(&["mkfs", "--size", "8M"]).arg(image));
    assert!(made.status.success(), "{made:?}");
    assert!(run(&mut lanefs(&["touch", &format!("{image}:/f")])).status.success());
}

/// The world that the program attacks.
struct World {
    folder: tempfile::TempDir,
    victim: std::process::Child,
    tcp: TcpListener,
    abstractly: String,
    _unix: [UnixListener; 2],
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        let abstractly = folder.path().display().to_string();
        let name = SocketAddr::from_abstract_name(&abstractly).unwrap();
        World {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            _unix: [unix, UnixListener::bind_addr(&name).unwrap()],
            victim: Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap(),
            abstractly,
            folder,
        }
    }

    /// Runs a command that misbehaves. Returns what it tried, and the outcomes.
    fn run(&self, line: &str, image: &Path, more: &[&str]) -> Vec<(String, String)> {
        let folder = self.folder.path();
        for name in ["old", "doomed", "threadold", "threaddoomed", "victim"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        for made in ["new", "dir", "link", "hard", "renamed"] {
            for by in ["", "thread"] {
                let path = folder.join(format!("{by}{made}"));
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
            }
        }
        let image = image.to_str().unwrap();
        let line = line.replace("IMAGE", image);
        let (word, rest) = line.split_once(' ').unwrap();
        let output = run(lanefs(&[word])
            .args(more)
            .args(rest.split(' '))
            .env("LANEFS_MISBEHAVE", folder)
            .env("LANEFS_PID", self.victim.id().to_string())
            .env("LANEFS_TCP", self.tcp.local_addr().unwrap().to_string())
            .env("LANEFS_ABSTRACT", &self.abstractly)
            .env("LANEFS_IMAGE", image));
        let text = String::from_utf8_lossy(&output.stderr);
        // A bare file system has no partitions, and this one no quotas.
        assert!(output.status.success() || ["disk", "quota"].contains(&word), "{line}: {text}");
        let tried = text.lines().filter_map(|line| line.strip_prefix("tried ")?.split_once(": "));
        let tried: Vec<_> = tried.map(|(what, how)| (what.to_owned(), how.to_owned())).collect();
        assert_eq!(tried.len(), 2 * TRIED, "{line}: {text}");
        tried
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

#[test]
fn no_command_that_was_taken_over_does_harm_outside_its_jail() {
    let (world, images) = (World::new(), tempfile::tempdir().unwrap());
    let at = images.path().join("disk.img");
    image(&at);
    for line in COMMANDS {
        for (what, how) in world.run(line, &at, &[]) {
            assert_eq!(how, "permission denied", "{line}: {what}");
        }
    }
}

#[test]
fn without_the_jail_all_of_it_succeeds() {
    let (world, images) = (World::new(), tempfile::tempdir().unwrap());
    let at = images.path().join("disk.img");
    image(&at);
    let is_root = rustix::process::geteuid().is_root();
    for (what, how) in world.run("ls IMAGE", &at, &["--no-jail"]) {
        let of_root = OF_ROOT.contains(&what.trim_start_matches("thread "));
        if is_root || !of_root {
            assert_eq!(how, "done", "{what}");
        }
    }
}

#[test]
fn the_test_knows_every_command_that_has_a_jail() {
    let source = include_str!("../../src/commands/jail.rs");
    let rows = source.split_once("const JAILED").unwrap().1.split_once("];").unwrap().0;
    let mut jailed: Vec<&str> = rows.lines().filter_map(|row| row.split('"').nth(1)).collect();
    let mut known: Vec<&str> =
        COMMANDS.iter().map(|line| line.split(' ').next().unwrap()).collect();
    jailed.sort_unstable();
    known.sort_unstable();
    known.dedup();
    assert_eq!(jailed, known);
}
