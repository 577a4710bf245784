//! Tests of file systems whose journal is on a device of its own. The commands make, mount, recover
//! and refuse such file systems; e2fsck and the kernel check the results.

use crate::mounting::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn code(arguments: &[&str]) -> (Option<i32>, String) {
    let (status, said) = try_run(Command::new(LANEFS).args(arguments));
    (status.code(), said)
}

fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file system and its journal, in two files.
struct Pair {
    dir: tempfile::TempDir,
    image: PathBuf,
    log: PathBuf,
}

impl Pair {
    /// Makes the file system and its journal by `lanefs mkfs`.
    fn ours() -> Pair {
        let pair = Pair::empty();
        lanefs(&["mkfs", "-q", "-O", "journal_dev", "--size", "8M", word(&pair.log)]);
        let device = format!("device={}", word(&pair.log));
        lanefs(&["mkfs", "-q", "-J", &device, "--size", "32M", word(&pair.image)]);
        pair
    }

    /// Makes the file system and its journal by mke2fs. Returns the device of the journal too;
    /// `None` without loop devices.
    fn of_mke2fs() -> Option<(Pair, LoopDevice)> {
        let pair = Pair::empty();
        for (path, len) in [(&pair.image, 32 << 20), (&pair.log, 8 << 20)] {
            fs::File::create(path).unwrap().set_len(len).unwrap();
        }
        let device = LoopDevice::new(&pair.log)?;
        let mke2fs = |arguments: &[&str], path: &Path| {
            run(Command::new("mke2fs").args(["-q", "-F", "-b", "4096"]).args(arguments).arg(path))
        };
        mke2fs(&["-O", "journal_dev"], &device.path);
        mke2fs(&["-t", "ext4", "-J", &format!("device={}", word(&device.path))], &pair.image);
        Some((pair, device))
    }

    fn empty() -> Pair {
        let dir = scratch();
        let (image, log) = (dir.path().join("disk.img"), dir.path().join("log.img"));
        fs::create_dir(dir.path().join("mnt")).unwrap();
        Pair { dir, image, log }
    }

    fn mount_point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn option(&self) -> String {
        format!("journal_path={}", word(&self.log))
    }

    /// Copies both files while they are in use. The copies are in the state that a power cut would
    /// leave.
    fn copied(&self) -> Pair {
        let copy = Pair::empty();
        fs::copy(&self.image, &copy.image).unwrap();
        fs::copy(&self.log, &copy.log).unwrap();
        copy
    }

    fn assert_clean(&self) {
        let mut e2fsck = Command::new("e2fsck");
        run(e2fsck.arg("-fn").arg("-j").arg(&self.log).arg(&self.image));
    }

    /// Recovers the file system, which must need a recovery.
    fn recover(&self) {
        let (status, said) = code(&["recover", "--journal", word(&self.log), word(&self.image)]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains("transactions"), "{said}");
        self.assert_clean();
    }
}

