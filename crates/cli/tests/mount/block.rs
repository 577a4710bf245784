//! Tests of mounts of type `fuseblk`, the type with which root mounts a block device. The kernel
//! claims the device, umount(2) waits for the server, and syncfs(2) reaches the server.

use crate::mounting::*;
use lanefs_device::{Access, FileDevice, OpenError, OpenOptions};
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

/// A file system on a loop device.
struct Disk {
    device: LoopDevice,
    image: Image,
}

impl Disk {
    fn new(mke2fs: &[&str]) -> Option<Disk> {
        if !can_mount() {
            return None;
        }
        let image = Image::with("64M", mke2fs);
        Some(Disk { device: LoopDevice::new(&image.path)?, image })
    }

    fn mount(&self, options: &[&str]) -> Mounted {
        Mounted::at(&self.device.path, &self.image.mount_point(), options)
    }

    /// Returns the type of the mount, and whether it is read-only, as in `fuseblk.lanefs rw`.
    fn mounted_as(&self) -> String {
        let table = fs::read_to_string("/proc/mounts").unwrap();
        let start =
            format!("{} {} ", self.device.path.display(), self.image.mount_point().display());
        let line = table.lines().find_map(|line| line.strip_prefix(&start)).expect("mounted");
        line.split(',').next().unwrap().to_owned()
    }
}

fn umount_8(mounted: &Mounted) {
    run(Command::new("umount").arg(&mounted.path));
}

#[test]
#[ignore = "long: real mounts"]
fn a_device_can_be_used_as_soon_as_umount_8_returns() {
    let Some(disk) = Disk::new(&[]) else { return };
    let lock = fs::File::open(&disk.device.path).unwrap();
    for round in 0..20 {
        let mounted = disk.mount(&[]);
        assert_eq!(disk.mounted_as(), "fuseblk.lanefs rw");
        shell(
            &mounted.path,
            "dd if=/dev/zero of=big bs=1M count=8 status=none; rm -f gone; :>gone",
        );
        fs::create_dir(mounted.path.join(format!("round {round}"))).unwrap();
        umount_8(&mounted);
        // As soon as the unmount returns, the image is closed and clean, and neither locked nor
        // claimed.
        let shared = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&lock, shared).unwrap_or_else(|e| panic!("round {round}: locked: {e}"));
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
        assert_clean(&disk.device.path);
        match round % 3 {
            0 => drop(disk.mount(&[])),
            1 => drop(run(Command::new("mount")
                .args(["-t", "ext4"])
                .arg(&disk.device.path)
                .arg(&mounted.path))),
            _ => drop(run(Command::new(LANEFS)
                .arg("touch")
                .arg(format!("{}:/f", disk.device.path.display())))),
        }
        if is_mounted(&mounted.path) {
            umount_8(&mounted);
        }
    }
}

#[test]
#[ignore = "long: real mounts"]
fn changes_before_a_sync_survive_a_kill_of_the_server() {
    let Some(disk) = Disk::new(&[]) else { return };
    for round in 0..5 {
        let point = disk.image.mount_point();
        let mut mounted = Mounted::in_foreground_at(&disk.device.path, &point, &["commit=600"]);
        assert_eq!(disk.mounted_as(), "fuseblk.lanefs rw");
        // The script kills the server without a pause, since the server commits by itself if no
        // requests come for a while.
        let script = format!(
            "mkdir d{round}; touch d{round}/a; sync -f d{round}; kill -9 {}",
            mounted.server().id()
        );
        shell(&mounted.path, &script);
        mounted.kill();
        let again = disk.mount(&[]);
        assert!(again.path.join(format!("d{round}/a")).exists(), "round {round}");
        umount_8(&again);
        assert_clean(&disk.device.path);
    }
}

