//! Uses files and directories by path, as a program that uses the library does.

use crate::images;

use crate::images::{Image, assert_clean};
use lanefs::device::RamDevice;
use lanefs::{
    Cause, File, FileOptions, FileSystem, FileTimes, Follow, FormatOptions, OpenOptions, ReadDir,
    Rename, SetAttr,
};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

fn open(image: &Image) -> FileSystem {
    FileSystem::open(&image.path).unwrap()
}

#[test]
fn a_file_is_read_written_and_sought_as_on_the_host() {
    let image = Image::new("64M");
    let fs = open(&image);
    let mut file = fs.create_file("/f").unwrap();
    file.write_all(b"hello world").unwrap();
    assert_eq!(file.seek(SeekFrom::Start(6)).unwrap(), 6);
    file.write_all(b"there").unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello there");
    assert_eq!(file.seek(SeekFrom::End(-5)).unwrap(), 6);
    assert!(file.seek(SeekFrom::Current(-7)).is_err());
    file.write_all_at(b"far", 1 << 20).unwrap();
    assert_eq!(file.metadata().len(), (1 << 20) + 3);
    assert_eq!(file.seek_hole(0).unwrap(), Some(1024));
    assert_eq!(file.seek_data(1024).unwrap(), Some(1 << 20));
    assert_eq!(file.seek_data(1 << 21).unwrap(), None);
    file.set_len(5).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs.read("f").unwrap(), b"hello");
    let mut log = fs.open_file_with("/f", &FileOptions::new().append(true)).unwrap();
    log.write_all(b"!").unwrap();
    assert_eq!(log.read(&mut [0]).unwrap_err().kind(), fs_kind(9));
    drop(log);
    assert_eq!(fs.read("/f").unwrap(), b"hello!");
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_shared_file_is_read_and_written_at_its_one_position() {
    let image = Image::new("64M");
    let fs = open(&image);
    let file = fs.create_file("/f").unwrap();
    (&file).write_all(b"one").unwrap();
    (&file).write_all(b" two").unwrap();
    assert_eq!((&file).stream_position().unwrap(), 7);
    (&file).seek(SeekFrom::Start(4)).unwrap();
    let mut text = String::new();
    (&file).read_to_string(&mut text).unwrap();
    assert_eq!(text, "two");
    assert!(format!("{file:?} {fs:?}").contains("\"/f\""), "{file:?} {fs:?}");
}

fn fs_kind(errno: i32) -> ErrorKind {
    std::io::Error::from_raw_os_error(errno).kind()
}

/// A struct that keeps a file system together with open files and a listing.
struct Log {
    fs: FileSystem,
    file: File,
    listing: ReadDir,
}

impl Log {
    fn open(image: &Image) -> Log {
        let fs = open(image);
        let file = fs.create_file("/log").unwrap();
        let listing = fs.read_dir("/").unwrap();
        Log { fs, file, listing }
    }
}

#[test]
fn a_file_is_stored_beside_its_file_system_and_moved_to_a_thread() {
    let image = Image::new("64M");
    let Log { fs, file, listing } = std::thread::spawn({
        let log = Log::open(&image);
        move || {
            log.file.write_all_at(b"hello", 3).unwrap();
            log
        }
    })
    .join()
    .unwrap();
    let mut names: Vec<_> = listing.map(|entry| entry.unwrap().file_name().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["log", "lost+found"]);
    let mut text = [9; 8];
    file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"\0\0\0hello");
    let early = file.read_exact_at(&mut text, 1).unwrap_err();
    assert_eq!(early.to_string(), "/log: the file ends too early");
    assert_eq!(std::io::Error::from(early).kind(), ErrorKind::UnexpectedEof);
    drop(file);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_file_system_stays_mounted_until_its_last_file_is_dropped() {
    let image = Image::new("64M");
    let Log { fs, file, listing } = Log::open(&image);
    file.write_all_at(b"before", 0).unwrap();
    let open_files = fs.close().unwrap_err();
    assert!(matches!(open_files.cause(), Cause::FilesOpen));
    assert_eq!(open_files.errno(), rustix::io::Errno::BUSY.raw_os_error());
    file.write_all_at(b"after", 6).unwrap();
    drop(file);
    assert!(FileSystem::open(&image.path).is_err(), "the listing keeps it mounted");
    assert_eq!(listing.count(), 2);
    assert_clean(&image.path);
    // `Log` declares `fs` before its open files, so the file system is dropped first.
    drop(Log::open(&image));
    assert_clean(&image.path);
    let fs = open(&image);
    assert_eq!(fs.metadata("/log").unwrap().len(), 0);
    fs.close().unwrap();
}

