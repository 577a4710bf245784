//! Tests of starting and ending a mount.

use crate::mounting::*;
use crate::transport::counter;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

fn signal(process: u32, name: &str) {
    run(Command::new("kill").args(["-s", name]).arg(process.to_string()));
}

#[test]
#[ignore = "long: a real mount"]
fn lanefs_umount_returns_when_the_image_is_closed() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    for round in 0..3 {
        let mounted = Mounted::new(&image, &[]);
        fs::write(mounted.path.join(format!("round {round}")), vec![7; 100_000]).unwrap();
        mounted.umount();
        image.assert_clean();
    }
    let kernel = KernelMounted::new(&image.path, "kernel", "ro");
    if let Some(kernel) = kernel {
        for round in 0..3 {
            let read = fs::read(kernel.path.join(format!("round {round}"))).unwrap();
            assert_eq!(read, vec![7; 100_000]);
        }
    }
}

#[test]
#[ignore = "long: a real mount"]
fn every_way_to_end_a_mount_leaves_it_clean() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    for way in ["umount", "fusermount3", "TERM", "INT", "HUP", "image"] {
        let mut mounted = Mounted::in_foreground(&image, &[]);
        fs::create_dir(mounted.path.join(way)).unwrap();
        fs::write(mounted.path.join(way).join("file"), way).unwrap();
        let process = mounted.server().id();
        match way {
            "umount" => drop(run(Command::new("umount").arg(&mounted.path))),
            "fusermount3" => drop(run(Command::new("fusermount3").arg("-u").arg(&mounted.path))),
            "image" => drop(run(Command::new(LANEFS).arg("umount").arg(&image.path))),
            name => signal(process, name),
        }
        wait_for("the server's end", SOON, || mounted.server().try_wait().unwrap().is_some());
        assert!(mounted.server().wait().unwrap().success(), "{way}");
        assert!(!is_mounted(&mounted.path));
        image.assert_clean();
    }
}

#[test]
#[ignore = "long: a real mount"]
fn a_signal_ends_a_busy_mount_too_and_writes_what_was_written() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mut mounted = Mounted::in_foreground(&image, &[]);
    let mut open = fs::File::create(mounted.path.join("open")).unwrap();
    open.write_all(b"written, not closed").unwrap();
    let mut doomed = fs::File::create(mounted.path.join("doomed")).unwrap();
    doomed.write_all(&[7; 100_000]).unwrap();
    fs::remove_file(mounted.path.join("doomed")).unwrap();
    let process = mounted.server().id();
    signal(process, "TERM");
    wait_for("the server's end", SOON, || mounted.server().try_wait().unwrap().is_some());
    drop(mounted);
    image.assert_clean();
    drop((open, doomed));
    let again = Mounted::new(&image, &[]);
    assert_eq!(fs::read(again.path.join("open")).unwrap(), b"written, not closed");
    again.umount();
}

#[test]
#[ignore = "long: a real mount"]
fn files_that_were_deleted_while_open_leave_nothing_behind() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &[]);
    let mut files = Vec::new();
    for n in 0..20 {
        let path = mounted.path.join(format!("doomed {n}"));
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![n; 200_000]).unwrap();
        fs::remove_file(&path).unwrap();
        files.push(file);
    }
    drop(files);
    mounted.umount();
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn files_deleted_just_before_the_unmount_leave_nothing_behind() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    for _ in 0..3 {
        let mounted = Mounted::new(&image, &[]);
        let script = "mkdir d; i=0; while [ $i -lt 2000 ]; do : >d/$i; i=$((i+1)); done; rm -r d";
        shell(&mounted.path, script);
        mounted.umount();
        image.assert_clean();
    }
}

#[test]
#[ignore = "long: a real mount"]
fn an_image_is_served_once() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let other = image.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let mounted = Mounted::new(&image, &[]);
    let (status, said) = try_run(&mut lanefs_mount(&image.path, &other, &[]));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("in use"), "{said}");
    assert!(!is_mounted(&other));
    mounted.umount();
}

