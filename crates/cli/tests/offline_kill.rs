//! Commands that change a whole image, killed at a random moment and run again: e2fsck finds nothing
//! and the files are the same. `LANEFS_KILLS` sets the kills of each command, 4 by default.

mod mounting;

use mounting::{LANEFS, assert_clean, needs, run, scratch, seed, shell};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

/// The names and digests of all files in the image.
fn files(image: &str) -> String {
    let out = scratch();
    lanefs(&["cp", "-a", &format!("{image}:/."), out.path().to_str().unwrap()]);
    shell(
        out.path(),
        "find . -printf '%p %m %n\\n' | sort; find . -type f | sort | xargs sha256sum",
    )
}

/// Makes an image with files all over it.
fn make(path: &str, dir: &Path) {
    lanefs(&["mkfs", "-q", "--size", "96M", "-b", "1024", path]);
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("big"), "0123456789abcde\n".repeat(1 << 18)).unwrap();
    for n in 0..40 {
        let sub = tree.join(format!("d{n}"));
        std::fs::create_dir(&sub).unwrap();
        for m in 0..20 {
            std::fs::write(sub.join(format!("f{m}")), format!("{n} {m}\n").repeat(200)).unwrap();
        }
    }
    lanefs(&["cp", "-a", tree.to_str().unwrap(), &format!("{path}:/")]);
}

#[test]
#[ignore = "long: kills of each command"]
fn killed_commands_are_finished_by_another_run() {
    if !needs("e2fsck") {
        return;
    }
    let kills = std::env::var("LANEFS_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let mut rng = fastrand::Rng::with_seed(seed());
    let dir = scratch();
    let (base, image) = (dir.path().join("base.img"), dir.path().join("disk.img"));
    let path = image.to_str().unwrap();
    make(base.to_str().unwrap(), dir.path());
    let uuid = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let commands: &[&[&str]] = &[
        &["tune", "-L", "killed", "-U", uuid, path],
        &["tune", "-J", "size=2", path],
        &["tune", "-O", "^has_journal", path],
        &["trim", path],
        &["resize", path, "160M"],
        &["resize", path, "40M"],
        &["edit", path, "-c", "write /new text", "-c", "rm -rf /tree/d3", "-c", "mkdir -p /a/b"],
    ];
    for command in commands {
        std::fs::copy(&base, &image).unwrap();
        let began = Instant::now();
        lanefs(command);
        let took = began.elapsed();
        let whole = files(path);
        let mut ended = 0;
        for _ in 0..kills {
            std::fs::copy(&base, &image).unwrap();
            let mut child =
                Command::new(LANEFS).args(*command).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(rng.u64(..took.as_micros() as u64 + 1)));
            child.kill().unwrap();
            ended += u32::from(child.wait().unwrap().success());
            lanefs(command);
            assert_clean(&image);
            assert_eq!(files(path), whole, "{command:?}");
        }
        println!("{command:?}: {kills} kills, {ended} had ended");
    }
}