#[test]
fn mkfs_makes_the_journal_device_of_mke2fs_and_gives_it_to_one_file_system() {
    if !needs("mke2fs") {
        return;
    }
    let pair = Pair::ours();
    pair.assert_clean();
    let said = run(Command::new("dumpe2fs").arg("-h").arg(&pair.log));
    let facts: serde_json::Value =
        serde_json::from_str(&lanefs(&["info", "--json", word(&pair.image)])).unwrap();
    assert_eq!(facts["lanefs_mounts"], "read-write");
    let [own, journal] = [&facts["uuid"], &facts["journal"]["uuid"]].map(|id| id.as_str().unwrap());
    let says = |name: &str, id: &str| {
        said.lines().any(|line| line.starts_with(name) && line.ends_with(id))
    };
    assert!(says("Filesystem UUID:", journal) && says("Journal users:", own), "{said}");
    // `lanefs mkfs` and mke2fs write the same bytes to a journal device, except for times, the hash
    // seed and the extra size of inodes.
    let theirs = pair.dir.path().join("theirs.img");
    let id = "11223344-5566-7788-99aa-bbccddeeff00";
    let ours = pair.dir.path().join("ours.img");
    fs::write(&theirs, vec![0; 4 << 20]).unwrap();
    let mut mke2fs = Command::new("mke2fs");
    run(mke2fs.args(["-q", "-F", "-b", "1024", "-O", "journal_dev", "-U", id]).arg(&theirs));
    lanefs(&[
        "mkfs",
        "-q",
        "-b",
        "1024",
        "-O",
        "journal_dev",
        "-U",
        id,
        "--size",
        "4M",
        word(&ours),
    ]);
    let [mut ours, mut theirs] = [ours, theirs].map(|path| fs::read(path).unwrap());
    for bytes in [&mut ours, &mut theirs] {
        for differs in [0x2c..0x34, 0x40..0x44, 0xec..0xfd, 0x100..0x10c, 0x15c..0x160] {
            bytes[1024 + differs.start..1024 + differs.end].fill(0);
        }
        bytes[1024 + 0x108..1024 + 0x10c].fill(0);
    }
    let wrong = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "the first byte that differs");
    let (status, said) = code(&["mkfs", "-n", "-O", "journal_dev", word(&pair.log)]);
    assert!(status == Some(1) && said.contains("no preview"), "{said}");
    let third = pair.dir.path().join("third.img");
    let json = lanefs(&["mkfs", "--json", "-O", "journal_dev", "--size", "5M", word(&third)]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["journal_blocks"], &json["block_size"]), (&1280.into(), &4096.into()));
    // A journal device can serve only one file system.
    let device = format!("device={}", word(&pair.log));
    let second = pair.dir.path().join("second.img");
    let (status, said) = code(&["mkfs", "-J", &device, "--size", "32M", word(&second)]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("another file system uses it") && !second.exists(), "{said}");
    let (status, said) = code(&["mkfs", "-b", "1k", "-J", &device, "--size", "32M", word(&second)]);
    assert!(status == Some(1) && said.contains("blocks of 4096 bytes"), "{said}");
    let (status, said) = code(&["mkfs", "-J", &device, "--size", "32M", "-n", word(&pair.image)]);
    assert_eq!(status, Some(0), "{said}");
    let none = format!("device={}", word(&pair.image));
    let (status, said) = code(&["mkfs", "-J", &none, "--size", "32M", word(&second)]);
    assert!(status == Some(1) && said.contains("mkfs -O journal_dev"), "{said}");
}

