//! A mount inside a user namespace. A program of its own: a new mount namespace keeps a copy of each
//! mount that is there when it begins, and other tests' servers would wait for its end.

mod mounting;

use mounting::*;
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