#[test]
#[ignore = "long: a real mount"]
fn an_image_that_cannot_be_mounted_is_an_error_of_the_command() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let point = image.mount_point();
    let garbage = image.dir.path().join("garbage");
    fs::write(&garbage, vec![0x5a; 1 << 20]).unwrap();
    let cases: [(&Path, &Path, &[&str], &str); 5] = [
        (&image.path, &point, &["frobnicate"], "frobnicate"),
        (&image.path, Path::new("/nowhere/at/all"), &[], "/nowhere/at/all"),
        (Path::new("/nowhere.img"), &point, &[], "/nowhere.img"),
        (&garbage, &point, &[], "lanefs mount"),
        (&image.path, &point, &["offset=1024"], "lanefs mount"),
    ];
    for (source, point, options, expected) in cases {
        let (status, said) = try_run(&mut lanefs_mount(source, point, options));
        assert_eq!(status.code(), Some(1), "{source:?} {options:?}: {said}");
        assert!(said.contains(expected), "{said}");
    }
    assert!(!is_mounted(&point));
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn a_read_only_mount_writes_nothing() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &[]);
    fs::write(mounted.path.join("file"), "text").unwrap();
    mounted.umount();
    let before = fs::read(&image.path).unwrap();
    let mounted = Mounted::new(&image, &["ro"]);
    assert_eq!(fs::read_to_string(mounted.path.join("file")).unwrap(), "text");
    let refused = fs::write(mounted.path.join("new"), "text").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    mounted.umount();
    assert!(before == fs::read(&image.path).unwrap(), "the image has changed");
}

#[test]
#[ignore = "long: a real mount"]
fn a_remount_makes_the_image_clean_and_then_writable_again() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &[]);
    let remount = |options: &str| {
        let mut command = Command::new(LANEFS);
        command.arg("mount").arg(&image.path).arg(image.mount_point()).args(["-o", options]);
        try_run(&mut command)
    };
    let file = mounted.path.join("file");
    fs::write(&file, "text").unwrap();
    let writer = fs::OpenOptions::new().append(true).open(&file).unwrap();
    let (status, said) = remount("remount,ro");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("a file is open for writing"), "{said}");
    fs::write(&file, "text").expect("the refused remount changes nothing");
    drop(writer);
    let table = "rw,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other";
    assert!(remount(&format!("{table},remount,ro")).0.success());
    let refused = fs::write(mounted.path.join("new"), "text").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    let (status, said) = remount("remount,rw,sync");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("\"sync\" is not supported"), "{said}");
    image.assert_clean();
    let header = run(Command::new("dumpe2fs").arg("-h").arg(&image.path));
    assert!(!header.contains("needs_recovery"), "{header}");
    assert!(remount("remount,rw").0.success());
    fs::write(&file, "more text").unwrap();
    mounted.umount();
    image.assert_clean();
    let mounted = Mounted::new(&image, &["ro"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "more text");
    let (status, said) = remount("remount,rw");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("it was mounted read-only"), "{said}");
    mounted.umount();
    let (status, said) = remount("remount,ro");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("no Lanefs mount"), "{said}");
}