#[test]
fn space_is_allocated_and_punched() {
    let image = Image::new("64M");
    let fs = open(&image);
    let file = fs.create_file("/f").unwrap();
    file.allocate(0, 1 << 20).unwrap();
    assert_eq!(file.metadata().len(), 1 << 20);
    assert_eq!(file.metadata().attr().sectors, 2048);
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.punch(1024, 4096).unwrap();
    let mut data = vec![9; 8192];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), 8192);
    assert!(data[1024..5120].iter().all(|&b| b == 0) && data[5120..].iter().all(|&b| b == 1));
    drop(file);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_write_that_runs_out_of_space_reports_the_part_that_it_wrote() {
    let image = Image::with("2M", &["-b", "1024", "-O", "^has_journal", "-m", "0", "-N", "2000"]);
    let fs = open(&image);
    let file = fs.create_file("/file").unwrap();
    // The four extents in the inode leave no room for a fifth: that needs a block of the tree.
    for block in [0, 2, 4, 6] {
        file.write_all_at(&[1; 1024], block * 1024).unwrap();
        file.sync_all().unwrap();
        fs.write(format!("/between-{block}"), [9; 1024]).unwrap();
    }
    file.set_len(16 << 10).unwrap();
    fs.write("/last", [9; 1024]).unwrap();
    fs.sync().unwrap();
    let filled = (0..).take_while(|n| fs.write(format!("/fill-{n}"), [8; 1024]).is_ok()).count();
    assert!(filled > 100, "{filled}");
    fs.remove_file("/last").unwrap();
    fs.sync().unwrap();
    // One block is free: enough for the data written into the hole, but not also for the block that
    // the extent tree needs.
    assert_eq!(file.write_at(&[2; 2048], 6 << 10).unwrap(), 1024);
    let mut found = [0; 2048];
    file.read_exact_at(&mut found, 6 << 10).unwrap();
    assert_eq!((found[0], found[1023], found[1024]), (2, 2, 0));
    drop(file);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn directories_names_and_links_work_by_path() {
    let image = Image::new("64M");
    let fs = open(&image);
    fs.create_dir_all("/a/b/c").unwrap();
    fs.create_dir_all("/a/b/c").unwrap();
    fs.write("/a/b/f", b"f").unwrap();
    fs.symlink("b/f", "/a/l").unwrap();
    fs.hard_link("/a/b/f", "/a/h").unwrap();
    assert_eq!(fs.read("/a/l").unwrap(), b"f");
    assert_eq!(fs.read_link("/a/l").unwrap().to_str(), Some("b/f"));
    assert_eq!(fs.metadata("/a/h").unwrap().links(), 2);
    assert!(fs.symlink_metadata("/a/l").unwrap().is_symlink());
    let mut names: Vec<String> = fs
        .read_dir("/a")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["b", "h", "l"]);
    fs.rename("/a/h", "/moved").unwrap();
    assert!(!fs.exists("/a/h").unwrap());
    let there = fs.rename_with("/moved", "/a/b/f", Rename::NoReplace).unwrap_err();
    assert!(there.is_exists());
    assert!(fs.remove_dir("/a").is_err());
    fs.remove_dir_all("/a").unwrap();
    fs.remove_file("/moved").unwrap();
    let gone = fs.open_file("/a/b/f").err().unwrap();
    assert_eq!(gone.to_string(), "/a/b/f: no such file or directory");
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn an_invalid_path_is_refused_although_its_names_are_cached() {
    let image = Image::new("64M");
    let fs = open(&image);
    fs.create_dir("/dir").unwrap();
    fs.write("/dir/file", "x").unwrap();
    let long = |len: usize| format!("/dir{}/file", "/.".repeat((len - 9) / 2));
    for (path, errno) in [("", 2), ("/dir/file\0", 22), ("/dir\0/file", 22), (&long(4097), 36)] {
        for (what, error) in [
            ("stat", fs.metadata(path).map(drop)),
            ("open", fs.open_file(path).map(drop)),
            ("create", fs.create_file(path).map(drop)),
            ("remove", fs.remove_file(path)),
        ] {
            assert_eq!(error.unwrap_err().errno(), errno, "{what} {path:?}");
        }
    }
    assert!(fs.metadata(long(4095)).unwrap().is_file(), "the longest path");
    // In these paths, the directory of the last component is found in the name cache, or through a
    // symbolic link.
    fs.symlink("dir//", "/link").unwrap();
    fs.create_file("/link/new").unwrap();
    fs.remove_file("//dir///new").unwrap();
    assert!(fs.create_file("/dir/other/").unwrap_err().errno() == 21);
    assert!(fs.remove_file("/dir/file/").unwrap_err().errno() == 20);
    fs.remove_file("/link/file").unwrap();
    fs.remove_dir("/dir/").unwrap();
}

#[test]
fn modes_owners_times_and_attributes_are_set() {
    let image = Image::new("64M");
    let fs = open(&image);
    fs.write("/f", b"").unwrap();
    fs.set_owner("/f", Some(1000), Some(70_000)).unwrap();
    fs.set_permissions("/f", 0o6750).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs.set_times("/f", FileTimes::new().modified(time)).unwrap();
    fs.set_xattr("/f", "user.a", b"value").unwrap();
    let metadata = fs.metadata("/f").unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.permissions()), (1000, 70_000, 0o6750));
    assert_eq!(metadata.modified(), time);
    assert_eq!(fs.xattr("/f", "user.a").unwrap(), Some(b"value".to_vec()));
    assert_eq!(fs.xattrs("/f").unwrap(), ["user.a"]);
    fs.remove_xattr("/f", "user.a").unwrap();
    assert_eq!(fs.xattr("/f", "user.a").unwrap(), None);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_file_that_was_written_before_loses_its_capabilities_at_the_next_write() {
    let image = Image::new("32M");
    let fs = open(&image);
    let file = fs.create_file("/f").unwrap();
    let has = || file.xattr("security.capability").unwrap().is_some();
    let acts: [&dyn Fn(); 4] = [
        &|| file.write_all_at(b"data", 0).unwrap(),
        &|| file.allocate(0, 8192).unwrap(),
        &|| file.set_len(100).unwrap(),
        &|| file.write_all_at(b"data", 0).unwrap(),
    ];
    for (n, act) in acts.iter().enumerate() {
        fs.set_xattr("/f", "security.capability", b"value").unwrap();
        assert!(has());
        act();
        assert!(!has(), "act {n}");
        act();
    }
    drop(file);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn threads_share_a_file_system_as_it_is() {
    let image = Image::new("64M");
    let fs = open(&image);
    let before = fs.space();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                let dir = format!("/d{n}");
                fs.create_dir(&dir).unwrap();
                for m in 0..100 {
                    fs.write(format!("{dir}/{m}"), vec![n as u8; m * 50]).unwrap();
                }
                for m in (0..100).step_by(2) {
                    fs.remove_file(format!("{dir}/{m}")).unwrap();
                }
            });
        }
    });
    for n in 0..4u8 {
        assert_eq!(fs.read_dir(format!("/d{n}")).unwrap().count(), 50);
        assert_eq!(fs.read(format!("/d{n}/99")).unwrap(), vec![n; 4950]);
    }
    assert_eq!(before.inodes_free - fs.space().inodes_free, 4 * 51);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_look_up_that_races_with_changes_finds_the_right_file_or_none() {
    // Inode numbers are reused at once. If a walk combined names that were valid at different
    // times, it would read a file of another directory.
    const DIRS: usize = 6;
    let image = Image::new("64M");
    let fs = open(&image);
    let end = Instant::now() + images::seconds(2);
    let churn = |numbers: &[usize]| {
        while Instant::now() < end {
            for n in numbers {
                let (dir, other) = (format!("/a{n}"), format!("/b{n}"));
                fs.create_dir(&dir).unwrap();
                fs.write(format!("{dir}/leaf"), n.to_string()).unwrap();
                fs.rename(&dir, &other).unwrap();
                fs.rename(&other, &dir).unwrap();
                fs.remove_file(format!("{dir}/leaf")).unwrap();
                fs.remove_dir(&dir).unwrap();
            }
        }
    };
    let look = || {
        let mut found = 0;
        while Instant::now() < end {
            for n in 0..DIRS {
                for dir in ["a", "b"] {
                    match fs.read(format!("/{dir}{n}/./leaf")) {
                        Ok(text) if text.is_empty() => {}
                        Ok(text) => {
                            assert_eq!(text, n.to_string().as_bytes());
                            found += 1;
                        }
                        Err(error) => assert!(error.is_not_found(), "{error}"),
                    }
                }
            }
        }
        found
    };
    let found: usize = std::thread::scope(|scope| {
        scope.spawn(|| churn(&[0, 1, 2]));
        scope.spawn(|| churn(&[3, 4, 5]));
        let lookers = [scope.spawn(look), scope.spawn(look)];
        lookers.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert!(found > 0, "nothing was ever found");
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_creation_that_fails_leaves_no_file_and_no_other_file_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let create = |bytes| FileSystem::create(&path, bytes, &FormatOptions::default());
    // The host refuses the first size, mkfs the others.
    for bytes in [u64::MAX, 0, 100, 4096] {
        assert!(create(bytes).is_err(), "{bytes}");
        assert!(!path.exists(), "{bytes}");
    }
    create(16 << 20).unwrap().close().unwrap();
    let before = std::fs::read(&path).unwrap();
    for bytes in [4096, 16 << 20] {
        let error = std::io::Error::from(create(bytes).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    }
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn a_read_only_file_system_stays_as_it_is() {
    let image = Image::new("64M");
    let before = std::fs::read(&image.path).unwrap();
    let fs = FileSystem::open_with(&image.path, &OpenOptions::new().read_only()).unwrap();
    let refused = fs.write("/f", b"").unwrap_err();
    assert_eq!(refused.errno(), rustix::io::Errno::ROFS.raw_os_error());
    assert!(fs.metadata("/lost+found").unwrap().is_dir());
    fs.close().unwrap();
    assert!(before == std::fs::read(&image.path).unwrap());
}

#[test]
fn without_recovery_the_state_before_the_log_is_read_and_the_log_stays() {
    let device = Arc::new(RamDevice::create(64 << 20).unwrap());
    FileSystem::format(&*device, &FormatOptions::default()).unwrap();
    let open = |device: &Arc<RamDevice>, options: OpenOptions| {
        FileSystem::open_device(device.clone(), &options).unwrap()
    };
    let fs = open(&device, OpenOptions::new());
    fs.write("/old", "in place").unwrap();
    fs.close().unwrap();
    let fs = open(&device, OpenOptions::new());
    fs.write("/new", "in the log").unwrap();
    fs.sync().unwrap();
    let crashed = Arc::new(RamDevice::copy_of(&*device).unwrap());
    fs.close().unwrap();

    let found = |options: OpenOptions| {
        let fs = open(&crashed, options);
        let refused = fs.write("/more", "").unwrap_err();
        assert_eq!(refused.errno(), rustix::io::Errno::ROFS.raw_os_error());
        let found = (fs.exists("/old").unwrap(), fs.exists("/new").unwrap());
        fs.close().unwrap();
        found
    };
    assert_eq!(found(OpenOptions::new().without_recovery()), (true, false));
    assert_eq!(found(OpenOptions::new().read_only()), (true, true));
}

/// Makes `..` in `/a` refer to `/a/b`.
fn bend_into_a_ring(image: &Image) {
    let (a, b) = {
        let fs = open(image);
        for path in ["/a", "/a/b", "/other", "/other/moved"] {
            fs.create_dir(path).unwrap();
        }
        (fs.metadata("/a").unwrap().ino().0, fs.metadata("/a/b").unwrap().ino().0)
    };
    let blocks = std::process::Command::new("debugfs")
        .args(["-R", &format!("blocks <{a}>")])
        .arg(&image.path)
        .output()
        .unwrap();
    let said = String::from_utf8(blocks.stdout).unwrap();
    let block: u64 = said.trim().parse().unwrap();
    let mut file = std::fs::File::options().write(true).open(&image.path).unwrap();
    // In a directory block, the record of ".." follows the record of ".", which has twelve bytes.
    file.seek(SeekFrom::Start(block * 1024 + 12)).unwrap();
    file.write_all(&b.to_le_bytes()).unwrap();
}

#[test]
fn a_circle_of_parents_is_found_at_once_among_many_inodes() {
    let features = "^metadata_csum,^metadata_csum_seed,^has_journal,^orphan_file";
    let options = ["-b", "1024", "-N", "4000000", "-I", "128", "-O", features];
    let image = Image::with("4G", &options);
    bend_into_a_ring(&image);
    let (tell, told) = lanefs_lanes::sync::unscheduled::mpsc::channel();
    std::thread::spawn(move || {
        let fs = open(&image);
        let moved = fs.rename("/other/moved", "/a/b/moved").map_err(|error| error.errno());
        let _ = tell.send(moved);
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(30)).expect("it ends"), Err(117));
}

#[test]
fn a_directory_that_ignores_case_finds_names_behind_the_name_cache() {
    let image = Image::with("64M", &["-O", "casefold"]);
    let fs = open(&image);
    fs.create_dir("/d").unwrap();
    assert!(!fs.exists("/d/readme").unwrap());
    let set = SetAttr { casefold: Some(true), ..SetAttr::default() };
    fs.set_attr("/d", &set, Follow::Links).unwrap();
    // Finds the file by every spelling, even by the one that was looked up before the file existed.
    fs.write("/d/README", b"text").unwrap();
    for spelling in ["/d/readme", "/d/ReadMe", "/d/README"] {
        assert_eq!(fs.read(spelling).unwrap(), b"text");
    }
    // Walks paths through directories that ignore case.
    fs.create_dir_all("/d/in/ner").unwrap();
    fs.write("/D/x", b"").unwrap_err();
    fs.write("/d/IN/Ner/file", b"").unwrap();
    assert!(fs.exists("/d/in/NER/FILE").unwrap());
    // Moves a file from another directory, where the name cache knows its name, and removes it by
    // another spelling.
    fs.write("/plain", b"").unwrap();
    assert!(fs.exists("/plain").unwrap());
    fs.rename("/plain", "/d/Plain").unwrap();
    fs.remove_file("/d/PLAIN").unwrap();
    assert!(!fs.exists("/d/Plain").unwrap() && !fs.exists("/plain").unwrap());
    // Uses other spellings of the same name.
    fs.remove_dir("/d/in/NER").unwrap_err();
    fs.rename("/d/readme", "/d/ReadMe.").unwrap();
    fs.rename("/d/README.", "/d/readme.").unwrap();
    let mut names: Vec<_> =
        fs.read_dir("/d").unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["in", "readme."]);
    let set = SetAttr { casefold: Some(false), ..SetAttr::default() };
    assert_eq!(fs.set_attr("/d", &set, Follow::Links).unwrap_err().errno(), 39);
    fs.close().unwrap();
    assert_clean(&image.path);
}

#[test]
fn a_partition_is_opened_by_its_name_and_the_only_ext4_without() {
    use lanefs::device::{Access, Device, FileDevice, OpenOptions as Part};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let disk = FileDevice::create(&path, 64 << 20).unwrap();
    let mut record = [0; 512];
    for (at, start) in [(446, 2048_u32), (462, 67_584)] {
        record[at + 4] = 0x83;
        record[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        record[at + 12..at + 16].copy_from_slice(&60_000_u32.to_le_bytes());
    }
    record[510..].copy_from_slice(b"\x55\xaa");
    disk.write_at(0, &record).unwrap();
    drop(disk);
    let named = |which: &str| format!("{}{which}", path.display());
    let format = |which: &str, label: &str| {
        let part = FileDevice::open(named(which), Access::ReadWrite, Part::default()).unwrap();
        let options = lanefs::FormatOptions::default().label(label);
        lanefs::FileSystem::format(&part, &options).unwrap();
    };
    format("@2", "two");
    let fs = lanefs::FileSystem::open(&path).unwrap();
    fs.write("/file", "of the only one").unwrap();
    fs.close().unwrap();
    format("@1", "one");
    for which in ["@2", "@label=two"] {
        let fs = lanefs::FileSystem::open(named(which)).unwrap();
        assert_eq!(fs.read_to_string("/file").unwrap(), "of the only one");
    }
    let several = lanefs::FileSystem::open(&path).unwrap_err().to_string();
    assert!(several.contains("1 \"one\" (29 MiB), 2 \"two\" (29 MiB)"), "{several}");
}
