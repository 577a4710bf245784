//! Tests a mount on a slow device. Requests that wait for the device do not delay others, direct
//! writes to one file run in parallel, and the kernel's cache does not hide the written data.
//!
//! The server is in this process. Its clients are other processes under timeout(1), so a server
//! that hangs makes the test fail instead of hanging it.

mod serving;

use lanefs_device::{
    Access, Device, DeviceError, FileDevice, OpenOptions, ReadKind, WriteKind, forward,
};
use lanefs_ext4::{Mount, MountOptions};
use lanefs_fuse::{AsyncDirect, Busy, Caching, Ids, MountPoint, Options, Server, Session, Wishes};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use serving::by_wanted_transport;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A device with slow reads and writes.
struct Slow {
    inner: FileDevice,
    /// The duration of a read, in microseconds.
    read: AtomicU64,
    /// The duration of a write, in microseconds.
    write: AtomicU64,
    reads: Gauge,
    /// Counts writes of pages that start with [`MARK`].
    writes: Gauge,
}

/// The first byte of pages whose writes are counted.
const MARK: u8 = b'W';

/// The number of operations in progress now, and the largest number that were in progress at once.
#[derive(Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        let done = work();
        self.now.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Returns the largest number of operations that were in progress at once since the last call.
    fn take_most(&self) -> usize {
        self.most.swap(0, Ordering::Relaxed)
    }
}

fn wait(micros: &AtomicU64) {
    match micros.load(Ordering::Relaxed) {
        0 => {}
        micros => std::thread::sleep(Duration::from_micros(micros)),
    }
}

impl Device for Slow {
    forward!(inner: len, is_read_only, flush, discard);
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        self.reads.during(|| wait(&self.read));
        self.inner.read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        for buf in bufs {
            match buf.first() {
                Some(&MARK) if buf.len() == 4096 => self.writes.during(|| wait(&self.write)),
                _ => wait(&self.write),
            }
        }
        self.inner.write(offset, bufs, kind)
    }
}

