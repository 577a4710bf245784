//! Checks that an operation takes effect only if the attributes at that moment permit it, even if
//! another thread changed them after the call began.
//!
//! The second thread starts while the first one holds the lock, and should already be waiting for
//! the lock when the first one releases it. If the second thread is late, the test may miss a bug,
//! but it never fails unless there is a bug.

use lanefs_device::RamDevice;
use lanefs_ext4::{Attr, Error, InodeRef, NewKind, Privilege, SetAttr, SetXattr};
use lanefs_lanes::sync::unscheduled::Barrier;
use lanefs_mkfs::{Contents, MkfsOptions, mkfs};
use lanefs_vfs::{Credentials, Follow, NewNode, OpenFlags, Vfs, VfsOptions};
use std::sync::Arc;
use std::time::Duration;

/// User 7, the owner of the program.
fn alice() -> Credentials {
    Credentials::new(7, 7, [])
}

fn chmod(permissions: u16) -> SetAttr {
    SetAttr { permissions: Some(permissions), ..SetAttr::default() }
}

fn chown(uid: u32) -> SetAttr {
    SetAttr { uid: Some(uid), ..SetAttr::default() }
}

/// Makes a program that Alice owns and that has these `permissions`. While the change `first` is
/// made, starts `later` in another thread. Returns the result of `later`, and the program's
/// attributes at the end.
fn overtaken<T: Send>(
    permissions: u16,
    first: SetAttr,
    later: impl FnOnce(&Vfs, &InodeRef) -> Result<T, Error> + Send,
) -> (Result<T, Error>, Attr) {
    let ram = RamDevice::create(32 << 20).unwrap();
    mkfs(&ram, &MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() }).unwrap();
    let vfs = Vfs::open(Arc::new(ram), VfsOptions::default()).unwrap();
    let root = Credentials::superuser();
    let new = NewNode { kind: NewKind::Regular, permissions: 0o755, umask: 0 };
    let program = vfs.make(&root, vfs.root(), b"program", &new).unwrap();
    vfs.set_attr(&root, &program, &SetAttr { uid: Some(7), ..chmod(permissions) }).unwrap();
    let came = std::thread::scope(|scope| {
        let mut begun = None;
        let done = vfs.fs().set_attr_as(&program, Privilege::Root, |_| {
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
fn a_former_owner_does_not_make_the_file_set_user_id() {
    let (came, attr) =
        overtaken(0o755, chown(0), |vfs, program| vfs.set_attr(&alice(), program, &chmod(0o4755)));
    assert!(matches!(came, Err(Error::NotPermitted)), "{came:?}");
    assert_eq!((attr.uid, attr.permissions), (0, 0o755));
}

#[test]
fn a_program_made_set_user_id_just_before_a_change_of_owner_loses_the_bit() {
    let (came, attr) = overtaken(0o755, chmod(0o4755), |vfs, program| {
        vfs.set_attr(&Credentials::superuser(), program, &chown(0))
    });
    assert!(came.is_ok(), "{came:?}");
    assert_eq!((attr.uid, attr.permissions), (0, 0o755));
}

#[test]
fn a_change_of_size_that_clears_set_id_bits_undoes_no_change_of_the_mode() {
    let (came, attr) = overtaken(0o4755, chmod(0o700), |vfs, program| {
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        vfs.set_attr(&alice(), program, &empty)
    });
    assert!(came.is_ok(), "{came:?}");
    assert_eq!(attr.permissions, 0o700);
}

/// An access list equivalent to the mode 0751, in the format of setxattr(2).
const LIST: [u8; 28] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 0x20, 0, 1, 0, 255,
    255, 255, 255,
];
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

#[test]
fn an_access_list_is_refused_to_a_user_who_was_the_owner_when_it_was_asked_for() {
    let (came, attr) = overtaken(0o700, chown(0), |vfs, program| {
        vfs.set_xattr(&alice(), program, ACCESS_LIST, &LIST, SetXattr::Any)
    });
    assert!(matches!(came, Err(Error::NotPermitted)), "{came:?}");
    assert_eq!((attr.uid, attr.permissions), (0, 0o700));
    let (came, _) =
        overtaken(0o700, chown(0), |vfs, program| vfs.remove_xattr(&alice(), program, ACCESS_LIST));
    assert!(matches!(came, Err(Error::NotPermitted)), "{came:?}");
}

#[test]
fn an_access_list_takes_the_set_group_id_that_the_file_got_meanwhile() {
    // The program's group is 0. Alice is not a member of it, so her call clears the set-group-ID
    // bit.
    let (came, attr) = overtaken(0o755, chmod(0o2755), |vfs, program| {
        vfs.set_xattr(&alice(), program, ACCESS_LIST, &LIST, SetXattr::Any)
    });
    assert!(came.is_ok(), "{came:?}");
    assert_eq!(attr.permissions, 0o751);
}

#[test]
fn no_attribute_changes_of_a_file_that_became_immutable_meanwhile() {
    let immutable = SetAttr { flags: Some(0x10), ..SetAttr::default() };
    let (came, _) = overtaken(0o755, immutable, |vfs, program| {
        vfs.set_xattr(&alice(), program, b"user.x", b"x", SetXattr::Any)
    });
    assert!(matches!(came, Err(Error::NotPermitted)), "{came:?}");
    let (came, _) =
        overtaken(0o755, immutable, |vfs, program| vfs.set_attr(&alice(), program, &chmod(0o700)));
    assert!(matches!(came, Err(Error::NotPermitted)), "{came:?}");
}

fn empty() -> Vfs {
    let ram = RamDevice::create(32 << 20).unwrap();
    mkfs(&ram, &MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() }).unwrap();
    Vfs::open(Arc::new(ram), VfsOptions::default()).unwrap()
}

/// If the data changes after a capability was set, the capability must be gone.
#[test]
fn a_capability_does_not_outlive_the_data_that_it_was_granted_to() {
    const CAPABILITY: &[u8] = b"security.capability";
    // A capability in the form of version 2.
    const VALUE: [u8; 20] = [1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (vfs, root) = (empty(), Credentials::superuser());
    let new = NewNode { kind: NewKind::Regular, permissions: 0o755, umask: 0 };
    let program = vfs.make(&root, vfs.root(), b"program", &new).unwrap();
    let file = vfs.open_inode(&root, program.clone(), OpenFlags::READ | OpenFlags::WRITE).unwrap();
    let first = || {
        let mut byte = [0];
        vfs.read(&file, 0, &mut byte).unwrap();
        byte[0]
    };
    for round in 0..20_000_u32 {
        let start = Barrier::new(2);
        let granted_to = std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                vfs.write(&file, 0, &[round as u8; 4096]).unwrap();
            });
            start.wait();
            vfs.set_xattr(&root, &program, CAPABILITY, &VALUE, SetXattr::Any).unwrap();
            first()
        });
        let has = vfs.get_xattr(&root, &program, CAPABILITY).is_ok();
        assert!(!has || granted_to == first(), "round {round}");
    }
    drop((file, program));
    vfs.close().unwrap();
}

#[test]
fn a_nul_byte_is_invalid_in_each_component_of_a_path() {
    let (vfs, root) = (empty(), Credentials::superuser());
    let dir = NewNode { kind: NewKind::Directory, permissions: 0o755, umask: 0 };
    let dir = vfs.make(&root, vfs.root(), b"dir", &dir).unwrap();
    let new = NewNode { kind: NewKind::Regular, permissions: 0o755, umask: 0 };
    drop(vfs.make(&root, &dir, b"a", &new).unwrap());
    drop(dir);
    for path in [&b"/dir/a\0b"[..], b"/dir\0/a", b"/a\0b", b"/dir/a\0b/", b"/dir/a\0b/c"] {
        let found = vfs.stat(&root, vfs.root(), path, Follow::Links).map(drop);
        assert!(matches!(found, Err(Error::InvalidArgument(_))), "{path:?}: {found:?}");
    }
    vfs.close().unwrap();
}
