//! Tests of `lanefs mkfs`: sizes, `--force`, and filling from a directory.

use crate::mounting::{
    Image, KernelMounted, LANEFS, assert_clean, can_mount, needs, run, scratch, shell, try_run,
};
use crate::trees::{assert_same, fill, survey};
use std::path::Path;
use std::process::{Command, ExitStatus};

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

#[test]
fn options_reach_the_superblock() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    let uuid = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let said = lanefs(&[
        "mkfs", path, "64M", "-L", "name", "-U", uuid, "-b", "4096", "-N", "5000", "-J", "8M",
        "-m", "1", "--debian",
    ]);
    assert!(said.contains("16384 blocks of 4096 bytes"), "{said}");
    let info = lanefs(&["info", "--json", path]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["label"], "name");
    assert_eq!(info["uuid"], uuid);
    assert_eq!(info["blocks"], 16384);
    assert_eq!(info["reserved_blocks"], 163);
    assert_eq!(info["journal"]["bytes"], 8 << 20);
    assert!(info["inodes"].as_u64().unwrap() >= 5000);
    assert!(info["features"].as_array().unwrap().iter().all(|f| f != "orphan_file"));
    assert_clean(&image);
}

#[test]
fn blocks_larger_than_a_page_are_those_of_e2fsprogs() {
    let dir = scratch();
    let make = "mkdir -p tree/many; seq 100000 > tree/numbers; ln -s numbers tree/link; \
         for n in $(seq 2000); do : > tree/many/with-a-name-of-some-length-$n; done";
    shell(dir.path(), make);
    for (block, size) in [("64K", "300M"), ("64K", "auto+20M"), ("8K", "auto+20M")] {
        shell(dir.path(), "rm -rf disk.img out; mkdir out");
        let image = dir.path().join("disk.img");
        let path = image.to_str().unwrap();
        let tree = dir.path().join("tree");
        let tree = tree.to_str().unwrap();
        lanefs(&["mkfs", path, "-q", "-b", block, "--size", size, "-N", "5000", "--from", tree]);
        assert_clean(&image);
        shell(
            dir.path(),
            "debugfs -R 'rdump / out' disk.img; rmdir out/lost+found; diff -r tree out",
        );
        // debugfs changes the image that Lanefs has written, and then Lanefs changes what debugfs
        // has written.
        shell(
            dir.path(),
            "printf 'mkdir many/d\\nwrite tree/numbers many/n\\n' | debugfs -w disk.img",
        );
        lanefs(&["cp", "-r", tree, &format!("{path}:/many/d")]);
        lanefs(&["rm", &format!("{path}:/many/with-a-name-of-some-length-77")]);
        assert_clean(&image);
        shell(
            dir.path(),
            "rm -rf out; mkdir out; debugfs -R 'rdump /many/d/tree out' disk.img; \
             diff -r tree out/tree",
        );
        assert_eq!(lanefs(&["cat", &format!("{path}:/many/n")]).lines().count(), 100_000);
        lanefs(&["check", path]);
    }
}

#[test]
fn an_existing_file_system_is_overwritten_only_by_force() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    let (status, said) = try_run(Command::new(LANEFS).args(["mkfs", path]));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("give a --size"), "{said}");
    lanefs(&["mkfs", "-q", "--size", "16M", path]);
    let (status, said) = try_run(Command::new(LANEFS).args(["mkfs", path]));
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("contains ext4"), "{said}");
    lanefs(&["mkfs", "-q", "-F", "--no-journal", path]);
    assert_clean(&image);
    let (status, said) = try_run(Command::new(LANEFS).args(["mkfs", "-m", "60", "-F", path]));
    assert_eq!(status.code(), Some(1), "{said}");
    assert_eq!(try_run(Command::new(LANEFS).args(["mkfs", path, "12Q"])).0.code(), Some(2));
}

#[test]
fn an_image_that_is_missing_or_standard_output_is_told() {
    let dir = scratch();
    shell(dir.path(), "echo a >file; tar -cf a.tar file; truncate -s 16M img");
    let fails = |words: &[&str]| {
        let (status, said) = try_run(Command::new(LANEFS).current_dir(dir.path()).args(words));
        assert!(!status.success(), "{said}");
        said
    };
    let said = fails(&["mkfs", "--from", "a.tar", "img"]);
    assert!(said.contains("write IMAGE before --from"), "{said}");
    for words in [&["mkfs", "-", "16M"][..], &["mkfs", "-", "16M", "--from", "a.tar"]] {
        let said = fails(words);
        assert!(said.contains("standard output"), "{said}");
        assert!(!dir.path().join("-").exists());
    }
}

