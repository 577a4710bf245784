//! Compares the library and the mount with the kernel's ext4: which operations are permitted, and
//! what they change.
//!
//! Library, mount and kernel each start with a copy of the same image. Each case is one operation
//! by one caller on an object that no other case uses (`rights/cases.rs`). The result must be the
//! same in all three, and root must see the object in the same state afterwards. The only
//! exceptions are the differences in `rights/listed.rs`, each with its reason.

use crate::rights;

use crate::mounting::{Image, KernelMounted, Mounted, assert_clean, can_mount, shell};
use crate::rights::calls::{Tree, as_caller};
use crate::rights::library::Library;
use crate::rights::listed::{By, LISTED, Trial};
use crate::rights::{CALLERS, Case, Op, calls, cases, prepare};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Waits until a new second starts, since some inodes store only whole seconds. Returns the start
/// of this second in seconds and nanoseconds.
fn new_second() -> (i64, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // The wait ends 20 ms after the second starts, since the kernel's clock may tick only every 10
    // ms and thus be late.
    std::thread::sleep(Duration::from_millis(1020 - u64::from(now.subsec_millis())));
    (now.as_secs() as i64 + 1, 0)
}

/// The results of the operations, and the time at which the first one started.
struct Run {
    outcomes: Vec<rights::Outcome>,
    started: (i64, u32),
}

impl Run {
    /// Combines the result of each case with what `observe` sees after it.
    fn seen(&self, cases: &[Case], observe: impl Fn(&Case) -> Vec<rights::Seen>) -> Vec<Trial> {
        let trial = |(case, outcome): (&Case, &rights::Outcome)| Trial {
            outcome: outcome.clone(),
            seen: observe(case).iter().map(|seen| seen.text(self.started)).collect(),
        };
        cases.iter().zip(&self.outcomes).map(trial).collect()
    }
}

/// Groups the cases by caller.
fn by_caller(cases: &[Case]) -> Vec<Vec<&Case>> {
    (0..CALLERS.len()).map(|n| cases.iter().filter(|case| case.caller == n).collect()).collect()
}

/// Runs the cases with system calls in `tree`.
fn by_calls(tree: &Tree, cases: &[Case]) -> Run {
    let started = new_second();
    let mut outcomes = BTreeMap::new();
    for (caller, cases) in CALLERS.iter().zip(by_caller(cases)) {
        let is_old = |case: &Case| matches!(case.op, Op::Old(_));
        let open = |case: &&Case| is_old(case).then(|| tree.open_old(case));
        let old: Vec<_> = as_caller(caller, || cases.iter().map(open).collect());
        cases.iter().filter(|case| is_old(case)).for_each(|case| tree.flag(case));
        let done = as_caller(caller, || {
            let act = |(case, old): (&&Case, &Option<_>)| tree.act(case, old.as_ref());
            cases.iter().zip(&old).map(act).collect::<Vec<_>>()
        });
        outcomes.extend(cases.iter().map(|case| case.number).zip(done));
    }
    Run { outcomes: outcomes.into_values().collect(), started }
}

/// Runs the cases through the library on the image at `path`.
fn by_library(path: &Path, cases: &[Case]) -> Vec<Trial> {
    let library = Library { fs: lanefs::FileSystem::open(path).unwrap() };
    let started = new_second();
    let act = |case: &Case| {
        let old = matches!(case.op, Op::Old(_)).then(|| library.open_old(case));
        if old.is_some() {
            library.flag(case);
        }
        library.act(case, old.as_ref())
    };
    let outcomes = cases.iter().map(act).collect();
    let trials = Run { outcomes, started }.seen(cases, |case| library.observe(case));
    library.fs.close().unwrap();
    trials
}

/// The server of a mount.
enum Server<'a> {
    KernelExt4,
    /// Lanefs, mounted with these options.
    Lanefs(&'a [&'a str]),
}

