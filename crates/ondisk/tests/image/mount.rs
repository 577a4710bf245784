//! Images in states that occur while the kernel has them mounted.

use super::Image;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, io};

/// Mounts the image with the kernel, runs `work`, and syncs. Returns the image as it is before the
/// unmount, with a log that is not empty. Returns `None` and prints the reason if this machine
/// cannot mount.
pub fn with_log(image: Image, options: &str, work: fn(&Path) -> io::Result<()>) -> Option<Image> {
    mounted(image, options, work).map(|(during, _)| during)
}

/// Mounts the image with the kernel, runs `work`, and returns the image after unmounting it.
/// Returns `None` and prints the reason if this machine cannot mount.
pub fn and_unmount(image: Image, work: fn(&Path) -> io::Result<()>) -> Option<Image> {
    mounted(image, "", work).map(|(_, after)| after)
}

/// Mounts the image with the kernel, runs `work`, and returns the image while it is frozen, with
/// everything written in place. The files that `work` returned are still open at that time. Returns
/// `None` and prints the reason if this machine cannot mount.
pub fn frozen<T>(image: Image, work: fn(&Path) -> io::Result<T>) -> Option<Image> {
    let folder = tempfile::tempdir().expect("a folder");
    let mountpoint = mount(&folder, &image, "")?;
    let held = work(&mountpoint);
    let freeze = |how| Command::new("fsfreeze").arg(how).arg(&mountpoint).status();
    let frozen = freeze("-f");
    let bytes = fs::read(folder.path().join("image"));
    let thawed = freeze("-u");
    drop(held.expect("the work"));
    unmount(&mountpoint);
    assert!(frozen.expect("fsfreeze").success() && thawed.expect("fsfreeze").success());
    Some(Image { options: image.options, bytes: bytes.expect("the image") })
}

fn mounted(
    image: Image,
    options: &str,
    work: fn(&Path) -> io::Result<()>,
) -> Option<(Image, Image)> {
    let folder = tempfile::tempdir().expect("a folder");
    let mountpoint = mount(&folder, &image, options)?;
    let path = folder.path().join("image");
    let done = work(&mountpoint);
    let synced = Command::new("sync").arg("-f").arg(&mountpoint).status();
    let during = fs::read(&path);
    unmount(&mountpoint);
    assert!(synced.expect("sync").success());
    done.expect("the work");
    let after = fs::read(&path).expect("the image");
    let during = Image { options: image.options.clone(), bytes: during.expect("the image") };
    Some((during, Image { options: image.options, bytes: after }))
}

/// Mounts the image on a directory in `folder`.
fn mount(folder: &tempfile::TempDir, image: &Image, options: &str) -> Option<PathBuf> {
    let (path, mountpoint) = (folder.path().join("image"), folder.path().join("mounted"));
    fs::write(&path, &image.bytes).expect("the image");
    fs::create_dir(&mountpoint).expect("the mount point");
    let mounted = Command::new("mount")
        .args(["-t", "ext4", "-o", &format!("loop{options}")])
        .args([&path, &mountpoint])
        .output();
    match mounted {
        Ok(output) if output.status.success() => Some(mountpoint),
        other => {
            println!("skipped: the kernel does not mount here: {other:?}");
            None
        }
    }
}

/// Unmounts, and tries again while the mount is busy. If another test of this program starts a
/// process, the new process inherits all open files, and has them open until its execve(2).
fn unmount(mountpoint: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let output = Command::new("umount").arg(mountpoint).output().expect("umount");
        if output.status.success() {
            return;
        }
        assert!(Instant::now() < end, "{}", String::from_utf8_lossy(&output.stderr));
        std::thread::sleep(Duration::from_millis(20));
    }
}