#[test]
fn an_image_is_filled_from_a_directory_with_all_attributes() {
    if !can_mount() {
        return;
    }
    let source = Image::new("300M");
    let Some(host) = KernelMounted::new(&source.path, "host", "rw") else { return };
    fill(&host.path);
    shell(&host.path, "rmdir lost+found");
    let image = source.dir.path().join("new.img");
    let directory = host.path.to_str().unwrap();
    lanefs(&["mkfs", "-d", directory, image.to_str().unwrap(), "400M"]);
    assert_clean(&image);
    let kernel = KernelMounted::new(&image, "kernel", "ro").unwrap();
    assert_same(&survey(&kernel.path), &survey(&host.path));
}

#[test]
fn a_file_system_is_made_and_filled_in_a_partition() {
    let dir = scratch();
    let image = dir.path().join("disk.img");
    std::fs::write(&image, vec![0x5a; 40 << 20]).unwrap();
    shell(dir.path(), "mkdir t; echo x > t/x");
    let (path, tree) = (image.to_str().unwrap(), dir.path().join("t"));
    let tree = tree.to_str().unwrap();
    lanefs(&["mkfs", "-q", "--offset", "1M", "-d", tree, "--owner", "7:8", path, "32M"]);
    assert_eq!(lanefs(&["cat", "--offset", "1M", &format!("{path}:/x")]), "x\n");
    let owner = ["stat", "--offset", "1M", "-c", "%u:%g", &format!("{path}:/")];
    assert_eq!(lanefs(&owner), "7:8\n");
    let bytes = std::fs::read(&image).unwrap();
    assert!(bytes[..1 << 20].iter().chain(&bytes[33 << 20..]).all(|&byte| byte == 0x5a));
    let part = dir.path().join("part.img");
    std::fs::write(&part, &bytes[1 << 20..33 << 20]).unwrap();
    assert_clean(&part);
}

/// One command makes a disk from a container image, which is given by a path or on standard input.
#[test]
fn an_image_is_made_from_sources_of_each_kind() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    shell(
        dir.path(),
        r#"mkdir -p l/etc over/etc; echo base >l/etc/motd; echo x >l/etc/x; tar -cf l.tar -C l .
        echo over >over/etc/motd
        printf '{"rootfs":{"diff_ids":["sha256:%s"]}}' $(sha256sum <l.tar | cut -c1-64) >c.json
        echo '[{"Config":"c.json","Layers":["l.tar"]}]' >manifest.json
        tar -cf image.tar manifest.json c.json l.tar"#,
    );
    let said = lanefs(&[
        "mkfs",
        &at("a.img"),
        "--size",
        "auto+1M",
        "--json",
        "--reproducible",
        "--owner",
        "7:8",
        "--from",
        &at("image.tar"),
        &at("over"),
    ]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["files"], &said["directories"]), (&2.into(), &3.into()));
    let len = std::fs::metadata(at("a.img")).unwrap().len();
    assert_eq!(said["bytes"], len);
    assert!(len < 3 << 20, "{len}");
    assert_clean(&dir.path().join("a.img"));
    assert_eq!(lanefs(&["cat", &format!("{}:/etc/motd", at("a.img"))]), "over\n");
    // Further runs overwrite the old image and read from standard input. They produce the same
    // bytes.
    let first = std::fs::read(at("a.img")).unwrap();
    for input in ["docker:-", "-"] {
        let again = Command::new(LANEFS)
            .args(["mkfs", "-q", "-F", &at("a.img"), "auto+1M", "--reproducible", "--owner", "7:8"])
            .args(["--from", input, &at("over")])
            .stdin(std::fs::File::open(at("image.tar")).unwrap())
            .status();
        assert!(again.unwrap().success());
        assert!(std::fs::read(at("a.img")).unwrap() == first, "{input}");
    }
    for (arguments, expected) in [
        (&["auto"][..], "--size auto follows from the files"),
        (&["auto", "--from", "/nowhere"], "/nowhere: no such file"),
        (&["--from", "/etc"], "give a --size, or --size auto"),
        (&["64K", "--from", &at("l")], "bytes"),
    ] {
        let (status, said) =
            try_run(Command::new(LANEFS).args(["mkfs", &at("new.img")]).args(arguments));
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(!dir.path().join("new.img").exists());
    }
}