/// Runs the cases on a mount. Returns what is observed on the mount, and then what is observed when
/// the kernel's ext4 mounts the same image.
fn by_mount(image: &Image, path: &Path, server: &Server<'_>, cases: &[Case]) -> [Vec<Trial>; 2] {
    let tried_at = |root: &Path| {
        let tree = Tree { root: root.into() };
        let run = by_calls(&tree, cases);
        let shown = run.seen(cases, |case| tree.observe(case));
        (run, shown)
    };
    let (run, shown) = match server {
        Server::KernelExt4 => tried_at(&KernelMounted::new(path, "kernel", "rw").unwrap().path),
        Server::Lanefs(options) => {
            let mounted = Mounted::at(path, &image.mount_point(), options);
            let tried = tried_at(&mounted.path);
            mounted.umount();
            tried
        }
    };
    assert_clean(path);
    let kernel = KernelMounted::new(path, "stored", "rw").unwrap();
    let tree = Tree { root: kernel.path.clone() };
    [shown, run.seen(cases, |case| tree.observe(case))]
}

/// Prints the differences between `ours` and `kernel` that are not listed; returns their number.
fn differences(by: By, cases: &[Case], kernel: &[Trial], ours: &[Trial]) -> usize {
    let mut listed = vec![0; LISTED.len()];
    let mut found: BTreeMap<String, (usize, &Case)> = BTreeMap::new();
    for ((case, theirs), ours) in cases.iter().zip(kernel).zip(ours) {
        if theirs == ours {
            continue;
        }
        let reason = LISTED.iter().position(|listed| (listed.applies)(by, case, theirs, ours));
        match reason {
            Some(n) => listed[n] += 1,
            None => {
                let key = format!("{:?}: {}", case.op, difference(theirs, ours));
                found.entry(key).or_insert((0, case)).0 += 1;
            }
        }
    }
    for (listed, count) in LISTED.iter().zip(listed).filter(|(_, count)| *count > 0) {
        println!("{by:?}: {count} differ: {}", listed.reason);
    }
    for (what, (count, case)) in &found {
        let (caller, object) = (case.caller().name, case.object);
        println!("{by:?}: {count} x {what}\n    as by {caller}, {object:?}");
    }
    found.values().map(|(count, _)| count).sum()
}

/// Formats a difference, the kernel's side first.
fn difference(kernel: &Trial, ours: &Trial) -> String {
    let described = |outcome: &rights::Outcome| match outcome {
        Ok(text) => format!("ok {text}"),
        Err(errno) => std::io::Error::from_raw_os_error(*errno).to_string(),
    };
    let mut text = String::new();
    if kernel.outcome != ours.outcome {
        text += &format!("{} | {}; ", described(&kernel.outcome), described(&ours.outcome));
    }
    let missing = |these: &Trial, those: &Trial| {
        let lines = these.seen.iter().filter(|line| !those.seen.contains(line));
        lines.cloned().collect::<Vec<_>>().join(", ")
    };
    let (theirs, own) = (missing(kernel, ours), missing(ours, kernel));
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (theirs, own) = (words(&theirs), words(&own));
    if theirs.len() == own.len() {
        let named = |n: usize| if n == 0 { "" } else { theirs[n - 1].as_str() };
        for n in (0..own.len()).filter(|n| theirs[*n] != own[*n]) {
            text += &format!("{} {} | {}; ", named(n), theirs[n], own[n]);
        }
    } else {
        text += &format!("{} | {}", theirs.join(" "), own.join(" "));
    }
    text
}

/// Runs `cases` on images made with `arguments`. Returns the number of differences.
fn tried(arguments: &[&str], cases: &[Case]) -> usize {
    let image = Image::with("192M", &[&["-N", "60000"], arguments].concat());
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return 0 };
    prepare::prepare(&kernel.path, cases);
    drop(kernel);
    let [for_library, for_mount, for_writethrough] =
        ["library.img", "mount.img", "writethrough.img"].map(|name| image.copy(name));
    let on = |path: &Path, server| by_mount(&image, path, &server, cases);
    let [kernel, stored_by_kernel] = on(&image.path, Server::KernelExt4);
    let library = by_library(&for_library, cases);
    assert_clean(&for_library);
    let [mount, stored] = on(&for_mount, Server::Lanefs(&[]));
    let [through, stored_through] = on(&for_writethrough, Server::Lanefs(&["no_writeback"]));
    println!("{} cases, by the library and by mounts", cases.len());
    differences(By::Library, cases, &kernel, &library)
        + differences(By::Mount, cases, &kernel, &mount)
        + differences(By::Stored, cases, &stored_by_kernel, &stored)
        + differences(By::Writethrough, cases, &kernel, &through)
        + differences(By::StoredWritethrough, cases, &stored_by_kernel, &stored_through)
}

