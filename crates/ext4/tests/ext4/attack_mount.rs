//! Tests mounts of images in unusual states: not clean, with a log that changes the superblock,
//! left by a mount that failed halfway, or with a torn superblock.

use crate::image::{Image, file};
use lanefs_device::{Device, Event, OverlayDevice, RamDevice, RecordingDevice};
use lanefs_ext4::{
    Access, Error, Mount, MountOptions, Primary, Privilege, SyncMode, Wholeness, Witness, log,
};
use lanefs_ondisk::Ino;
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::jbd2::MAGIC;
use lanefs_ondisk::superblock::{OrphanEntries, Recovery, State, Superblock};
use std::collections::BTreeMap;
use std::sync::Arc;

fn superblock(device: &dyn Device) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    Superblock::decode(&bytes).unwrap()
}

fn state(image: &Image) -> State {
    superblock(&RamDevice::from_file(image.path()).unwrap()).state()
}

#[test]
fn without_a_journal_a_dirty_file_system_stays_dirty_after_the_next_mount() {
    for found in [State::empty(), State::VALID, State::ERROR, State::VALID | State::ERROR] {
        let image = Image::made(&["-O", "^has_journal"], "16M");
        image.debugfs(&[&format!("ssv state {}", found.bits())]);
        let mount = image.mount(Access::ReadWrite);
        mount.fs().create(&mount.fs().root().unwrap(), b"name", &file(0o644)).unwrap();
        mount.fs().sync().unwrap();
        assert_eq!(state(&image), found - State::VALID, "while mounted");
        mount.close().unwrap();
        assert_eq!(state(&image), found);
    }
}

#[test]
fn an_error_that_aborted_the_log_marks_the_file_system() {
    let image = Image::made(&["-b", "1024", "-O", "^metadata_csum"], "16M");
    let device = Arc::new(RamDevice::from_file(image.path()).unwrap());
    let log = superblock(&*device).raw().s_jnl_blocks[5].get();
    // `log` is the block at which the first extent of the journal's inode starts. The big-endian
    // field s_errno is at byte 0x20 of this block.
    device.write_at(u64::from(log) * 1024 + 0x20, &(-5i32).to_be_bytes()).unwrap();
    Mount::open(device.clone(), MountOptions::default()).unwrap().close().unwrap();
    assert!(superblock(&*device).state().contains(State::ERROR));
}

/// Creates an image whose log contains a superblock that was changed by `change`.
fn changed_in_the_log(options: &[&str], change: impl Fn(&mut [u8])) -> Image {
    let image = Image::made(&[&["-b", "1024", "-O", "^metadata_csum"], options].concat(), "16M");
    let copy = image.path().with_extension("superblock");
    let mut bytes = std::fs::read(image.path()).unwrap()[1024..2048].to_vec();
    // debugfs sets this flag in the superblock on the device when it writes to the log. So the copy
    // in the log has it too.
    bytes[0x60] |= Incompat::RECOVER.bits() as u8;
    change(&mut bytes);
    std::fs::write(&copy, bytes).unwrap();
    let commands = image.path().with_extension("commands");
    std::fs::write(&commands, format!("jo\njw -b 1 {}\njc\n", copy.display())).unwrap();
    let mut debugfs = std::process::Command::new("debugfs");
    debugfs.arg("-w").arg("-f").arg(&commands).arg(image.path());
    assert!(debugfs.output().unwrap().status.success());
    let now = superblock(&RamDevice::from_file(image.path()).unwrap());
    assert!(now.features().incompat.contains(Incompat::RECOVER), "the log holds nothing");
    image
}

fn set(bytes: &mut [u8], at: usize, bits: u32) {
    let old = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    bytes[at..at + 4].copy_from_slice(&(old | bits).to_le_bytes());
}

