//! Tests devices that are files or block devices of the host, and compares their contents with what
//! the host sees.

#[path = "files/nbd.rs"]
mod nbd;
#[path = "files/partitions.rs"]
mod partitions;

use lanefs_device::{Access, Device, FileDevice, OpenError, OpenOptions, RamDevice, User};
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

fn part_at(offset: u64, len: Option<u64>) -> OpenOptions {
    OpenOptions { offset, len, ..OpenOptions::default() }
}

fn open(path: &Path, access: Access) -> Result<FileDevice, OpenError> {
    FileDevice::open(path, access, OpenOptions::default())
}

#[test]
fn a_writer_excludes_all_others_and_readers_share() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let writer = FileDevice::create(&path, 1 << 20).unwrap();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        assert!(matches!(open(&path, access), Err(OpenError::InUse { .. })));
    }
    drop(writer);
    let reader = open(&path, Access::ReadOnly).unwrap();
    let second = open(&path, Access::ReadOnly).unwrap();
    assert!(matches!(open(&path, Access::ReadWrite), Err(OpenError::InUse { .. })));
    assert!(reader.write_at(0, &[1]).is_err());
    drop((reader, second));
    open(&path, Access::ReadWrite).unwrap();
}

#[test]
fn a_part_of_a_file_is_a_device_and_nothing_beyond_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![7; 10_000]).unwrap();
    let part = part_at(1000, Some(5000));
    let device = FileDevice::open(&path, Access::ReadWrite, part).unwrap();
    assert_eq!(device.len(), 5000);
    device.write_vectored_at(0, &[&[1; 10], &[], &[2; 10]]).unwrap();
    device.write_durable_at(4990, &[3; 10]).unwrap();
    device.write_zeros(100, 4000).unwrap();
    assert!(device.write_at(4991, &[3; 10]).is_err());
    assert!(device.write_at(u64::MAX, &[3; 10]).is_err());
    device.flush().unwrap();
    let mut got = [0; 20];
    device.read_at(0, &mut got).unwrap();
    assert_eq!(got[..], [[1; 10], [2; 10]].concat());
    drop(device);
    let bytes = std::fs::read(&path).unwrap();
    let mut want = vec![7; 10_000];
    want[1000..1010].fill(1);
    want[1010..1020].fill(2);
    want[1100..5100].fill(0);
    want[5990..6000].fill(3);
    assert_eq!(bytes, want);
    let beyond = part_at(1000, Some(9001));
    let refused = FileDevice::open(&path, Access::ReadOnly, beyond);
    assert!(matches!(refused, Err(OpenError::OutOfRange { .. })));
    assert!(matches!(open(dir.path(), Access::ReadOnly), Err(OpenError::NotADevice { .. })));
}

#[test]
fn a_file_that_was_made_shorter_does_not_grow_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member");
    let device = FileDevice::create(&path, 1 << 20).unwrap().keeping_length();
    device.write_at((1 << 20) - 512, &[1; 512]).unwrap();
    device.flush().unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(device.write_at(0, &[2; 512]).is_err());
    assert!(device.write_vectored_at(8192, &[&[2; 512], &[3; 512]]).is_err());
    assert!(device.write_durable_at(8192, &[2; 512]).is_err());
    assert!(device.write_zeros(8192, 512).is_err());
    assert!(device.flush().is_err());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
}

#[test]
fn more_buffers_than_one_call_takes_arrive_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::create(dir.path().join("image"), 1 << 20).unwrap();
    let bytes: Vec<u8> = (0..5000u32).flat_map(|i| i.to_le_bytes()).collect();
    let bufs: Vec<&[u8]> = bytes.chunks(4).collect();
    device.write_vectored_at(77, &bufs).unwrap();
    let mut got = vec![0; bytes.len()];
    device.read_at(77, &mut got).unwrap();
    assert_eq!(got, bytes);
}

#[test]
fn a_ram_device_survives_the_way_through_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let ram = RamDevice::create(300_001).unwrap();
    ram.write_at(299_990, b"hello world").unwrap();
    ram.to_file(&path).unwrap();
    let back = RamDevice::from_file(&path).unwrap();
    assert_eq!(back.len(), 300_001);
    let mut got = [0; 11];
    back.read_at(299_990, &mut got).unwrap();
    assert_eq!(&got, b"hello world");
}

#[test]
fn a_write_protected_block_device_is_only_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![9; 1 << 20]).unwrap();
    let Some(name) = loop_device(&path) else { return };
    let protect = |how: &str| Command::new("blockdev").args([how, name.as_str()]).status().unwrap();
    let result = std::panic::catch_unwind(|| {
        assert!(protect("--setro").success());
        let refused = open(name.as_ref(), Access::ReadWrite);
        assert!(matches!(refused, Err(OpenError::WriteProtected { .. })), "{refused:?}");
        drop(open(name.as_ref(), Access::ReadOnly).unwrap());
        assert!(protect("--setrw").success());
        drop(open(name.as_ref(), Access::ReadWrite).unwrap());
    });
    protect("--setrw");
    Command::new("losetup").args(["-d", &name]).status().unwrap();
    result.unwrap();
}

