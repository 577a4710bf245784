//! Tests of images in use. Commands refuse to change such an image, or to read it while it may
//! change. Their message names the program that uses the image. If that program is about to release
//! the image, a command waits instead.

use crate::mounting::{
    Image, KernelMounted, LANEFS, LoopDevice, Mounted, assert_clean, can_mount, lanefs_mount,
    needs, run, shell, try_run,
};
use std::io::Read;
use std::os::unix::net::UnixStream;
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

/// A program of qemu that has an image open.
struct Qemu(std::process::Child);

impl Qemu {
    /// Serves the image, as for a virtual machine; `None` if qemu is missing.
    fn open(image: &Image, options: &[&str]) -> Option<Qemu> {
        if !needs("qemu-nbd") {
            return None;
        }
        let socket = image.dir.path().join("socket");
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new("qemu-nbd");
        command.args(["--persistent", "--format=raw", "--socket"]).arg(&socket);
        let child = command.args(options).arg(&image.path).spawn().unwrap();
        // qemu-nbd listens before it opens the image, and greets a client afterwards.
        let start = Instant::now();
        let mut client = loop {
            match UnixStream::connect(&socket) {
                Ok(client) => break client,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(20), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        client.read_exact(&mut [0; 8]).unwrap();
        Some(Qemu(child))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn an_image_of_a_virtual_machine_is_not_written_nor_read_while_it_changes() {
    let image = Image::new("8M");
    let disk = image.path.to_str().unwrap();
    let (file, others) = (format!("{disk}:/f"), image.dir.path().join("other.img"));
    let others = others.to_str().unwrap();
    let array = format!("md:{disk},{others},missing");
    std::fs::write(others, vec![0; 8 << 20]).unwrap();
    let before = std::fs::read(disk).unwrap();
    let Some(qemu) = Qemu::open(&image, &[]) else { return };
    let lines: &[&[&str]] = &[
        &["cp", "/etc/passwd", &file],
        &["ls", disk],
        &["mkfs", "-F", disk],
        &["mkfs", "-F", "-J", &format!("device={disk}"), others],
        &["ls", "--journal", disk, others],
        &["ls", &array],
        &["clone", "--force", others, disk],
        &["resize", disk, "9M"],
        &["tune", "-L", "x", disk],
    ];
    for line in lines {
        let start = Instant::now();
        let said = refused(Command::new(LANEFS).args(*line));
        assert!(said.contains("in use by a virtual machine"), "{line:?}: {said}");
        assert!(said.contains(disk) && start.elapsed() < Duration::from_secs(2), "{said}");
    }
    assert!(lanefs(&["info", disk]).contains("In use:                by a virtual machine"));
    drop(qemu);
    assert!(std::fs::read(disk).unwrap() == before);

    let Some(qemu) = Qemu::open(&image, &["--read-only"]) else { return };
    lanefs(&["ls", disk]);
    let said = refused(Command::new(LANEFS).args(["touch", &file]));
    assert!(said.contains("in use by a virtual machine"), "{said}");
    drop(qemu);
    lanefs(&["touch", &file]);
}

#[test]
fn qemu_does_not_open_an_image_that_lanefs_has_mounted() {
    if !can_mount() || !needs("qemu-img") {
        return;
    }
    let image = Image::new("8M");
    let mounted = Mounted::new(&image, &[]);
    let qemu = |line: &str| {
        let line = line.replace("IMAGE", image.path.to_str().unwrap());
        try_run(Command::new("sh").args(["-c", &line]))
    };
    let (copy, change) =
        ("qemu-img convert -f raw IMAGE IMAGE.copy", "qemu-io -f raw -c 'write 0 512' IMAGE");
    for line in [copy, change, "qemu-img resize -f raw IMAGE 9M"] {
        let (status, said) = qemu(line);
        assert!(!status.success() && said.contains("lock"), "{line}: {said}");
    }
    assert!(qemu("qemu-img info -U IMAGE").0.success());
    shell(&mounted.path, "echo ours >f");
    mounted.umount();
    assert!(qemu(copy).0.success());
    image.assert_clean();
}

#[test]
fn a_deleted_image_is_used_by_its_descriptor() {
    let image = Image::new("8M");
    shell(
        image.dir.path(),
        &format!(
            "exec 3<>disk.img; rm disk.img; fd=/proc/self/fd/3; echo text | {LANEFS} cp - $fd:/f; \
             test \"$({LANEFS} cat $fd:/f)\" = text; {LANEFS} check $fd; {LANEFS} info $fd; \
             {LANEFS} cp $fd:/f $fd:/g; {LANEFS} resize $fd 9M; {LANEFS} check $fd"
        ),
    );
}