#[test]
#[ignore = "long: a real mount"]
fn a_file_system_inside_a_disk_image_is_mounted_by_offset() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let disk = image.dir.path().join("disk");
    shell(
        image.dir.path(),
        "truncate -s 80M disk && dd if=disk.img of=disk bs=1M seek=1 conv=notrunc,sparse status=none",
    );
    let mounted = Mounted::at(&disk, &image.mount_point(), &["offset=1M,sizelimit=64M"]);
    fs::write(mounted.path.join("file"), "text").unwrap();
    mounted.umount();
    shell(image.dir.path(), "dd if=disk of=disk.img bs=1M skip=1 count=64 conv=sparse status=none");
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn mount_8_and_fstab_words_are_understood() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let helper = image.dir.path().join("mount.fuse.lanefs");
    std::os::unix::fs::symlink(LANEFS, &helper).unwrap();
    let words = "rw,defaults,nofail,noauto,user,_netdev,x-systemd.automount,relatime,dev,suid,exec";
    for program in [helper.as_path(), Path::new(LANEFS)] {
        run(Command::new(program).arg(&image.path).arg(image.mount_point()).args(["-o", words]));
        let table = fs::read_to_string("/proc/mounts").unwrap();
        let entry =
            format!("{} {} fuse.lanefs rw", image.path.display(), image.mount_point().display());
        assert!(table.contains(&entry), "{table}");
        run(Command::new(LANEFS).arg("umount").arg(image.mount_point()));
    }
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn a_user_mounts_an_image_with_fusermount3() {
    if !can_mount() || !needs("fusermount3") {
        return;
    }
    let image = Image::with("64M", &["-E", "root_owner=65534:65534"]);
    let point = image.mount_point();
    for path in [&image.path, &point] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    // Copies the program, because it may lie in a directory that other users cannot read.
    let program = image.dir.path().join("lanefs");
    fs::copy(LANEFS, &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    run(as_nobody(&program).arg("mount").arg(&image.path).arg(&point));
    let mounted = Mounted::already(&point);
    run(as_nobody("sh")
        .args(["-euc", "echo mine >file; cat file; ln -s file link"])
        .current_dir("/")
        .env("HOME", "/")
        .current_dir(&point));
    run(as_nobody(&program).arg("umount").arg(&point));
    drop(mounted);
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn only_the_owner_of_a_mount_reads_its_statistics() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &["allow_other"]);
    for n in 0..20 {
        fs::write(mounted.path.join(format!("file {n}")), "content").unwrap();
    }
    let stats =
        |words: &[&str]| run(Command::new(LANEFS).arg("stats").arg(&mounted.path).args(words));
    let figures: serde_json::Value = serde_json::from_str(&stats(&["--json"])).unwrap();
    assert_eq!(figures["request.create.count"], 20, "{figures}");
    assert!(figures["request.create.ns"].as_u64().unwrap() > 0);
    assert!(figures["cache.inodes"].as_u64().unwrap() >= 20);
    assert!(figures.get("lock.guard.waits").is_some() && figures.get("journal.commits").is_some());
    assert!(figures["alloc.inode_searches"].as_u64().unwrap() >= 20);
    assert!(figures["alloc.groups_tried"].as_u64() >= figures["alloc.inode_searches"].as_u64());
    for name in ["block_searches", "groups_busy", "moves", "windows", "window_hits"] {
        assert!(figures.get(format!("alloc.{name}")).is_some(), "{name}");
    }
    assert!(stats(&[]).lines().any(|line| line.starts_with("create ")));
    assert!(stats(&[]).lines().any(|line| line.starts_with("allocators: ")));
    let mut watching = Command::new(LANEFS)
        .arg("stats")
        .arg(&mounted.path)
        .args(["--watch", "1"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(watching.stdout.take().unwrap()));
    let headings = lines.map(Result::unwrap).filter(|line| {
        line == "since it was mounted" || line.starts_with("in ") && line.ends_with(" s")
    });
    let headings: Vec<String> = headings.take(2).collect();
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert_eq!(headings[0], "since it was mounted");
    assert!(headings[1].starts_with("in "), "{headings:?}");
    // Other users cannot read the attribute with the counters. Other directories do not have this
    // attribute, and it is not listed.
    fs::set_permissions(&mounted.path, fs::Permissions::from_mode(0o755)).unwrap();
    let attribute = "system.lanefs_statistics";
    if needs("getfattr") {
        let ask = |mut command: Command| {
            let (status, said) = try_run(command.args(["-n", attribute]).arg(&mounted.path));
            (status.success(), said)
        };
        assert!(ask(Command::new("getfattr")).0);
        let (served, said) = ask(as_nobody("getfattr"));
        assert!(!served && said.contains("not supported"), "{said}");
    }
    mounted.umount();
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn an_image_that_is_mounted_in_several_places_is_unmounted_from_all() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let other = image.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let first = Mounted::new(&image, &["ro"]);
    let second = Mounted::at(&image.path, &other, &["ro"]);
    run(Command::new(LANEFS).arg("umount").arg(&image.path));
    assert!(!is_mounted(&first.path) && !is_mounted(&second.path));
    // Unmounting a directory ends only the mount on this directory.
    let _first = Mounted::new(&image, &["ro"]);
    let second = Mounted::at(&image.path, &other, &["ro"]);
    second.umount();
    assert!(is_mounted(&image.mount_point()));
}

#[test]
#[ignore = "long: a real mount"]
fn a_mount_that_is_read_only_though_it_was_to_be_written_says_so() {
    if !can_mount() {
        return;
    }
    let image = Image::with("64M", &["-O", "quota,ea_inode"]);
    let said = run(&mut lanefs_mount(&image.path, &image.mount_point(), &["rw"]));
    let mounted = Mounted::already(&image.mount_point());
    assert!(said.contains("WARNING") && said.contains("mounted read-only"), "{said}");
    let table = fs::read_to_string("/proc/mounts").unwrap();
    let entry = format!("{} fuse.lanefs ro", image.mount_point().display());
    assert!(table.contains(&entry), "{table}");
    mounted.umount();
    assert_eq!(run(&mut lanefs_mount(&image.path, &image.mount_point(), &["ro"])), "");
    Mounted::already(&image.mount_point()).umount();

    if !needs("fusermount3") {
        return;
    }
    // A user without write permission on the image gets a read-only mount and a warning.
    let image = Image::with("64M", &["-E", "root_owner=65534:65534"]);
    let program = image.dir.path().join("lanefs");
    fs::copy(LANEFS, &program).unwrap();
    shell(image.dir.path(), "chmod 444 disk.img; chown 65534 mnt");
    let mut mount = as_nobody(&program);
    let said = run(mount.arg("mount").arg(&image.path).arg(image.mount_point()));
    let mounted = Mounted::already(&image.mount_point());
    assert!(said.contains("it is write-protected: mounted read-only"), "{said}");
    drop(mounted);
}

#[test]
#[ignore = "long: a real mount"]
fn sloppy_mounts_of_mount_8_ignore_unknown_options() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mut mount = lanefs_mount(&image.path, &image.mount_point(), &["frobnicate=1"]);
    run(mount.args(["-s", "-t", "fuse.lanefs"]));
    Mounted::already(&image.mount_point()).umount();
    for option in ["grpid", "usrjquota=a", "data=journal"] {
        let mut mount = lanefs_mount(&image.path, &image.mount_point(), &[option]);
        let (status, said) = try_run(mount.arg("-s"));
        assert_eq!(status.code(), Some(1), "{option}");
        assert!(said.contains(option.split('=').next().unwrap()), "{said}");
    }
}

