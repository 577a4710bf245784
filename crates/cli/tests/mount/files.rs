//! Tests of files through a mount, where the kernel's FUSE, its caches and Lanefs must agree.

use crate::mounting::*;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs `work` on a mount of a new image, then unmounts and checks with e2fsck.
fn on_a_mount(size: &str, work: impl FnOnce(&Path)) {
    if !can_mount() {
        return;
    }
    let image = Image::new(size);
    let mounted = Mounted::new(&image, &[]);
    work(&mounted.path);
    mounted.umount();
    image.assert_clean();
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
#[ignore = "long: a real mount"]
fn renames_replace_refuse_or_exchange() {
    on_a_mount("64M", |dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::write(&a, "a").unwrap();
        fs::write(&b, "b").unwrap();
        let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
        assert_eq!(rename(RenameFlags::NOREPLACE).unwrap_err(), rustix::io::Errno::EXIST);
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!((text(&a), text(&b)), ("b".into(), "a".into()));
        rename(RenameFlags::empty()).unwrap();
        assert_eq!(text(&b), "b");
        assert!(!a.exists());
        // A directory moves with its contents, but not into itself.
        shell(dir, "mkdir -p d/e/f other; echo x >d/e/f/x; mv d/e other/; cat other/e/f/x; ls d");
        assert!(fs::rename(dir.join("other"), dir.join("other/e/f/g")).is_err());
        assert_eq!(fs::metadata(dir.join("d")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(dir.join("other")).unwrap().nlink(), 3);
    });
}

#[test]
#[ignore = "long: a real mount"]
fn a_whiteout_takes_the_old_name() {
    on_a_mount("64M", |dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs::write(&a, "a").unwrap();
        fs::write(&b, "b").unwrap();
        let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
        let kept = rename(RenameFlags::WHITEOUT | RenameFlags::NOREPLACE).unwrap_err();
        assert_eq!(kept, rustix::io::Errno::EXIST);
        rename(RenameFlags::WHITEOUT).unwrap();
        assert_eq!(text(&b), "a");
        let left = fs::metadata(&a).unwrap();
        assert_eq!((left.mode(), left.rdev(), left.uid(), left.nlink()), (0o20000, 0, 0, 1));
    });
}

/// This test fails on a kernel that passes collapsing or inserting of ranges (fallocate(2)) to the
/// server. In this case docs/mount.md is out of date.
#[test]
#[ignore = "long: a real mount"]
fn the_kernel_passes_no_collapsed_or_inserted_ranges() {
    on_a_mount("64M", |dir| {
        let path = dir.join("file");
        fs::write(&path, [1; 20_000]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            let refused = rustix::fs::fallocate(&file, flags, 4096, 4096).unwrap_err();
            assert_eq!(refused, rustix::io::Errno::OPNOTSUPP);
        }
    });
}

/// On a remount, the kernel alone makes the mount read-only. It does not inform the server.
#[test]
#[ignore = "long: a real mount"]
fn the_kernel_obeys_a_remount_alone() {
    on_a_mount("64M", |dir| {
        fs::write(dir.join("before"), "x").unwrap();
        let remount = |how: &str| run(Command::new("mount").args(["-i", "-o", how]).arg(dir));
        remount("remount,ro");
        let refused = fs::write(dir.join("after"), "x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
        remount("remount,rw");
        fs::write(dir.join("after"), "x").unwrap();
    });
}

#[test]
#[ignore = "long: a real mount"]
fn space_is_allocated_punched_and_zeroed() {
    on_a_mount("64M", |dir| {
        let path = dir.join("file");
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        let full = fs::metadata(&path).unwrap().blocks();
        assert!(full >= 2048, "{full}");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 100_000, 500_000).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 1_040_000, 60_000).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 4 << 20, 1 << 20).unwrap();
        let mut expected = vec![1; 1 << 20];
        expected.resize(1_100_000, 0);
        expected[100_000..600_000].fill(0);
        expected[1_040_000..].fill(0);
        assert!(fs::read(&path).unwrap() == expected);
        file.sync_all().unwrap();
        // After the kernel's cached pages are dropped, reads return the data that the server has.
        fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        assert!(fs::read(&path).unwrap() == expected);
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap();
        assert!(hole >= 100_000, "{hole}");
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 3 << 20).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 << 20);
        file.set_len(10).unwrap();
        file.set_len(5000).unwrap();
        let mut expected = vec![1; 10];
        expected.resize(5000, 0);
        assert!(fs::read(&path).unwrap() == expected);
    });
}

