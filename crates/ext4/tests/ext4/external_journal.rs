//! Tests file systems whose journal is on a separate device. The journal is replayed, written and
//! marked clean. It is refused if the two devices do not belong together. A power cut on both
//! devices loses nothing that fsync promised.

use crate::image::{Image, file};
use lanefs_device::{
    Device, DeviceError, Kept, OverlayDevice, RamDevice, RecordingDevice, WriteKind, forward,
};
use lanefs_ext4::{Access, Error, Mount, MountOptions, Privilege, SyncMode, UnfitJournal};
use lanefs_lanes::{Mutex, Rank};
use lanefs_mkfs::{MkfsError, attach_journal, make_journal_device};
use lanefs_ondisk::BlockSize;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const UUID: [u8; 16] = *b"the journal's id";

/// A file system and its journal, in memory.
struct Pair {
    fs: Arc<RamDevice>,
    log: Arc<RamDevice>,
}

impl Pair {
    /// Makes a file system with mke2fs, and gives it a new journal of 1,024 blocks.
    fn new(block_size: usize, features: &str) -> Pair {
        let size = block_size.to_string();
        let image = Image::made(&["-b", &size, "-O", &format!("^has_journal{features}")], "24M");
        let fs = Arc::new(RamDevice::from_file(image.path()).unwrap());
        let log = log_of(block_size, UUID);
        attach_journal(&*fs, &*log, 0).unwrap();
        Pair { fs, log }
    }

    /// Writes copies of both devices into a directory, and runs e2fsck on them.
    fn check(&self, how: &[&str]) -> (tempfile::TempDir, i32) {
        check(&*self.fs, &*self.log, how)
    }
}

fn log_of(block_size: usize, uuid: [u8; 16]) -> Arc<RamDevice> {
    let log = RamDevice::create(1024 * block_size as u64).unwrap();
    make_journal_device(&log, BlockSize::new(block_size as u32).unwrap(), uuid, 1).unwrap();
    Arc::new(log)
}

/// Runs e2fsck on copies of both devices; returns the directory of the copies and e2fsck's exit
/// code.
fn check(fs: &dyn Device, log: &dyn Device, how: &[&str]) -> (tempfile::TempDir, i32) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (image, journal) = (dir.path().join("fs"), dir.path().join("log"));
    RamDevice::copy_of(fs).unwrap().to_file(&image).unwrap();
    RamDevice::copy_of(log).unwrap().to_file(&journal).unwrap();
    let checked = Command::new("e2fsck").args(how).arg("-j").arg(&journal).arg(&image).output();
    let checked = checked.expect("e2fsck runs");
    println!("{}", String::from_utf8_lossy(&checked.stdout));
    (dir, checked.status.code().unwrap())
}

fn options(journal: Arc<dyn Device>) -> MountOptions {
    MountOptions {
        journal: Some(journal),
        commit_interval: Duration::from_secs(3600),
        ..MountOptions::default()
    }
}

fn write(mount: &Mount, name: &str, bytes: &[u8]) {
    let fs = mount.fs();
    let inode = fs.create(&fs.root().unwrap(), name.as_bytes(), &file(0o644)).unwrap();
    fs.write_at(&inode, 0, bytes, Privilege::Root).unwrap();
    fs.fsync(&inode, SyncMode::Full).unwrap();
}

fn read(mount: &Mount, name: &str) -> Option<Vec<u8>> {
    let fs = mount.fs();
    let inode = fs.find(&fs.root().unwrap(), name.as_bytes()).unwrap()?;
    let mut bytes = vec![0; inode.attr().size as usize];
    fs.read_at(&inode, 0, &mut bytes).unwrap();
    Some(bytes)
}

/// Returns the number of log blocks that start with the magic number.
fn log_blocks(log: &dyn Device, block_size: usize) -> usize {
    let mut bytes = vec![0; log.len() as usize];
    log.read_at(0, &mut bytes).unwrap();
    let is_log = |block: &&[u8]| block.starts_with(&[0xc0, 0x3b, 0x39, 0x98]);
    bytes.chunks(block_size).filter(is_log).count()
}

