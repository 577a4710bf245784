//! Compares the read-only commands with dumpe2fs, the kernel and coreutils.

use crate::trees;

use crate::mounting::{
    Image, KernelMounted, LANEFS, can_mount, needs, run, scratch, shell, try_run,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn at(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

/// Parses lines of the form `Name: value`.
fn fields(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

#[test]
fn info_says_what_dumpe2fs_says() {
    if !needs("dumpe2fs") {
        return;
    }
    for (size, options) in [
        ("16M", &["-L", "a label"][..]),
        ("700M", &["-E", "stride=4,stripe_width=12"]),
        ("64M", &["-O", "^has_journal,^64bit", "-m", "0"]),
        ("64M", &["-I", "128", "-O", "^metadata_csum"]),
    ] {
        let image = Image::with(size, options);
        let path = image.path.to_str().unwrap();
        let theirs = fields(&run(Command::new("dumpe2fs").args(["-h", path])));
        let ours: serde_json::Value =
            serde_json::from_str(&lanefs(&["info", "--json", path])).unwrap();
        let said = |name: &str| ours[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| ours[name].as_u64().unwrap().to_string();
        let features: Vec<&str> =
            ours["features"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
        assert_eq!(features.join(" "), theirs["Filesystem features"]);
        assert_eq!(said("uuid"), theirs["Filesystem UUID"]);
        assert_eq!(said("directory_hash"), theirs["Default directory hash"]);
        assert_eq!(said("directory_hash_seed"), theirs["Directory Hash Seed"]);
        assert_eq!(said("state"), theirs["Filesystem state"]);
        for (ours, name) in [
            ("blocks", "Block count"),
            ("free_blocks", "Free blocks"),
            ("reserved_blocks", "Reserved block count"),
            ("inodes", "Inode count"),
            ("free_inodes", "Free inodes"),
            ("block_size", "Block size"),
            ("first_block", "First block"),
            ("blocks_per_group", "Blocks per group"),
            ("inodes_per_group", "Inodes per group"),
            ("inode_size", "Inode size"),
        ] {
            assert_eq!(number(ours), theirs[name], "{name} of {options:?}");
        }
        if options.contains(&"-L") {
            assert_eq!(said("label"), "a label");
        }
        let groups = lanefs(&["info", "--json", "--groups", path]);
        let groups: serde_json::Value = serde_json::from_str(&groups).unwrap();
        let list = groups["groups"].as_array().unwrap();
        let free: u64 = list.iter().map(|group| group["free_blocks"].as_u64().unwrap()).sum();
        assert_eq!(free, ours["free_blocks"].as_u64().unwrap());
        assert!(lanefs(&["info", path]).contains(&said("uuid")));
    }
}

#[test]
fn info_and_ls_name_files_without_a_file_system() {
    let dir = scratch();
    let path = dir.path().join("zeros");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    for command in ["info", "ls", "df"] {
        let (status, said) = try_run(Command::new(LANEFS).arg(command).arg(&path));
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("lanefs {command}: ")), "{said}");
    }
    let (status, said) = try_run(Command::new(LANEFS).args(["ls", "/nonexistent.img:/"]));
    assert_eq!(status.code(), Some(1));
    assert_eq!(said, "lanefs ls: /nonexistent.img: no such file or directory\n");
}

/// Creates a disk of 8 MiB whose first partition, from 1 MiB on, has a file system.
fn partitioned(dir: &Path, table: &[u8]) -> String {
    use std::os::unix::fs::FileExt;
    let path = dir.join("mbr");
    run(Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-E", "offset=1048576"])
        .arg(&path)
        .arg("6M"));
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    file.write_all_at(table, 446).unwrap();
    file.write_all_at(b"\x55\xaa", 510).unwrap();
    path.display().to_string()
}

#[test]
fn a_file_without_a_file_system_is_not_called_damaged() {
    if !needs("mke2fs") {
        return;
    }
    let dir = scratch();
    let make = |name: &str, content: &[u8], len: u64| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
        path.display().to_string()
    };
    let mut mbr = [0; 64];
    mbr[4] = 0x83;
    mbr[8..16].copy_from_slice(&[0, 8, 0, 0, 0, 48, 0, 0]);
    let wiped_large = Image::with("5G", &["-b", "65536"]);
    shell(
        wiped_large.dir.path(),
        "dd if=/dev/zero of=disk.img bs=64k count=1 conv=notrunc status=none",
    );
    let wiped = Image::with("64M", &["-b", "4096", "-g", "32768"]);
    shell(
        wiped.dir.path(),
        "truncate -s 300M disk.img; mke2fs -q -F -t ext4 -b 4096 disk.img; \
           dd if=/dev/zero of=disk.img bs=4096 count=1 conv=notrunc status=none",
    );
    let member =
        make("member", &[&[0; 4096][..], &0xa92b_4efc_u32.to_le_bytes()].concat(), 1 << 20);
    for (image, words) in [
        (make("nothing", b"", 0), "the image is empty"),
        (make("tiny", b"abc", 3), "3 bytes are too few"),
        (make("zeros", b"", 1 << 20), "it begins with zeros"),
        (make("packed", b"\x1f\x8b\x08", 1 << 20), "gzip"),
        (make("xfs", b"XFSB", 1 << 20), "xfs"),
        (make("qcow2", b"QFI\xfb\0\0\0\x03", 1 << 20), "qemu-img convert"),
        (make("notes", "Grüße\n".repeat(1000).as_bytes(), 8000), "text"),
        (make("noise", &[0x81; 4096], 1 << 20), "not recognised"),
        (member, "member of an md array"),
        (wiped.path.display().to_string(), "e2fsck -b 32768"),
        (wiped_large.path.display().to_string(), "e2fsck -b 65528 -B 65536"),
    ] {
        for command in [&["info"][..], &["ls"], &["df"], &["mount", "-f"]] {
            let mut line = Command::new(LANEFS);
            line.args(command).arg(&image);
            if command[0] == "mount" {
                line.arg(dir.path());
            }
            let (status, said) = try_run(&mut line);
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains(words), "{command:?} {words}: {said}");
            assert!(said.contains(&image) && !said.contains("damaged"), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
    let mbr = partitioned(dir.path(), &mbr);
    assert_eq!(lanefs(&["ls", "--offset", "1048576", &mbr]), "lost+found\n");
    assert!(lanefs(&["ls", &mbr]).contains("partition 1 (byte 1048576), the only ext4"));
}

#[test]
fn listings_equal_those_of_coreutils_on_the_kernels_mount() {
    if !can_mount() {
        return;
    }
    let image = Image::new("300M");
    let (stats, names, sums) = {
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
        trees::fill(&kernel.path);
        let names = shell(&kernel.path, "LC_ALL=C ls -A many");
        let sums = shell(&kernel.path, "sha256sum < d/e/f/noise; sha256sum < d/spots");
        // The output of stat is taken last, since it shows access times, which the other commands
        // change.
        let format = "%a %A %u %g %h %s %F %t %T %X %Y %i %n";
        let stats = shell(
            &kernel.path,
            &format!("LC_ALL=C stat -c '{format}' d d/* empty many deep sticky sgid"),
        );
        (stats, names, sums)
    };
    let place = |path: &str| at(&image.path, path);
    let format = "%a %A %u %g %h %s %F %t %T %X %Y %i ";
    for line in stats.lines() {
        let mut words = line.rsplitn(2, ' ');
        let (name, expected) = (words.next().unwrap(), words.next().unwrap());
        let ours = lanefs(&["stat", "-c", format, &place(&format!("/{name}"))]);
        assert_eq!(ours.trim_end(), expected.trim_end(), "{name}");
    }
    assert_eq!(lanefs(&["ls", &place("/many")]), names);
    for (path, sum) in ["/d/e/f/noise", "/d/spots"].iter().zip(sums.lines()) {
        let line = format!("{LANEFS} cat {} | sha256sum", place(path));
        assert_eq!(shell(image.dir.path(), &line).trim(), sum.trim());
    }
    let tree = lanefs(&["tree", "-L", "1", &place("/d")]);
    assert!(tree.contains("├── short -> hello"), "{tree}");
    assert!(lanefs(&["ls", "-lR", &place("/")]).contains("numbers"));
}

#[test]
fn stat_ls_and_df_print_json_lines() {
    let image = Image::with("16M", &["-O", "encrypt,verity"]);
    let path = image.path.to_str().unwrap();
    let key = image.dir.path().join("key");
    std::fs::write(&key, [7; 64]).unwrap();
    lanefs(&[
        "edit",
        "--key",
        key.to_str().unwrap(),
        path,
        "-c",
        "mkdir -p /d/hidden",
        "-c",
        "encrypt /d/hidden",
        "-c",
        "write /d/f text",
        "-c",
        "verity /d/f",
        "-c",
        "ln -s f /d/l",
    ]);
    let json = |arguments: &[&str]| -> Vec<serde_json::Value> {
        lanefs(arguments).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let place = |name: &str| at(&image.path, name);
    let (hidden, file, link) = (place("/d/hidden"), place("/d/f"), place("/d/l"));
    let facts = json(&["stat", "--json", &hidden, &file, &link]);
    assert_eq!(facts.len(), 3);
    assert!(facts[0]["policy"].as_str().unwrap().contains("AES-256-XTS"), "{}", facts[0]);
    let said = lanefs(&["stat", &file]);
    assert!(said.contains(&format!("Verity: {}", facts[1]["verity"].as_str().unwrap())), "{said}");
    assert_eq!((&facts[1]["size"], &facts[1]["policy"]), (&4.into(), &serde_json::Value::Null));
    assert_eq!((&facts[2]["target"], &facts[2]["type"]), (&"f".into(), &"l".into()));
    let listed = json(&["ls", "--json", "-R", &place("/d")]);
    let paths: Vec<_> = listed.iter().map(|facts| facts["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/d/f", "/d/hidden", "/d/l"]);
    let same = |name: &str| listed[0][name] == facts[1][name];
    assert!(["inode", "mtime", "flags", "crtime", "image"].into_iter().all(same), "{}", listed[0]);
    let found = json(&["find", "--json", &file]);
    assert!(found[0].as_object().unwrap().iter().all(|(name, fact)| facts[1][name] == *fact));
    let spaces = json(&["df", "--json", path, path]);
    let said = lanefs(&["df", path]);
    let blocks = said.lines().last().and_then(|line| line.split_whitespace().nth(1)).unwrap();
    let bytes = blocks.parse::<u64>().unwrap() * 1024;
    assert_eq!((spaces.len(), &spaces[0]["bytes"]), (2, &bytes.into()));
}

#[test]
fn json_has_the_bytes_of_names_that_are_not_utf8() {
    let image = Image::new("16M");
    let dir = image.dir.path();
    shell(
        dir,
        r#"d=t/$(printf 'd\377'); mkdir -p "$d"; echo a >"$d/$(printf 'n\376')"
        ln -s "$(printf '\375')" t/l; ln -s "$(printf '\374')" t/k"#,
    );
    let tree = dir.join("t").display().to_string();
    lanefs(&["cp", "-r", &tree, &at(&image.path, "/")]);
    let json = |arguments: &[&str]| -> Vec<serde_json::Value> {
        lanefs(arguments).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let root = at(&image.path, "/t");
    // The bytes of "/t/d\xff" and "/t/d\xff/n\xfe".
    let (folder, file) = ("L3QvZP8=", "L3QvZP8vbv4=");
    for command in [&["find", &root, "--json"][..], &["du", "-a", "--json", &root]] {
        let found = json(command);
        let with = |bytes: &str| found.iter().filter(|line| line["path_bytes"] == bytes).count();
        assert_eq!((with(folder), with(file)), (1, 1), "{found:?}");
        let plain = found.iter().filter(|line| line.get("path_bytes").is_none()).count();
        assert_eq!(plain, found.len() - 2, "{found:?}");
    }
    assert_eq!(json(&["ls", "--json", &root])[0]["path_bytes"], folder);
    let path = image.path.to_str().unwrap();
    let moved = json(&["defrag", "--json", &root]);
    assert_eq!((&moved[0]["image"], &moved[0]["path_bytes"]), (&path.into(), &file.into()));
    let listed = &json(&["filefrag", "--json", &root])[0];
    assert_eq!((&listed["image"], &listed["path"]), (&path.into(), &"/t".into()));
    let links = json(&["stat", "--json", &at(&image.path, "/t/l"), &at(&image.path, "/t/k")]);
    assert_eq!(
        (&links[0]["target_bytes"], &links[1]["target_bytes"]),
        (&"/Q==".into(), &"/A==".into())
    );
    let (_, changes) = try_run(Command::new(LANEFS).args([
        "diff",
        "--json",
        &root,
        &at(&image.path, "/lost+found"),
    ]));
    // The path in the compared directories: "/d\xff".
    assert!(changes.contains(r#""path_bytes":"L2T/""#), "{changes}");
}

#[test]
fn df_counts_as_the_kernel_does() {
    if !can_mount() {
        return;
    }
    for size in ["16M", "64M", "700M"] {
        let image = Image::new(size);
        let kernel = {
            let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
            shell(&kernel.path, "echo x > x; sync -f x");
            drop(kernel);
            let kernel = KernelMounted::new(&image.path, "kernel", "ro").unwrap();
            shell(&kernel.path, "df -k . | tail -1; df -i . | tail -1")
        };
        let path = image.path.to_str().unwrap();
        let last = |text: String| text.lines().last().unwrap().to_owned();
        let ours = [last(lanefs(&["df", path])), last(lanefs(&["df", "-i", path]))];
        let numbers = |line: &str| {
            let words = line.split_whitespace().skip(1).take(3);
            words.map(|word| word.parse().unwrap()).collect::<Vec<u64>>()
        };
        let mut theirs = kernel.lines().map(numbers);
        let (space, inodes) = (theirs.next().unwrap(), theirs.next().unwrap());
        assert_eq!(numbers(&ours[0]), space, "{size}");
        assert_eq!(numbers(&ours[1]), inodes, "{size}");
    }
}

#[test]
fn reading_commands_write_nothing_and_obey_an_offset() {
    let image = Image::new("16M");
    let before = std::fs::read(&image.path).unwrap();
    lanefs(&["ls", "-laR", image.path.to_str().unwrap()]);
    lanefs(&["df", image.path.to_str().unwrap()]);
    assert!(before == std::fs::read(&image.path).unwrap());

    let shifted = image.dir.path().join("shifted.img");
    let mut bytes = vec![0; 1 << 20];
    bytes.extend(before);
    std::fs::write(&shifted, bytes).unwrap();
    let shifted = shifted.to_str().unwrap();
    assert_eq!(lanefs(&["ls", "--offset", "1M", shifted]), "lost+found\n");
    lanefs(&["mkdir", "--offset", "1M", &format!("{shifted}:/d")]);
    assert_eq!(lanefs(&["ls", "--offset", "1048576", shifted]), "d\nlost+found\n");
}

#[test]
fn info_says_what_a_mount_would() {
    let dir = scratch();
    let disk = dir.path().join("disk.img");
    for (options, mounts, why) in [
        ("-t ext4", "read-write", ""),
        ("-t ext4 -O quota,project", "read-write", ""),
        ("-t ext4 -O verity", "read-write", ""),
        ("-t ext4 -O quota,ea_inode", "read-only", "quota with ea_inode"),
        ("-t ext4 -b 8192", "read-write", ""),
        ("-t ext4 -b 65536", "read-write", ""),
        ("-t ext4 -O casefold", "read-write", ""),
        ("-t ext4 -O encrypt", "read-write", ""),
        ("-t ext3", "read-write", ""),
        ("-t ext2", "read-write", ""),
        ("-t ext4 -O ^extent,^64bit", "read-write", ""),
    ] {
        let _ = std::fs::remove_file(&disk);
        let words: Vec<&str> = options.split(' ').collect();
        let (status, said) =
            try_run(Command::new("mke2fs").arg("-qF").args(words).arg(&disk).arg("32M"));
        assert!(status.success(), "{said}");
        let info = run(Command::new(LANEFS).arg("info").arg(&disk));
        let line = |title: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(title));
            line.unwrap_or_default().trim().to_owned()
        };
        assert_eq!((line("Lanefs mounts it:"), line("Because of:")), (mounts.into(), why.into()));
        let place = format!("{}:/f", disk.display());
        let (status, said) = try_run(Command::new(LANEFS).args(["touch", &place]));
        match mounts {
            "read-write" => assert!(status.success(), "{options}: {said}"),
            "read-only" => assert!(said.contains("read-only"), "{options}: {said}"),
            _ => assert!(said.contains(why), "{options}: {said}"),
        }
    }
}

#[test]
fn an_ext3_that_became_an_ext4_keeps_its_block_maps_and_gets_extents() {
    let dir = scratch();
    let disk = dir.path().join("disk.img");
    let lines = format!("mke2fs -qF -t ext3 {0} 32M; tune2fs -O extent {0} >/dev/null", "disk.img");
    shell(dir.path(), &lines);
    std::fs::write(dir.path().join("file"), vec![7; 3 << 20]).unwrap();
    let new = format!("{}:/new", disk.display());
    run(Command::new(LANEFS).arg("cp").arg(dir.path().join("file")).arg(new));
    let flags = |path: &str| {
        let said = run(Command::new("debugfs").args(["-R", &format!("stat {path}")]).arg(&disk));
        said.contains("Flags: 0x80000")
    };
    assert_eq!(["/", "/lost+found", "<8>", "/new"].map(flags), [false, false, false, true]);
    run(Command::new("e2fsck").arg("-fn").arg(&disk));
}

#[test]
fn each_message_names_its_cause_once() {
    let dir = scratch();
    let said = |arguments: &[&str]| {
        let mut command = Command::new(LANEFS);
        let (status, said) = try_run(command.args(arguments).current_dir(dir.path()));
        assert_eq!(status.code(), Some(1), "{arguments:?}: {said}");
        said
    };
    shell(dir.path(), "printf abc >small; mkdir d");
    let missing = "no such file or directory\n";
    for (arguments, expected) in [
        (
            &["info", "small"][..],
            "lanefs info: small: no ext4 file system: 3 bytes are too few for one\n",
        ),
        (&["info", "none"], &format!("lanefs info: none: {missing}")),
        (&["ls", "none"], &format!("lanefs ls: none: {missing}")),
        (&["mount", "none", "d"], &format!("lanefs mount: none: {missing}")),
        (
            &["ls", "small/etc/fstab"],
            "lanefs ls: small/etc/fstab: not a directory: a file in an image is named \
             small:/etc/fstab\n",
        ),
        (&["umount", "d"], "lanefs umount: d: no Lanefs file system is mounted there\n"),
        (
            &["mkfs", "new", "-s", "10"],
            "lanefs mkfs: new: 10 bytes are too few for a file system of this kind\n",
        ),
        (
            &["mkfs", "new", "-s", "8M", "-d", "nothing"],
            &format!("lanefs mkfs: nothing: {missing}"),
        ),
        (&["mkfs", "new", "-s", "8M", "-d", "small"], "lanefs mkfs: small: not a directory\n"),
        (&["mkfs", "d", "-s", "8M"], "lanefs mkfs: d: neither a file nor a block device\n"),
    ] {
        assert_eq!(said(arguments), expected);
    }
    assert!(!dir.path().join("new").exists());
    shell(dir.path(), "mke2fs -qF -t ext4 a.img 8M");
    assert_eq!(
        run(Command::new(LANEFS).args(["ls", "-d", "a.img:/lost+found"]).current_dir(dir.path())),
        "a.img:/lost+found\n"
    );
}

#[test]
fn stat_shows_the_policy_of_an_encrypted_directory() {
    let dir = scratch();
    let (image, key) = (dir.path().join("disk.img"), dir.path().join("key"));
    std::fs::write(&key, [b'k'; 64]).unwrap();
    run(Command::new(LANEFS).args(["mkfs", "-q", "-O", "encrypt"]).arg(&image).arg("16M"));
    let commands = ["-c", "mkdir /d", "-c", "encrypt /d"];
    run(Command::new(LANEFS).args(["edit", "--key"]).arg(&key).arg(&image).args(commands));
    let stat = |path: &str| {
        run(Command::new(LANEFS).arg("stat").arg(format!("{}:{path}", image.display())))
    };
    let shown = stat("/d");
    let policy =
        "Policy: version 2, contents AES-256-XTS, names AES-256-CTS, padding 32, flags 0x3";
    assert!(shown.contains(policy) && shown.contains(" E"), "{shown}");
    assert!(!stat("/lost+found").contains("Policy"));
}

/// Returns the candidates for the last of the `words`.
fn completed(words: &[&str]) -> Vec<String> {
    let index = (words.len() - 1).to_string();
    let mut command = Command::new(LANEFS);
    command.env("LANEFS_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index);
    command.env("_CLAP_IFS", "\n").arg("--").args(words);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn paths_inside_images_are_completed() {
    let image = Image::new("32M");
    let path = image.path.to_str().unwrap();
    for dir in ["etc", "ets", "usr"] {
        run(Command::new(LANEFS).arg("mkdir").arg(format!("{path}:/{dir}")));
    }
    run(Command::new(LANEFS).arg("touch").arg(format!("{path}:/etc/motd")));
    let found = completed(&["lanefs", "cp", &format!("{path}:/et")]);
    assert_eq!(found, [format!("{path}:/etc/"), format!("{path}:/ets/")]);
    let found = completed(&["lanefs", "ls", &format!("{path}:/etc/")]);
    assert_eq!(found, [format!("{path}:/etc/motd")]);
    assert!(completed(&["lanefs", "resi"]).contains(&"resize".to_owned()));
    // An image that is none, and a directory that is not there, have no candidates.
    let not_there = format!("{path}:/none/x");
    assert!(completed(&["lanefs", "ls", &not_there]).is_empty());
}

#[test]
fn every_command_has_a_man_page_with_examples_and_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(LANEFS).arg("manual").arg(dir.path()));
    let pages: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|page| page.unwrap()).collect();
    assert!(pages.len() > 45, "{} pages", pages.len());
    for page in pages {
        let text = std::fs::read_to_string(page.path()).unwrap();
        let parts = [".SH NAME", ".SH SYNOPSIS", ".SH \"SEE ALSO\""];
        assert!(parts.iter().all(|part| text.contains(part)), "{page:?}: {text}");
        if !text.contains(".SH COMMANDS") {
            assert!(
                text.contains(".SH EXAMPLES") && text.contains(".SH \"EXIT STATUS\""),
                "{page:?}"
            );
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = run(Command::new(LANEFS).args(["completions", shell]));
        assert!(script.contains("LANEFS_COMPLETE"), "{shell}: {script}");
    }
}