#[test]
#[ignore = "long: a real mount"]
fn data_in_the_kernels_cache_is_not_reported_as_a_hole() {
    on_a_mount("64M", |dir| {
        let file = File::create(dir.join("file")).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 512 << 10).unwrap();
        let other = File::open(dir.join("file")).unwrap();
        let data = rustix::fs::seek(&other, SeekFrom::Data(0)).unwrap();
        assert!(data <= 512 << 10, "{data}");
        shell(dir, "cp --sparse=auto file copy; cmp file copy");
    });
}

/// Archives a file that is open for writing and whose data is still in the kernel's cache. If a
/// file shows no allocated sectors, tar and cp treat it as a hole and do not read it.
#[test]
#[ignore = "long: a real mount"]
fn a_file_that_is_being_written_is_archived_whole() {
    if !can_mount() {
        return;
    }
    for options in [&[][..], &["no_open"], &["no_writeback"], &["fakeroot"]] {
        let image = Image::new("64M");
        let mounted = Mounted::new(&image, options);
        let dir = &mounted.path;
        shell(dir, ": >empty; truncate -s 1M sparse");
        let sectors = |name: &str| fs::metadata(dir.join(name)).unwrap().blocks();
        let (empty, sparse) = (sectors("empty"), sectors("sparse"));
        let most = u64::from(options == ["no_open"]);
        assert!(empty <= most && sparse <= most, "{options:?}: {empty} {sparse}");
        let open = |name: &str| {
            let mut how = File::options();
            how.read(true).write(true).create(true).truncate(false).open(dir.join(name)).unwrap()
        };
        for name in ["new", "empty", "sparse"] {
            let file = open(name);
            file.write_all_at(&[7; 100_000], 5000).unwrap();
            assert!(sectors(name) > 0, "{options:?}: {name}");
            let copied = format!(
                "tar -cSf {name}.tar {name} && tar -xOf {name}.tar | cmp - {name}
                 cp --sparse=auto {name} copy && cmp copy {name} && rm copy"
            );
            shell(dir, &copied);
            drop(file);
        }
        shell(dir, "rm -f *.tar");
        // While a file without sectors is open, it shows one sector, except with `no_writeback`.
        // With `no_open` it shows one sector even after it is closed.
        let file = open("closed");
        assert_eq!(sectors("closed"), u64::from(options != ["no_writeback"]), "{options:?}");
        drop(file);
        let begun = Instant::now();
        while sectors("closed") != most && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sectors("closed"), most, "{options:?}");
        mounted.umount();
        image.assert_clean();
    }
}

#[test]
#[ignore = "long: a real mount"]
fn an_unnamed_file_gets_a_name_by_linking() {
    on_a_mount("64M", |dir| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let mut file =
            File::from(rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600)).unwrap());
        file.write_all(b"unnamed").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, link, CWD, dir.join("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(text(dir.join("named")), "unnamed");
        // A file that never gets a name disappears completely.
        drop(rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600)).unwrap());
    });
}

#[test]
#[ignore = "long: a real mount"]
fn attributes_are_set_and_stay() {
    on_a_mount("64M", |dir| {
        let path = dir.join("file");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).unwrap();
        std::os::unix::fs::chown(&path, Some(70_000), Some(80_000)).unwrap();
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        // Times before 1970 and after 2038.
        let times = Timestamps {
            last_access: time(-1_000_000, 250),
            last_modification: time(5_000_000_000, 999_999_999),
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let check = || {
            let stat = fs::metadata(&path).unwrap();
            assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (0o711, 70_000, 80_000));
            assert_eq!((stat.atime(), stat.atime_nsec()), (-1_000_000, 250));
            assert_eq!((stat.mtime(), stat.mtime_nsec()), (5_000_000_000, 999_999_999));
        };
        check();
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        check();
        let born = run(Command::new("stat").args(["-c", "%W"]).arg(&path));
        assert_ne!(born.trim(), "0", "creation time");
        assert!(fs::metadata(dir).unwrap().is_dir());
    });
}

