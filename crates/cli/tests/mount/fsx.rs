//! Runs random operations on one file of a mount, both through the kernel's cache and with
//! O_DIRECT. The operations include all modes of fallocate that FUSE supports. The fsx of crates.io
//! does not use O_DIRECT, and uses only some of these modes.

use crate::mounting::*;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The largest size of the file, small so that operations often overlap.
const LIMIT: usize = 400_000;
/// The alignment that O_DIRECT requires for offsets, lengths and addresses.
const ALIGN: usize = 4096;

struct Fsx {
    rng: fastrand::Rng,
    cached: File,
    direct: File,
    /// The expected content of the file.
    data: Vec<u8>,
    /// The buffer of direct reads and writes; it is page-aligned from `start` on.
    room: Vec<u8>,
    start: usize,
    last: String,
}

fn open(path: &Path, more: OFlags) -> File {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | more;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).unwrap().into()
}

impl Fsx {
    fn new(path: &Path, seed: u64) -> Fsx {
        let room = vec![0; LIMIT + 2 * ALIGN];
        let start = room.as_ptr().align_offset(ALIGN);
        Fsx {
            rng: fastrand::Rng::with_seed(seed),
            cached: open(path, OFlags::empty()),
            direct: open(path, OFlags::DIRECT),
            data: Vec::new(),
            room,
            start,
            last: String::new(),
        }
    }

    /// Returns an offset and a length of at least 1.
    fn range(&mut self) -> (usize, usize) {
        let at = self.rng.usize(..LIMIT - 1);
        let most = if self.rng.bool() { 5000 } else { 100_000 };
        (at, self.rng.usize(1..=most).min(LIMIT - at))
    }

    /// Returns an offset and a length of at least 1, aligned for O_DIRECT.
    fn aligned_range(&mut self) -> (usize, usize) {
        let pages = LIMIT / ALIGN;
        let at = self.rng.usize(..pages);
        (at * ALIGN, self.rng.usize(1..=16).min(pages - at) * ALIGN)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let first = self.rng.u8(1..);
        (0..len).map(|n| first.wrapping_add((n / 7) as u8) | 1).collect()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.grow(at + bytes.len());
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn grow(&mut self, len: usize) {
        self.data.resize(self.data.len().max(len), 0);
    }

    fn zero(&mut self, at: usize, len: usize) {
        let size = self.data.len();
        self.data[at.min(size)..(at + len).min(size)].fill(0);
    }

    fn expect(&self, at: usize, got: &[u8], asked: usize) {
        let size = self.data.len();
        let want = &self.data[at.min(size)..(at + asked).min(size)];
        assert_eq!(got.len(), want.len(), "{}: length", self.last);
        if let Some(n) = got.iter().zip(want).position(|(a, b)| a != b) {
            panic!("{}: byte {} is {:#x}, not {:#x}", self.last, at + n, got[n], want[n]);
        }
    }

    fn fallocate(&mut self) {
        let (at, len) = self.range();
        let keep = FallocateFlags::KEEP_SIZE;
        let modes = [
            FallocateFlags::empty(),
            keep,
            FallocateFlags::PUNCH_HOLE | keep,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | keep,
        ];
        let mode = modes[self.rng.usize(..modes.len())];
        self.last = format!("fallocate {mode:?} {at}+{len}");
        rustix::fs::fallocate(&self.cached, mode, at as u64, len as u64).unwrap();
        if !mode.contains(keep) {
            self.grow(at + len);
        }
        if mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            self.zero(at, len);
        }
    }

    fn copy(&mut self) {
        let (from, len) = self.range();
        let len = len.min(LIMIT / 4);
        // The ranges do not overlap, since copy_file_range(2) refuses that.
        let to = (from + len + self.rng.usize(..LIMIT / 4)) % (LIMIT - len);
        if to < from + len && from < to + len {
            return;
        }
        self.last = format!("copy {from}+{len} to {to}");
        let (mut source, mut target) = (from as u64, to as u64);
        let done = rustix::fs::copy_file_range(
            &self.cached,
            Some(&mut source),
            &self.cached,
            Some(&mut target),
            len,
        )
        .unwrap();
        let size = self.data.len();
        let copied = self.data[from.min(size)..(from + done).min(size)].to_vec();
        assert_eq!(copied.len(), done, "{}", self.last);
        assert!(done > 0 || from >= size, "{}: nothing copied", self.last);
        self.put(to, &copied);
    }