#[test]
#[ignore = "long: real mounts"]
fn a_device_in_use_is_refused_and_left_alone() {
    let Some(disk) = Disk::new(&[]) else { return };
    let other = disk.image.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let refused = || {
        let (status, said) = try_run(&mut lanefs_mount(&disk.device.path, &other, &[]));
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("in use"), "{said}");
        assert!(!is_mounted(&other));
    };
    let ext4 = |on: &Path| {
        try_run(Command::new("mount").args(["-t", "ext4"]).arg(&disk.device.path).arg(on)).0
    };
    // The kernel's ext4 has mounted the device, so Lanefs refuses it.
    let point = disk.image.mount_point();
    if ext4(&point).success() {
        refused();
        run(Command::new("umount").arg(&point));
    }
    // Lanefs has mounted the device. The kernel's ext4 refuses the device too, since the device is
    // claimed. The claim belongs to the mount, not to the server.
    let mut mounted = Mounted::in_foreground_at(&disk.device.path, &point, &[]);
    refused();
    assert!(!ext4(&other).success());
    let (status, _) = try_run(Command::new("mke2fs").args(["-q", "-F"]).arg(&disk.device.path));
    assert!(!status.success());
    // Even after the server has been killed, the device stays claimed until the mount is gone.
    mounted.server().kill().unwrap();
    mounted.server().wait().unwrap();
    assert!(!ext4(&other).success());
    refused();
    mounted.kill();
    disk.mount(&[]).umount();
    assert_clean(&disk.device.path);
}

#[test]
#[ignore = "long: real mounts"]
fn a_device_without_a_file_system_is_not_mounted_and_is_released() {
    let Some(disk) = Disk::new(&[]) else { return };
    run(Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", "count=1", "conv=notrunc", "status=none"])
        .arg(format!("of={}", disk.device.path.display())));
    let point = disk.image.mount_point();
    let (status, said) = try_run(&mut lanefs_mount(&disk.device.path, &point, &[]));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(!is_mounted(&point));
    run(Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(&disk.device.path));
    disk.mount(&[]).umount();
}

#[test]
#[ignore = "long: real mounts"]
fn every_way_to_end_the_mount_of_a_device_leaves_it_clean() {
    let Some(disk) = Disk::new(&[]) else { return };
    let point = disk.image.mount_point();
    for way in ["directory", "device", "TERM", "busy", "lazy"] {
        let mut mounted = Mounted::in_foreground_at(&disk.device.path, &point, &[]);
        let open = fs::File::create(mounted.path.join("open")).unwrap();
        fs::write(mounted.path.join(way), way).unwrap();
        fs::remove_file(mounted.path.join("open")).unwrap();
        let open = (way == "busy").then_some(open);
        match way {
            "directory" => drop(run(Command::new(LANEFS).arg("umount").arg(&point))),
            "device" => drop(run(Command::new(LANEFS).arg("umount").arg(&disk.device.path))),
            "lazy" => drop(run(Command::new("umount").arg("-l").arg(&point))),
            _ => drop(run(Command::new("kill").arg(mounted.server().id().to_string()))),
        }
        let soon = std::time::Duration::from_secs(20);
        wait_for("the server's end", soon, || mounted.server().try_wait().unwrap().is_some());
        assert!(mounted.server().wait().unwrap().success(), "{way}");
        drop(open);
        assert!(!is_mounted(&point), "{way}");
        assert_clean(&disk.device.path);
    }
}

#[test]
#[ignore = "long: real mounts"]
fn a_mount_that_the_kernel_need_not_hold_stays_of_type_fuse() {
    let Some(disk) = Disk::new(&[]) else { return };
    for options in ["ro", "offset=0,sizelimit=64M"] {
        let mounted = disk.mount(&[options]);
        assert!(disk.mounted_as().starts_with("fuse.lanefs "), "{options}");
        mounted.umount();
    }
    assert_eq!(fs::metadata(&disk.image.path).unwrap().size(), 64 << 20);
    // Some features allow only read access. Lanefs finds them only after it has created the mount,
    // so this read-only mount is of type `fuseblk`.
    let Some(disk) = Disk::new(&["-O", "quota,ea_inode"]) else { return };
    let said = run(&mut lanefs_mount(&disk.device.path, &disk.image.mount_point(), &["nosuid"]));
    assert!(said.contains("mounted read-only"), "{said}");
    let mounted = Mounted::already(&disk.image.mount_point());
    assert_eq!(disk.mounted_as(), "fuseblk.lanefs ro");
    let refused = fs::write(mounted.path.join("new"), "text").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    mounted.umount();
}

