//! What a program that knows `std::fs` expects by guessing.

use crate::images::{Image, assert_clean, needs, run};
use lanefs::{
    Cause, Credentials, File, FileOptions, FileSystem, FileTimes, Follow, FormatOptions, NewKind,
    NewNode, OpenOptions, Rdev, Rename, SetAttr,
};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

fn fresh() -> (Image, FileSystem) {
    let image = Image::new("64M");
    let fs = FileSystem::open(&image.path).unwrap();
    (image, fs)
}

fn errno<T>(result: lanefs::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.errno())
}

#[test]
fn a_close_with_open_files_has_made_all_changes_durable() {
    let (image, fs) = fresh();
    fs.write("/f", "text").unwrap();
    let open = fs.open_file("/f").unwrap();
    assert!(matches!(fs.close().unwrap_err().cause(), Cause::FilesOpen));
    // The process could end here. Whoever reads the image now, without any end, finds the file.
    let copy = image.path.with_extension("copy");
    std::fs::copy(&image.path, &copy).unwrap();
    let crashed = FileSystem::open(&copy).unwrap();
    assert_eq!(crashed.read("/f").unwrap(), b"text");
    crashed.close().unwrap();
    drop(open);
    assert_clean(&image.path);
}

#[test]
fn an_entry_has_its_path_its_type_and_its_metadata() {
    let (_image, fs) = fresh();
    fs.create_dir("/d").unwrap();
    fs.write("/d/f", "four").unwrap();
    fs.symlink("f", "/d/l").unwrap();
    fs.create_dir("/d/below").unwrap();
    let mut entries: Vec<_> = fs.read_dir("/d").unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(|entry| entry.path());
    let paths: Vec<_> = entries.iter().map(|entry| entry.path()).collect();
    assert_eq!(paths, ["/d/below", "/d/f", "/d/l"].map(PathBuf::from));
    let types: Vec<_> = entries.iter().map(|entry| entry.file_type().unwrap()).collect();
    assert!(types[0].is_dir() && types[1].is_file() && types[2].is_symlink());
    assert_eq!(entries[1].metadata().unwrap().len(), 4);
    assert!(entries[2].metadata().unwrap().is_symlink());
    // The entry knows its directory, not only the path by which it was found.
    fs.rename("/d", "/e").unwrap();
    assert_eq!(entries[1].metadata().unwrap().len(), 4);
    fs.remove_file("/e/f").unwrap();
    assert_eq!(errno(entries[1].metadata()), 2);
}

#[test]
fn a_type_that_the_directory_lacks_is_read_from_the_inode() {
    let image = Image::with("64M", &["-O", "^filetype"]);
    let fs = FileSystem::open(&image.path).unwrap();
    fs.create_dir("/d").unwrap();
    fs.symlink("nowhere", "/l").unwrap();
    for entry in fs.read_dir("/").unwrap().map(Result::unwrap) {
        let is_link = entry.file_name() == "l";
        assert_eq!(entry.file_type().unwrap().is_symlink(), is_link, "{entry:?}");
    }
    assert_eq!(fs.walk_dir("/").unwrap().count(), 3);
}

#[test]
fn a_walk_finds_each_directory_before_its_entries_and_goes_through_no_link() {
    let (_image, fs) = fresh();
    fs.create_dir_all("/a/b/c").unwrap();
    fs.write("/a/b/f", "").unwrap();
    fs.symlink("/a", "/a/b/up").unwrap();
    let found: Vec<_> = fs.walk_dir("/a").unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found[0], Path::new("/a/b"));
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(sorted, ["/a/b", "/a/b/c", "/a/b/f", "/a/b/up"].map(PathBuf::from));
    assert_eq!(errno(fs.walk_dir("/a/b/f")), 20);
}