#[test]
fn a_shrunk_image_is_the_smallest_and_its_size_the_limit() {
    let dir = scratch();
    shell(dir.path(), "mkdir t; seq 300000 >t/numbers");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let make = |image: &str, arguments: &[&str]| {
        let mut command = Command::new(LANEFS);
        command.args(["mkfs", "-q", &at(image), "--reproducible", "-d", &at("t")]);
        try_run(command.args(arguments))
    };
    for (image, arguments) in [
        ("auto.img", &["--size", "auto"][..]),
        ("limited.img", &["--size", "1G", "--shrink"]),
        ("alone.img", &["--shrink"]),
    ] {
        let (status, said) = make(image, arguments);
        assert!(status.success(), "{said}");
    }
    assert_clean(&dir.path().join("limited.img"));
    let bytes = |image: &str| std::fs::read(at(image)).unwrap();
    let auto = bytes("auto.img");
    assert!(auto.len() < 3 << 20, "{}", auto.len());
    assert!(bytes("limited.img") == auto && bytes("alone.img") == auto);
    // An existing image is shortened.
    lanefs(&["mkfs", "-q", &at("old.img"), "64M"]);
    assert!(make("old.img", &["--shrink", "-F"]).0.success());
    assert!(bytes("old.img") == auto);
    for (arguments, expected) in [
        (&["--size", "1M", "--shrink"][..], "do not fit into 1048576 bytes"),
        (&["--size", "auto+1M", "--shrink"], "give one of them"),
    ] {
        let (status, said) = make("new.img", arguments);
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(!dir.path().join("new.img").exists());
    }
    let (status, said) = try_run(Command::new(LANEFS).args(["mkfs", &at("x"), "9M", "--shrink"]));
    assert!(status.code() == Some(1) && said.contains("give them by --from"), "{said}");
}