#[test]
fn features_that_the_log_switches_on_count() {
    let refused = [Incompat::COMPRESSION, Incompat::DIRDATA];
    for feature in refused {
        let image = changed_in_the_log(&[], |bytes| set(bytes, 0x60, feature.bits()));
        let before = std::fs::read(image.path()).unwrap();
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let refused = image.try_mount(access, MountOptions::default()).err();
            assert!(matches!(refused, Some(Error::Unsupported(_))), "{feature:?}: {refused:?}");
        }
        assert!(std::fs::read(image.path()).unwrap() == before, "{feature:?}: it wrote");
    }
    for feature in
        [RoCompat::READONLY, RoCompat::SHARED_BLOCKS, RoCompat::from_bits_retain(1 << 31)]
    {
        let image = changed_in_the_log(&[], |bytes| set(bytes, 0x64, feature.bits()));
        let before = std::fs::read(image.path()).unwrap();
        let mount = image.mount(Access::ReadWrite);
        assert!(mount.fs().is_read_only(), "{feature:?}");
        mount.close().unwrap();
        assert!(std::fs::read(image.path()).unwrap() == before, "{feature:?}: it wrote");
    }
}

#[test]
fn a_log_that_changes_its_own_location_is_refused() {
    fn word(at: usize, value: u32) -> impl Fn(&mut [u8]) {
        move |bytes| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes())
    }
    type Change = Box<dyn Fn(&mut [u8])>;
    let changes: [(&str, Change); 6] = [
        ("bigalloc", Box::new(|bytes| set(bytes, 0x64, RoCompat::BIGALLOC.bits()))),
        ("fewer blocks", Box::new(word(4, 15000))),
        (
            "blocks per group",
            Box::new(|bytes| {
                word(0x20, 8184)(bytes);
                word(0x24, 8184)(bytes);
            }),
        ),
        ("inode size", Box::new(|bytes| bytes[0x58..0x5a].copy_from_slice(&128u16.to_le_bytes()))),
        ("another journal", Box::new(word(0xe0, 11))),
        ("checksums", Box::new(|bytes| set(bytes, 0x64, RoCompat::GDT_CSUM.bits()))),
    ];
    for (what, change) in changes {
        let image = changed_in_the_log(&["-I", "256"], change);
        let before = std::fs::read(image.path()).unwrap();
        let refused = image.try_mount(Access::ReadWrite, MountOptions::default()).err();
        assert!(refused.is_some_and(|error| error.errno() == 117), "{what}");
        assert!(std::fs::read(image.path()).unwrap() == before, "{what}: it wrote");
    }
}

#[test]
fn a_mount_that_fails_halfway_still_says_that_there_are_orphans() {
    let image = Image::made(&["-b", "1024", "-O", "orphan_file,^metadata_csum"], "16M");
    // An entry of the orphan file has an invalid inode number, and the feature `orphan_present`
    // says that the file has entries.
    let said = image.debugfs(&["feature orphan_present", "blocks <12>"]);
    let block = said.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap();
    let device = Arc::new(RamDevice::from_file(image.path()).unwrap());
    device.write_at(block * 1024, &1_000_000u32.to_le_bytes()).unwrap();
    assert!(Mount::open(device.clone(), MountOptions::default()).is_err());
    let left = superblock(&*device);
    assert!(left.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT));
    assert_eq!(left.state(), State::VALID | State::ERROR);
}

#[test]
fn a_mount_without_a_journal_that_fails_halfway_leaves_the_file_system_not_clean() {
    let image = Image::made(&["-b", "1024", "-O", "^has_journal,^metadata_csum"], "16M");
    image.debugfs(&["ssv last_orphan 2000"]);
    let device = Arc::new(RamDevice::from_file(image.path()).unwrap());
    assert!(Mount::open(device.clone(), MountOptions::default()).is_err());
    let left = superblock(&*device);
    assert_eq!((left.state(), left.last_orphan()), (State::ERROR, Some(Ino(2000))));
}