#[test]
fn an_external_journal_is_written_replayed_and_left_clean() {
    for (block_size, features) in [(1024, ""), (4096, ",^metadata_csum,^64bit")] {
        let pair = Pair::new(block_size, features);
        let mount = Mount::open(pair.fs.clone(), options(pair.log.clone())).unwrap();
        write(&mount, "a", b"committed");
        // The states in which a power cut at this moment would leave the devices.
        let fs = Arc::new(RamDevice::copy_of(&pair.fs).unwrap());
        let log = Arc::new(RamDevice::copy_of(&pair.log).unwrap());
        assert!(log_blocks(&log, block_size) >= 3, "the transaction is in the log's device");
        mount.close().unwrap();
        assert_eq!(pair.check(&["-fn"]).1, 0, "clean after the unmount");

        // e2fsck replays the log that Lanefs wrote.
        let (dir, code) = check(&fs, &log, &["-fy"]);
        assert!(code <= 1, "e2fsck replays the log");
        assert_eq!(check_file(&dir.path().join("fs"), "a"), b"committed");

        // A replay by Lanefs has the same result, both in memory (read-only mount) and when it
        // writes to the devices.
        let read_only = MountOptions { access: Access::ReadOnly, ..options(log.clone()) };
        let mount = Mount::open(fs.clone(), read_only).unwrap();
        assert_eq!(read(&mount, "a").unwrap(), b"committed");
        mount.close().unwrap();
        let mount = Mount::open(fs.clone(), options(log.clone())).unwrap();
        assert_eq!(read(&mount, "a").unwrap(), b"committed");
        mount.close().unwrap();
        assert_eq!(check(&fs, &log, &["-fn"]).1, 0, "clean after the replay");
    }
}

fn check_file(image: &Path, name: &str) -> Vec<u8> {
    Command::new("debugfs").arg("-R").arg(format!("cat {name}")).arg(image).output().unwrap().stdout
}

#[test]
fn logs_that_wrap_many_times_on_their_device_stay_whole() {
    let pair = Pair::new(1024, "");
    let mount = Mount::open(pair.fs.clone(), options(pair.log.clone())).unwrap();
    for n in 0..300 {
        write(&mount, &format!("file-{n}"), &[n as u8; 3000]);
    }
    let (fs, log) = (RamDevice::copy_of(&pair.fs).unwrap(), RamDevice::copy_of(&pair.log).unwrap());
    mount.close().unwrap();
    let (dir, code) = check(&fs, &log, &["-fy"]);
    assert!(code <= 1);
    assert_eq!(check_file(&dir.path().join("fs"), "file-299"), [43; 3000]);
    assert_eq!(pair.check(&["-fn"]).1, 0);
}

#[test]
fn devices_that_do_not_belong_together_are_refused_by_uuid_and_nothing_is_written() {
    let pair = Pair::new(1024, "");
    let refused = |journal: Option<Arc<dyn Device>>| {
        let before = bytes_of(&*pair.fs);
        let options = MountOptions { journal, ..MountOptions::default() };
        let error = Mount::open(pair.fs.clone(), options).err().expect("refused");
        assert_eq!(bytes_of(&*pair.fs), before);
        error
    };
    let why = |error| match error {
        Error::JournalDevice { uuid, why } => {
            assert_eq!(uuid, UUID);
            why
        }
        other => panic!("{other}"),
    };
    let missing = refused(None);
    let words = missing.to_string();
    assert!(words.contains("74686520-6a6f-7572-6e61-6c2773206964"), "{words}");
    assert!(words.ends_with(": it is not given"), "{words}");
    assert_eq!(why(missing), UnfitJournal::Missing);
    let other = log_of(1024, [7; 16]);
    assert_eq!(why(refused(Some(other))), UnfitJournal::OtherUuid { found: [7; 16] });
    let unused = log_of(1024, UUID);
    assert_eq!(why(refused(Some(unused))), UnfitJournal::NotAUser);
    let large = log_of(4096, UUID);
    let sizes = UnfitJournal::BlockSize { found: 4096, needs: 1024 };
    assert_eq!(why(refused(Some(large))), sizes);
    let no_journal = why(refused(Some(pair.fs.clone())));
    assert!(matches!(no_journal, UnfitJournal::NotAJournal { .. }));
    let short = Arc::new(RamDevice::create(512).unwrap());
    assert!(matches!(why(refused(Some(short))), UnfitJournal::TooShort { has: 512, .. }));
    // The journal's superblock says that the journal has a second user.
    let shared = Arc::new(RamDevice::copy_of(&pair.log).unwrap());
    shared.write_at(2048 + 0x40, &2u32.to_be_bytes()).unwrap();
    assert_eq!(why(refused(Some(shared))), UnfitJournal::Shared);
    // The first block of the log is set to the block of the journal's superblock.
    let hostile = Arc::new(RamDevice::copy_of(&pair.log).unwrap());
    hostile.write_at(2048 + 0x14, &2u32.to_be_bytes()).unwrap();
    assert!(matches!(refused(Some(hostile)), Error::Corruption(_)));
    // The journal belongs to one file system, and cannot be attached to a second one.
    let second = Image::made(&["-b", "1024", "-O", "^has_journal"], "8M");
    let second = RamDevice::from_file(second.path()).unwrap();
    let error = attach_journal(&second, &*pair.log, 0).unwrap_err();
    assert!(matches!(error, MkfsError::Unfit(UnfitJournal::Shared)), "{error}");
    // A file system with its journal in a file refuses a journal device.
    let inside = Image::made(&["-b", "1024"], "8M");
    let inside = Arc::new(RamDevice::from_file(inside.path()).unwrap());
    let error = Mount::open(inside, options(pair.log.clone())).err().expect("refused");
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_clean_file_system_is_read_without_its_journal_and_a_dirty_one_is_not() {
    let pair = Pair::new(1024, "");
    let read_only = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
    Mount::open(pair.fs.clone(), read_only.clone()).unwrap().close().unwrap();
    let mount = Mount::open(pair.fs.clone(), options(pair.log.clone())).unwrap();
    write(&mount, "a", b"committed");
    let fs = Arc::new(RamDevice::copy_of(&pair.fs).unwrap());
    mount.close().unwrap();
    let error = Mount::open(fs, read_only).err().expect("refused");
    assert!(matches!(error, Error::JournalDevice { why: UnfitJournal::Missing, .. }));
}

/// Forwards to one of two devices. After each write and each flush, notes how many events each of
/// the two devices has recorded.
struct Noting {
    device: Arc<RecordingDevice>,
    both: [Arc<RecordingDevice>; 2],
    cuts: Arc<Mutex<Vec<[usize; 2]>>>,
}

impl Noting {
    fn note<T>(&self, done: T) -> T {
        let marks = self.both.each_ref().map(|device| device.mark());
        self.cuts.lock().push(marks);
        done
    }
}

impl Device for Noting {
    forward!(device: len, alignment, row_len, is_read_only, read, discard);
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.note(self.device.write(offset, bufs, kind))
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.note(self.device.flush())
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.note(self.device.write_zeros(offset, len))
    }
}