#[test]
fn contents_are_read_and_copied_by_one_call() {
    let (image, fs) = fresh();
    let data: Vec<u8> = (0..3 << 20).map(|n: u32| (n >> 7) as u8).collect();
    for len in [0, 1, 4095, 4096, 4097, 1 << 20, data.len()] {
        fs.write("/f", &data[..len]).unwrap();
        assert!(fs.read("/f").unwrap() == data[..len], "{len}");
    }
    assert_eq!(fs.read("/f").unwrap().capacity(), data.len() + 1, "it grew by doubling");
    fs.write("/t", "grüße").unwrap();
    assert_eq!(fs.read_to_string("/t").unwrap(), "grüße");
    fs.write("/t", b"\xff").unwrap();
    let error = fs.read_to_string("/t").unwrap_err();
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::InvalidData);

    let hole = fs.create_file("/hole").unwrap();
    hole.write_all_at(&[7; 5000], 1 << 20).unwrap();
    hole.set_len(8 << 20).unwrap();
    hole.set_permissions(0o4750).unwrap();
    fs.write("/copy", vec![1; 9 << 20]).unwrap();
    assert_eq!(fs.copy("/hole", "/copy").unwrap(), 8 << 20);
    let copy = fs.metadata("/copy").unwrap();
    assert_eq!((copy.len(), copy.permissions()), (8 << 20, 0o4750));
    assert!(copy.attr().sectors <= hole.metadata().attr().sectors);
    assert!(fs.read("/copy").unwrap() == fs.read("/hole").unwrap());
    // A copy onto itself leaves the file alone, by whatever name.
    fs.hard_link("/hole", "/other").unwrap();
    assert_eq!(errno(fs.copy("/hole", "/other")), 22);
    assert_eq!(fs.metadata("/hole").unwrap().len(), 8 << 20);
    assert_eq!(errno(fs.copy("/lost+found", "/x")), 22);
    assert!(!fs.exists("/x").unwrap());
    drop(hole);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_path_is_made_canonical_as_on_the_host() {
    let (_image, fs) = fresh();
    let host = tempfile::tempdir().unwrap();
    let root = host.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::write(root.join("a/f"), "").unwrap();
    fs.create_dir_all("/a/b").unwrap();
    fs.write("/a/f", "").unwrap();
    for (target, link) in [("a/b", "l"), ("../..", "a/b/up"), ("self", "self"), ("l/..", "m")] {
        fs.symlink(target, link).unwrap();
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    fs.symlink("/a/b", "/absolute").unwrap();
    std::os::unix::fs::symlink(root.join("a/b"), root.join("absolute")).unwrap();
    let paths = [
        "a",
        "./a/./b/",
        "l",
        "l/..",
        "m",
        "m/f",
        "a/b/up",
        "a/b/up/l/../f",
        "self",
        "a/f/",
        "a/f/..",
        "none",
        "absolute/up/m/b",
        "a//b/../../a",
    ];
    for path in paths {
        let theirs = root.join(path).canonicalize();
        let theirs = theirs.map(|path| Path::new("/").join(path.strip_prefix(&root).unwrap()));
        let ours = fs.canonicalize(path).map_err(std::io::Error::from);
        let number = |error: std::io::Error| error.raw_os_error();
        assert_eq!(ours.map_err(number), theirs.map_err(number), "{path}");
    }
}

#[test]
fn clones_of_a_file_share_its_position_and_the_last_one_closes_it() {
    let (image, fs) = fresh();
    let mut first = fs.create_file("/f").unwrap();
    let mut second = first.try_clone().unwrap();
    first.write_all(b"one").unwrap();
    second.write_all(b"two").unwrap();
    first.rewind().unwrap();
    let mut text = String::new();
    second.read_to_string(&mut text).unwrap();
    assert_eq!(text, "onetwo");
    drop(first);
    second.write_all(b"!").unwrap();
    drop(second);
    assert_eq!(fs.read_to_string("/f").unwrap(), "onetwo!");
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_handle_sets_what_a_path_sets() {
    let (_image, fs) = fresh();
    let file = fs.create_file("/f").unwrap();
    fs.rename("/f", "/g").unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_permissions(0o640).unwrap();
    file.set_owner(Some(5), None).unwrap();
    file.set_owner(Some(u32::MAX), Some(6)).unwrap(); // -1 is no user
    file.set_times(FileTimes::new().accessed(time)).unwrap();
    file.set_modified(time).unwrap();
    file.set_xattr("user.a", "1").unwrap();
    file.set_xattr("user.b", "2").unwrap();
    file.remove_xattr("user.a").unwrap();
    let found = fs.metadata("/g").unwrap();
    assert_eq!((found.permissions(), found.uid(), found.gid()), (0o640, 5, 6));
    assert_eq!((found.accessed(), found.modified()), (time, time));
    assert_eq!(
        (file.xattrs().unwrap(), fs.xattr("/g", "user.b").unwrap()),
        (vec!["user.b".into()], Some(b"2".to_vec()))
    );
}

#[test]
fn a_link_itself_gets_owner_and_times() {
    let (_image, fs) = fresh();
    fs.write("/f", "").unwrap();
    fs.symlink("f", "/l").unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs.set_symlink_owner("/l", Some(7), Some(8)).unwrap();
    fs.set_symlink_times("/l", FileTimes::new().modified(time)).unwrap();
    let (link, file) = (fs.symlink_metadata("/l").unwrap(), fs.metadata("/f").unwrap());
    assert_eq!((link.uid(), link.gid(), link.modified()), (7, 8, time));
    assert!(file.uid() == 0 && file.gid() == 0 && file.modified() != time);
}

#[test]
fn options_are_switched_as_those_of_std() {
    let (_image, fs) = fresh();
    let open = |options: FileOptions| errno(fs.open_file_with("/f", &options));
    let new = FileOptions::new;
    assert_eq!(open(new().read(true)), 2);
    assert_eq!(open(new().write(true).create_new(true)), 0);
    assert_eq!(open(new().write(true).create_new(true)), 17);
    assert_eq!(open(new().write(true).create_new(true).create_new(false)), 0);
    assert_eq!(open(new().read(true).read(false)), 22);
    fs.write("/f", "text").unwrap();
    assert_eq!(open(new().append(true).truncate(true).truncate(false)), 0);
    assert_eq!(fs.read("/f").unwrap(), b"text");
}

#[test]
fn an_error_of_the_system_has_its_number() {
    let (_image, fs) = fresh();
    let number = |error: lanefs::Error| std::io::Error::from(error).raw_os_error();
    assert_eq!(number(fs.open_file("/none").unwrap_err()), Some(2));
    assert_eq!(number(fs.remove_dir("/").unwrap_err()), Some(16));
    let file = fs.create_file("/f").unwrap();
    drop(file);
    let mut readable: File = fs.open_file("/f").unwrap();
    assert_eq!(readable.write(b"x").unwrap_err().raw_os_error(), Some(9));
    assert_eq!(errno(readable.set_len(1)), 22); // as ftruncate(2), not EBADF
    let writable = fs.open_file_with("/f", &FileOptions::new().write(true)).unwrap();
    assert_eq!(errno(writable.set_len(u64::MAX)), 27);
}

#[test]
fn a_flag_that_no_user_may_set_is_refused() {
    let (_image, fs) = fresh();
    fs.write("/f", "").unwrap();
    let flags = fs.metadata("/f").unwrap().attr().flags;
    let set = |flags| {
        let set = SetAttr { flags: Some(flags), ..SetAttr::default() };
        errno(fs.set_attr("/f", &set, Follow::Links))
    };
    let (no_dump, index, verity) = (0x40, 0x1000, 0x0010_0000);
    assert_eq!([set(flags | no_dump), set(no_dump)], [0, 0]);
    assert_eq!([set(flags | index), set(flags | verity)], [95, 95]);
    assert_eq!(fs.metadata("/f").unwrap().attr().flags, flags | no_dump);
}

#[test]
fn directories_with_their_parents_are_made_as_by_std() {
    let (_image, fs) = fresh();
    let host = tempfile::tempdir().unwrap();
    fs.symlink("nowhere", "/dangling").unwrap();
    fs.symlink("/lost+found", "/link").unwrap();
    fs.write("/f", "").unwrap();
    std::os::unix::fs::symlink("nowhere", host.path().join("dangling")).unwrap();
    std::fs::create_dir(host.path().join("lost+found")).unwrap();
    std::os::unix::fs::symlink("lost+found", host.path().join("link")).unwrap();
    std::fs::write(host.path().join("f"), "").unwrap();
    for path in ["a/b/c", "a/b/c", "dangling", "dangling/x", "link", "link/y", "f", "f/z", "./q/."]
    {
        let ours = errno(fs.create_dir_all(path));
        let theirs = std::fs::create_dir_all(host.path().join(path));
        let theirs = theirs.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0);
        assert_eq!(ours, theirs, "{path}");
    }
    assert_eq!((errno(fs.create_dir_all("")), std::fs::create_dir_all("").is_ok()), (0, true));
}

#[test]
fn names_are_exchanged_and_kept_as_by_the_kernel() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let (_image, fs) = fresh();
    let host = tempfile::tempdir().unwrap();
    let names = ["f", "g", "d", "e", "none", "f/", "g/", "d/", "e/", "none/", ".", "d/.", "e/.."];
    for how in [Rename::Replace, Rename::Exchange, Rename::NoReplace] {
        let flags = match how {
            Rename::Exchange => RenameFlags::EXCHANGE,
            Rename::NoReplace => RenameFlags::NOREPLACE,
            _ => RenameFlags::empty(),
        };
        for (from, to) in names.iter().flat_map(|from| names.iter().map(move |to| (from, to))) {
            let (ours, theirs) = (Path::new("/t"), host.path().join("t"));
            std::fs::create_dir(&theirs).unwrap();
            fs.create_dir(ours).unwrap();
            for name in ["f", "g"] {
                std::fs::write(theirs.join(name), name).unwrap();
                fs.write(ours.join(name), name).unwrap();
            }
            for name in ["d", "e/in"] {
                std::fs::create_dir_all(theirs.join(name)).unwrap();
                fs.create_dir_all(ours.join(name)).unwrap();
            }
            let kernel = renameat_with(CWD, theirs.join(from), CWD, theirs.join(to), flags);
            let result = fs.rename_with(ours.join(from), ours.join(to), how);
            let found = (errno(result), fs.exists("/t/f").unwrap(), fs.exists("/t/none").unwrap());
            let kernel = kernel.map_or_else(|errno| errno.raw_os_error(), |()| 0);
            let expected = (kernel, theirs.join("f").exists(), theirs.join("none").exists());
            assert_eq!(found, expected, "{from} to {to}: {how:?}");
            std::fs::remove_dir_all(&theirs).unwrap();
            fs.remove_dir_all(ours).unwrap();
        }
    }
}