/// Records the device operations while a file system is mounted, changed and closed.
fn work(base: &Arc<RamDevice>) -> Arc<RecordingDevice> {
    let recording = Arc::new(RecordingDevice::new(base.clone()).unwrap());
    let mount = Mount::open(recording.clone(), MountOptions::default()).unwrap();
    let fs = mount.fs();
    let made = fs.create(&fs.root().unwrap(), b"first", &file(0o644)).unwrap();
    fs.write_at(&made, 0, b"contents", Privilege::Root).unwrap();
    fs.fsync(&made, SyncMode::Full).unwrap();
    for n in 0..200u32 {
        fs.create(&fs.root().unwrap(), format!("n{n}").as_bytes(), &file(0o644)).unwrap();
    }
    fs.sync().unwrap();
    drop(made);
    mount.close().unwrap();
    recording
}

/// Returns device states in which a write of the superblock was torn: one of its two sectors is
/// old, and the other is new. Each state is returned with the index of its write in the recorded
/// events.
fn torn(recording: &RecordingDevice) -> Vec<(usize, OverlayDevice)> {
    let all = recording.recording();
    let mut states = Vec::new();
    for (n, event) in all.events().iter().enumerate() {
        let (Event::Write { offset, data } | Event::DurableWrite { offset, data }) = event else {
            continue;
        };
        let (start, end) = (*offset, offset + data.len() as u64);
        if start > 1024 || end < 2048 {
            continue;
        }
        for sectors in [start..1536, 1536..end] {
            let state = all.image_at(n);
            let from = (sectors.start - start) as usize..(sectors.end - start) as usize;
            state.write_at(sectors.start, &data[from]).unwrap();
            let mut bytes = [0; 1024];
            state.read_at(1024, &mut bytes).unwrap();
            if Superblock::decode(&bytes).is_err() {
                states.push((n, state));
            }
        }
    }
    states
}

#[test]
fn a_torn_superblock_is_read_with_the_help_of_a_backup_or_of_the_log() {
    let several_groups: [&[&str]; 3] =
        [&["-b", "1024"], &["-b", "4096", "-g", "2048"], &["-b", "1024", "-O", "^has_journal"]];
    for options in several_groups {
        let image = Image::made(options, "20M");
        let base = Arc::new(RamDevice::from_file(image.path()).unwrap());
        let recording = work(&base);
        let states = torn(&recording);
        assert!(states.len() >= 4, "{options:?}: {} torn states", states.len());
        println!("{options:?}: {} torn states", states.len());
        for (k, (n, state)) in states.into_iter().enumerate() {
            let read = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
            Mount::open(Arc::new(state.fork()), read).expect("it can be read");
            let state = Arc::new(state);
            let mount = Mount::open(state.clone(), MountOptions::default())
                .unwrap_or_else(|error| panic!("{options:?}, event {n}: {error}"));
            mount.close().unwrap();
            // Without a journal the crash leaves damage in addition to the torn superblock, so
            // e2fsck is not run.
            if k % 4 == 0 && !options.contains(&"^has_journal") {
                RamDevice::copy_of(&*state).unwrap().to_file(image.path()).unwrap();
                image.check();
            }
        }
    }
}

#[test]
fn a_torn_superblock_of_a_single_group_is_read_only_with_the_help_of_the_log() {
    let image = Image::made(&["-b", "4096"], "20M");
    let states = torn(&work(&Arc::new(RamDevice::from_file(image.path()).unwrap())));
    let mut with_help = 0;
    for (n, state) in states {
        let state = Arc::new(state);
        match (Primary::read(&*state), Mount::open(state.clone(), MountOptions::default())) {
            (Ok(primary), Ok(mount)) => {
                assert_eq!(primary.wholeness, Wholeness::Torn(Witness::Log), "event {n}");
                mount.close().unwrap();
                with_help += 1;
            }
            (Err(told), Err(error)) => assert_eq!((told.errno(), error.errno()), (117, 117)),
            _ => panic!("event {n}: one reads it, the other does not"),
        }
    }
    assert!(with_help > 0, "the log holds it while it is written in place");
}