/// Write protection of a loop device. Without its end, the next user of the device would have it.
struct Protection<'p>(&'p str);

impl Protection<'_> {
    fn of(path: &str) -> Protection<'_> {
        run(Command::new("blockdev").args(["--setro", path]));
        Protection(path)
    }
}

impl Drop for Protection<'_> {
    fn drop(&mut self) {
        let _ = Command::new("blockdev").args(["--setrw", self.0]).status();
    }
}

#[test]
#[ignore = "long: a real mount"]
fn a_write_protected_device_is_mounted_read_only_and_commands_refuse_to_change_it() {
    let Some(disk) = Disk::new(&[]) else { return };
    let path = disk.device.path.to_str().unwrap();
    let protection = Protection::of(path);
    let said = run(&mut lanefs_mount(path.as_ref(), &disk.image.mount_point(), &[]));
    assert!(said.contains("it is write-protected: mounted read-only"), "{said}");
    let mounted = Mounted::already(&disk.image.mount_point());
    assert_eq!(disk.mounted_as(), "fuse.lanefs ro");
    let refused = fs::write(mounted.path.join("new"), "text").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    mounted.umount();
    let inside = format!("{path}:/f");
    for command in [
        &format!("touch {inside}"),
        &format!("mkfs -F {path}"),
        &format!("tune -L label {path}"),
        &format!("resize {path} 32M"),
        &format!("repair {path}"),
        &format!("recover {path}"),
        &format!("trim {path}"),
        &format!("edit {path}"),
    ] {
        let (status, said) = try_run(Command::new(LANEFS).args(command.split(' ')));
        assert!(matches!(status.code(), Some(1 | 8)), "{command}: {said}");
        assert!(said.contains(&format!("{path}: write-protected")), "{command}: {said}");
    }
    drop(protection);
    assert_clean(&disk.device.path);
}

#[test]
#[ignore = "long: a loop device"]
fn a_claim_is_handed_over_or_stays_and_the_lock_stays_always() {
    let Some(disk) = Disk::new(&[]) else { return };
    let path = &disk.device.path;
    let open = |access| FileDevice::open(path, access, OpenOptions::default());
    let exclusively = || {
        let flags = rustix::fs::OFlags::EXCL.bits() as i32;
        fs::File::options().read(true).custom_flags(flags).open(path)
    };
    let mut device = open(Access::ReadWrite).unwrap();
    assert!(device.is_claimed() && exclusively().is_err());
    let no_take_back = |_: fs::File| -> &str { panic!("it was taken") };
    // If `take`, the second argument, fails, `device` keeps its claim.
    let refused = device.hand_claim_to(path, || Err("refused"), no_take_back).unwrap();
    assert!(refused.is_err() && device.is_claimed() && exclusively().is_err());
    // `device` also keeps its claim if `take` returns success without having claimed the block
    // device.
    let untaken = device.hand_claim_to(path, || Ok(1), |one| one + 1).unwrap();
    assert_eq!(untaken, Err(2));
    assert!(device.is_claimed() && exclusively().is_err());
    // If `take` claims the block device, the claim is handed over.
    let taken = device.hand_claim_to(path, || exclusively().map_err(|_| "busy"), no_take_back);
    let taken = taken.unwrap().unwrap();
    assert!(!device.is_claimed() && exclusively().is_err());
    assert!(matches!(open(Access::ReadOnly), Err(OpenError::InUse { .. })), "the lock stays");
    drop(taken);
    drop(device);
    // Another program claims the device while `device` has released its claim.
    let mut device = open(Access::ReadWrite).unwrap();
    let mut other = None;
    let take = || {
        other = Some(exclusively().unwrap());
        Err("busy")
    };
    let taken = device.hand_claim_to(path, take, no_take_back);
    assert!(matches!(taken, Err(OpenError::InUse { .. })));
}