#[test]
fn an_error_of_a_rename_has_the_path_that_it_is_about() {
    let (_image, fs) = fresh();
    fs.create_dir_all("/full/x").unwrap();
    fs.create_dir("/d").unwrap();
    let about = |from, to| fs.rename(from, to).unwrap_err().path().unwrap().to_owned();
    assert_eq!(about("/d", "/full"), Path::new("/full"));
    assert_eq!(about("/none", "/full"), Path::new("/none"));
    assert_eq!(about("/d", "/none/x"), Path::new("/none/x"));
}

#[test]
fn a_host_path_with_a_nul_byte_is_invalid() {
    assert_eq!(errno(FileSystem::open("a\0b")), 22);
    assert_eq!(errno(FileSystem::create("a\0b", 1 << 20, &FormatOptions::new())), 22);
}

#[test]
fn a_tree_goes_in_and_out() {
    let (image, fs) = fresh();
    let host = tempfile::tempdir().unwrap();
    let from = host.path().join("from");
    std::fs::create_dir_all(from.join("d/e")).unwrap();
    std::fs::write(from.join("d/f"), [5; 70_000]).unwrap();
    std::fs::write(from.join("d/empty"), "").unwrap();
    let hole = std::fs::File::create(from.join("hole")).unwrap();
    hole.set_len(16 << 20).unwrap();
    std::os::unix::fs::symlink("d/f", from.join("l")).unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&from.join("d/f"), 0o4751);
    mode(&from.join("d"), 0o1711);
    let time = UNIX_EPOCH + Duration::from_secs(1_234_567_890);
    for path in ["d/f", "d"] {
        std::fs::File::open(from.join(path)).unwrap().set_modified(time).unwrap();
    }
    fs.copy_from_host(&from, "/tree").unwrap();
    assert_eq!(errno(fs.copy_from_host(from.join("l"), "/tree/l")), 17);
    assert_eq!(fs.read("/tree/d/f").unwrap(), [5; 70_000]);
    assert_eq!(fs.symlink_metadata("/tree/l").unwrap().permissions(), 0o777);
    fs.create_dir("/there").unwrap();
    let there = fs.metadata("/there").unwrap();
    fs.copy_from_host(from.join("d/e"), "/there").unwrap();
    assert_eq!(fs.metadata("/there").unwrap(), there);
    fs.copy_from_host(from.join("d"), "/there/").unwrap();
    let copied = fs.metadata("/there").unwrap();
    assert_eq!((copied.permissions(), fs.exists("/there/f").unwrap()), (0o755, true));
    assert!(fs.metadata("/tree/hole").unwrap().attr().sectors <= 8);
    let file = fs.metadata("/tree/d/f").unwrap();
    assert_eq!((file.permissions(), file.modified()), (0o751, time));

    let to = host.path().join("to");
    fs.set_symlink_times("/tree/l", FileTimes::new().modified(time)).unwrap();
    fs.copy_to_host("/tree", &to).unwrap();
    assert_eq!(to.join("l").symlink_metadata().unwrap().modified().unwrap(), time);
    let find = |root: &Path| {
        let format = "%P %y %m %s %T@ %l\\n"; // sizes of directories differ
        let out = std::process::Command::new("find").arg(root).args(["-printf", format]).output();
        let text = String::from_utf8(out.unwrap().stdout).unwrap();
        let mut lines: Vec<_> = text.lines().filter(|line| !line.contains(" d ")).collect();
        lines.sort();
        lines
            .iter()
            .filter(|line| !line.starts_with('l'))
            .map(|l| (*l).to_owned())
            .collect::<Vec<_>>()
    };
    mode(&from.join("d/f"), 0o751);
    assert_eq!(find(&to), find(&from));
    assert_eq!(std::fs::read_link(to.join("l")).unwrap(), Path::new("d/f"));
    let (dir, hole) = (to.join("d").metadata().unwrap(), to.join("hole").metadata().unwrap());
    assert_eq!((dir.mode() & 0o7777, dir.modified().unwrap()), (0o1711, time));
    assert!(hole.blocks() <= 8);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_copy_to_the_host_replaces_nothing() {
    let (_image, fs) = fresh();
    let host = tempfile::tempdir().unwrap();
    let secret = host.path().join("secret");
    std::fs::write(&secret, "mine").unwrap();
    let to = host.path().join("to");
    std::fs::create_dir(&to).unwrap();
    std::os::unix::fs::symlink(&secret, to.join("f")).unwrap();
    fs.create_dir("/d").unwrap();
    fs.write("/d/f", "theirs").unwrap();
    let error = fs.copy_to_host("/d", &to).unwrap_err();
    assert!(matches!(error.cause(), Cause::Host { .. }), "{error}");
    assert_eq!(error.errno(), 17);
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "mine");
    // What cannot be made without privileges is left out.
    let kind = NewKind::CharDevice(Rdev { major: 1, minor: 3 });
    fs.create_node("/d/null", &NewNode { kind, permissions: 0o666, umask: 0 }).unwrap();
    fs.copy_to_host("/d", host.path().join("new")).unwrap();
    assert!(!host.path().join("new/null").exists());
}