#[test]
fn a_superblock_that_is_damaged_otherwise_is_refused() {
    let image = Image::made(&["-b", "1024"], "48M");
    let base = RamDevice::from_file(image.path()).unwrap();
    // Each pass flips one bit: in the number of blocks, the hash seed, the incompatible features,
    // the journal's inode number, the magic number, and the blocks per group.
    for (at, flip) in [(4, 1), (0xec, 1), (0x61, 0x10), (0xe0, 2), (0x38, 1), (0x20, 8)] {
        let device = OverlayDevice::new(Arc::new(RamDevice::copy_of(&base).unwrap()), u64::MAX);
        let mut byte = [0];
        device.read_at(1024 + at, &mut byte).unwrap();
        device.write_at(1024 + at, &[byte[0] ^ flip]).unwrap();
        let refused = Mount::open(Arc::new(device), MountOptions::default()).err();
        assert!(refused.is_some_and(|error| error.errno() == 117), "byte {at:#x}");
    }
}

/// Returns the transaction numbers in the log, each with the positions of the blocks that have this
/// number; also the number in the journal's superblock, with which the log starts or continues.
fn numbers(device: &dyn Device) -> (BTreeMap<u32, Vec<u64>>, u32) {
    let log = log::find(device, &superblock(device), Ino::JOURNAL).unwrap();
    let mut found: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for n in 1..log.map.len() {
        let at = log.map.place(n).unwrap().0.0 * 1024;
        let mut head = [0; 12];
        device.read_at(at, &mut head).unwrap();
        if head[..4] == MAGIC.to_be_bytes() {
            let number = u32::from_be_bytes(head[8..].try_into().unwrap());
            found.entry(number).or_default().push(at);
        }
    }
    (found, log.superblock.sequence().0)
}

/// The superblock does not request the replay of the log, so a mount empties the log. The mount's
/// scan of the log cannot find the third and later transactions, because the second transaction is
/// damaged.
#[test]
fn after_a_log_is_dropped_no_number_in_it_is_used_again() {
    let image = Image::made(&["-b", "1024"], "16M");
    let device = Arc::new(RamDevice::from_file(image.path()).unwrap());
    let mount = Mount::open(device.clone(), MountOptions::default()).unwrap();
    let make = |mount: &Mount, name: &str| {
        let root = mount.fs().root().unwrap();
        let made = mount.fs().create(&root, name.as_bytes(), &file(0o644)).unwrap();
        mount.fs().fsync(&made, SyncMode::Full).unwrap();
    };
    (0..12).for_each(|n| make(&mount, &n.to_string()));
    let used = RamDevice::copy_of(&*device).unwrap();
    drop(mount);
    for (at, damage) in [(0, &[0; 12][..]), (12, &[0xff; 20])] {
        let device = Arc::new(RamDevice::copy_of(&used).unwrap());
        let mut primary = superblock(&*device);
        primary.set_dirty_features(Recovery::NotNeeded, OrphanEntries::Absent);
        device.write_at(1024, &primary.encode()).unwrap();
        let (found, first) = numbers(&*device);
        let newest = *found.last_key_value().unwrap().0;
        assert!(newest > first + 8, "transactions {first} to {newest}");
        let descriptor = found[&(first + 1)][0];
        device.write_at(descriptor + at, damage).unwrap();
        let mount = Mount::open(device.clone(), MountOptions::default()).unwrap();
        make(&mount, "after");
        let (_, begins) = numbers(&*device);
        assert!(begins > newest, "transaction {begins} begins a log that has {newest}");
        mount.close().unwrap();
        device.to_file(image.path()).unwrap();
        image.check();
    }
}