#[test]
#[ignore = "long: a real mount"]
fn a_late_write_back_does_not_undo_times_or_modes() {
    on_a_mount("64M", |dir| {
        let path = dir.join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"dirty pages").unwrap();
        let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &times).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        drop(file);
        rustix::fs::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let stat = fs::metadata(&path).unwrap();
        assert_eq!((stat.mtime(), stat.mode() & 0o7777), (1_000_000_000, 0o6755));
    });
}

#[test]
#[ignore = "long: a real mount"]
fn writing_and_truncating_by_others_costs_set_user_id() {
    on_a_mount("64M", |dir| {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        for (name, line) in [("w", "printf x >>w"), ("t", "truncate -s 1 t"), ("o", ": >o")] {
            let path = dir.join(name);
            fs::write(&path, "text").unwrap();
            std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
            run(as_nobody("sh").args(["-euc", line]).current_dir(dir));
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{line}");
        }
    });
}

#[test]
#[ignore = "long: a real mount"]
fn permissions_hold_for_others() {
    on_a_mount("64M", |dir| {
        shell(
            dir,
            "mkdir -m 700 private; echo s >private/secret; echo r >readable; chmod 644 readable; mkdir -m 1777 tmp; echo m >tmp/mine",
        );
        let denied = |line: &str| {
            let (status, said) = try_run(as_nobody("sh").args(["-c", line]).current_dir(dir));
            assert!(
                !status.success() && (said.contains("denied") || said.contains("not permitted")),
                "{line}: {said}"
            );
        };
        denied("cat private/secret");
        denied("echo x >readable");
        denied("rm -f tmp/mine");
        denied("touch new");
        run(as_nobody("sh")
            .args(["-euc", "cat readable; echo y >tmp/theirs; rm tmp/theirs"])
            .current_dir(dir));
    });
}

#[test]
#[ignore = "long: a real mount"]
fn extended_attributes_and_acls_work() {
    if !needs("setfattr") || !needs("setfacl") {
        return;
    }
    on_a_mount("64M", |dir| {
        shell(
            dir,
            "mkdir d; echo x >f; setfattr -n user.colour -v blue f; setfattr -n trusted.t -v 1 f",
        );
        let said = shell(dir, "getfattr -d -m - f; getfattr -n user.colour --only-values f");
        assert!(said.contains("user.colour=\"blue\"") && said.contains("trusted.t"), "{said}");
        shell(dir, "setfattr -x user.colour f; ! getfattr -n user.colour f 2>/dev/null");
        // A default ACL replaces the umask, and new directories inherit it.
        shell(dir, "setfacl -d -m u:65534:rwx,g::rx,o::- d; umask 077; echo y >d/f; mkdir d/e");
        let said = shell(dir, "getfacl -n d/f d/e");
        assert!(said.contains("user:65534:rwx"), "{said}");
        assert_eq!(said.matches("default:user:65534:rwx").count(), 1, "{said}");
        run(as_nobody("sh").args(["-euc", "echo z >d/e/by-acl"]).current_dir(dir));
        // chmod changes the mask.
        shell(dir, "setfacl -m u:65534:rw f; chmod 604 f");
        assert!(shell(dir, "getfacl -n f").contains("mask::---"));
        assert_eq!(fs::metadata(dir.join("f")).unwrap().mode() & 0o777, 0o604);
    });
}