#[test]
fn a_block_device_of_the_host_is_written_zeroed_and_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![9; 1 << 20]).unwrap();
    let Some(name) = loop_device(&path) else { return };
    let name = name.as_str();
    let result = std::panic::catch_unwind(|| {
        let device = open(name.as_ref(), Access::ReadWrite).unwrap();
        assert!(matches!(open(name.as_ref(), Access::ReadOnly), Err(OpenError::InUse { .. })));
        assert_eq!(device.len(), 1 << 20);
        device.write_durable_at(512, &[1; 512]).unwrap();
        device.write_zeros(4096, 4096).unwrap();
        device.write_zeros(10_000, 3).unwrap();
        device.discard(65536, 65536).unwrap();
        device.flush().unwrap();
        let mut got = vec![0; 16384];
        device.read_at(0, &mut got).unwrap();
        assert!(got[512..1024].iter().all(|b| *b == 1));
        assert!(got[4096..8192].iter().all(|b| *b == 0));
        assert_eq!(got[9999..10_004], [9, 0, 0, 0, 9]);
    });
    Command::new("losetup").args(["-d", name]).status().unwrap();
    result.unwrap();
}

#[test]
fn a_claimed_block_device_is_zeroed_beside_a_dirty_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![9; 1 << 20]).unwrap();
    let Some(name) = loop_device(&path) else { return };
    let result = std::panic::catch_unwind(|| {
        let device = open(name.as_ref(), Access::ReadWrite).unwrap();
        for at in (0..1 << 20).step_by(4096) {
            device.write_at(at + 1024, &[1; 512]).unwrap();
            device.write_zeros(at, 1024).unwrap();
            device.discard(at + 2048, 1024).unwrap();
        }
        let mut got = vec![0; 1 << 20];
        device.read_at(0, &mut got).unwrap();
        for page in got.chunks(4096) {
            assert!(page[..1024].iter().all(|b| *b == 0));
            assert!(page[1024..1536].iter().all(|b| *b == 1));
        }
    });
    Command::new("losetup").args(["-d", &name]).status().unwrap();
    result.unwrap();
}

/// Returns the number of sectors that have been written to the block device `name`.
fn sectors_written(name: &str) -> u64 {
    let stat = format!("/sys/block/{}/stat", name.trim_start_matches("/dev/"));
    let stat = std::fs::read_to_string(stat).unwrap();
    stat.split_whitespace().nth(6).unwrap().parse().unwrap()
}

#[test]
fn data_goes_directly_to_a_block_device_and_agrees_with_cached_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![9; 8 << 20]).unwrap();
    let Some(name) = loop_device(&path) else { return };
    let result = std::panic::catch_unwind(|| {
        let mut device = open(name.as_ref(), Access::ReadWrite).unwrap();
        assert_eq!(device.alignment(), 1);
        device.with_direct_io(name.as_ref()).unwrap();
        assert_eq!(device.alignment() as usize, rustix::param::page_size());
        let page = device.alignment() as usize;
        agree(&device, page);
        // Data that fills whole pages is on the device when the call returns, whatever the
        // alignment of the memory.
        device.flush().unwrap();
        let before = sectors_written(&name);
        let data = vec![7; (2 << 20) + page + 3];
        for skipped in [0, 1, 3] {
            device.write_data_at(0, &data[skipped..][..(2 << 20) + page]).unwrap();
        }
        let written = (sectors_written(&name) - before) * 512;
        assert_eq!(written, 3 * ((2 << 20) + page as u64));
        // Blocks of a log are on the device too when the call returns, even if a block is smaller
        // than a page.
        let before = sectors_written(&name);
        device
            .write_log_at(0, &[&data[1..1025], &data[..page - 1024], &data[3..][..page]])
            .unwrap();
        device.write_log_durable_at(page as u64, &data[1..][..page]).unwrap();
        assert_eq!((sectors_written(&name) - before) * 512, 3 * page as u64);
        assert!(device.write_data_at(8 << 20, &data[..page]).is_err(), "beyond the end");
    });
    Command::new("losetup").args(["-d", &name]).status().unwrap();
    result.unwrap();
}