/// A served image.
struct Scene {
    // When this field is dropped, `Scene::end` or `Scene::drop` has already ended the mount.
    _dir: TempDir,
    device: Arc<Slow>,
    mount_point: MountPoint,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl Scene {
    /// Mounts a new image; returns `None` and prints the reason where mounting is forbidden.
    fn new(wishes: Wishes) -> Option<Scene> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            println!("skipped: a real mount: it needs root and /dev/fuse");
            return None;
        }
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("lanefs-slow-").tempdir_in(base).unwrap();
        let image = dir.path().join("disk.img");
        let made =
            Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(&image).arg("64M").status();
        assert!(made.unwrap().success());
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let part = OpenOptions::default();
        let device = Arc::new(Slow {
            inner: FileDevice::open(&image, Access::ReadWrite, part).unwrap(),
            read: AtomicU64::new(0),
            write: AtomicU64::new(0),
            reads: Gauge::default(),
            writes: Gauge::default(),
        });
        let mount = Mount::open(device.clone(), MountOptions::default()).unwrap();
        let (fuse, mount_point) =
            MountPoint::attach(&dir.path().join("mnt"), image.as_os_str(), &Options::default())
                .unwrap();
        let session = Session::start(
            fuse,
            Server::new(mount, by_wanted_transport(wishes), Ids::default()).unwrap(),
        )
        .unwrap();
        let server = std::thread::spawn(move || {
            let (server, outcome, _farewell) = session.run();
            server.close().unwrap();
            outcome
        });
        Some(Scene { _dir: dir, device, mount_point, server: Some(server) })
    }

    /// Runs `command` in the mount and returns its output. It must succeed and not hang.
    fn run(&self, command: &[&str]) -> String {
        let output = Command::new("timeout")
            .args(["-s", "KILL", "60"])
            .args(command)
            .current_dir(self.mount_point.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{command:?}: {said}");
        said
    }

    fn shell(&self, line: &str) -> String {
        self.run(&["sh", "-euc", line])
    }

    fn end(mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while let Err(error) = self.mount_point.detach(Busy::Refuse) {
            assert!(Instant::now() < end, "unmount: {error}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.server.take().unwrap().join().expect("the server did not panic").unwrap();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = self.mount_point.cut_off();
        }
    }
}

#[test]
#[ignore = "long: a real mount"]
fn reads_that_wait_for_the_device_reach_it_together_and_hold_up_no_quick_request() {
    const READERS: usize = 32;
    let read = "dd if=big of=/dev/null bs=4k count=1 iflag=direct status=none";
    // With taskset all clients run on one processor. If requests come by rings, they are then all
    // in one queue.
    for (pin, commits) in [("", false), ("taskset -c 0", false), ("taskset -c 0", true)] {
        let Some(scene) = Scene::new(Wishes::default()) else { return };
        scene.shell("dd if=/dev/urandom of=big bs=1M count=8 conv=fsync status=none");
        // Quick requests come first, so that the server expects no request to be slow.
        scene.shell(&format!("for i in $(seq 200); do test ! -e absent$i; {pin} {read}; done"));
        if commits {
            scene.device.write.store(100_000, Ordering::Relaxed);
        }
        scene.device.read.store(300_000, Ordering::Relaxed);
        scene.device.reads.take_most();
        let path = scene.mount_point.path().to_owned();
        let quick = std::thread::spawn(move || median_of_look_ups(&path, pin));
        let sync = if commits { "touch new; sync new &" } else { "" };
        scene.shell(&format!(
            "{sync} for i in $(seq {READERS}); do {pin} {read} skip=$((i * 16)) & done; wait",
        ));
        let middle = quick.join().unwrap();
        let most = scene.device.reads.take_most();
        println!(
            "{pin:?}, {commits}: {most} reads at once; a look-up beside them takes {middle:?}"
        );
        assert_eq!(most, READERS);
        assert!(middle < Duration::from_millis(150), "{middle:?}");
        scene.device.read.store(0, Ordering::Relaxed);
        scene.device.write.store(0, Ordering::Relaxed);
        scene.end();
    }
}

/// Returns the median time of looking up a name in a directory that is in memory. The kernel has to
/// ask the server for each name.
fn median_of_look_ups(dir: &Path, pin: &str) -> Duration {
    std::thread::sleep(Duration::from_millis(100));
    let waits = (0..10).map(|n| {
        let begun = Instant::now();
        let mut look = Command::new("timeout");
        look.args(["-s", "KILL", "20"]).args(pin.split_whitespace());
        let look = look.args(["test", "!", "-e"]).arg(dir.join(format!("other{n}")));
        assert!(look.status().unwrap().success());
        begun.elapsed()
    });
    let mut waits: Vec<Duration> = waits.collect();
    waits.sort();
    waits[waits.len() / 2]
}

#[test]
#[ignore = "long: a real mount"]
fn direct_writes_of_one_file_run_in_parallel_unless_it_is_open_cached_or_mapped() {
    const WRITERS: usize = 8;
    let wishes = Wishes { caching: Caching::Writethrough, ..Wishes::default() };
    let Some(scene) = Scene::new(wishes) else { return };
    scene.shell("dd if=/dev/zero of=file bs=1M count=1 conv=fsync status=none");
    scene.shell("head -c 4096 /dev/zero | tr '\\0' W >../page");
    scene.device.write.store(100_000, Ordering::Relaxed);
    let line = format!(
        "for i in $(seq {WRITERS}); do dd if=../page of=file bs=4k seek=$i oflag=direct conv=notrunc status=none & done; wait",
    );
    let write = |how: &str| {
        scene.device.writes.take_most();
        scene.shell(&how.replace("WRITE", &line));
        scene.device.writes.take_most()
    };
    assert_eq!(write("WRITE"), WRITERS);
    assert_eq!(write("exec 3<file; WRITE"), 1, "open to be read through the cache");
    assert_eq!(write("WRITE"), WRITERS, "closed again");
    let mapped = "python3 -c \"import mmap,os,subprocess,sys; f=os.open('file', os.O_RDWR | os.O_DIRECT); \
                  m=mmap.mmap(f, 0); subprocess.run(['sh', '-euc', sys.argv[1]], check=True)\" 'WRITE'";
    if Command::new("python3").arg("--version").output().is_ok() {
        assert_eq!(write(mapped), 1, "mapped, though by way of a descriptor for direct I/O");
    } else {
        println!("skipped: a mapping: there is no python3");
    }
    scene.device.write.store(0, Ordering::Relaxed);
    scene.end();
}

/// Environment variable that makes this test program act as the client process of the mount.
const CLIENT: &str = "LANEFS_DIRECT_WRITER";

#[test]
#[ignore = "long: a real mount"]
fn no_cached_page_hides_a_write_past_the_cache() {
    if let Ok(how) = std::env::var(CLIENT) {
        return client::run(&how);
    }
    for caching in [Caching::Writeback, Caching::Writethrough] {
        let wishes = Wishes { caching, async_direct: AsyncDirect::Waits, ..Wishes::default() };
        let Some(scene) = Scene::new(wishes) else { return };
        scene.shell("dd if=/dev/zero of=file bs=4k count=4 conv=fsync status=none");
        // Because writes are slow, a reader has time to read the old page again during a write.
        scene.device.write.store(2000, Ordering::Relaxed);
        let program = std::env::current_exe().unwrap();
        for how in
            ["aio read", "aio map", "aio map-direct", "write read", "write map", "write map-direct"]
        {
            let said = scene.run(&[
                "env",
                &format!("{CLIENT}={how}"),
                program.to_str().unwrap(),
                "--include-ignored",
                "--nocapture",
                "--exact",
                "no_cached_page_hides_a_write_past_the_cache",
            ]);
            println!("{caching:?}: {}", said.lines().find(|line| line.contains("stale")).unwrap());
            assert!(said.contains(" 0 stale"), "{caching:?}, {how}: {said}");
        }
        scene.device.write.store(0, Ordering::Relaxed);
        scene.end();
    }
}

/// The client process of the mount. One thread writes pages of a file directly and checks through
/// the cache that the data is visible; other threads read the pages through the cache continuously.
mod client {
    use super::*;
    use lanefs_lanes::sync::atomic::AtomicBool;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};

    const PAGE: usize = 4096;
    const PAGES: usize = 4;
    const WRITES: usize = 60;

    #[repr(C, align(4096))]
    struct Page([u8; PAGE]);

    /// The way in which a file is read through the kernel's cache.
    enum View {
        Read(File),
        Mapped(*mut libc::c_void),
    }

    // SAFETY: the mapping is shared memory that is only read here and never unmapped.
    unsafe impl Sync for View {}

    impl View {
        fn map(file: &File) -> View {
            let (length, access) = (PAGE * PAGES, libc::PROT_READ);
            // SAFETY: the kernel chooses the address of the new mapping.
            let mapped = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    length,
                    access,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    0,
                )
            };
            assert_ne!(mapped, libc::MAP_FAILED, "{}", io::Error::last_os_error());
            View::Mapped(mapped)
        }

        /// Returns the first byte of a page.
        fn byte(&self, page: usize) -> u8 {
            match self {
                View::Read(file) => {
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, (page * PAGE) as u64).unwrap();
                    byte[0]
                }
                // SAFETY: the mapping has as many pages as the file.
                View::Mapped(mapped) => unsafe {
                    mapped.cast::<u8>().add(page * PAGE).read_volatile()
                },
            }
        }
    }

    /// A request for one asynchronous write by io_submit(2) (`<linux/aio_abi.h>`).
    #[repr(C)]
    #[derive(Default)]
    struct ControlBlock {
        data: u64,
        key: u32,
        rw_flags: u32,
        opcode: u16,
        priority: i16,
        file: u32,
        buffer: u64,
        length: u64,
        offset: i64,
        reserved: u64,
        flags: u32,
        event_file: u32,
    }
    const PWRITE: u16 = 1;

    /// Writes a page by io_submit(2) and waits for it.
    fn write_asynchronously(context: u64, file: &File, page: &Page, offset: usize) {
        let mut block = ControlBlock {
            opcode: PWRITE,
            file: file.as_raw_fd() as u32,
            buffer: page.0.as_ptr() as u64,
            length: PAGE as u64,
            offset: offset as i64,
            ..ControlBlock::default()
        };
        let blocks = [&raw mut block];
        let mut event = [0i64; 4];
        // SAFETY: the control block and the page exist until the write's completion event has
        // arrived.
        let (submitted, done) = unsafe {
            let submitted = libc::syscall(libc::SYS_io_submit, context, 1, blocks.as_ptr());
            let null = std::ptr::null::<libc::timespec>();
            let events = event.as_mut_ptr();
            (submitted, libc::syscall(libc::SYS_io_getevents, context, 1, 1, events, null))
        };
        assert_eq!((submitted, done, event[2]), (1, 1, PAGE as i64));
    }

    pub fn run(how: &str) {
        let (how_written, how_read) = how.split_once(' ').unwrap();
        let direct = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open("file")
            .unwrap();
        let view = match how_read {
            "read" => View::Read(File::open("file").unwrap()),
            "map" => View::map(&File::open("file").unwrap()),
            _ => View::map(&direct),
        };
        let mut context = 0u64;
        // SAFETY: the kernel writes the number of the new context to this address.
        assert_eq!(unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) }, 0);
        let (stop, mut stale) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        (0..PAGES).for_each(|page| _ = view.byte(page));
                    }
                });
            }
            for n in 1..=WRITES {
                let (stamp, at) = (n as u8, n % PAGES);
                let page = Page([stamp; PAGE]);
                match how_written {
                    "aio" => write_asynchronously(context, &direct, &page, at * PAGE),
                    _ => direct.write_all_at(&page.0, (at * PAGE) as u64).unwrap(),
                }
                stale += usize::from(view.byte(at) != stamp);
            }
            stop.store(true, Ordering::Relaxed);
        });
        println!("{how}: {WRITES} writes, {stale} stale");
    }
}