#[test]
fn a_journal_device_is_made_behind_an_offset_but_not_on_an_array() {
    let dir = scratch();
    let part = dir.path().join("part.img");
    let line = ["mkfs", "--json", "-O", "journal_dev", "--offset", "1M", "--size", "8M"];
    let json = lanefs(&[&line[..], &[word(&part)]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["journal_blocks"], 2048);
    assert_eq!(part.metadata().unwrap().len(), 9 << 20);
    let mut mkfs = Command::new(LANEFS);
    mkfs.args(["mkfs", "-O", "journal_dev", "md:a,b,c", "8M"]).current_dir(dir.path());
    let (status, said) = try_run(&mut mkfs);
    assert!(status.code() == Some(1) && said.contains("array"), "{said}");
    let before = std::fs::read(&part).unwrap();
    for (option, value) in [("-E", "offset=1X"), ("-O", "no_such_feature")] {
        let (status, said) = code(&["mkfs", "-FO", "journal_dev", option, value, word(&part)]);
        assert!(status == Some(1) && said.contains(value), "{said}");
        assert!(std::fs::read(&part).unwrap() == before, "it was written");
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 1);
}

#[test]
fn a_killed_mount_is_recovered_from_the_journals_device() {
    if !can_mount() {
        return;
    }
    let pair = Pair::ours();
    let (image, log, point) = (word(&pair.image), word(&pair.log), pair.mount_point());
    let (status, said) = code(&["mount", image, word(&point)]);
    assert!(status != Some(0) && said.contains("journal_path=PATH"), "{said}");
    let (status, said) = code(&["mount", image, word(&point), "-o", "journal_dev=1792"]);
    assert!(status != Some(0) && said.contains("journal_path=PATH"), "{said}");
    let mounted = Mounted::in_foreground_at(&pair.image, &point, &[&pair.option()]);
    shell(&point, "mkdir d; echo text >d/f; sync d/f");
    let (status, said) = code(&["recover", "--journal", log, image]);
    assert!(status == Some(8) && said.contains("in use"), "{said}");
    let (status, said) = code(&["mkfs", "-O", "journal_dev", "--force", log]);
    assert!(status == Some(1) && said.contains("log.img: in use"), "{said}");
    mounted.kill();
    // Without the journal the newest state is unknown, so commands refuse to read or write the
    // image.
    for refused in
        [&["ls", &format!("{image}:/")][..], &["recover", image], &["tune", "-L", "a", image]]
    {
        let (status, said) = code(refused);
        assert!(status != Some(0) && said.contains("UUID"), "{refused:?}: {said}");
    }
    assert_eq!(lanefs(&["cat", "--journal", log, &format!("{image}:/d/f")]), "text\n");
    let (status, said) = code(&["recover", "-n", "--journal", log, image]);
    assert_eq!(status, Some(4), "{said}");
    pair.recover();
    // A clean file system can be read without its journal, but not written.
    assert_eq!(lanefs(&["cat", &format!("{image}:/d/f")]), "text\n");
    for refused in [&["rm", &format!("{image}:/d/f")][..], &["tune", "-L", "name", image]] {
        let (status, said) = code(refused);
        assert!(status != Some(0) && said.contains("journal"), "{refused:?}: {said}");
    }
    // `--journal` is also accepted for a copy between two images of which only one has its journal
    // on that device.
    let inside = pair.dir.path().join("inside.img");
    lanefs(&["mkfs", "-q", "--size", "16M", word(&inside)]);
    let [from, to] = [&inside, &pair.image].map(|image| format!("{}:/", word(image)));
    lanefs(&["cp", "--journal", log, &format!("{to}d/f"), &from]);
    lanefs(&["mv", "--journal", log, &format!("{to}d/f"), &format!("{to}d/e")]);
    lanefs(&["cp", "--journal", log, &format!("{from}f"), &format!("{to}d/")]);
    pair.assert_clean();
    let copy = pair.dir.path().join("copy.img");
    for refused in [&["edit", image, "-c", "rm /d/f"][..], &["clone", image, word(&copy)]] {
        let (status, said) = code(refused);
        assert!(status == Some(1) && said.contains("is on another device"), "{refused:?}: {said}");
    }
    assert!(!copy.exists());
    let (status, said) = code(&["touch", "--journal", log, &format!("{from}new")]);
    assert!(status == Some(1) && said.contains("journal is inside or absent"), "{said}");
    let mounted = Mounted::at(&pair.image, &point, &[&pair.option()]);
    assert_eq!(shell(&point, "cat d/f d/e; rm -r d; echo more >g"), "text\ntext\n");
    mounted.umount();
    pair.assert_clean();
}

#[test]
fn the_kernel_and_lanefs_replay_each_others_external_journals() {
    if !can_mount() {
        return;
    }
    let Some((pair, device)) = Pair::of_mke2fs() else { return };
    let option = format!("journal_path={}", word(&device.path));
    let Some(kernel) = KernelMounted::new(&pair.image, "kernel", &option) else { return };
    shell(&kernel.path, "mkdir d; echo kernel >d/f; sync");
    let crashed = pair.copied();
    drop(kernel);
    crashed.recover();
    assert_eq!(lanefs(&["cat", &format!("{}:/d/f", word(&crashed.image))]), "kernel\n");

    // Now the other way round: the kernel replays the log that a killed Lanefs server left.
    let other = crashed.copied();
    let mounted = Mounted::in_foreground_at(&other.image, &other.mount_point(), &[&other.option()]);
    shell(&other.mount_point(), "mkdir e; echo lanefs >e/f; sync e/f");
    mounted.kill();
    let device = LoopDevice::new(&other.log).unwrap();
    let option = format!("journal_path={}", word(&device.path));
    let kernel = KernelMounted::new(&other.image, "kernel", &option).unwrap();
    assert_eq!(shell(&kernel.path, "cat d/f e/f"), "kernel\nlanefs\n");
    drop(kernel);
    drop(device);
    other.assert_clean();
}

#[test]
fn offline_commands_replay_a_journal_on_another_device() {
    if !can_mount() {
        return;
    }
    let Some((pair, device)) = Pair::of_mke2fs() else { return };
    drop(device);
    let mounted = Mounted::in_foreground_at(&pair.image, &pair.mount_point(), &[&pair.option()]);
    shell(&pair.mount_point(), "mkdir d; echo text >d/f; sync d/f");
    mounted.kill();

    let other = Pair::ours();
    let commands: [(&[&str], &[&str]); 5] = [
        (&["check"], &[]),
        (&["trim"], &[]),
        (&["repair", "--undo", "undo"], &[]),
        (&["resize"], &["64M"]),
        (&["tune", "-L", "name", "-O", "mmp"], &[]),
    ];
    for (command, operands) in commands {
        let crashed = pair.copied();
        let undo = crashed.dir.path().join("undo");
        let name =
            |part: &&str| if *part == "undo" { word(&undo).to_owned() } else { (*part).into() };
        let command: Vec<String> = command.iter().map(name).collect();
        let with = |log: Option<&Path>| {
            let journal = log.map(|log| ["--journal", word(log)]);
            let mut all: Vec<&str> = command.iter().map(String::as_str).collect();
            all.extend(journal.iter().flatten());
            all.push(word(&crashed.image));
            all.extend(operands);
            code(&all)
        };
        let before = fs::read(&crashed.image).unwrap();
        let (status, said) = with(None);
        assert!(status != Some(0) && said.contains("with UUID"), "{command:?}: {said}");
        assert!(said.contains("--journal PATH"), "{command:?}: {said}");
        let (status, said) = with(Some(&other.log));
        assert!(status != Some(0) && said.contains("UUID"), "{command:?}: {said}");
        assert!(fs::read(&crashed.image).unwrap() == before, "{command:?} wrote without the log");
        let (status, said) = with(Some(&crashed.log));
        let done = if command[0] == "repair" { 1 } else { 0 };
        assert_eq!(status, Some(done), "{command:?}: {said}");
        if command[0] == "check" {
            assert!(fs::read(&crashed.image).unwrap() == before, "a check writes nothing");
            continue;
        }
        crashed.assert_clean();
        let text = lanefs(&["cat", &format!("{}:/d/f", word(&crashed.image))]);
        assert_eq!(text, "text\n", "{command:?}");
        let mounted = Mounted::at(&crashed.image, &crashed.mount_point(), &[&crashed.option()]);
        assert_eq!(shell(&crashed.mount_point(), "cat d/f; echo more >g"), "text\n");
        mounted.umount();
        crashed.assert_clean();
    }
    for refused in [&["-U", "random"][..], &["-O", "^has_journal"], &["-J", "size=8"]] {
        let (image, log) = (word(&other.image), word(&other.log));
        let (status, said) = code(&[&["tune", "--journal", log], refused, &[image]].concat());
        assert!(status == Some(1) && said.contains("device"), "{refused:?}: {said}");
        other.assert_clean();
    }
}
