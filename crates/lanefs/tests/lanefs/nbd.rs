//! Servers of network block devices that are killed in the middle: what was synchronised is there.

use crate::images::{assert_clean, needs};
use lanefs::{FileSystem, FormatOptions, OpenOptions};
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_lanes::sync::unscheduled::atomic::{AtomicU32, Ordering};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

const SIZE: usize = 16 << 20;

/// A disk with a cache: a cut loses any of the writes since the last flush.
struct Disk {
    durable: Vec<u8>,
    /// What reads see.
    seen: Vec<u8>,
    /// Offset, bytes, and whether the write itself was durable.
    written: Vec<(usize, Vec<u8>, bool)>,
    /// The requests before the cut.
    left: u32,
    random: fastrand::Rng,
}

impl Disk {
    fn new(image: Vec<u8>, left: u32, seed: u64) -> Disk {
        let random = fastrand::Rng::with_seed(seed);
        Disk { durable: image.clone(), seen: image, written: Vec::new(), left, random }
    }

    /// Returns the data of a read. None once the server is dead.
    fn run(&mut self, (command, fua): (u16, bool), at: usize, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let end = at + bytes.len();
        match command {
            0 => return Some(self.seen[at..end].to_vec()),
            1 | 6 => {
                self.seen[at..end].copy_from_slice(&bytes);
                self.written.push((at, bytes, fua));
            }
            3 => self.settle(|_| true),
            _ => {}
        }
        // The last request may have been done, but is not answered.
        (self.left > 0).then(Vec::new)
    }

    fn settle(&mut self, mut is_kept: impl FnMut(&mut fastrand::Rng) -> bool) {
        for (at, bytes, fua) in std::mem::take(&mut self.written) {
            if fua || is_kept(&mut self.random) {
                self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }
}

fn get<const N: usize>(client: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Serves without structured replies.
fn serve(mut client: UnixStream, disk: &Mutex<Disk>, flags: u16) -> io::Result<()> {
    client.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    get::<4>(&mut client)?;
    loop {
        let head: [u8; 16] = get(&mut client)?;
        let mut data = vec![0; u32::from_be_bytes(head[12..].try_into().unwrap()) as usize];
        client.read_exact(&mut data)?;
        let mut reply = |kind: u32, data: &[u8]| {
            let magic = 0x3e889045565a9u64.to_be_bytes();
            let len = (data.len() as u32).to_be_bytes();
            client.write_all(&[&magic[..], &head[8..12], &kind.to_be_bytes(), &len, data].concat())
        };
        if head[11] == 7 {
            let size = (SIZE as u64).to_be_bytes();
            reply(3, &[&[0, 0][..], &size, &flags.to_be_bytes()].concat())?;
            reply(1, &[])?;
            break;
        }
        reply((1 << 31) + 1, &[])?;
    }
    loop {
        let head: [u8; 28] = get(&mut client)?;
        let (command, fua) = (u16::from(head[7]), head[5] & 1 != 0);
        let at = u64::from_be_bytes(head[16..24].try_into().unwrap()) as usize;
        let mut bytes = vec![0; u32::from_be_bytes(head[24..].try_into().unwrap()) as usize];
        if command == 1 {
            client.read_exact(&mut bytes)?;
        }
        if command == 2 {
            return Ok(());
        }
        let done = disk.lock().unwrap().run((command, fua), at, bytes);
        let data = done.ok_or(io::ErrorKind::ConnectionReset)?;
        client.write_all(&[&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], &head[8..16], &data].concat())?;
    }
}

fn contents(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + number as usize % 3000)
}

/// Makes and synchronises files in two threads until the server is dead. Returns those for which
/// fsync succeeded.
fn write_until_cut(fs: &FileSystem) -> Vec<u32> {
    let next = AtomicU32::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let synced = fs.create_file(format!("/{number}")).is_ok_and(|mut file| {
                file.write_all(&contents(number)).is_ok() && file.sync_all().is_ok()
            });
            if !synced {
                return done;
            }
            done.push(number);
        }
    };
    std::thread::scope(|s| {
        let other = s.spawn(work);
        [work(), other.join().unwrap()].concat()
    })
}

/// With `LANEFS_KILLS`, so many servers are killed.
#[test]
fn what_was_synchronised_survives_a_server_that_is_killed() {
    if !needs("e2fsck") {
        return;
    }
    let kills = std::env::var("LANEFS_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    FileSystem::create(&image, SIZE as u64, &FormatOptions::new()).unwrap().close().unwrap();
    let made = std::fs::read(&image).unwrap();
    let mut synced = 0;
    for seed in 0..kills {
        // Flush and FUA; flush alone; FUA alone; flush, FUA, zeroes and several connections.
        let flags = [0b1101, 0b101, 0b1001, 0b1_0100_1101][seed as usize % 4];
        let left = fastrand::Rng::with_seed(seed).u32(60..900);
        let disk = Arc::new(Mutex::new(Disk::new(made.clone(), left, seed)));
        let socket = dir.path().join(format!("s{seed}"));
        let listener = UnixListener::bind(&socket).unwrap();
        let server = disk.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, disk) = (client.unwrap(), server.clone());
                std::thread::spawn(move || serve(client, &disk, flags));
            }
        });
        let name = format!("nbd+unix:///e?socket={}&x-timeout=10", socket.display());
        let acknowledged = match FileSystem::open_with(&name, &OpenOptions::new()) {
            Ok(fs) => write_until_cut(&fs),
            Err(error) => panic!("seed {seed}: {error}"),
        };
        let mut disk = disk.lock().unwrap();
        assert_eq!(disk.left, 0, "seed {seed}: ended before the cut");
        disk.settle(|random| random.bool());
        std::fs::write(&image, &disk.durable).unwrap();
        let fs = FileSystem::open(&image).unwrap();
        for number in &acknowledged {
            let found = fs.read(format!("/{number}"));
            assert!(found.is_ok_and(|it| it == contents(*number)), "seed {seed}: file {number}");
        }
        fs.close().unwrap();
        assert_clean(&image);
        synced += acknowledged.len();
    }
    assert!(synced > kills as usize, "{synced} files");
    println!("{kills} kills, {synced} files synchronised");
}
