//! Multiple mount protection (`mmp`), which ensures that only one computer at a time writes to a
//! file system.

use lanefs_check::repair;
use lanefs_device::{Device, DeviceError, Operation, RamDevice, ReadKind, WriteKind};
use lanefs_ext4::{Access, Mount, MountOptions, SetAttr, SetTime};
use lanefs_offline::{Draft, Image as Offline, Repair};
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::mmp::{LAST_SEQUENCE, Mmp, Use};
use lanefs_ondisk::superblock::Superblock;
use lanefs_suites::both::{self, run_all};
use lanefs_suites::changes::Verdicts;
use lanefs_suites::crash::{self, Cuts};
use lanefs_suites::cuts::seen;
use lanefs_suites::fill::{Scale, fill};
use lanefs_suites::image::Image;
use lanefs_suites::library::Library;
use lanefs_suites::listing;
use lanefs_suites::random::seeds;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// Options for mke2fs. They set the shortest possible interval between two sequence numbers that a
/// mount stores.
const OPTIONS: &str = "-O mmp -E mmp_update_interval=1";

fn superblock(device: &dyn Device) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).expect("the superblock");
    Superblock::decode(&bytes).expect("a superblock")
}

/// Returns the offset of the mmp block, its bytes, and the file system's checksums.
fn block(device: &dyn Device) -> (u64, Vec<u8>, Checksums) {
    let superblock = superblock(device);
    let size = superblock.geometry().block_size().bytes();
    let offset = superblock.mmp_block().expect("a block").0 * size as u64;
    let mut bytes = vec![0; size];
    device.read_at(offset, &mut bytes).expect("the block");
    (offset, bytes, superblock.checksums())
}

fn read(device: &dyn Device) -> Mmp {
    let (_, bytes, checksums) = block(device);
    Mmp::decode(&bytes, checksums).expect("a valid block")
}

fn put(device: &dyn Device, mmp: &Mmp) {
    let (offset, mut bytes, checksums) = block(device);
    mmp.encode_into(&mut bytes, checksums).expect("a block");
    device.write_at(offset, &bytes).expect("the block is written");
}

fn all(device: &RamDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("the whole device");
    bytes
}

fn open(device: &Arc<RamDevice>) -> Result<Mount, lanefs_ext4::Error> {
    Mount::open(device.clone(), MountOptions::default())
}

/// Waits until `is_so` returns true; panics after a minute.
fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("it did not happen within a minute");
}

#[test]
fn a_mount_counts_and_leaves_the_block_clean() {
    for options in [OPTIONS, "-b 4096 -O mmp,^metadata_csum,^metadata_csum_seed,^has_journal"] {
        let Some(image) = Image::make(options, "32M") else { return };
        let ram = Arc::new(RamDevice::from_file(image.path()).expect("the image is read"));
        let mount = open(&ram).expect("it mounts");
        assert!(!mount.fs().is_read_only());
        let seen = read(&*ram);
        assert!(matches!(seen.state, Use::Mounted(_)), "{seen:?}");
        assert!(!seen.node.is_empty() && seen.check_interval >= 5, "{seen:?}");
        if options == OPTIONS {
            wait_until(|| read(&*ram).state != seen.state);
        }
        mount.close().expect("it unmounts");
        assert_eq!(read(&*ram).state, Use::Clean);
        ram.to_file(image.path()).expect("the image is written");
        image.assert_clean(options);
    }
}

#[test]
fn a_crash_leaves_the_number_of_the_mount_and_keeps_its_promises() {
    // The interval is so long that the mount does not change its sequence number during the test.
    // Therefore the same seed always leads to the same crashes.
    let set = ("-b 1024 -J size=1 -N 600 -O mmp -E mmp_update_interval=300", "14M");
    for seed in seeds(1) {
        let found = crash::check_on(set, seed, 60, Cuts::About(12));
        println!("seed {seed}: {}", found.unwrap_or_else(|why| panic!("{why}")));
    }
}

#[test]
fn a_file_system_that_e2fsck_checks_is_not_written() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let ram = Arc::new(RamDevice::from_file(image.path()).expect("the image is read"));
    put(&*ram, &Mmp { state: Use::Checked, node: b"elsewhere".to_vec(), ..read(&*ram) });
    let before = all(&ram);
    let refused = open(&ram).err().expect("a refusal");
    assert!(refused.to_string().contains("e2fsck was started on elsewhere at 2"), "{refused}");
    let refused = Offline::open(ram.clone()).err().expect("a refusal");
    assert!(refused.to_string().contains("elsewhere"), "{refused}");
    let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
    let reader = Mount::open(ram.clone(), options).expect("a reader takes no part");
    reader.close().expect("it unmounts");
    assert!(all(&ram) == before, "it wrote");
}