#[test]
#[ignore = "long: a real mount"]
fn chattr_and_lsattr_work() {
    if !needs("chattr") {
        return;
    }
    on_a_mount("64M", |dir| {
        shell(dir, "echo x >f; chattr +i f; lsattr f");
        assert!(shell(dir, "lsattr f")[..20].contains('i'));
        for line in ["echo y >f", "rm -f f", "mv f g", "ln f g", "chmod 777 f"] {
            let (status, said) = try_run(Command::new("sh").args(["-c", line]).current_dir(dir));
            assert!(!status.success(), "{line} succeeded: {said}");
        }
        shell(
            dir,
            "chattr -i f; echo y >f; chattr +a f; echo z >>f; ! sh -c 'echo w >f' 2>/dev/null; chattr -a f",
        );
        assert_eq!(text(dir.join("f")), "y\nz\n");
    });
}

/// Sets each of the 32 flags of a new file and of a new directory in `dir`, one after the other.
/// Returns the results, and the flags afterwards.
fn flags_one_by_one(dir: &Path) -> Vec<(&'static str, u32, Result<(), Errno>, u32)> {
    let (file, folder) = (dir.join("file"), dir.join("folder"));
    fs::write(&file, "x").unwrap();
    fs::create_dir(&folder).unwrap();
    let mut found = Vec::new();
    for (name, path) in [("file", &file), ("folder", &folder)] {
        let opened = File::open(path).unwrap();
        let flags = || rustix::fs::ioctl_getflags(&opened).unwrap();
        let at_first = flags();
        for bit in (0..32).map(|n| 1 << n) {
            let asked = at_first | IFlags::from_bits_retain(bit);
            let result = rustix::fs::ioctl_setflags(&opened, asked);
            found.push((name, bit, result, flags().bits()));
            rustix::fs::ioctl_setflags(&opened, at_first).unwrap();
        }
    }
    found
}

#[test]
#[ignore = "long: a real mount"]
fn flags_are_set_or_refused_as_on_the_kernels_ext4() {
    // Three flags that Lanefs does not set, even if the kernel does: data in the journal, which
    // Lanefs refuses; a flag of older kernels that no longer has a meaning; DAX.
    const DIFFERENT: [u32; 3] = [0x4000, 0x40_0000, 0x200_0000];
    let image = Image::new("64M");
    let Some(kernel) = KernelMounted::new(&image.path, "kernel", "rw") else { return };
    let theirs = flags_one_by_one(&kernel.path);
    drop(kernel);
    on_a_mount("64M", |dir| {
        for (ours, theirs) in flags_one_by_one(dir).into_iter().zip(theirs) {
            match DIFFERENT.contains(&ours.1) {
                true => assert_eq!(ours.3 & ours.1, 0, "{ours:x?} has no effect"),
                false => assert_eq!(ours, theirs),
            }
        }
    });
}

#[test]
#[ignore = "long: a real mount"]
fn a_directory_can_be_read_while_it_changes() {
    on_a_mount("256M", |dir| {
        const NAMES: usize = 5000;
        let name = |n: usize| format!("{n:06} {}", "x".repeat(n % 100));
        for n in 0..NAMES {
            File::create(dir.join(name(n))).unwrap();
        }
        let mut seen = BTreeSet::new();
        for (n, entry) in fs::read_dir(dir).unwrap().enumerate() {
            let entry = entry.unwrap();
            let fresh = seen.insert(entry.file_name().into_string().unwrap());
            assert!(fresh, "{:?} twice", entry.file_name());
            if n % 10 == 0 {
                // Creating and removing a name must not remove other names from the listing, or
                // repeat them.
                let odd = dir.join(format!("comes and goes {n}"));
                fs::write(&odd, "x").unwrap();
                fs::remove_file(&odd).unwrap();
            }
        }
        for n in 0..NAMES {
            assert!(seen.contains(&name(n)), "{} was not seen", name(n));
        }
        shell(dir, "find . -type f -delete; ! ls -A | grep -v lost+found");
    });
}

