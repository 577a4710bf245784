//! Tests of mounts inside mount namespaces.

use crate::mounting::*;
use std::process::Command;

#[test]
#[ignore = "long: a real mount"]
fn a_mount_works_in_a_user_namespace() {
    if !can_mount() || !needs("unshare") {
        return;
    }
    let (status, said) = try_run(Command::new("unshare").args(["-Urm", "true"]));
    if !status.success() {
        println!("skipped: a user namespace: {}", said.trim());
        return;
    }
    let image = Image::new("64M");
    let script = format!(
        "{LANEFS} mount disk.img mnt && echo text >mnt/file && chown 0:0 mnt/file && \
         cat mnt/file && {LANEFS} umount mnt"
    );
    let said = run(Command::new("unshare")
        .args(["-Urm", "sh", "-euc", &script])
        .current_dir(image.dir.path()));
    assert_eq!(said.trim(), "text");
    image.assert_clean();
}

/// mount(8) runs mount.fuse3 with its own PATH, so the program must be in the directory where `make
/// install` puts it. In a mount namespace the test can put the program there without affecting
/// other processes.
#[test]
#[ignore = "long: a real mount"]
fn mount_8_and_fstab_find_the_installed_program() {
    if !can_mount() || !needs("unshare") || !needs("mount.fuse3") {
        return;
    }
    let image = Image::new("64M");
    let script = format!(
        "mount -t tmpfs none /usr/local/bin
         ln -s {LANEFS} /usr/local/bin/lanefs
         mount -t fuse.lanefs -o noatime,nosuid,nodev,nofail,x-a=b \"$PWD/disk.img\" \"$PWD/mnt\"
         grep -q ' fuse.lanefs rw,nosuid,nodev' /proc/mounts
         echo text >mnt/file
         {LANEFS} umount mnt
         echo \"$PWD/disk.img $PWD/mnt fuse.lanefs noauto,ro,nosymfollow 0 0\" >fstab
         mount -T fstab mnt
         cat mnt/file
         ! touch mnt/other 2>/dev/null
         {LANEFS} umount mnt"
    );
    let said = run(Command::new("unshare")
        .args(["-m", "sh", "-euc", &script])
        .current_dir(image.dir.path()));
    assert_eq!(said.trim(), "text");
    image.assert_clean();
}