/// A command that fails leaves an earlier hash tree as it is, and no new one.
#[test]
fn a_hash_tree_is_replaced_only_when_it_is_complete() {
    let dir = scratch();
    shell(dir.path(), "mkdir t; seq 1000 >t/numbers; echo precious >other");
    let seal = |tree: &str, last: &str| {
        let line = format!("{LANEFS} mkfs -F a.img auto -d t --verity {tree} {last}");
        let (status, said) =
            try_run(Command::new("sh").args(["-c", &line]).current_dir(dir.path()));
        (status.code(), said)
    };
    let lock = std::fs::File::open(dir.path().join("other")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (code, said) = seal("other", "");
    assert!(code == Some(1) && said.contains("other") && said.contains("in use"), "{said}");
    drop(lock);
    assert_eq!(shell(dir.path(), "cat other; ls"), "precious\nother\nt\n");
    let (code, said) = seal("other", "");
    assert_eq!(code, Some(0), "{said}");
    let whole = std::fs::read(dir.path().join("other")).unwrap();
    assert!(whole.len() >= 4096 && whole.starts_with(b"verity\0\0"), "{said}");
    let (code, said) = seal("new", "");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(shell(dir.path(), "ls -A"), "a.img\nnew\nother\nt\n");
}

#[test]
fn a_journal_device_is_kept_if_only_its_description_is_lost() {
    let dir = scratch();
    let line = format!("{LANEFS} mkfs -O journal_dev j.img 16M >/dev/full");
    let (status, said) = try_run(Command::new("sh").args(["-c", &line]).current_dir(dir.path()));
    assert!(status.code() == Some(1) && said.contains("standard output"), "{said}");
    assert_eq!(dir.path().join("j.img").metadata().unwrap().len(), 16 << 20);
}

/// veritysetup accepts the image and its hash tree, and finds a changed byte.
#[test]
fn an_image_is_sealed_by_the_hash_tree_of_dm_verity() {
    let dir = scratch();
    shell(dir.path(), "mkdir t; seq 100000 >t/numbers");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let seal = |place: &str| {
        let said = lanefs(&[
            "mkfs",
            "-F",
            &at("a.img"),
            "auto+1M",
            "--json",
            "--reproducible",
            "-d",
            &at("t"),
            "--verity",
            place,
        ]);
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    let (apart, appended) = (seal(&at("tree")), seal("append"));
    let verity = &appended["verity"];
    assert_eq!(verity["root_hash"], apart["verity"]["root_hash"], "the same files, the same hash");
    assert_eq!(verity["hash_offset"], appended["bytes"]);
    assert_clean(&dir.path().join("a.img"));
    let (root, offset) = (verity["root_hash"].as_str().unwrap(), &verity["hash_offset"]);
    let verify = format!("veritysetup verify a.img a.img --hash-offset={offset} {root}");
    if shell(dir.path(), "PATH=$PATH:/usr/sbin command -v veritysetup || true").is_empty() {
        println!("skipped: veritysetup (package cryptsetup-bin) is missing");
        return;
    }
    shell(dir.path(), &format!("export PATH=$PATH:/usr/sbin; {verify}"));
    shell(
        dir.path(),
        &format!(
            "export PATH=$PATH:/usr/sbin
            printf X | dd of=a.img bs=1 seek=70000 conv=notrunc status=none; ! {verify} 2>&1"
        ),
    );
    for arguments in [
        &["16M", "--verity", "append"][..],
        &["auto", "-d", &at("t"), "--verity", &at("a.img"), "-F"],
        &["auto", "-d", &at("t"), "--verity", "append", "--offset", "1M", "-F"],
    ] {
        let mut command = Command::new(LANEFS);
        let (status, said) = try_run(command.arg("mkfs").arg(at("a.img")).args(arguments));
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("--verity"), "{said}");
    }
}

#[test]
fn tables_of_android_and_mtree_reach_the_image() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir -p t/bin; echo x >t/bin/sh; echo 'system/bin/sh 0 2000 755' >config
        echo '/system(/.*)? u:object_r:system_file:s0' >contexts; echo 'new type=dir uid=5' >spec",
    );
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let image = at("a.img");
    let said = lanefs(&[
        "mkfs",
        &image,
        "auto",
        "-d",
        &at("t"),
        "--mountpoint",
        "/system",
        "--fs-config",
        &at("config"),
        "--file-contexts",
        &at("contexts"),
        "--mtree",
        &at("spec"),
        "--owner",
        "7:7",
    ]);
    assert!(said.contains("1 group, ") && said.contains("1 file in 4 directories"), "{said}");
    assert_clean(&dir.path().join("a.img"));
    let stat = |name: &str| lanefs(&["stat", "-c", "%u:%g %a", &format!("{image}:{name}")]);
    assert_eq!(stat("/bin/sh"), "0:2000 755\n");
    assert_eq!(stat("/new"), "5:0 755\n");
    let label = "debugfs -R 'ea_get /bin/sh security.selinux' a.img 2>/dev/null";
    assert!(shell(dir.path(), label).contains("u:object_r:system_file:s0"));
    std::fs::write(at("contexts"), "/a(?=b) c\n").unwrap();
    let mut command = Command::new(LANEFS);
    command.args([
        "mkfs",
        &image,
        "-F",
        "auto",
        "-d",
        &at("t"),
        "--file-contexts",
        &at("contexts"),
    ]);
    let (status, said) = try_run(&mut command);
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("contexts: line 1: '/a(?=b)' is not a regular expression"), "{said}");
}

/// Runs a line of shell as the user and group 12345, who may write to `dir`.
pub fn as_user(dir: &Path, line: &str) -> (ExitStatus, String) {
    shell(dir, "chmod 777 .");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=12345", "--regid=12345", "--clear-groups"]).args(["sh", "-euc", line]);
    try_run(command.current_dir(dir))
}

#[test]
fn owners_and_devices_of_fakeroot_reach_the_image() {
    if !can_mount() || !needs("fakeroot") || !needs("setpriv") {
        return;
    }
    let dir = scratch();
    let script = "mkdir t; echo x >t/f; chown -R 0:0 t; chown 5:6 t/f; mknod t/null c 1 3
         $L mkfs -q a.img 16M --from t; $L mkfs -q b.img 16M; $L cp -a t/. b.img:/; $L diff a.img b.img
         $L stat -c '%n %F %u:%g' a.img:/f a.img:/null";
    std::fs::write(dir.path().join("script"), script).unwrap();
    let (status, said) = as_user(dir.path(), &format!("L={LANEFS} fakeroot sh -eu script"));
    assert!(status.success(), "{said}");
    assert_eq!(said, "a.img:/f regular file 5:6\na.img:/null character special file 0:0\n");
}

