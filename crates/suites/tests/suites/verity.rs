//! Power cuts while verity is enabled on a file. Lanefs and e2fsck judge the results.

use lanefs_device::{Device, Kept, OverlayDevice, RecordingDevice};
use lanefs_ext4::{FileDigest, Fs, InodeRef, Mount, NewInode, NewKind, NewVerity, Privilege};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_suites::home;
use lanefs_suites::image::Scratch;
use lanefs_suites::together::Bases;
use std::sync::Arc;

/// The options for mke2fs, and the size of the image.
const SETS: [(&str, &str); 3] = [
    ("-b 1024 -J size=1 -O verity", "8M"),
    ("-b 4096 -J size=4 -O verity,encrypt,^metadata_csum,^metadata_csum_seed", "16M"),
    ("-b 1024 -J size=1 -O verity,bigalloc -C 4096", "16M"),
];

/// The size of the file in bytes. With this size the last block is not full, and the hash tree has
/// two levels.
const SIZE: usize = 150_300;

fn mount(device: Arc<dyn Device>) -> Mount {
    Mount::open(device, home::options()).expect("Lanefs mounts it")
}

fn found(fs: &Fs) -> InodeRef {
    let dir = home::of_library(fs).expect("the directory");
    fs.find(&dir, b"f").expect("the directory is read").expect("the file")
}

fn bytes() -> Vec<u8> {
    (0..SIZE).map(|n| (n / 1000 * 7 + n % 251) as u8).collect()
}

/// Writes the file to a new image.
fn filled(options: &'static str, size: &'static str) -> Option<Arc<OverlayDevice>> {
    let image = Arc::new(Bases::default().fresh(options, size)?);
    let mounted = mount(image.clone());
    let fs = mounted.fs();
    let dir = home::of_library(fs).expect("the directory");
    let kind = NewKind::Regular;
    let new = NewInode { kind, permissions: 0o644, umask: 0, uid: 0, gid: 0 };
    let file = fs.create(&dir, b"f", &new).expect("a new name");
    assert_eq!(fs.write_at(&file, 0, &bytes(), Privilege::Root).expect("a write"), SIZE);
    drop((dir, file));
    mounted.close().expect("closed");
    Some(image)
}

/// Enables verity on the file while another thread commits all the time, so that commits happen
/// between the steps of the operation.
fn made_among_commits(fs: &Fs) -> FileDigest {
    let (file, done) = (found(fs), AtomicBool::new(false));
    let new = NewVerity { block_bytes: Some(1024), ..NewVerity::default() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                fs.sync().expect("committed");
            }
        });
        let made = fs.enable_verity(&file, &new, Privilege::Root);
        done.store(true, Ordering::Release);
        made.expect("a verity file")
    })
}

#[test]
fn after_a_crash_a_file_is_a_verity_file_or_as_before() {
    for (options, size) in SETS {
        let Some(image) = filled(options, size) else { return };
        let device = Arc::new(RecordingDevice::since(image.fork(), Arc::new(image.fork())));
        let mounted = mount(device.clone());
        let digest = made_among_commits(mounted.fs());
        mounted.close().expect("closed");
        let scratch = Scratch::new(&*image).expect("a file");
        let recording = device.recording();
        let mut replay = recording.replay();
        let (mut before, mut after) = (0, 0);
        for cut in 0..=recording.events().len() {
            for kept in [Kept::None, Kept::All, Kept::Some { seed: cut as u64 }] {
                let state = Arc::new(replay.state(cut, kept));
                let mounted = mount(state.clone());
                let context = format!("{options}: cut {cut}, {kept:?}");
                let file = found(mounted.fs());
                let mut read = vec![0; SIZE + 1];
                let len = mounted.fs().read_at(&file, 0, &mut read).expect(&context);
                assert!(read[..len] == bytes(), "{context}: other bytes");
                match mounted.fs().file_digest(&file).expect(&context) {
                    Some(found) => {
                        assert_eq!(found, digest, "{context}");
                        after += 1;
                    }
                    None => before += 1,
                }
                drop(file);
                mounted.close().expect("closed");
                scratch.put(&state).expect("written").assert_clean(&context);
            }
        }
        println!("{options}: {before} states before, {after} after");
        assert!(before > 0 && after > 0, "{options}");
    }
}