#[test]
#[ignore = "long: a real mount"]
fn direct_and_mapped_access_agree_with_the_cache() {
    on_a_mount("128M", |dir| {
        let path = dir.join("file");
        shell(
            dir,
            "dd if=/dev/urandom of=file bs=1M count=8 oflag=direct status=none; cp file copy; cmp file copy; dd if=file bs=64k iflag=direct status=none | cmp - copy",
        );
        let mut threads = Vec::new();
        for n in 0..4u8 {
            let path = path.clone();
            threads.push(std::thread::spawn(move || {
                let script = format!("for i in 0 4 8 12 16 20; do head -c 4096 /dev/zero | tr '\\0' {n} | dd of={} bs=4096 seek=$((i + {n})) conv=notrunc oflag=direct iflag=fullblock status=none; done", path.display());
                run(Command::new("sh").args(["-euc", &script]));
            }));
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        let read = fs::read(&path).unwrap();
        for (n, block) in read.chunks(4096).take(24).enumerate() {
            assert!(block.iter().all(|&b| b == b'0' + (n % 4) as u8), "block {n}");
        }
        // Python provides mmap; sh does not.
        if needs("python3") {
            shell(
                dir,
                "python3 -c \"import mmap; f=open('file','r+b'); m=mmap.mmap(f.fileno(),0); m[0:5]=b'hello'; m.flush(); m.close()\"; head -c 5 file | grep -q hello; head -c 4096 file | dd bs=4096 iflag=fullblock status=none | head -c 5 | grep -q hello",
            );
        }
    });
}

#[test]
#[ignore = "long: a real mount"]
fn a_full_file_system_says_so_and_recovers() {
    on_a_mount("16M", |dir| {
        let (status, said) = try_run(
            Command::new("sh")
                .args(["-c", "dd if=/dev/zero of=big bs=64k conv=fsync"])
                .current_dir(dir),
        );
        assert!(!status.success() && said.contains("No space left"), "{said}");
        let full = rustix::fs::statvfs(dir).unwrap();
        assert!(full.f_bfree * full.f_frsize < 1 << 20, "{} blocks free", full.f_bfree);
        fs::remove_file(dir.join("big")).unwrap();
        // Lanefs must make the space of the removed file usable as soon as its removal is durable.
        shell(dir, "dd if=/dev/zero of=again bs=64k count=100 conv=fsync status=none; rm again");
    });
}

#[test]
#[ignore = "long: a real mount"]
fn a_slow_request_does_not_hold_up_a_quick_one() {
    on_a_mount("512M", |dir| {
        fs::write(dir.join("known"), "x").unwrap();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let (stop, path) = (stop.clone(), dir.join(format!("synced {n}")));
                std::thread::spawn(move || {
                    let mut file = File::create(path).unwrap();
                    let data = vec![n; 4 << 20];
                    while !stop.load(Ordering::Relaxed) {
                        file.rewind().unwrap();
                        file.write_all(&data).unwrap();
                        file.sync_all().unwrap();
                    }
                })
            })
            .collect();
        let end = Instant::now() + seconds(5).min(Duration::from_secs(5));
        let mut waits = Vec::new();
        let mut n = 0;
        while Instant::now() < end {
            // This name was never looked up before, so the kernel has to send a request.
            let begun = Instant::now();
            assert!(fs::metadata(dir.join(format!("absent {n}"))).is_err());
            waits.push(begun.elapsed());
            n += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|t| t.join().unwrap());
        waits.sort();
        let (middle, worst) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
        println!("look-ups beside fsync: median {middle:?}, 99 of 100 within {worst:?}");
        assert!(middle < Duration::from_millis(50), "{middle:?}");
    });
}