#[test]
fn a_damaged_block_is_reported() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let ram = Arc::new(RamDevice::from_file(image.path()).expect("the image is read"));
    let (offset, ..) = block(&*ram);
    ram.write_at(offset, &[0; 4]).expect("a write");
    let before = all(&ram);
    let refused = open(&ram).err().expect("a refusal");
    assert!(refused.to_string().contains("multiple mount protection, block"), "{refused}");
    assert!(all(&ram) == before, "it wrote");
}

#[test]
fn a_mount_that_another_computer_takes_over_writes_nothing_more() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let ram = Arc::new(RamDevice::from_file(image.path()).expect("the image is read"));
    let mount = open(&ram).expect("it mounts");
    let thief = Mmp { state: Use::Mounted(5), node: b"thief".to_vec(), ..read(&*ram) };
    let root = mount.fs().root().expect("the root");
    let touched = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    wait_until(|| {
        // Writes the block again and again, because the mount may overwrite it with its next
        // sequence number before the mount next checks the block.
        put(&*ram, &thief);
        mount.fs().set_attr(&root, &touched).and_then(|_| mount.fs().sync()).is_err()
    });
    drop(root);
    let before = all(&ram);
    let failed = mount.close().expect_err("it lost the right to write");
    assert!(failed.to_string().contains("in use by thief"), "{failed}");
    assert!(all(&ram) == before, "it wrote");
}

#[test]
fn a_file_system_that_the_kernel_has_mounted_is_refused() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let Some(kernel) = image.kernel_mount("") else { return };
    // This device takes no lock on the image file, so only `mmp` protects the file system. This is
    // also the case for a disk that computers share in a network.
    let shared = Arc::new(Shared::open(&image));
    let refused = Mount::open(shared.clone(), MountOptions::default()).err().expect("a refusal");
    let told = refused.to_string();
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(told.contains(&format!("in use by {node} (device loop")), "{told}");
    let refused = Offline::open(shared).err().expect("a refusal");
    assert!(refused.to_string().contains("(device loop"), "{refused}");
    kernel.unmount();
    image.assert_clean("after the kernel's mount");
    let mount = Mount::open(image.device(), MountOptions::default()).expect("it mounts");
    mount.close().expect("it unmounts");
}

#[test]
fn changes_without_a_mount_leave_the_block_clean() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let ram = Arc::new(RamDevice::from_file(image.path()).expect("the image is read"));
    let draft = Draft::open(ram.clone()).expect("changes begin");
    assert!(matches!(read(&*ram).state, Use::Mounted(_)), "{:?}", read(&*ram));
    let mount = Mount::open(draft.device(), MountOptions::default()).expect("the view mounts");
    let ops = fill(Scale { files: 20, ..Scale::of_image(32, 1024) });
    run_all(&mut Library::new(mount.fs()), "Lanefs", &ops);
    mount.close().expect("the view unmounts");
    draft.publish().expect("the changes are written");
    assert_eq!(read(&*ram).state, Use::Clean);
    ram.to_file(image.path()).expect("the image is written");
    image.assert_clean("changed without a mount");
}

#[test]
#[ignore = "long: the kernel waits for 11 seconds"]
fn the_kernel_refuses_a_file_system_that_is_mounted_here() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    if image.kernel_mount("").map(|kernel| kernel.unmount()).is_none() {
        return;
    }
    let shared = Arc::new(Shared::open(&image));
    let mount = Mount::open(shared, MountOptions::default()).expect("it mounts");
    let at = lanefs_suites::image::folder();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "ext4", "-o", "loop"])
        .args([image.path(), at.path()])
        .output()
        .expect("mount runs");
    assert!(!mounted.status.success(), "{mounted:?}");
    mount.close().expect("it unmounts: it never lost the right");
    image.assert_clean("after the kernel's attempt");
}

#[test]
#[ignore = "long: the waits of the protocol"]
fn a_file_system_of_a_dead_mount_is_taken_after_the_waits() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let ram = Arc::new(RamDevice::from_file(image.path()).expect("the image is read"));
    put(&*ram, &Mmp { state: Use::Mounted(5), node: b"dead".to_vec(), ..read(&*ram) });
    let begun = std::time::Instant::now();
    open(&ram).expect("it mounts").close().expect("it unmounts");
    assert!(begun.elapsed() >= Duration::from_secs(22), "{:?}", begun.elapsed());
    assert_eq!(read(&*ram).state, Use::Clean);
}

