//! What was judged is what is done, whoever changes it meanwhile.
//!
//! Nothing here depends on time but whether a bug would be found: who waits for a lock has begun by the
//! time that it is let go.

use lanefs_device::RamDevice;
use lanefs_ext4::mkfs::{Contents, MkfsOptions, mkfs};
use lanefs_ext4::{Attr, Error, InodeRef, NewKind, SetAttr};
use lanefs_vfs::{Credentials, NewNode, Vfs, VfsOptions};
use std::sync::Arc;
use std::time::Duration;

/// User 7, whose program it is.
fn alice() -> Credentials {
    Credentials::new(7, 7, [])
}

fn chmod(permissions: u16) -> SetAttr {
    SetAttr { permissions: Some(permissions), ..SetAttr::default() }
}

fn chown(uid: u32) -> SetAttr {
    SetAttr { uid: Some(uid), ..SetAttr::default() }
}

/// What becomes of a program of Alice's, with these permissions, if `later` begins while `first` is being done.
fn overtaken(
    permissions: u16,
    first: SetAttr,
    later: impl FnOnce(&Vfs, &InodeRef) -> Result<Attr, Error> + Send,
) -> (Result<Attr, Error>, Attr) {
    let ram = RamDevice::create(32 << 20).unwrap();
    mkfs(&ram, &MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() }).unwrap();
    let vfs = Vfs::open(Arc::new(ram), VfsOptions::default()).unwrap();
    let root = Credentials::superuser();
    let new = NewNode { kind: NewKind::Regular, permissions: 0o755, umask: 0 };
    let program = vfs.make(&root, vfs.root(), b"program", &new).unwrap();
    vfs.set_attr(&root, &program, &SetAttr { uid: Some(7), ..chmod(permissions) }).unwrap();
    let came = std::thread::scope(|scope| {
        let mut begun = None;
        let done = vfs.fs().set_attr_as(&program, |_| {
            begun = Some(scope.spawn(|| later(&vfs, &program)));
            std::thread::sleep(Duration::from_millis(30));
            Ok(Some(first))
        });
        done.unwrap();
        begun.unwrap().join().unwrap()
    });
    let attr = program.attr();
    drop(program);
    vfs.close().unwrap();
    (came, attr)
}

#[test]
fn whose_file_became_another_ones_does_not_make_it_set_user_id() {
    let (came, attr) =
        overtaken(0o755, chown(0), |vfs, program| vfs.set_attr(&alice(), program, &chmod(0o4755)));
    assert!(matches!(came, Err(Error::NotPermitted)), "{came:?}");
    assert_eq!((attr.uid, attr.permissions), (0, 0o755));
}

#[test]
fn what_was_made_set_user_id_just_before_it_gets_another_owner_is_that_no_more() {
    let (came, attr) = overtaken(0o755, chmod(0o4755), |vfs, program| {
        vfs.set_attr(&Credentials::superuser(), program, &chown(0))
    });
    assert!(came.is_ok(), "{came:?}");
    assert_eq!((attr.uid, attr.permissions), (0, 0o755));
}

#[test]
fn what_a_change_of_size_takes_from_a_program_undoes_no_change_of_its_mode() {
    let (came, attr) = overtaken(0o4755, chmod(0o700), |vfs, program| {
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        vfs.set_attr(&alice(), program, &empty)
    });
    assert!(came.is_ok(), "{came:?}");
    assert_eq!(attr.permissions, 0o700);
}