#[test]
fn all_files_that_cannot_be_read_are_named_and_lost_attributes_told() {
    if !can_mount() || !needs("setpriv") || !needs("setfattr") {
        return;
    }
    let dir = scratch();
    let made = "mkdir -p t/d t/e; echo x >t/d/f; echo x >t/g; echo x >t/h; chmod 0 t/e t/d/f t/g";
    let (status, said) = as_user(dir.path(), &format!("{made}; {LANEFS} mkfs a.img 16M --from t"));
    assert!(!status.success());
    assert!(said.contains("t/d/f, t/e, t/g: permission denied: the owner can read"), "{said}");
    let made = "rm -rf t; mkdir t; for n in $(seq 150); do echo x >t/$n; done; chmod 0 t/*";
    let (_, said) = as_user(dir.path(), &format!("{made}; {LANEFS} mkfs a.img 16M --from t"));
    assert!(said.contains(" and 50 more: permission denied"), "{said}");
    let made = "rm -rf t; mkdir t; touch t/f; setfattr -n user.a -v 1 t/f; chmod 200 t/f";
    let mkfs = format!("{LANEFS} mkfs -q a.img 16M --from t");
    let (status, said) = as_user(dir.path(), &format!("{made}; {mkfs}"));
    assert!(!status.success() && said.contains("t/f: permission denied"), "{said}");
    let (status, said) = as_user(dir.path(), &format!("{mkfs} --on-loss warn"));
    assert!(status.success(), "{said}");
    assert!(said.contains("t/f: the attribute user.a cannot be read: "), "{said}");
}

#[test]
fn a_part_of_a_tar_is_used_as_gnu_tar_uses_it() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir -p t/sys/usr/bin t/sys/usr/lib/x t/other; cd t/sys/usr; echo tool >bin/tool
        ln bin/tool lib/same; ln -s ../bin/tool lib/x/link; chmod 711 .; touch -d 2020-01-01 .
        echo out >../../other/f; cd ../../..
        tar -cf t.tar -C t sys other; tar -czf dot.tgz -C t ./other ./sys
        mkdir stripped; tar -xf t.tar -C stripped --strip-components=2
        mkdir usr; tar -xf t.tar -C usr --strip-components=2 sys/usr; touch -r t/sys/usr usr
        chmod 711 usr; ln t/other/f t/sys/linked; tar -cf linked.tar -C t other sys",
    );
    let same = |tree: &str, words: &str| {
        let mkfs = format!("{LANEFS} mkfs -q -F --size 16M");
        let line = format!("{mkfs} a.img -d {tree}; {mkfs} b.img {words}");
        shell(dir.path(), &line);
        shell(dir.path(), &format!("{LANEFS} diff --times a.img b.img"));
        assert_clean(&dir.path().join("b.img"));
    };
    same("usr", "--from t.tar --root sys/usr");
    same("usr", "--from dot.tgz --root /sys/usr/");
    shell(
        dir.path(),
        &format!(
            "L={LANEFS}; $L mkfs -q -F --size 16M a.img -d stripped
             for w in '--strip 2' '--root sys --strip 1'; do
                 $L mkfs -q -F --size 16M b.img --from t.tar $w; $L diff a.img b.img
             done"
        ),
    );
    let refused = [
        ("t.tar --root sys/none", "t.tar: an entry that --root and --strip leave is missing"),
        ("t.tar --root other/f", "'other/f' is not a directory"),
        ("t.tar --strip 9", "an entry that --root and --strip leave is missing"),
        (
            "linked.tar --root sys",
            "sys/linked: the link leads to 'other/f', which is not in the tree",
        ),
        ("t --root sys", "t: a part (--root, --strip) of a directory"),
    ];
    for (words, why) in refused {
        let mkfs = format!("{LANEFS} mkfs -q new.img --size 16M --from {words}");
        let (status, said) =
            try_run(Command::new("sh").args(["-c", &mkfs]).current_dir(dir.path()));
        assert!(!status.success() && said.contains(why), "{words}: {said}");
        assert!(!dir.path().join("new.img").exists());
    }
}