#[test]
#[ignore = "long: a real mount"]
fn files_of_every_kind_survive_a_remount() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &[]);
    let script = "mkdir -p a/b; echo text >a/b/file; ln a/b/file hard; ln -s a/b/file soft; \
         ln -s $(printf 'x%.0s' $(seq 200)) long; mkfifo pipe; mknod null c 1 3; mknod disk b 8 300; \
         truncate -s 10G sparse; printf end >>sparse; touch -d '1960-01-01 00:00:00.5' old";
    shell(&mounted.path, script);
    // Shows all attributes except block counts, access times and change times, and also shows some
    // data.
    let look = "find . -mindepth 1 ! -name lost+found -printf '%p %y %l %m %n %U %G %s %T@\\n' | sort; stat -c '%t %T' null disk; tail -c 3 sparse; cat hard";
    let before = shell(&mounted.path, look);
    mounted.umount();
    image.assert_clean();
    if let Some(kernel) = KernelMounted::new(&image.path, "kernel", "ro") {
        assert_eq!(shell(&kernel.path, look), before, "as the kernel sees it");
    }
    let again = Mounted::new(&image, &[]);
    assert_eq!(shell(&again.path, look), before);
    let mut file = File::open(again.path.join("sparse")).unwrap();
    file.seek(std::io::SeekFrom::Start(5 << 30)).unwrap();
    let mut zeros = [1; 100];
    file.read_exact(&mut zeros).unwrap();
    assert_eq!(zeros, [0; 100]);
    drop(file);
    again.umount();
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn without_the_writeback_cache_each_write_sets_times_and_sizes_at_once() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &["no_writeback"]);
    let path = mounted.path.join("file");
    let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let age = |file: &File| {
        let times = Timestamps { last_access: old, last_modification: old };
        rustix::fs::futimens(file, &times).unwrap();
    };
    let is_new = |file: &File| file.metadata().unwrap().mtime() > old.tv_sec;
    let file = File::options().read(true).append(true).create(true).open(&path).unwrap();
    (&file).write_all(&[1; 5000]).unwrap();
    age(&file);
    assert!(!is_new(&file));
    (&file).write_all(&[2; 5000]).unwrap();
    assert!(is_new(&file) && file.metadata().unwrap().len() == 10_000);
    // Another process can read all data through the mount.
    let stats = || shell(&mounted.path, "true; cat file | wc -c");
    assert_eq!(stats().trim(), "10000");
    // Writes through a mapping, by Python, since mmap would need unsafe code in the test.
    if needs("python3") {
        age(&file);
        let script = "import mmap; f = open('file', 'r+b'); m = mmap.mmap(f.fileno(), 0); \
                      m[9999:10000] = b'x'; m.flush(); m.close(); f.close()";
        run(Command::new("python3").args(["-c", script]).current_dir(&mounted.path));
        assert!(is_new(&file), "a page that was changed through a mapping");
        assert!(fs::read(&path).unwrap()[9998..] == [2, b'x']);
    }
    // If a program sets the times after its writes, these times are kept.
    age(&file);
    drop(file);
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mtime(), old.tv_sec);
    // For an unlink the kernel sends one request and a FORGET, but no SETATTR afterwards.
    let before = requests(&mounted.path, "setattr");
    (0..20).for_each(|n| fs::write(mounted.path.join(format!("f{n}")), "x").unwrap());
    (0..20).for_each(|n| fs::remove_file(mounted.path.join(format!("f{n}"))).unwrap());
    assert_eq!(requests(&mounted.path, "setattr"), before);
    mounted.umount();
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn without_open_files_are_opened_and_truncated_without_a_request() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &["no_open"]);
    let path = mounted.path.join("file");
    fs::write(&path, [1; 10_000]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [1; 10_000]);
    let counted = || (requests(&mounted.path, "open"), requests(&mounted.path, "release"));
    let before = counted();
    for n in 0..20 {
        // Each content is shorter than the previous one, so this fails if the open did not truncate
        // the file.
        fs::write(&path, vec![n; 9_000 - usize::from(n)]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![n; 9_000 - usize::from(n)]);
    }
    assert_eq!(counted(), before);
    // Only the kernel's cache has the data, in a range that is still a hole for the server.
    let script = "truncate -s 1M sparse; printf x | dd of=sparse bs=1 seek=500000 conv=notrunc status=none; \
                  cp --sparse=always sparse copy; cmp sparse copy";
    shell(&mounted.path, script);
    mounted.umount();
    image.assert_clean();
    let again = Mounted::new(&image, &["no_open"]);
    assert_eq!(fs::read(again.path.join("file")).unwrap(), vec![19; 8_981]);
    again.umount();
}

