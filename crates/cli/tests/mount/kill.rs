//! Kills the server while programs write. Afterwards Lanefs and the kernel must find all data that
//! fsync made durable, and e2fsck must find nothing except a log to replay.

use crate::mounting::*;
use lanefs_lanes::sync::unscheduled::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The names of the files whose fsync succeeded, each with the seed of its content.
type Promises = Arc<Mutex<BTreeMap<String, u64>>>;

/// Returns how often to kill the server (`LANEFS_KILLS`).
fn kills() -> usize {
    std::env::var("LANEFS_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Returns the content of a file with this seed: 1 byte to 300 KB.
fn content(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let len = random.usize(1..300_000) >> random.u32(0..10);
    (0..len.max(1)).map(|_| random.u8(..)).collect()
}

/// Writes files until the mount is gone. Most files are synced, and are expected to survive from
/// then on. Some are renamed over others, some are deleted, and some stay in the kernel's cache.
fn load(dir: &Path, name: &str, mut random: fastrand::Rng, promises: &Promises) {
    for n in 0.. {
        let mut work = || -> std::io::Result<()> {
            let (seed, new) = (random.u64(..), format!("{name} new"));
            let file_name = format!("{name} {}", n % 50);
            let mut file = File::create(dir.join(&new))?;
            file.write_all(&content(seed))?;
            if random.u8(0..4) == 0 {
                fs::write(dir.join(format!("{name} loose {n}")), content(seed))?;
            }
            file.sync_all()?;
            // From now on either the old or the new content may survive a kill. The test expects
            // neither of them until the rename is durable.
            promises.lock().unwrap().remove(&file_name);
            fs::rename(dir.join(&new), dir.join(&file_name))?;
            file.sync_all()?;
            promises.lock().unwrap().insert(file_name, seed);
            if random.u8(0..8) == 0 {
                let doomed = format!("{name} {}", random.usize(0..50));
                promises.lock().unwrap().remove(&doomed);
                // The file possibly does not exist yet.
                let _ = fs::remove_file(dir.join(doomed));
            }
            Ok(())
        };
        if work().is_err() {
            return;
        }
    }
}

fn check_promises(dir: &Path, promises: &BTreeMap<String, u64>, judge: &str) {
    for (name, &seed) in promises {
        let read = fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{judge}: {name}: {e}"));
        assert!(read == content(seed), "{judge}: {name} is not what was synced");
    }
}

#[test]
#[ignore = "long: a real mount"]
fn changes_survive_a_kill_of_the_server_after_a_pause() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    for round in 0..5 {
        let mut mounted = Mounted::in_foreground(&image, &[]);
        let name = format!("d{round}/a");
        fs::create_dir(mounted.path.join(format!("d{round}"))).unwrap();
        // syncfs(2) makes the kernel write its cache, but the kernel does not send a SYNCFS request
        // to the server. The server commits by itself during the pause.
        fs::write(mounted.path.join(&name), "x").unwrap();
        run(Command::new("sync").arg("-f").arg(mounted.path.join(&name)));
        thread::sleep(Duration::from_millis(500));
        mounted.server().kill().unwrap();
        mounted.server().wait().unwrap();
        drop(mounted);
        let again = Mounted::new(&image, &[]);
        assert_eq!(fs::read_to_string(again.path.join(&name)).unwrap(), "x", "round {round}");
        again.umount();
    }
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn synchronous_files_and_directories_survive_a_kill_of_the_server() {
    if !can_mount() || !needs("chattr") {
        return;
    }
    for options in [&[][..], &["no_writeback"]] {
        let image = Image::new("64M");
        let mut mounted = Mounted::in_foreground(&image, options);
        shell(&mounted.path, "mkdir d && echo old >f && chattr +D d && chattr +S f && sync f d");
        // There is no pause between the steps, since the server commits by itself in a pause. The
        // writeback cache keeps written data until the file is closed.
        shell(&mounted.path, "echo new >f; mkdir d/made; mv d/made d/moved");
        mounted.server().kill().unwrap();
        mounted.server().wait().unwrap();
        drop(mounted);
        let again = Mounted::new(&image, &[]);
        assert_eq!(fs::read_to_string(again.path.join("f")).unwrap(), "new\n", "{options:?}");
        assert!(again.path.join("d/moved").is_dir(), "{options:?}");
        again.umount();
        image.assert_clean();
    }
}

#[test]
#[ignore = "long: a real mount"]
fn with_sync_and_dirsync_changes_survive_a_kill_of_the_server() {
    if !can_mount() {
        return;
    }
    for options in ["sync", "dirsync", "sync,no_writeback"] {
        let image = Image::new("64M");
        let mut mounted = Mounted::in_foreground(&image, &[options]);
        // There is no pause between the steps, since the server commits by itself in a pause.
        shell(&mounted.path, "mkdir dir made gone; mv made dir/moved; rmdir gone; touch file");
        let mut file = File::options().write(true).open(mounted.path.join("file")).unwrap();
        file.write_all(b"new").unwrap();
        mounted.server().kill().unwrap();
        mounted.server().wait().unwrap();
        drop((file, mounted));
        let again = Mounted::new(&image, &[]);
        assert_eq!(
            shell(&again.path, "find . | sort"),
            ".\n./dir\n./dir/moved\n./file\n./lost+found\n"
        );
        let text = fs::read_to_string(again.path.join("file")).unwrap();
        // The file was still open, so its data is durable only with the option `sync`.
        let expected = if options == "dirsync" { "" } else { "new" };
        assert_eq!(text, expected, "{options}");
        again.umount();
        image.assert_clean();
    }
}

#[test]
#[ignore = "long: a real mount"]
fn synced_changes_survive_a_kill_of_the_server() {
    if !can_mount() {
        return;
    }
    let mut random = fastrand::Rng::with_seed(seed());
    let image = Image::new("192M");
    let mut kept = 0;
    for round in 0..kills() {
        let mut mounted = Mounted::in_foreground(&image, &[]);
        let promises = Promises::default();
        let dir = mounted.path.join(format!("round {round}"));
        fs::create_dir(&dir).unwrap();
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let (dir, promises, random) = (dir.clone(), promises.clone(), random.fork());
                thread::spawn(move || load(&dir, &format!("writer {n}"), random, &promises))
            })
            .collect();
        thread::sleep(Duration::from_millis(random.u64(300..1500)));
        mounted.server().kill().unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        mounted.kill();
        let promises = promises.lock().unwrap().clone();
        kept += promises.len();

        // In a copy of the image, e2fsck replays the log and the kernel reads the result.
        let copy = image.copy("copy.img");
        run(Command::new("e2fsck").args(["-fy", "-E", "journal_only"]).arg(&copy));
        // With -p, e2fsck makes only repairs that are always safe, such as freeing deleted files
        // that were open. It refuses all other repairs.
        let (status, said) = try_run(Command::new("e2fsck").arg("-fp").arg(&copy));
        assert!(status.code().is_some_and(|code| code <= 1), "round {round}: {status}\n{said}");
        assert_clean(&copy);
        if let Some(kernel) = KernelMounted::new(&copy, "kernel", "ro") {
            check_promises(&kernel.path.join(format!("round {round}")), &promises, "the kernel");
        }
        fs::remove_file(&copy).unwrap();

        // On the original image, Lanefs replays the log.
        let again = Mounted::new(&image, &[]);
        check_promises(&again.path.join(format!("round {round}")), &promises, "Lanefs");
        fs::remove_dir_all(again.path.join(format!("round {round}"))).unwrap();
        again.umount();
        image.assert_clean();
    }
    println!("{} kills, {kept} synced files, all whole", kills());
    assert!(kept > 0, "the load never got a file synced");
}
