use super::*;
use rustix::fs::{FileType, RenameFlags, mknodat, renameat_with};
use std::os::unix::fs::symlink;

#[test]
fn what_took_the_place_of_a_found_file_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let (x, name) = (dir.path().join("x"), OsStr::new("x"));
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let mut tree = HostTree::default();
    tree.enter(dir.path().as_ref(), &tree.find(dir.path().as_ref()).unwrap()).unwrap();
    let replace: [fn(&Path, &Path); 4] = [
        |x, _| mknodat(CWD, x, FileType::Fifo, Mode::RWXU, 0).unwrap(),
        |x, secret| symlink(secret, x).unwrap(),
        |x, _| std::fs::write(x, "another").unwrap(),
        |x, _| std::fs::create_dir(x).unwrap(),
    ];
    for replace in replace {
        std::fs::write(&x, "mine").unwrap();
        let found = tree.find(name).unwrap();
        assert!(tree.open_found(name, &found).is_ok());
        std::fs::remove_file(&x).unwrap();
        replace(&x, &secret);
        let error = tree.open_found(name, &found).unwrap_err();
        assert!(matches!(error.cause(), Cause::Host { path, .. } if *path == x), "{error}");
        let _ = (std::fs::remove_file(&x), std::fs::remove_dir(&x));
    }
}

#[test]
fn a_found_directory_is_entered_wherever_it_is_and_left_to_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["top/in", "other"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join("top/in/f"), "").unwrap();
    let (top, other) = (dir.path().join("top"), dir.path().join("other"));
    let mut tree = HostTree::default();
    tree.enter(top.as_ref(), &tree.find(top.as_ref()).unwrap()).unwrap();
    let found = tree.find("in".as_ref()).unwrap();
    symlink("/", other.join("in")).unwrap();
    renameat_with(CWD, top.join("in"), CWD, other.join("in"), RenameFlags::EXCHANGE).unwrap();
    tree.enter("in".as_ref(), &found).unwrap();
    assert_eq!(tree.names().unwrap(), ["f"]);
    tree.leave(None).unwrap();
    assert_eq!(tree.names().unwrap(), ["in"]);
    assert!(tree.find("in".as_ref()).unwrap().metadata.is_symlink());
}