/// The content of a file or what a link leads to, and the permissions; nothing if it is missing.
fn seen(path: &Path) -> (Option<String>, u32) {
    let mode = path.symlink_metadata().map_or(0, |found| found.mode() & 0o7777);
    (std::fs::read_to_string(path).ok(), mode)
}

/// Returns a file system that belongs to the user of this process, and that acts as that user.
fn mine() -> (Image, FileSystem) {
    let (image, fs) = fresh();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    fs.set_owner("/", Some(uid), Some(gid)).unwrap();
    fs.close().unwrap();
    let options = OpenOptions::new().credentials(Credentials::new(uid, gid, []));
    let fs = FileSystem::open_with(&image.path, &options).unwrap();
    (image, fs)
}

#[test]
fn a_file_is_opened_or_refused_as_by_std() {
    let host = tempfile::tempdir().unwrap();
    let (_image, fs) = mine();
    let names = ["none", "file", "fixed", "dir", "link", "dangling"];
    for bits in 0..64_u8 {
        let has = |bit: u8| bits >> bit & 1 != 0;
        for name in names {
            let (theirs, ours) = (host.path().join("t"), Path::new("/t"));
            std::fs::create_dir(&theirs).unwrap();
            fs.create_dir(ours).unwrap();
            for name in ["file", "fixed"] {
                std::fs::write(theirs.join(name), name).unwrap();
                fs.write(ours.join(name), name).unwrap();
            }
            let fixed = std::fs::Permissions::from_mode(0o444);
            std::fs::set_permissions(theirs.join("fixed"), fixed).unwrap();
            fs.set_permissions(ours.join("fixed"), 0o444).unwrap();
            std::fs::create_dir(theirs.join("dir")).unwrap();
            fs.create_dir(ours.join("dir")).unwrap();
            for (name, target) in [("link", "file"), ("dangling", "none")] {
                std::os::unix::fs::symlink(target, theirs.join(name)).unwrap();
                fs.symlink(target, ours.join(name)).unwrap();
            }
            let kernel = std::fs::OpenOptions::new()
                .read(has(0))
                .write(has(1))
                .append(has(2))
                .truncate(has(3))
                .create(has(4))
                .create_new(has(5))
                .open(theirs.join(name))
                .and_then(|mut file| if has(1) || has(2) { file.write_all(b"+") } else { Ok(()) });
            let library = FileOptions::new()
                .read(has(0))
                .write(has(1))
                .append(has(2))
                .truncate(has(3))
                .create(has(4))
                .create_new(has(5));
            let library = fs.open_file_with(ours.join(name), &library).and_then(|file| {
                if has(1) || has(2) { file.write_all_at(b"+", 0) } else { Ok(()) }
            });
            // std refuses some options itself, by an error without a number.
            let number = |error: std::io::Error| match error.kind() {
                ErrorKind::InvalidInput => 22,
                _ => error.raw_os_error().unwrap_or(-1),
            };
            assert_eq!(errno(library), kernel.map_or_else(number, |()| 0), "{bits:06b} {name}");
            let out = host.path().join("out");
            fs.copy_to_host(ours, &out).unwrap();
            for name in names {
                let same_umask = |(text, mode): (_, u32)| (text, mode & 0o700);
                let (ours, theirs) = (seen(&out.join(name)), seen(&theirs.join(name)));
                assert_eq!(same_umask(ours), same_umask(theirs), "{bits:06b} {name}");
            }
            fs.remove_dir_all(ours).unwrap();
            std::fs::remove_dir_all(&theirs).unwrap();
            std::fs::remove_dir_all(&out).unwrap();
        }
    }
}