/// Reads and writes pages and parts of pages of `device`, directly and through the page cache. Both
/// ways must return the same bytes.
fn agree(device: &FileDevice, page: usize) {
    let mut model = vec![9; 4 << 20];
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..300_u32 {
        let unit = [page, page, 512, 1][random.usize(..4)];
        let at = random.usize(..model.len() / unit) * unit;
        let len = ((1 + random.usize(..5)) * unit).min(model.len() - at);
        // The memory is not aligned.
        let data = vec![round as u8; len + 1];
        let expected = match random.u32(..6) {
            0 => {
                device.write_at(at as u64, &data[1..]).unwrap();
                data[1..].to_vec()
            }
            1 => {
                device.write_data_at(at as u64, &data[1..]).unwrap();
                data[1..].to_vec()
            }
            2 => {
                let (first, rest) = data[1..].split_at(random.usize(..len));
                device.write_log_at(at as u64, &[first, rest]).unwrap();
                data[1..].to_vec()
            }
            3 => {
                device.write_log_durable_at(at as u64, &data[1..]).unwrap();
                data[1..].to_vec()
            }
            4 => {
                device.write_zeros(at as u64, len as u64).unwrap();
                vec![0; len]
            }
            _ => model[at..at + len].to_vec(),
        };
        model[at..at + len].copy_from_slice(&expected);
        let mut got = vec![0; len + 1];
        device.read_data_at(at as u64, &mut got[1..]).unwrap();
        assert!(got[1..] == expected, "round {round}: {len} bytes at {at}");
        device.read_at(at as u64, &mut got[1..]).unwrap();
        assert!(got[1..] == expected, "round {round}: {len} bytes at {at}");
    }
}

#[test]
fn direct_io_of_an_image_file_needs_whole_pages() {
    // If the file system of this directory does not support direct I/O, the test is skipped.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("image");
    let mut device = FileDevice::create(&path, (1 << 20) + 100).unwrap();
    if let Err(error) = device.with_direct_io(&path) {
        return println!("skipped: no direct I/O here: {error}");
    }
    agree_at_the_end(&device);
    drop(device);
    let part = part_at(512, None);
    let mut device = FileDevice::open(&path, Access::ReadWrite, part).unwrap();
    let refused = device.with_direct_io(&path).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}

/// Writes and reads the last bytes of a device whose length is not a multiple of a page.
fn agree_at_the_end(device: &FileDevice) {
    let at = device.len() - 150;
    device.write_data_at(at, &[5; 150]).unwrap();
    let mut got = [0; 150];
    device.read_data_at(at, &mut got).unwrap();
    assert_eq!(got, [5; 150]);
}

/// Attaches a loop device to `path` and returns its name; returns `None` and prints the reason if
/// the host has none.
fn loop_device(path: &Path) -> Option<String> {
    let out = Command::new("losetup").args(["--find", "--show"]).arg(path).output();
    match out {
        Ok(out) if out.status.success() => {
            Some(String::from_utf8(out.stdout).unwrap().trim().into())
        }
        other => {
            println!("skipped: no loop device here: {other:?}");
            None
        }
    }
}

/// Returns whether a program of qemu can use the image, or whether a lock prevents it.
fn qemu_can(path: &Path, line: &str) -> bool {
    let line = line.replace("IMAGE", path.to_str().unwrap());
    let out = Command::new("sh").args(["-c", &line]).output().unwrap();
    let said = format!("{out:?}");
    assert!(out.status.success() || said.contains("lock"), "{said}");
    out.status.success()
}

#[test]
fn qemu_and_lanefs_exclude_each_other() {
    if Command::new("qemu-io").arg("-V").output().is_err() {
        return println!("skipped: no qemu-io");
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("image");
    // qemu-img convert does not let others write; qemu-io does.
    let (read, write) =
        ("qemu-img convert -f raw IMAGE IMAGE.copy", "qemu-io -f raw -c 'write 0 512' IMAGE");
    let writer = FileDevice::create(&path, MIB).unwrap();
    // Neither a child nor another descriptor of the file takes the locks away.
    assert!(Command::new("true").status().unwrap().success());
    drop(std::fs::File::open(&path).unwrap());
    assert!(!qemu_can(&path, read) && !qemu_can(&path, write));
    drop(writer);
    assert!(qemu_can(&path, write));
    let reader = open(&path, Access::ReadOnly).unwrap();
    assert!(qemu_can(&path, read) && !qemu_can(&path, write));
    drop(reader);

    // A reader that lets others write excludes nothing.
    for (is_writer, arguments) in [(true, &[][..]), (false, &["-r"])] {
        let mut qemu = Command::new("qemu-io");
        qemu.args(["-f", "raw"]).args(arguments).arg(&path);
        qemu.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut qemu = qemu.spawn().unwrap();
        // The prompt appears when the image is open.
        let mut prompt = [0; 8];
        std::io::Read::read_exact(qemu.stdout.as_mut().unwrap(), &mut prompt).unwrap();
        for access in [Access::ReadWrite, Access::ReadOnly] {
            match open(&path, access) {
                Ok(_) => assert!(!is_writer),
                Err(OpenError::InUse { by: User::Machine, .. }) => assert!(is_writer),
                Err(error) => panic!("{error}"),
            }
        }
        FileDevice::peek(&path, OpenOptions::default()).unwrap();
        drop(qemu.stdin.take());
        qemu.wait().unwrap();
        open(&path, Access::ReadWrite).unwrap();
    }
}
