//! Tests of images in use. Commands refuse to change such an image, or to read it while it may
//! change. Their message names the program that uses the image. If that program is about to release
//! the image, a command waits instead.

mod mounting;

use mounting::{
    Image, KernelMounted, LANEFS, LoopDevice, Mounted, assert_clean, can_mount, lanefs_mount,
    needs, run, shell, try_run,
};
use std::process::Command;
use std::time::{Duration, Instant};

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn refused(command: &mut Command) -> String {
    let (status, said) = try_run(command);
    assert_eq!(status.code(), Some(1), "{command:?}: {said}");
    said
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_not_written_nor_read() {
    if !can_mount() {
        return;
    }
    let image = Image::new("32M");
    let (disk, point) = (image.path.to_str().unwrap(), image.mount_point());
    let at = format!("{disk}:/f");
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
    shell(&kernel.path, "echo kernel >g");
    let link = image.dir.path().join("other name");
    std::fs::hard_link(&image.path, &link).unwrap();
    let lines: &[&[&str]] = &[
        &["cp", "/etc/passwd", &at],
        &["touch", &at],
        &["touch", &format!("{}:/f", link.display())],
        &["mkfs", "-F", disk],
        &["ls", disk],
    ];
    for line in lines {
        let said = refused(Command::new(LANEFS).args(*line));
        assert!(said.contains("in use by the kernel: /dev/loop"), "{line:?}: {said}");
        assert!(said.contains(&format!("is mounted on {}", kernel.path.display())), "{said}");
    }
    let said = refused(&mut lanefs_mount(&image.path, &point, &[]));
    assert!(said.contains("/dev/loop"), "{said}");
    // `lanefs info` works on an image in use, and also names the program that uses the image.
    let said = lanefs(&["info", disk]);
    assert!(said.contains("In use:                by the kernel: /dev/loop"), "{said}");
    drop(kernel);
    lanefs(&["touch", &at]);
    assert_eq!(lanefs(&["cat", &format!("{disk}:/g")]), "kernel\n");
    assert_clean(&image.path);

    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "ro") else { return };
    assert_eq!(lanefs(&["cat", &format!("{disk}:/g")]), "kernel\n");
    assert!(refused(Command::new(LANEFS).args(["touch", &at])).contains("/dev/loop"));
    drop(kernel);
}

#[test]
fn a_block_device_that_the_kernel_has_mounted_is_not_written_nor_read() {
    if !can_mount() {
        return;
    }
    let image = Image::new("32M");
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(kernel.path.to_str().unwrap())).unwrap();
    let device = line.split(' ').rev().nth(1).unwrap();
    for line in [["ls", device], ["touch", &format!("{device}:/f")]] {
        let said = refused(Command::new(LANEFS).args(line));
        assert!(said.contains("in use by the host"), "{said}");
    }
    assert!(lanefs(&["info", device]).contains("In use:"));
}

#[test]
#[ignore = "long: real mounts, one after another"]
fn an_image_whose_server_is_closing_is_waited_for() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let at = format!("{}:/f", image.path.display());
    for round in 0..10 {
        let mounted = Mounted::new(&image, &[]);
        shell(&mounted.path, "dd if=/dev/zero of=big bs=1M count=8 status=none");
        // On a mount of type `fuse`, umount(8) does not wait for the server.
        run(Command::new("umount").arg(&mounted.path));
        if round % 2 == 0 {
            lanefs(&["touch", &at]);
        } else {
            Mounted::new(&image, &[]).umount();
        }
    }
    // A command does not wait if the image is mounted and the mount is not about to end.
    let mounted = Mounted::new(&image, &[]);
    let start = Instant::now();
    for line in [["touch", &at], ["ls", &at]] {
        let said = refused(Command::new(LANEFS).args(line));
        assert!(said.contains("in use by another program or mount"), "{said}");
    }
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(lanefs(&["info", image.path.to_str().unwrap()]).contains("In use:"));
    mounted.umount();
    image.assert_clean();
}

#[test]
#[ignore = "long: real mounts, one after another"]
fn a_block_device_whose_server_is_closing_is_waited_for() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let Some(device) = LoopDevice::new(&image.path) else { return };
    for round in 0..10 {
        let mounted = Mounted::at(&device.path, &image.mount_point(), &[]);
        shell(&mounted.path, "dd if=/dev/zero of=big bs=1M count=8 status=none");
        // On type fuseblk, umount(8) waits for the server.
        run(Command::new("umount").arg(&mounted.path));
        if round % 2 == 0 {
            lanefs(&["touch", &format!("{}:/f", device.path.display())]);
        } else {
            Mounted::at(&device.path, &image.mount_point(), &[]).umount();
        }
    }
    drop(device);
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount that waits"]
fn a_mount_that_waits_for_an_image_says_so() {
    if !can_mount() || !needs("flock") {
        return;
    }
    let image = Image::new("32M");
    let mut holder = Command::new("flock").arg(&image.path).args(["sleep", "3"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let said = run(&mut lanefs_mount(&image.path, &image.mount_point(), &[]));
    assert!(said.contains("still in use, waiting"), "{said}");
    assert!(holder.wait().unwrap().success());
    run(Command::new(LANEFS).arg("umount").arg(image.mount_point()));
}