#[test]
fn a_copy_gives_its_target_the_permissions_as_std_does() {
    let (_image, fs) = mine();
    let host = tempfile::tempdir().unwrap();
    let modes = [0o600, 0o644, 0o755, 0o777, 0o400];
    let pairs = modes.iter().flat_map(|from| modes.iter().map(move |to| (*from, Some(*to))));
    for (from, to) in pairs.chain(modes.iter().map(|from| (*from, None))) {
        for (name, mode) in [("from", Some(from)), ("to", to)] {
            let theirs = host.path().join(name);
            let _ = (std::fs::remove_file(&theirs), fs.remove_file(name));
            let Some(mode) = mode else { continue };
            std::fs::write(&theirs, name).unwrap();
            fs.write(name, name).unwrap();
            std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(mode)).unwrap();
            fs.set_permissions(name, mode as u16).unwrap();
        }
        let theirs = std::fs::copy(host.path().join("from"), host.path().join("to"));
        let ours = fs.copy("from", "to");
        assert_eq!(errno(ours), theirs.map_or_else(|e| e.raw_os_error().unwrap(), |_| 0));
        let (text, mode) = seen(&host.path().join("to"));
        assert_eq!(fs.read_to_string("to").ok(), text, "{from:o} {to:?}");
        assert_eq!(u32::from(fs.metadata("to").unwrap().permissions()), mode, "{from:o} {to:?}");
    }
}