#[test]
fn unreadable_files_are_left_out_on_request() {
    if !can_mount() || !needs("setpriv") || !needs("setfattr") {
        return;
    }
    let dir = scratch();
    let made = "mkdir -p t/d t/e/f; echo x | tee t/d/f t/g t/h t/e/f/g; touch t/i; setfattr -n \
         user.a -v 1 t/i; chmod 0 t/e t/d/f t/g t/i";
    let mkfs = format!("{LANEFS} mkfs -q a.img 16M --from t --unreadable skip");
    let (status, said) = as_user(dir.path(), &format!("{made}; {mkfs}"));
    assert!(status.success(), "{said}");
    for (file, why) in [("d/f", ""), ("g", ""), ("e", ""), ("i", "the attribute user.a cannot be")]
    {
        let line = said.lines().find(|line| line.contains(&format!("t/{file}: {why}")));
        assert!(line.is_some_and(|line| line.ends_with("left out")), "{file}: {said}");
    }
    let image = dir.path().join("a.img");
    assert_clean(&image);
    let list = lanefs(&["find", &format!("{}:/", image.display()), "-type", "f"]);
    let mut names: Vec<&str> = list.lines().filter_map(|line| line.rsplit('/').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["h", "i"]);
}

#[test]
fn owners_that_fakeroot_has_saved_reach_the_image() {
    if !can_mount() || !needs("fakeroot") || !needs("setpriv") {
        return;
    }
    let dir = scratch();
    let script = "mkdir t t/d; echo x >t/f; chown -R 0:0 t; chown 5:70000 t/f; chmod 4711 t/f
         mknod t/null c 1 3; mknod t/disk b 8 300; ln t/f t/g; ln -s f t/l; chown -h 7:8 t/l t/d";
    std::fs::write(dir.path().join("script"), script).unwrap();
    let line = format!(
        "L={LANEFS}; fakeroot -s saved sh -eu script
         $L mkfs -q a.img 16M --from t --fakeroot-state saved
         fakeroot -i saved $L mkfs -q b.img 16M --from t; $L diff --times a.img b.img
         $L stat -c '%n %F %a %u:%g' a.img:/f a.img:/null a.img:/l; cp -a t copy"
    );
    let (status, said) = as_user(dir.path(), &line);
    assert!(status.success(), "{said}");
    let wanted = "a.img:/f regular file 4711 5:70000
a.img:/null character special file 644 0:0
a.img:/l symbolic link 777 7:8
";
    assert_eq!(said, wanted);
    assert_clean(&dir.path().join("a.img"));
    std::fs::write(dir.path().join("wrong"), "dev=1,ino=2,mode=9,uid=0,gid=0,nlink=1,rdev=0\n")
        .unwrap();
    let refused = [
        ("copy --fakeroot-state saved", "none of its files is in the sources"),
        ("t --fakeroot-state wrong", "wrong: line 1: not dev=,"),
        ("t --fakeroot-state none", "none: no such file"),
    ];
    for (words, why) in refused {
        let mkfs = format!("{LANEFS} mkfs c.img 16M --from {words}");
        let (status, said) = as_user(dir.path(), &mkfs);
        assert!(!status.success() && said.contains(why), "{words}: {said}");
        assert!(!dir.path().join("c.img").exists());
    }
}

