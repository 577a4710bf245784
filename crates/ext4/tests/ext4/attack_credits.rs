//! Runs all operations concurrently on the smallest journal. No operation may use more credits than
//! it requested.

use crate::image::{Image, directory, file};
use lanefs_ext4::{
    Access, Error, Fallocate, Fs, InodeRef, MountOptions, NewInode, NewKind, Privilege, Rename,
    SetAttr, SetXattr, SyncMode,
};
use std::time::Duration;

const SEED: u64 = 0x6c61_6e65;

/// Runs one random operation in a tree with few names, so that threads often use the same name.
fn step(fs: &Fs, dirs: &[InodeRef], random: &mut fastrand::Rng) -> Result<(), Error> {
    let any = |random: &mut fastrand::Rng| dirs[random.usize(..dirs.len())].clone();
    let name = |random: &mut fastrand::Rng| {
        format!("{:0>width$}", random.u32(..40), width = random.usize(1..200)).into_bytes()
    };
    let (dir, other) = (any(random), any(random));
    let (from, to) = (name(random), name(random));
    let pattern = vec![random.u8(..); random.usize(1..20_000)];
    let target = vec![b'x'; random.usize(1..900)];
    match random.u32(..100) {
        0..20 => drop(fs.create(&dir, &from, &file(0o644))?),
        20..24 => drop(fs.create(&dir, &from, &directory())?),
        24..28 => {
            let kind = NewKind::Symlink(&target);
            drop(fs.create(&dir, &from, &NewInode { kind, ..file(0o777) })?);
        }
        28..34 => fs.rename(&dir, &from, &other, &to, Rename::Replace)?,
        34..38 => fs.rename(&dir, &from, &other, &to, Rename::Exchange)?,
        38..45 => fs.unlink(&dir, &from)?,
        45..48 => fs.rmdir(&dir, &from)?,
        other_step => {
            let mut found = Vec::new();
            fs.read_dir(&dir, 0, &mut |entry| {
                found.push((entry.ino, entry.name.to_vec()));
                std::ops::ControlFlow::Continue(())
            })?;
            let (ino, entry) = found[random.usize(..found.len())].clone();
            let inode = fs.get(ino, None)?;
            // The offsets are multiples of two blocks within 800 KiB, so short writes leave holes
            // and files get many extents.
            let at = random.u64(..400) * 2048;
            match other_step {
                48..70 => drop(fs.write_at(&inode, at, &pattern, Privilege::Root)?),
                70..76 => {
                    let size = Some(random.u64(..800_000));
                    fs.set_attr(&inode, &SetAttr { size, ..SetAttr::default() })?;
                }
                76..80 => {
                    fs.fallocate(&inode, Fallocate::PunchHole, at, 30_000, Privilege::Root)?
                }
                80..83 => fs.fallocate(&inode, Fallocate::Allocate, at, 90_000, Privilege::Root)?,
                83..86 => fs.fallocate(&inode, Fallocate::ZeroRange, at, 9000, Privilege::Root)?,
                86..92 => {
                    let key = format!("user.{}", random.u32(..4));
                    let value = vec![1; random.usize(..700)];
                    fs.set_xattr(&inode, key.as_bytes(), &value, SetXattr::Any)?;
                }
                92..94 => fs.remove_xattr(&inode, b"user.1")?,
                94..96 => fs.link(&inode, &other, &to)?,
                96..98 => fs.fsync(&inode, SyncMode::Full)?,
                _ if entry != b"." && entry != b".." => fs.unlink(&dir, &entry)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns whether the error is a normal result of an operation, not a failure of the file system.
fn is_harmless(error: &Error) -> bool {
    let fatal = matches!(error, Error::Journal(_) | Error::Device(_) | Error::ReadOnly);
    !fatal && error.errno() != 117
}

fn run(what: &str, arguments: &[&str], size: &str, steps: usize) {
    println!("{what}, seed {SEED:#x}");
    let image = Image::made(arguments, size);
    let options = MountOptions {
        commit_interval: Duration::from_millis(30),
        cache_bytes: 256 << 10,
        ..MountOptions::default()
    };
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let mut dirs = vec![];
    let mut above = root.clone();
    for n in 0..4 {
        above = fs.create(&above, format!("dir {n}").as_bytes(), &directory()).unwrap();
        dirs.push(above.clone());
    }
    std::thread::scope(|scope| {
        for t in 0..3 {
            let dirs = &dirs;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(SEED + t);
                for n in 0..steps {
                    if let Err(error) = step(fs, dirs, &mut random) {
                        assert!(is_harmless(&error), "thread {t}, step {n}: {error}");
                    }
                }
            });
        }
    });
    assert!(fs.failure().is_none(), "{:?}", fs.failure());
    drop((root, above, dirs));
    mount.close().unwrap();
    image.check();
}

#[test]
fn the_smallest_journal_takes_every_operation() {
    run("orphan file", &["-b", "1024", "-J", "size=1", "-O", "orphan_file"], "40M", 1500);
    run("legacy list", &["-b", "1024", "-J", "size=1", "-O", "^orphan_file"], "40M", 1500);
}

#[test]
fn a_full_disk_leaves_nothing_half_done() {
    run("full", &["-b", "1024", "-J", "size=1", "-N", "512"], "6M", 2000);
    run("full, small groups", &["-b", "1024", "-g", "512", "-J", "size=1"], "8M", 1500);
}

/// A growth that adds a backup changes each block of the resize inode: one for each block that is
/// reserved for descriptors. Some of these numbers fill a transaction of the smallest journal.
#[test]
fn a_growth_that_fills_a_transaction_fits_with_quotas_too() {
    let mut grown = 0;
    for reserved in (200..=255).step_by(16) {
        let most = format!("resize={}", reserved * (1024 / 64) * 8192);
        let arguments = ["-b", "1024", "-J", "size=1", "-O", "quota,64bit", "-E", &most];
        let image = Image::made(&arguments, "64M");
        let mount = image.mount_with(Access::ReadWrite, MountOptions::default());
        match mount.fs().grow(80 << 10) {
            Ok(blocks) => grown += u32::from(blocks == 80 << 10),
            Err(Error::CannotGrow(_)) => {}
            Err(error) => panic!("{reserved} blocks reserved: {error}"),
        }
        mount.close().unwrap();
        image.check();
    }
    assert!(grown > 0);
}