#[test]
fn a_pipe_is_not_a_file_to_copy() {
    let (_image, fs) = fresh();
    fs.create_node("/p", &NewNode { kind: NewKind::Fifo, permissions: 0o600, umask: 0 }).unwrap();
    assert_eq!([errno(fs.copy("/p", "/new")), errno(fs.copy("/", "/new"))], [22, 22]);
    assert!(!fs.exists("/new").unwrap());
}

#[test]
fn a_tree_may_be_deeper_than_a_path_is_long() {
    let (image, fs) = fresh();
    let host = tempfile::tempdir().unwrap();
    fs.create_dir("/tree").unwrap();
    fs.write("/tree/f", "deep").unwrap();
    for _ in 0..30 {
        fs.create_dir("/above").unwrap();
        fs.rename("/tree", format!("/above/{}", "n".repeat(200))).unwrap();
        fs.rename("/above", "/tree").unwrap();
    }
    let to = host.path().join("to");
    fs.copy_to_host("/tree", &to).unwrap();
    fs.copy_from_host(&to, "/again").unwrap();
    let entries: Vec<_> = fs.walk_dir("/again").unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len(), 31);
    let deepest = entries.last().unwrap();
    assert_eq!((deepest.path().as_os_str().len(), deepest.metadata().unwrap().len()), (6038, 4));
    fs.remove_dir_all("/again").unwrap();
    drop(entries);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_walk_names_the_directory_that_it_meets_again() {
    if !needs("debugfs") {
        return;
    }
    let (image, fs) = fresh();
    fs.create_dir_all("/a/b").unwrap();
    fs.create_dir("/c").unwrap();
    fs.close().unwrap();
    for link in ["ln /a/b /c/again", "ln /a /a/b/itself"] {
        run(Command::new("debugfs").args(["-w", "-R", link]).arg(&image.path));
    }
    let fs = FileSystem::open(&image.path).unwrap();
    let (found, again): (Vec<_>, Vec<_>) = fs.walk_dir("/").unwrap().partition(Result::is_ok);
    assert_eq!(found.len(), 6); // the root's three, lost+found; their three
    let again: Vec<_> = again.into_iter().map(Result::unwrap_err).collect();
    assert!(again.iter().all(|error| matches!(error.cause(), Cause::Repeated)), "{again:?}");
    assert_eq!((again.len(), again[0].errno()), (2, 40));
}

#[test]
fn a_walk_reads_a_directory_with_the_number_of_one_that_is_gone() {
    let image = Image::with("8M", &["-N", "16"]);
    let fs = FileSystem::open(&image.path).unwrap();
    for name in ["/t/a", "/t/b"] {
        fs.create_dir_all(name).unwrap();
    }
    // Then no number is free but that of the directory.
    assert!((0..16).any(|n| fs.write(format!("/{n}"), "").is_err()));
    let mut walk = fs.walk_dir("/t").unwrap();
    let first = walk.next().unwrap().unwrap();
    let second = walk.next().unwrap().unwrap(); // the first is read now, and the second not yet
    fs.remove_dir(first.path()).unwrap();
    let new = second.path().join("new");
    fs.create_dir(&new).unwrap();
    assert_eq!(fs.metadata(&new).unwrap().ino(), first.ino());
    fs.remove_file("/0").unwrap();
    fs.write(new.join("f"), "").unwrap();
    let rest: Vec<_> = walk.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(rest, [new.clone(), new.join("f")]);
}