#[test]
fn owners_in_attributes_of_rootless_containers_reach_the_image() {
    if !needs("setfattr") {
        return;
    }
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir -p t/d; echo x >t/f; touch t/null t/disk t/pipe t/sock t/r t/same; chmod 600 t/*
         set_to() { setfattr -n user.$1.override_stat -v $2 t/$3; }
         set_to containers 0:0:0755 d; set_to containers 5:70000:04711:file f
         set_to fuseoverlayfs 0:0:666:char-1-3 null; set_to containers 0:6:0660:block-8-300 disk
         set_to containers 1:2:0640:pipe pipe; set_to fuseoverlayfs 1:2:0640:socket sock
         setfattr -n user.rootlesscontainers -v 0x080510ac02 t/r; setfattr -n user.a -v 1 t/r
         setfattr -n user.rootlesscontainers -v 0x08ffffffff0f10ffffffff0f t/same",
    );
    let (image, tree) = (dir.path().join("a.img"), dir.path().join("t"));
    let path = image.to_str().unwrap();
    let from = ["mkfs", "-q", "--size", "16M", path, "-F", "-d", tree.to_str().unwrap()];
    lanefs(&[&from[..], &["--override-stat"]].concat());
    let names =
        ["d", "f", "null", "disk", "pipe", "sock", "r"].map(|name| format!("{path}:/{name}"));
    let mut line = vec!["stat", "-c", "%F %a %u:%g %t:%T"];
    line.extend(names.iter().map(String::as_str));
    let wanted = "directory 755 0:0 0:0
regular file 4711 5:70000 0:0
character special file 666 0:0 1:3
block special file 660 0:6 8:12c
fifo 640 1:2 0:0
socket 640 1:2 0:0
regular empty file 600 5:300 0:0
";
    assert_eq!(lanefs(&line), wanted);
    assert_clean(&image);
    let attributes = lanefs(&["getfattr", "-d", &names[1], &names[2], &names[6]]);
    assert!(attributes.contains("user.a") && !attributes.contains("override"), "{attributes}");
    assert!(!attributes.contains("rootless"), "{attributes}");
    // Without the option, they are attributes like others.
    lanefs(&from);
    let attributes = lanefs(&["getfattr", "-d", &names[1]]);
    assert!(attributes.contains("user.containers.override_stat"), "{attributes}");
    let wrong = ["0:0", "0:0:0999", "a:0:0644", "0:0:0644:door", "0:0:0644:char-1", "0:0:1:file:x"];
    for value in wrong.into_iter().chain(["0:0:0644:dir", "0:0:0644:symlink", "0:0:600:pipe"]) {
        shell(dir.path(), &format!("setfattr -n user.containers.override_stat -v {value} t/f"));
        let mut mkfs = Command::new(LANEFS);
        let (status, said) = try_run(mkfs.args(from).arg("--override-stat"));
        assert!(!status.success() && said.contains("t/f: "), "{value}: {said}");
    }
}

#[test]
fn labels_of_the_host_stay_behind_and_attributes_are_chosen() {
    let dir = scratch();
    let label = "mkdir -p t/d; echo x >t/f; setfattr -n security.ima -v 1 t/f; setfattr -n \
         security.selinux -v l t/d; setfattr -n user.a -v 1 t/f; setfattr -n user.ab -v 1 t/f";
    if !needs("setfattr") || !can_mount() {
        return;
    }
    let (status, said) = try_run(Command::new("sh").args(["-ec", label]).current_dir(&dir));
    if !status.success() {
        println!("skipped: {said}");
        return;
    }
    shell(dir.path(), "tar --xattrs --xattrs-include='*' -cf t.tar -C t .");
    let path = dir.path().join("a.img").to_str().unwrap().to_owned();
    let built = |source: &str, more: &[&str]| {
        let mut mkfs = Command::new(LANEFS);
        mkfs.args(["mkfs", "-q", "-F", "--size", "16M", &path, "--from", source]).args(more);
        let (status, said) = try_run(mkfs.current_dir(&dir));
        assert!(status.success(), "{said}");
        let list = lanefs(&["getfattr", "-d", "-m", "-", &format!("{path}:/f")]);
        let names = list.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name);
        (names.collect::<Vec<_>>().join(" "), said)
    };
    let (names, said) = built("t", &[]);
    assert_eq!(names, "user.a user.ab");
    assert!(said.contains("warning: 2 labels of the host ("), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(built("t.tar", &[]), ("security.ima user.a user.ab".into(), String::new()));
    let choices = [
        ("*", "security.ima user.a user.ab"),
        ("^user.*", "security.ima"),
        ("user.?", "user.a"),
        ("*,^security.*,^user.a", "user.ab"),
        ("^*,user.ab", "user.ab"),
        ("^*", ""),
    ];
    for (patterns, wanted) in choices {
        for source in ["t", "t.tar"] {
            let built = built(source, &["--xattrs", patterns]);
            assert_eq!(built, (wanted.to_owned(), String::new()), "{source} {patterns}");
        }
    }
}