    fn step(&mut self) {
        match self.rng.u32(..100) {
            0..20 => {
                let (at, len) = self.range();
                self.last = format!("write {at}+{len}");
                let bytes = self.bytes(len);
                self.cached.write_all_at(&bytes, at as u64).unwrap();
                self.put(at, &bytes);
            }
            20..40 => {
                let (at, len) = self.aligned_range();
                self.last = format!("direct write {at}+{len}");
                let bytes = self.bytes(len);
                let room = &mut self.room[self.start..self.start + len];
                room.copy_from_slice(&bytes);
                self.direct.write_all_at(room, at as u64).unwrap();
                self.put(at, &bytes);
            }
            40..55 => {
                let (at, len) = self.range();
                self.last = format!("read {at}+{len}");
                let mut got = vec![0; len];
                let n = self.cached.read_at(&mut got, at as u64).unwrap();
                self.expect(at, &got[..n], len);
            }
            55..70 => {
                let (at, len) = self.aligned_range();
                self.last = format!("direct read {at}+{len}");
                let room = &mut self.room[self.start..self.start + len];
                let n = self.direct.read_at(room, at as u64).unwrap();
                self.expect(at, &self.room[self.start..self.start + n], len);
            }
            70..78 => {
                let (size, _) = self.range();
                self.last = format!("truncate {size}");
                self.cached.set_len(size as u64).unwrap();
                self.data.resize(size, 0);
            }
            78..92 => self.fallocate(),
            92..97 => self.copy(),
            _ => {
                self.last = "fsync".into();
                self.cached.sync_all().unwrap();
            }
        }
        let size = self.cached.metadata().unwrap().len();
        assert_eq!(size, self.data.len() as u64, "{}: size", self.last);
    }
}

/// `LANEFS_FSX_RUNS` sets the number of runs, with 20,000 operations each. Without the variable
/// there are four runs with 4,000 operations each.
#[test]
#[ignore = "long: a real mount"]
fn cached_and_direct_access_agree_through_many_operations() {
    if !can_mount() {
        return;
    }
    let given = std::env::var("LANEFS_FSX_RUNS").ok().and_then(|text| text.parse::<u64>().ok());
    let (runs, operations) = given.map_or((4, 4_000), |runs| (runs, 20_000));
    let first = seed() >> 1;
    for run in 0..runs {
        let block_size = ["4096", "1024", "65536", "2048", "8192"][run as usize % 5];
        let caching = ["writeback", "no_writeback"][run as usize % 2];
        let image = Image::with("64M", &["-b", block_size]);
        let beneath = [Beneath::File, Beneath::Device][run as usize / 2 % 2];
        let Some(mounted) = Mounted::beneath(beneath, &image, &[caching]) else { continue };
        let path = mounted.path.join("file");
        let mut fsx = Fsx::new(&path, first + run);
        for n in 0..operations {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fsx.step()));
            assert!(
                done.is_ok(),
                "seed {}, blocks of {block_size}, {caching}, {beneath:?}, step {n}",
                first + run
            );
        }
        let data = std::mem::take(&mut fsx.data);
        drop(fsx);
        mounted.umount();
        image.assert_clean();
        let again = Mounted::new(&image, &["ro"]);
        assert!(std::fs::read(again.path.join("file")).unwrap() == data, "after a remount");
        again.umount();
        println!(
            "seed {}: {operations} operations on blocks of {block_size} bytes, {caching}, {beneath:?}",
            first + run
        );
    }
}

#[test]
#[ignore = "long: a real mount"]
fn a_byte_that_changes_behind_its_back_is_found() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &[]);
    let mut fsx = Fsx::new(&mounted.path.join("file"), seed());
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..1000 {
            fsx.step();
            if !fsx.data.is_empty() {
                let at = fsx.rng.usize(..fsx.data.len());
                fsx.cached.write_all_at(&[!fsx.data[at]], at as u64).unwrap();
            }
        }
    }));
    assert!(found.is_err(), "the planted bytes were not seen");
    drop(fsx);
    mounted.umount();
}
