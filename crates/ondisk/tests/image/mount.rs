//! Images as the kernel leaves them in the middle of its work.

use super::Image;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// The image as it is on disk after the kernel, having it mounted, ran `work` and synced: its log
/// is not empty. `None`, with the reason printed, where this machine cannot mount.
pub fn with_log(image: Image, options: &str, work: fn(&Path) -> io::Result<()>) -> Option<Image> {
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
    let bytes = fs::read(&path);
    let unmounted = Command::new("umount").arg(&mountpoint).status().expect("umount");
    assert!(unmounted.success(), "umount");
    assert!(synced.expect("sync").success());
    done.expect("the work");
    Some(Image { options: image.options, bytes: bytes.expect("the image") })
}
