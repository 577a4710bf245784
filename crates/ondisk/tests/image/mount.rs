//! Images as the kernel leaves them in the middle of its work.

use super::Image;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// The image as it is on disk after the kernel, having it mounted, ran `work` and synced: its log
/// is not empty. `None`, with the reason printed, where this machine cannot mount.
pub fn with_log(image: Image, options: &str, work: fn(&Path) -> io::Result<()>) -> Option<Image> {
    mounted(image, options, work).map(|(during, _)| during)
}

/// The image after the kernel, having it mounted, ran `work` and unmounted it. `None`, with the
/// reason printed, where this machine cannot mount.
pub fn and_unmount(image: Image, work: fn(&Path) -> io::Result<()>) -> Option<Image> {
    mounted(image, "", work).map(|(_, after)| after)
}

fn mounted(
    image: Image,
    options: &str,
    work: fn(&Path) -> io::Result<()>,
) -> Option<(Image, Image)> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, mountpoint) = (folder.path().join("image"), folder.path().join("mounted"));
    fs::write(&path, &image.bytes).expect("the image");
    fs::create_dir(&mountpoint).expect("the mount point");
    let mounted = Command::new("mount")
        .args(["-t", "ext4", "-o", &format!("loop{options}")])
        .args([&path, &mountpoint])
        .output();
    match mounted {
        Ok(output) if output.status.success() => {}
        other => {
            println!("skipped: the kernel does not mount here: {other:?}");
            return None;
        }
    }
    let done = work(&mountpoint);
    let synced = Command::new("sync").arg("-f").arg(&mountpoint).status();
    let during = fs::read(&path);
    let unmounted = Command::new("umount").arg(&mountpoint).status().expect("umount");
    assert!(unmounted.success(), "umount");
    assert!(synced.expect("sync").success());
    done.expect("the work");
    let after = fs::read(&path).expect("the image");
    let during = Image { options: image.options.clone(), bytes: during.expect("the image") };
    Some((during, Image { options: image.options, bytes: after }))
}