#[test]
#[ignore = "long: the waits of the protocol"]
fn a_crashed_file_system_is_recovered_after_the_waits() {
    let Some(image) = Image::make(OPTIONS, "32M") else { return };
    let ram = Arc::new(RamDevice::from_file(image.path()).expect("the image is read"));
    let mount = open(&ram).expect("it mounts");
    let ops = fill(Scale { files: 20, ..Scale::of_image(32, 1024) });
    run_all(&mut Library::new(mount.fs()), "Lanefs", &ops);
    mount.fs().sync().expect("a commit");
    let crashed = || {
        let copy = Image::empty();
        ram.to_file(copy.path()).expect("a copy");
        copy
    };
    let live = listing::of_library(mount.fs()).expect("the tree").content();
    let after = |image: &Image, least: u64, what: &str, recover: &dyn Fn(&Image)| {
        let begun = std::time::Instant::now();
        recover(image);
        let waited = begun.elapsed();
        println!("{what}: {waited:?}");
        assert!(waited >= Duration::from_secs(least), "{what}: {waited:?}");
        assert_eq!(read(&*image.device()).state, Use::Clean, "{what}");
        image.assert_clean(what);
        live.assert_same(&seen(image.device()).content(), what);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mount = |image: &Image| both::open(image).close().expect("it unmounts");
            after(&crashed(), 22, "a mount", &mount);
        });
        scope.spawn(|| {
            let recover = |image: &Image| {
                lanefs_offline::recover(&image.device()).expect("a recovery");
            };
            after(&crashed(), 22, "a recovery", &recover);
        });
        scope.spawn(|| {
            let repair = |image: &Image| assert!(image.repair().only_replayed());
            after(&crashed(), 11, "e2fsck", &repair);
        });
        scope.spawn(|| {
            let image = crashed();
            let mount = |image: &Image| {
                if let Some(kernel) = image.kernel_mount("") {
                    kernel.unmount();
                }
            };
            after(&image, 11, "the kernel", &mount);
        });
        // A check never waits to see whether another computer uses the file system, because a check
        // only reads.
        let begun = std::time::Instant::now();
        let options = lanefs_check::Options::default();
        let report = lanefs_check::check(crashed().device(), &options, &|_| {});
        let report = report.expect("a file system");
        assert_eq!(report.verdict(), lanefs_check::Verdict::Clean, "{:?}", report.findings);
        assert!(begun.elapsed() < Duration::from_secs(11), "a check waited");
    });
}

/// An image file that is used without locks, like a disk that two computers share.
struct Shared(File);

impl Shared {
    fn open(image: &Image) -> Shared {
        let opened = File::options().read(true).write(true).open(image.path());
        Shared(opened.expect("the image opens"))
    }
}

impl Device for Shared {
    fn len(&self) -> u64 {
        self.0.metadata().expect("its length").len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8], _: ReadKind) -> Result<(), DeviceError> {
        let failed = |error| DeviceError::new(Operation::Read, offset, 0, error);
        self.0.read_exact_at(buf, offset).map_err(failed)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], _: WriteKind) -> Result<(), DeviceError> {
        let failed = |error| DeviceError::new(Operation::Write, offset, 0, error);
        self.0.write_all_at(&bufs.concat(), offset).map_err(failed)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn the_checker_finds_a_number_that_no_mount_uses_and_the_repair_sets_it_to_clean() {
    for options in [OPTIONS, "-b 4096 -O mmp,^metadata_csum,^metadata_csum_seed"] {
        let Some(image) = Image::make(options, "32M") else { return };
        for number in [LAST_SEQUENCE + 2, 0xff4d_4d4f, u32::MAX] {
            let device = image.device();
            put(&*device, &Mmp { state: Use::Mounted(number), ..read(&*device) });
            drop(device);
            let found = Verdicts::of(image.path());
            assert!(!found.is_clean_for_e2fsck(), "{number:#x}: {}", found.text);
            assert!(!found.is_clean_for_lanefs(), "{number:#x}: {:?}", found.report);
            let device = image.device();
            let plan = repair::plan(device.clone(), repair::Shared::Clone).expect("a plan");
            assert!(!plan.leaves_faults(), "{:?}", plan.after.findings);
            let (recovery, blocks) = (plan.recovery().unwrap(), plan.repair().unwrap());
            let mend = Repair { recovery, blocks, block_size: plan.block_size() };
            mend.write_in_place(&*device).expect("it is written");
            assert_eq!(read(&*device).state, Use::Clean);
            drop((plan, device));
            image.assert_clean(options);
            assert!(Verdicts::of(image.path()).agree());
        }
    }
}
