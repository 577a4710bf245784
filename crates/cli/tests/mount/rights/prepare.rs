//! Fills the image from which all runs start, on a mount by the kernel.

use super::calls::{set_flags, set_times, timestamps};
use super::*;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

/// File capabilities as `setcap cap_net_raw+ep` stores them.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Creates the objects of `cases` in the tree at `root`.
pub fn prepare(root: &Path, cases: &[Case]) {
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    make_directory(&root.join("away"), 0o777);
    for case in cases {
        let dir = root.join(case.dir());
        make_directory(&dir, case.object.place.mode);
        chown(&dir, Some(case.object.place.uid), None).unwrap();
        make_object(&root.join(case.path()), &case.object);
        if matches!(case.op, Op::RenameOver | Op::Exchange) {
            fs::write(dir.join("other"), b"root's").unwrap();
        }
        // A case with an old descriptor sets the flag later, after it has opened the object.
        if !matches!(case.op, Op::Old(_)) {
            flag_object(root, case);
        }
        set_flags(&dir, case.object.place.flag.bits()).unwrap();
    }
}

/// Sets the flag of the object.
pub fn flag_object(root: &Path, case: &Case) {
    if case.object.flag != Flag::None {
        set_flags(&root.join(case.path()), case.object.flag.bits()).unwrap();
    }
}

fn make_directory(path: &Path, mode: u32) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn make_object(path: &Path, object: &Object) {
    match object.kind {
        Kind::File => fs::write(path, [b'x'; 5000]).unwrap(),
        Kind::Directory => {
            fs::create_dir(path).unwrap();
            fs::write(path.join("in"), b"in").unwrap();
        }
        Kind::Fifo => {
            rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::empty(), 0).unwrap();
        }
        Kind::Symlink => symlink("nowhere", path).unwrap(),
    }
    let set = |name: &str, value: &[u8]| {
        rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
    };
    if object.kind != Kind::Symlink && object.extra == Extra::Lists {
        set(Which::Access.name(), &List::Named.bytes());
        if object.kind == Kind::Directory {
            set(Which::Default.name(), &List::Named.bytes());
        }
    }
    if matches!(object.kind, Kind::File | Kind::Directory) {
        set("user.there", b"value");
    }
    set("trusted.there", b"value");
    lchown(path, Some(OWNER), Some(GROUP)).unwrap();
    if object.kind != Kind::Symlink {
        fs::set_permissions(path, fs::Permissions::from_mode(object.mode)).unwrap();
    }
    if object.extra == Extra::Capabilities {
        set("security.capability", &CAPABILITY);
    }
    let [atime, mtime] = [ATIME, MTIME].map(|(secs, nanos)| Stamp::At(secs, nanos));
    set_times(path, &timestamps(atime, mtime)).unwrap();
}
