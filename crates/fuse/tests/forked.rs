//! Tests children of fork(2) of a process that has a file system open. In the child, each call
//! returns, and nothing that it does reaches the image, which the parent goes on using.

use lanefs::device::{Access, FileDevice};
use lanefs::{Cause, Error, File, FileOptions, FileSystem, FormatOptions};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// A child that is still busy after this time hangs.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs `work` in a child, and fails if it panics or hangs there.
fn in_child(what: &str, work: impl FnOnce()) {
    // SAFETY: `work` calls Lanefs and allocates memory, which the C library allows in a child. It
    // takes no lock of this test, and the child ends without leaving this function.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{what}: no child");
    if child == 0 {
        let done = catch_unwind(AssertUnwindSafe(work));
        if let Err(why) = &done {
            // The test's output is lost with the child, unlike what goes to the stream itself.
            let why = why.downcast_ref::<String>();
            let _ = writeln!(std::io::stderr(), "{what}: {why:?}");
        }
        // SAFETY: this call only ends the child.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let begun = Instant::now();
    let mut status = -1;
    // SAFETY: waitpid writes the status, and the child is of this process.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > LIMIT {
            // SAFETY: the child is of this process, which has not waited for its end.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("{what}: the child hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(status, 0, "{what}: the child failed");
}

fn is_forked(error: &Error) -> bool {
    matches!(error.cause(), Cause::FileSystem(lanefs_ext4::Error::Forked))
}

/// A call, and whether it may be served in a child.
type Call = (&'static str, bool, fn(&FileSystem, &File) -> Result<(), Error>);

const CALLS: [Call; 16] = [
    ("read", true, |fs, _| fs.read("/a").map(drop)),
    ("read what is not in memory", true, |fs, _| fs.read("/d/cold").map(drop)),
    ("metadata", true, |fs, _| fs.metadata("/a").map(drop)),
    ("list", true, |fs, _| fs.read_dir("/d")?.try_for_each(|entry| entry.map(drop))),
    ("write", false, |fs, _| fs.write("/a", b"child")),
    ("overwrite", false, |_, file| file.write_all_at(b"child", 0)),
    ("create", false, |fs, _| fs.create_file("/new").map(drop)),
    ("create a directory", false, |fs, _| fs.create_dir("/new")),
    ("rename", false, |fs, _| fs.rename("/a", "/b")),
    ("remove", false, |fs, _| fs.remove_file("/a")),
    ("truncate", false, |_, file| file.set_len(1)),
    ("fsync", false, |_, file| file.sync_all()),
    ("fdatasync", false, |_, file| file.sync_data()),
    ("sync", false, |fs, _| fs.sync()),
    ("open and write", false, |fs, _| {
        let file = fs.create_file("/a")?;
        file.write_all_at(b"child", 0)
    }),
    ("remove all", false, |fs, _| fs.remove_dir_all("/d")),
];

/// Makes each call in a child, then closes the file system there, or drops it.
fn every_call(image: &Path, fs: FileSystem) -> FileSystem {
    let file = fs.open_file_with("/a", &FileOptions::new().read(true).write(true)).unwrap();
    for (what, may_serve, call) in CALLS {
        in_child(what, || match call(&fs, &file) {
            Ok(()) => assert!(may_serve, "{what}"),
            Err(error) => assert!(is_forked(&error), "{what}: {error}"),
        });
    }
    // SAFETY: only a child calls this, and it ends without dropping its first copies of the values.
    let take = || unsafe { (std::ptr::read(&raw const fs), std::ptr::read(&raw const file)) };
    in_child("close", || {
        let (fs, file) = take();
        drop(file);
        assert!(is_forked(&fs.close().unwrap_err()));
    });
    in_child("drop", || drop(take()));
    in_child("drop the file last", || {
        let (fs, file) = take();
        drop(fs);
        drop(file);
    });
    // The parent still has the lock.
    assert!(FileDevice::open(image, Access::ReadWrite, Default::default()).is_err());
    drop(file);
    fs
}

fn filled(dir: &Path) -> (std::path::PathBuf, FileSystem) {
    let image = dir.join("image");
    let fs = FileSystem::create(&image, 32 << 20, &FormatOptions::default()).unwrap();
    fs.create_dir("/d").unwrap();
    fs.write("/d/cold", b"cold").unwrap();
    fs.close().unwrap();
    let fs = FileSystem::open(&image).unwrap();
    fs.write("/a", b"parent").unwrap();
    (image, fs)
}

#[test]
fn a_child_gets_an_error_or_an_answer_and_the_parent_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (image, fs) = filled(dir.path());
    let fs = every_call(&image, fs);
    let mut text = String::new();
    fs.open_file("/a").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "parent");
    let mut file = fs.create_file("/after").unwrap();
    file.write_all(b"after").unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs.close().unwrap();
    assert_clean(&image);
    let fs = FileSystem::open(&image).unwrap();
    assert_eq!(fs.read("/after").unwrap(), b"after");
    fs.close().unwrap();
}

#[test]
fn a_child_of_a_busy_parent_does_not_hang() {
    let dir = tempfile::tempdir().unwrap();
    let (image, fs) = filled(dir.path());
    let file = fs.open_file_with("/a", &FileOptions::new().read(true).write(true)).unwrap();
    let ended = AtomicBool::new(false);
    let work = |n: u8| {
        for round in 0u64.. {
            fs.write(format!("/d/{n}"), vec![n; 100_000]).unwrap();
            fs.write("/a", b"parent").unwrap();
            if round % 4 == 0 {
                fs.sync().unwrap();
            }
            if ended.load(Ordering::Acquire) {
                return;
            }
        }
    };
    let fork = || {
        for (what, _, call) in CALLS.iter().cycle().take(2 * CALLS.len()) {
            in_child(what, || {
                let done = call(&fs, &file);
                assert!(done.as_ref().err().is_none_or(is_forked), "{what}: {done:?}");
            });
            // SAFETY: as in `every_call`.
            let take = || unsafe { std::ptr::read(&raw const fs) };
            in_child("close", || assert!(take().close().is_err()));
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        (0..2).for_each(|n| drop(scope.spawn(move || work(n))));
        let forked = catch_unwind(AssertUnwindSafe(fork));
        ended.store(true, Ordering::Release);
        forked.unwrap();
    });
    drop(file);
    fs.close().unwrap();
    assert_clean(&image);
}

#[test]
fn a_child_opens_another_image() {
    let dir = tempfile::tempdir().unwrap();
    let (image, fs) = filled(dir.path());
    in_child("another image", || {
        let other = dir.path().join("other");
        let fs = FileSystem::create(&other, 32 << 20, &FormatOptions::default()).unwrap();
        fs.write("/f", b"child").unwrap();
        fs.sync().unwrap();
        fs.close().unwrap();
        assert!(FileSystem::open(&image).is_err(), "in use by the parent");
        in_child("a grandchild", || {
            let fs = FileSystem::open(&other).unwrap();
            assert_eq!(fs.read("/f").unwrap(), b"child");
            fs.close().unwrap();
        });
    });
    fs.close().unwrap();
    assert_clean(&image);
}

fn assert_clean(image: &Path) {
    let checked = std::process::Command::new("e2fsck").arg("-fn").arg(image).output();
    let Ok(checked) = checked else {
        println!("skipped: e2fsck does not run here");
        return;
    };
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