#[test]
#[ignore = "long: a real mount"]
fn direct_writes_set_times_and_agree_with_the_cache_whatever_the_caching() {
    if !can_mount() {
        return;
    }
    for caching in ["writeback", "no_writeback"] {
        let image = Image::new("64M");
        let mounted = Mounted::new(&image, &[caching]);
        let path = mounted.path.join("file");
        fs::write(&path, [1; 16_384]).unwrap();
        let cached = File::options().read(true).write(true).open(&path).unwrap();
        let write = |letter: &str, at: u32| {
            shell(
                &mounted.path,
                &format!(
                    "head -c 4096 /dev/zero | tr '\\0' {letter} | dd of=file bs=4096 seek={at} conv=notrunc oflag=direct iflag=fullblock status=none"
                ),
            );
        };
        let byte = |at: u64| {
            let mut byte = [0];
            cached.read_exact_at(&mut byte, at).unwrap();
            byte[0]
        };
        let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = Timestamps { last_access: old, last_modification: old };
        rustix::fs::futimens(&cached, &times).unwrap();
        // The file is open with caching, and its pages are in the cache.
        assert_eq!(byte(0), 1);
        write("a", 0);
        assert_eq!((byte(0), byte(4096)), (b'a', 1), "{caching}");
        assert!(cached.metadata().unwrap().mtime() > old.tv_sec, "{caching}");
        // A direct read returns data that is only in the cache.
        cached.write_all_at(b"x", 8192).unwrap();
        let read = "dd if=file bs=4096 skip=2 count=1 iflag=direct status=none | head -c 1";
        assert_eq!(shell(&mounted.path, read), "x", "{caching}");
        // This write starts at the end of the file.
        write("b", 4);
        assert_eq!((cached.metadata().unwrap().len(), byte(16_384)), (20_480, b'b'), "{caching}");
        drop(cached);
        mounted.umount();
        image.assert_clean();
    }
}

/// The kernel finds out that a program runs only after OPEN, so an OPEN that truncated the file would
/// empty the program.
#[test]
#[ignore = "long: a real mount"]
fn an_open_that_the_kernel_refuses_truncates_nothing() {
    if !can_mount() {
        return;
    }
    for option in ["writeback", "no_writeback", "no_open", "fakeroot"] {
        let image = Image::new("64M");
        let mounted = Mounted::new(&image, &[option]);
        let path = mounted.path.join("program");
        let size = fs::copy("/bin/sleep", &path).unwrap();
        let mut program = Command::new(&path).arg("60").spawn().unwrap();
        for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
            let opened = rustix::fs::open(&path, flags | OFlags::TRUNC, Mode::empty());
            assert_eq!(opened.err(), Some(Errno::TXTBSY), "{option}");
            assert_eq!(fs::metadata(&path).unwrap().len(), size, "{option}");
        }
        assert!(program.try_wait().unwrap().is_none(), "{option}");
        program.kill().unwrap();
        program.wait().unwrap();
        let before = requests(&mounted.path, "setattr");
        rustix::fs::open(&path, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0, "{option}");
        assert_eq!(requests(&mounted.path, "setattr"), before + 1, "{option}");
        mounted.umount();
        image.assert_clean();
    }
}

/// Returns the number of requests of a kind that the server has received.
fn requests(mounted: &Path, kind: &str) -> u64 {
    let said = run(Command::new(LANEFS).arg("stats").arg(mounted));
    assert!(said.contains("statfs") || said.contains("lookup"), "no requests in {said}");
    let mut lines = said.lines().map(str::split_whitespace);
    let count =
        lines.find_map(|mut words| words.next().filter(|word| *word == kind).and(words.next()));
    count.map_or(0, |count| count.parse().unwrap())
}

#[test]
#[ignore = "long: a real mount"]
fn after_an_fsync_an_open_file_shows_its_blocks() {
    on_a_mount("64M", |dir| {
        let mut file = File::create(dir.join("file")).unwrap();
        for n in 1..4 {
            file.write_all(&[n; 1 << 20]).unwrap();
            // The kernel caches the attributes from before the write-back.
            file.metadata().unwrap();
            file.sync_all().unwrap();
            assert_eq!(file.metadata().unwrap().blocks(), u64::from(n) << 11);
        }
    });
}