#[test]
#[ignore = "long: a real mount"]
fn mounting_over_a_dead_servers_mount_says_what_it_is_and_what_to_do() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mut mounted = Mounted::in_foreground(&image, &[]);
    mounted.server().kill().unwrap();
    mounted.server().wait().unwrap();
    let (status, said) = try_run(&mut lanefs_mount(&image.path, &mounted.path, &[]));
    assert!(!status.success() && said.contains("server has ended; `lanefs umount`"), "{said}");
    let (_, said) = try_run(Command::new(LANEFS).arg("umount").arg(&mounted.path));
    assert!(
        !is_mounted(&mounted.path) && said.contains("the next mount replays the log"),
        "{said}"
    );
    Mounted::at(&image.path, &mounted.path, &[]).umount();
}

/// Returns the memory of a process in bytes.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
#[ignore = "long: a real mount"]
fn files_that_the_kernel_knows_take_64_bytes_beside_the_caches() {
    if !can_mount() {
        return;
    }
    const DIRECTORIES: usize = 60;
    const FILES: usize = 60_000;
    let image = Image::with("1G", &["-N", "65536"]);
    let mut mounted = Mounted::in_foreground(&image, &[]);
    let at = |n: usize| mounted.path.join(format!("{}/{n}", n % DIRECTORIES));
    for n in 0..FILES {
        if n < DIRECTORIES {
            fs::create_dir(at(n).parent().unwrap()).unwrap();
        }
        fs::write(at(n), "").unwrap();
    }
    // Keeps the kernel from forgetting a file, so that it knows all of them.
    let open: Vec<_> = (0..FILES).step_by(100).map(|n| fs::File::open(at(n)).unwrap()).collect();
    let known = |mount: &Path| counter(mount, "cache.known_inodes");
    let inodes = counter(&mounted.path, "cache.inodes");
    let (aside, bytes) = (known(&mounted.path), counter(&mounted.path, "cache.known_bytes"));
    let (cached, cap) =
        (counter(&mounted.path, "cache.bytes"), counter(&mounted.path, "cache.cap_bytes"));
    println!("{inodes} inodes in {cached} bytes of caches, {aside} aside in {bytes} bytes");
    assert!(cached <= cap && aside > 1000 && bytes <= 64 * aside);
    for n in 0..FILES {
        assert_eq!(fs::metadata(at(n)).unwrap().len(), 0);
    }
    for (n, mut open) in open.into_iter().enumerate() {
        fs::remove_file(at(100 * n)).unwrap();
        assert!(open.metadata().is_ok() && open.read(&mut [0]).is_ok(), "an open file is there");
    }
    let path = mounted.path.clone();
    let process = mounted.server().id();
    let most = cap + 64 * FILES as u64 + (64 << 20);
    let now = resident(process);
    println!("{now} bytes of {most}");
    assert!(now <= most);
    for n in 0..DIRECTORIES {
        fs::remove_dir_all(path.join(n.to_string())).unwrap();
    }
    wait_for("the kernel to forget", SOON, || known(&path) < 100);
    assert!(counter(&path, "cache.known_bytes") <= 1 << 20);
    mounted.umount();
    image.assert_clean();
}
