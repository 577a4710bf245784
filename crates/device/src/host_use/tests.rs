use super::*;
use std::fs;

struct Fake {
    dir: tempfile::TempDir,
    image: Metadata,
}

/// Creates a host whose loop1 uses the 4 KiB at offset 8192 of an image.
fn fake(read_only: &str) -> Fake {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    fs::write(&image, "x").unwrap();
    for (path, text) in [
        ("blocks/loop0/dev", "7:0\n".to_owned()),
        ("blocks/loop1/dev", "7:1\n".to_owned()),
        ("blocks/loop1/ro", read_only.to_owned()),
        ("blocks/loop1/loop/backing_file", format!("{}\n", image.display())),
        ("blocks/loop1/loop/offset", "8192\n".to_owned()),
        ("blocks/loop1/loop/sizelimit", "4096\n".to_owned()),
        ("mounts", "40 22 7:1 / /mnt rw,nosuid - ext4 /dev/loop1 rw,stripe=4\n".to_owned()),
    ] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let image = fs::metadata(image).unwrap();
    Fake { dir, image }
}

fn user(fake: &Fake, part: Range<u64>, access: Access) -> Option<User> {
    let (blocks, mounts) = (fake.dir.path().join("blocks"), fake.dir.path().join("mounts"));
    let host = Host { blocks: &blocks, mounts: &mounts, ..Host::this() };
    host.loop_user(&fake.image, part, access)
}

#[test]
fn a_loop_device_on_the_same_bytes_is_a_use() {
    let fake = fake("0\n");
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let user = user(&fake, 0..8193, access).unwrap();
        assert_eq!(user.to_string(), "by the kernel: /dev/loop1 is mounted on /mnt");
    }
    assert_eq!(user(&fake, 0..8192, Access::ReadWrite), None);
    assert_eq!(user(&fake, 12288..u64::MAX, Access::ReadWrite), None);
}

#[test]
fn a_read_only_loop_device_excludes_only_writers() {
    let fake = fake("1\n");
    assert_eq!(user(&fake, 0..u64::MAX, Access::ReadOnly), None);
    assert!(user(&fake, 0..u64::MAX, Access::ReadWrite).is_some());
}

#[test]
fn loop_devices_of_other_files_and_hosts_without_sysfs_are_ignored() {
    let mut fake = fake("0\n");
    fake.image = fs::metadata(fake.dir.path()).unwrap();
    assert_eq!(user(&fake, 0..u64::MAX, Access::ReadWrite), None);
    let nowhere = Path::new("/none");
    let nowhere = Host { blocks: nowhere, mounts: nowhere, numbers: nowhere, swaps: nowhere };
    assert_eq!(nowhere.loop_user(&fake.image, 0..1, Access::ReadWrite), None);
    assert!(!nowhere.writes(&fake.image));
    assert_eq!(nowhere.claimant(fake.dir.path()), User::Host, "nothing can be seen");
}

#[test]
fn a_busy_device_that_is_neither_mounted_nor_part_of_another_is_used_by_a_program() {
    let fake = fake("0\n");
    // A regular file has the device number 0:0.
    let at = |name: &str| fake.dir.path().join(name);
    let put = |name: &str, text: &str| {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), text).unwrap();
    };
    put("numbers/0:0/dev", "0:0\n");
    fs::create_dir(at("numbers/0:0/holders")).unwrap();
    let (numbers, mounts) = (at("numbers"), at("mounts"));
    let host = Host { numbers: &numbers, mounts: &mounts, ..Host::this() };
    assert_eq!(host.claimant(&at("image")), User::Lock);
    put("numbers/0:0/sda1/partition", "1\n");
    put("numbers/0:0/sda1/dev", "7:9\n");
    assert_eq!(host.claimant(&at("image")), User::Lock);
    put("numbers/0:0/sda1/dev", "7:1\n");
    assert_eq!(host.claimant(&at("image")), User::Host, "a partition is mounted");
    fs::remove_dir_all(at("numbers/0:0/sda1")).unwrap();
    put("numbers/0:0/holders/md0", "");
    assert_eq!(host.claimant(&at("image")), User::Host, "an array holds it");
}