/// The power of both devices fails at once, after each write or flush. Each device then has its
/// flushed writes, and any subset of its other writes.
#[test]
fn synced_changes_survive_a_power_cut_of_both_devices() {
    let pair = Pair::new(1024, "");
    let record = |device: &Arc<RamDevice>| Arc::new(RecordingDevice::new(device.clone()).unwrap());
    let both = [record(&pair.fs), record(&pair.log)];
    let cuts = Arc::new(Mutex::new(Rank::Bucket, Vec::new()));
    let noting = |n: usize| -> Arc<dyn Device> {
        let (device, both) = (both[n].clone(), both.clone());
        Arc::new(Noting { device, both, cuts: cuts.clone() })
    };
    let mount = Mount::open(noting(0), options(noting(1))).unwrap();
    let mut promises = Vec::new();
    for n in 0..24u8 {
        let name = format!("f{n}");
        write(&mount, &name, &[n; 9000]);
        promises.push((cuts.lock().len(), name, n));
        let root = mount.fs().root().unwrap();
        if n % 4 == 3 {
            mount.fs().unlink(&root, format!("f{}", n - 1).as_bytes()).unwrap();
            promises.retain(|(_, name, _)| *name != format!("f{}", n - 1));
        }
    }
    mount.close().unwrap();

    let recordings = both.each_ref().map(|device| device.recording());
    let [mut fs_states, mut log_states] = recordings.each_ref().map(|recording| recording.replay());
    let cuts = cuts.lock().clone();
    let mut checked = 0;
    for (at, [fs_cut, log_cut]) in cuts.iter().enumerate() {
        let seed = at as u64;
        println!("cut {at}: {fs_cut} and {log_cut} events");
        for (of_fs, of_log) in [
            (Kept::None, Kept::None),
            (Kept::All, Kept::None),
            (Kept::None, Kept::All),
            (Kept::Torn { seed }, Kept::Some { seed: seed + 1 }),
        ] {
            let fs: Arc<OverlayDevice> = Arc::new(fs_states.state(*fs_cut, of_fs));
            let log: Arc<OverlayDevice> = Arc::new(log_states.state(*log_cut, of_log));
            let mount = Mount::open(fs.clone(), options(log.clone()))
                .unwrap_or_else(|error| panic!("{of_fs:?} {of_log:?}: {error}"));
            // `promises` does not list the files that the test deleted: a crash may leave them.
            for (promised, name, n) in &promises {
                if *promised <= at + 1 {
                    assert_eq!(
                        read(&mount, name),
                        Some(vec![*n; 9000]),
                        "{name} {of_fs:?} {of_log:?}"
                    );
                }
            }
            mount.close().unwrap();
            if at % 23 == 0 {
                assert_eq!(check(&*fs, &*log, &["-fn"]).1, 0, "{of_fs:?} {of_log:?}");
                checked += 1;
            }
        }
    }
    println!("{} cuts, e2fsck on {checked} states", cuts.len());
    assert!(cuts.len() > 100 && checked > 20);
}
