//! Partitions of a disk: `IMAGE@WHICH` in every command, `lanefs disk`, and growth of a partition.

use crate::mounting::{
    LANEFS, Mounted, assert_clean, can_mount, needs, run, scratch, shell, try_run,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn code(arguments: &[&str]) -> (Option<i32>, String) {
    let (status, said) = try_run(Command::new(LANEFS).args(arguments));
    (status.code(), said)
}

/// Where the second ext4 partition begins, in MiB.
const ROOT: u64 = 49;

/// Makes a disk of 96 MiB: swap, ext4 "boot" of 32 MiB, a LUKS header, and, as the last one, ext4
/// "root" of 32 MiB. Returns `None` if the host lacks a program.
fn disk(dir: &Path, label: &str) -> Option<PathBuf> {
    if !needs("sfdisk") || !needs("mke2fs") {
        return None;
    }
    shell(
        dir,
        &format!(
            "truncate -s 96M disk; printf 'label: {label}\nsize=8M, type=S\nsize=32M\nsize=8M\n\
             size=32M\n' | sfdisk -q disk; printf SWAPSPACE2 | dd of=disk bs=1 seek=1052662 \
             conv=notrunc status=none; printf 'LUKS\\272\\276' | dd of=disk bs=1M seek=41 \
             conv=notrunc status=none; mke2fs -q -F -t ext4 -L boot -E offset=9437184 disk 32M \
             2>&1"
        ),
    );
    let disk = dir.join("disk");
    // This file system fills its partition.
    lanefs(&["mkfs", "-q", "-L", "root", &format!("{}@4", disk.display())]);
    Some(disk)
}

/// Asserts that e2fsck finds nothing wrong in the file system at `mib`.
fn assert_clean_at(disk: &Path, mib: u64) {
    let line = format!("e2fsck -fn '{}?offset={}' 2>&1", disk.display(), mib << 20);
    shell(disk.parent().unwrap(), &line);
}

#[test]
fn every_command_works_on_a_partition_and_on_nothing_beside_it() {
    let dir = scratch();
    let Some(path) = disk(dir.path(), "gpt") else { return };
    let root = ROOT;
    let bytes = |range: std::ops::Range<u64>| {
        let all = std::fs::read(&path).unwrap();
        all[(range.start << 20) as usize..(range.end << 20) as usize].to_vec()
    };
    let beside = || (bytes(0..9), bytes(41..root), bytes(root + 32..96));
    let before = beside();
    let at = |which: &str, rest: &str| format!("{}@{which}{rest}", path.display());
    lanefs(&["cp", "-a", "/etc/passwd", &at("label=root", ":/p")]);
    lanefs(&["cp", &at("4", ":/p"), &at("label=boot", ":/q")]);
    lanefs(&["cp", &at("4", ":/p"), &at("2", ":/q"), &at("4", ":/lost+found")]);
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    assert_eq!(lanefs(&["cat", &at("2", ":/q")]), passwd);
    assert_eq!(lanefs(&["ls", &at("label=boot", ":/")]), "lost+found\nq\n");
    lanefs(&["edit", "-c", "rm /q", &at("2", "")]);
    lanefs(&["tune", "-m", "1", &at("2", "")]);
    lanefs(&["df", &at("2", ""), &at("4", "")]);
    lanefs(&["check", "-q", &at("4", "")]);
    lanefs(&["recover", &at("4", "")]);
    lanefs(&["trim", &at("4", "")]);
    lanefs(&["resize", &at("4", ""), "24M"]);
    lanefs(&["resize", &at("4", "")]);
    let (status, said) = code(&["resize", &at("4", ""), "33M"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("partition 4") && said.contains("--grow-partition"), "{said}");
    let copy = dir.path().join("copy");
    lanefs(&["clone", &at("4", ""), copy.to_str().unwrap()]);
    assert_clean(&copy);
    assert_eq!(copy.metadata().unwrap().len(), 32 << 20);
    // A repair and its undo file.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 4], (root << 20) + 1024 + 0x0c)
        .unwrap();
    let (damaged, undo) = (bytes(0..96), dir.path().join("undo"));
    let (status, said) = code(&["repair", "--undo", undo.to_str().unwrap(), &at("4", "")]);
    assert_eq!(status, Some(1), "{said}");
    assert_clean_at(&path, root);
    lanefs(&["repair", "--undo-apply", undo.to_str().unwrap(), &at("4", "")]);
    assert!(bytes(0..96) == damaged, "the undo file brings back the partition");
    lanefs(&["mkfs", "-q", "-F", "-L", "new", &at("4", "")]);
    let filled = ["mkfs", "-q", "-F", "-L", "new", &at("4", ""), "--from", "/etc/skel"];
    lanefs(&filled);
    assert!(beside() == before, "nothing beside the two is written");
    assert_clean_at(&path, 9);
    assert_clean_at(&path, root);
}

#[test]
fn a_partition_is_mounted_and_unmounted_by_any_of_its_names() {
    let dir = scratch();
    let Some(path) = disk(dir.path(), "gpt") else { return };
    if !can_mount() {
        return;
    }
    let mount_point = dir.path().join("mnt");
    std::fs::create_dir(&mount_point).unwrap();
    let named = |which: &str| PathBuf::from(format!("{}@{which}", path.display()));
    for (by, umount) in [("label=root", "4"), ("4", "label=root")] {
        let mounted = Mounted::at(&named(by), &mount_point, &[]);
        std::fs::write(mount_point.join("file"), by).unwrap();
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(table.contains(&format!("{} ", named("4").display())), "{table}");
        let (status, said) = code(&["ls", named("4").to_str().unwrap()]);
        assert_eq!(status, Some(1));
        assert!(said.contains("in use"), "{said}");
        lanefs(&["umount", named(umount).to_str().unwrap()]);
        drop(mounted);
        assert_eq!(lanefs(&["cat", &format!("{}:/file", named("4").display())]), by);
    }
    assert_clean_at(&path, ROOT);
}

#[test]
fn without_a_name_the_only_ext4_is_taken_and_several_are_listed() {
    let dir = scratch();
    let Some(path) = disk(dir.path(), "dos") else { return };
    let image = path.to_str().unwrap();
    let before = std::fs::read(&path).unwrap();
    for line in [&["ls", image][..], &["check", image], &["resize", image], &["info", image]] {
        let (status, said) = code(line);
        assert!(matches!(status, Some(1 | 8)), "{said}");
        assert!(said.contains("2 \"boot\" (32 MiB), 4 \"root\" (32 MiB)"), "{said}");
    }
    let (status, said) = code(&["mkfs", image, "32M"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("an MBR partition table: --force"), "{said}");
    assert!(std::fs::read(&path).unwrap() == before, "refused commands write nothing");
    shell(dir.path(), "dd if=/dev/zero of=disk bs=1M seek=9 count=1 conv=notrunc status=none");
    let (_, said) = code(&["ls", image]);
    assert!(said.contains("the only ext4 of its MBR partition table"), "{said}");
    assert!(said.contains("lost+found"), "{said}");
    // What overwrites does not pick.
    let (status, said) = code(&["repair", image]);
    assert_eq!(status, Some(8), "{said}");
    assert!(said.contains("@4 or --offset") && said.contains("for partition 4 (ext4)"), "{said}");
    let (status, said) = code(&["ls", &format!("{image}@3")]);
    assert_eq!(status, Some(1));
    assert!(said.contains("LUKS, which cryptsetup open opens"), "{said}");
    for line in [&["ls"][..], &["df"], &["mkfs", "--size", "1M"], &["check"], &["disk"]] {
        let mut line = line.to_vec();
        let name = format!("{image}@boot");
        line.push(&name);
        let (_, said) = code(&line);
        assert!(said.contains("after @ comes a number"), "{line:?}: {said}");
        assert!(!Path::new(&name).exists());
    }
    let (status, said) = code(&["ls", &format!("{image}@5")]);
    assert_eq!(status, Some(1));
    assert!(said.contains("no partition is 5"), "{said}");
}

#[test]
fn a_name_of_a_partition_is_never_taken_for_another_place() {
    let dir = scratch();
    let Some(path) = disk(dir.path(), "gpt") else { return };
    let part = |number| format!("{}@{number}", path.display());
    let (boot, root, before) = (part(2), part(4), std::fs::read(&path).unwrap());
    let file = format!("{root}:/p");
    for line in [
        &["mkfs", &boot, "--offset", "40M"][..],
        &["mkfs", "-E", "offset=50331648", &boot],
        &["resize", "--grow-partition", &root, "16M"],
        &["clone", &root, &boot],
        &["cp", &file, &boot],
    ] {
        let (status, said) = code(line);
        assert_eq!(status, Some(1), "{line:?}: {said}");
        assert!(std::fs::read(&path).unwrap() == before, "{line:?} has written");
        assert!(!Path::new(&boot).exists(), "{line:?}");
    }
}

#[test]
fn a_backup_gpt_behind_another_format_is_used_by_name_alone() {
    let dir = scratch();
    if !needs("sfdisk") || !needs("mke2fs") {
        return;
    }
    shell(
        dir.path(),
        "truncate -s 40M one; printf 'label: gpt\\nsize=32M\\n' | sfdisk -q one; \
         mke2fs -q -F -t ext4 -E offset=1048576 one 32M 2>&1",
    );
    let path = dir.path().join("one");
    let (whole, named) = (format!("{}:/", path.display()), format!("{}@1:/", path.display()));
    assert!(code(&["ls", &whole]).1.contains("lost+found"));
    shell(dir.path(), "dd if=/dev/zero of=one bs=512 count=34 conv=notrunc status=none");
    assert_eq!(code(&["ls", &whole]).0, Some(1));
    assert!(code(&["ls", &named]).1.contains("lost+found"));
}

#[test]
fn disk_shows_what_sfdisk_and_blkid_show() {
    let dir = scratch();
    for label in ["gpt", "dos"] {
        let Some(path) = disk(dir.path(), label) else { return };
        let image = path.to_str().unwrap();
        let ours: Value = serde_json::from_str(&lanefs(&["disk", "--json", image])).unwrap();
        let theirs: Value = serde_json::from_str(&shell(dir.path(), "sfdisk --json disk")).unwrap();
        let theirs = theirs["partitiontable"]["partitions"].as_array().unwrap();
        let found = ours["partitions"].as_array().unwrap();
        assert_eq!(found.len(), theirs.len());
        for (ours, theirs) in found.iter().zip(theirs) {
            assert_eq!(ours["start"].as_u64().unwrap(), theirs["start"].as_u64().unwrap() * 512);
            assert_eq!(ours["bytes"].as_u64().unwrap(), theirs["size"].as_u64().unwrap() * 512);
            let same = |name: &str, other: &str| {
                let (ours, theirs) = (ours[name].as_str().unwrap(), theirs[other].as_str());
                let theirs = theirs.unwrap_or(ours);
                assert!(ours.trim_start_matches("0x").eq_ignore_ascii_case(theirs), "{ours}");
            };
            same("type", "type");
            same("partuuid", "uuid");
        }
        let holds: Vec<_> = found.iter().map(|found| found["holds"].as_str().unwrap()).collect();
        assert_eq!(holds, ["swap", "ext4", "LUKS", "ext4"]);
        let uuid = shell(dir.path(), "blkid -p -O 9437184 -s UUID -o value disk");
        assert_eq!(found[1]["uuid"], uuid.trim());
        assert_eq!(found[3]["label"], "root");
        let said = lanefs(&["disk", image]);
        for words in ["swapon", "cryptsetup open", "ext4 \"root\"", "disk@4:/"] {
            assert!(said.contains(words), "{said}");
        }
        if label == "gpt" {
            // A damaged primary table.
            shell(dir.path(), "dd if=/dev/zero of=disk bs=512 seek=1 count=1 conv=notrunc 2>&1");
            assert!(lanefs(&["disk", image]).contains("this is the backup"));
            let (status, said) = code(&["ls", &format!("{image}@4")]);
            assert_eq!(status, Some(0));
            assert!(said.contains("its primary GPT is damaged"), "{said}");
        }
        std::fs::remove_file(path).unwrap();
    }
    let plain = dir.path().join("plain");
    lanefs(&["mkfs", "-q", plain.to_str().unwrap(), "8M"]);
    let (status, said) = code(&["disk", plain.to_str().unwrap()]);
    assert_eq!(status, Some(1));
    assert!(said.contains("no partition table: it holds ext4"), "{said}");
}

#[test]
fn a_partition_grows_with_its_file_system_and_the_disk() {
    let dir = scratch();
    for label in ["gpt", "dos"] {
        let Some(path) = disk(dir.path(), label) else { return };
        let root = format!("{}@4", path.display());
        lanefs(&["cp", "-a", "/etc/passwd", &format!("{root}:/p")]);
        let (before, refused) = (std::fs::read(&path).unwrap(), "--grow-partition");
        for (line, words) in [
            (
                &["resize", refused, &format!("{}@2", path.display()), "+1M"][..],
                "partition 3 begins",
            ),
            (&["resize", refused, &root, "auto"], "not smaller"),
            (&["resize", refused, &root, "1T"], "resize inode"),
        ] {
            let (status, said) = code(line);
            assert_eq!(status, Some(1), "{said}");
            assert!(said.contains(words), "{line:?}: {said}");
            assert!(std::fs::read(&path).unwrap() == before, "{line:?} has written");
        }
        // As far as the disk has room, then with a longer disk.
        lanefs(&["resize", "--grow-partition", &root]);
        let size = |at: &str| {
            let facts: Value = serde_json::from_str(&lanefs(&["info", "--json", at])).unwrap();
            facts["blocks"].as_u64().unwrap() * facts["block_size"].as_u64().unwrap()
        };
        assert!(size(&root) > 46 << 20 && path.metadata().unwrap().len() == 96 << 20);
        for _ in 0..2 {
            lanefs(&["resize", "--grow-partition", &root, "200M"]);
            assert_eq!(size(&root), 200 << 20);
            let end = if label == "gpt" { 250 } else { 249 };
            assert_eq!(path.metadata().unwrap().len(), end << 20, "{label}");
        }
        assert_clean_at(&path, ROOT);
        assert_clean_at(&path, 9);
        assert_eq!(
            lanefs(&["cat", &format!("{root}:/p")]),
            std::fs::read_to_string("/etc/passwd").unwrap()
        );
        if label == "gpt" && needs("sgdisk") {
            let said = shell(dir.path(), "sgdisk -v disk");
            assert!(said.contains("No problems found"), "{said}");
        }
        shell(dir.path(), "sfdisk -V disk 2>&1");
        std::fs::remove_file(path).unwrap();
    }
}

/// A server that ends with the test.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An export has no lock, so one command must not open it twice, and `fsck -M` looks for its mount.
#[test]
fn an_export_of_a_server_is_opened_once_by_a_command() {
    let dir = scratch();
    let Some(path) = disk(dir.path(), "gpt") else { return };
    if !needs("nbdkit") {
        return;
    }
    let socket = dir.path().join("s");
    let mut server = Command::new("nbdkit");
    server.args(["-f", "--exit-with-parent", "-U"]).arg(&socket).arg("file").arg(&path);
    let _server = Server(server.spawn().unwrap());
    while !socket.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let at = |rest: &str| format!("nbd+unix:///?socket={}{rest}", socket.display());
    lanefs(&["cp", "/etc/passwd", &at("@4:/p")]);
    lanefs(&["cp", &at("@label=root:/p"), &at("@2:/q")]);
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    assert_eq!(lanefs(&["cat", &at("@2:/q")]), passwd);
    let (status, said) = code(&["rm", &at("@4:/p"), &at("@label=root:/lost+found")]);
    assert!(status == Some(1) && !said.contains("panicked"), "{said}");
    lanefs(&["check", "-q", &at("@4")]);
    for (arguments, why) in [
        (&["ls", &format!("nbd+unix:///d@rot?socket={}:/", socket.display())][..], "%40"),
        (&["mkfs", "--force", &format!("nbd+unix:///d@4?socket={}", socket.display())], "%40"),
        (&["clone", &at("@4"), &at("")], "new image file"),
        (&["raid", "create", &at(""), "missing", "missing"], "member"),
    ] {
        let (status, said) = code(arguments);
        assert!(status == Some(1) && said.contains(why), "{arguments:?}: {status:?} {said}");
    }
    assert_clean_at(&path, ROOT);
    if can_mount() {
        let mnt = dir.path().join("mnt");
        std::fs::create_dir(&mnt).unwrap();
        lanefs(&["mount", &at("@4"), mnt.to_str().unwrap()]);
        let (status, said) = code(&["fsck", "-M", "-y", "-f", &at("@4")]);
        lanefs(&["umount", mnt.to_str().unwrap()]);
        assert_eq!((status, said.as_str()), (Some(0), ""));
    }
}