#[test]
#[ignore = "long: thousands of files on real mounts"]
fn library_and_mount_allow_and_refuse_what_the_kernels_ext4_does() {
    if !can_mount() {
        return;
    }
    let cases = cases::all();
    assert!(cases.len() >= 2000);
    assert_eq!(tried(&[], &cases), 0, "differ without being listed");
}

#[test]
#[ignore = "long: real mounts"]
fn times_out_of_range_become_what_they_do_in_the_kernel_with_small_inodes() {
    if !can_mount() {
        return;
    }
    assert_eq!(tried(&["-I", "128"], &cases::of_the_clock()), 0, "differ without being listed");
}

/// Makes a file immutable while it is open for writing. Returns the result of fsync, and the file's
/// length.
fn made_immutable_while_it_is_written(dir: &Path, name: &str) -> (Result<(), i32>, u64) {
    let path = dir.join(name);
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&[b'x'; 100_000]).unwrap();
    calls::set_flags(&path, 0x10).unwrap();
    let synced = file.sync_all().map_err(|error| error.raw_os_error().unwrap());
    (synced, file.metadata().unwrap().len())
}

#[test]
#[ignore = "long: real mounts"]
fn writes_before_chattr_are_stored_although_the_file_is_immutable() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &[]);
    assert_eq!(made_immutable_while_it_is_written(&mounted.path, "written"), (Ok(()), 100_000));
    mounted.umount();
    image.assert_clean();
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
    let written = kernel.path.join("written");
    assert!(std::fs::read(&written).unwrap() == [b'x'; 100_000]);
    assert_eq!(made_immutable_while_it_is_written(&kernel.path, "again"), (Ok(()), 100_000));
}

/// Returns whether `read` changes the access time of `path`.
fn moves_atime(path: &Path, read: impl FnOnce()) -> bool {
    let atime = || {
        let stat = std::fs::symlink_metadata(path).unwrap();
        (stat.atime(), stat.atime_nsec())
    };
    let before = atime();
    std::thread::sleep(Duration::from_millis(30));
    read();
    atime() != before
}

/// Returns which reads change the access time on a new mount at `dir`: a direct read, a second
/// direct read, a listing, reading a link.
fn atime_moved_by_reads(dir: &Path) -> [bool; 4] {
    let (file, listed, link) = (dir.join("file"), dir.join("dir"), dir.join("link"));
    let direct = || {
        shell(dir, "dd if=file iflag=direct bs=4096 count=1 of=/dev/null status=none");
    };
    [
        moves_atime(&file, direct),
        moves_atime(&file, direct),
        moves_atime(&listed, || assert_eq!(std::fs::read_dir(&listed).unwrap().count(), 1)),
        moves_atime(&link, || drop(std::fs::read_link(&link).unwrap())),
    ]
}

#[test]
#[ignore = "long: real mounts"]
fn atime_moves_with_reads_that_reach_the_server_as_the_options_say() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
    // The access time is older than the modification time, so with relatime a read updates it.
    shell(
        &kernel.path,
        "mkdir dir; touch dir/x; echo text >file; ln -s to link
         touch -h -a -d @1000000000 file dir link",
    );
    drop(kernel);
    for (option, moved) in [
        ("strictatime", [true; 4]),
        ("relatime", [true, false, true, true]),
        ("noatime", [false; 4]),
    ] {
        for more in ["", ",no_writeback"] {
            let copy = image.copy("copy.img");
            let options = format!("{option}{more}");
            let mounted = Mounted::at(&copy, &image.mount_point(), &[&options]);
            assert_eq!(atime_moved_by_reads(&mounted.path), moved, "{options}");
            mounted.umount();
        }
        let copy = image.copy("copy.img");
        let kernel = KernelMounted::new(&copy, "kernel", option).unwrap();
        assert_eq!(atime_moved_by_reads(&kernel.path), moved, "the kernel, {option}");
    }
}
