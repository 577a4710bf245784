//! Measures very large directories, files and file systems, with one table row for each.
//!
//! ```text
//! cargo run --profile stress -p lanefs-suites --bin lanefs-sizes [-- --share 0.01] [ROW...]
//! ```
//!
//! Each row runs in a separate process, and the table shows the peak memory of that process. The
//! images are sparse files in a directory for temporary files ($TMPDIR, else /dev/shm), which must
//! allow sparse files of 64 TiB. `--share` makes the counts (for example, of names) smaller, but
//! not the images. At the end of each row, `lanefs check` checks the image. e2fsck checks it too,
//! except in rows where this would take too long.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use lanefs_check::{Options, Verdict, check};
use lanefs_device::{Access, FileDevice, OpenOptions};
use lanefs_ext4::{Fallocate, Fs, InodeRef, Mount, MountOptions, NewInode, NewKind, Privilege};
use lanefs_mkfs::{InodeCount, JournalSize, MkfsOptions, mkfs};
use lanefs_ondisk::BlockSize;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The program uses the heap of the command `lanefs`, because only this heap returns memory to the
/// host when a memory cap applies.
#[global_allocator]
static HEAP: lanefs_lanes::LineHeap = lanefs_lanes::LineHeap;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TIB: u64 = 1 << 40;
const BLOCK: u64 = 4096;

/// Measures very large directories, files and file systems.
#[derive(Parser)]
struct Arguments {
    /// The fraction of the operations to run; 1 runs all of them.
    #[arg(long, default_value_t = 1.0)]
    share: f64,
    /// Measure in this process, not in a separate process for each row.
    #[arg(long, hide = true)]
    here: bool,
    /// Measure only these rows.
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Row {
    /// A directory of 10,000,000 names.
    Names,
    /// A directory of 70,000 directories.
    Directories,
    /// A file of 1,000,000 extents.
    Extents,
    /// A file that is one block shorter than 16 TiB.
    File,
    /// A file system of 64 TiB.
    Volume,
    /// A file system of 1,000,000 groups.
    Groups,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.here {
        return match arguments.rows.first().map(|row| row.measure(arguments.share)) {
            Some(Ok(line)) => {
                println!("{line}");
                ExitCode::SUCCESS
            }
            Some(Err(error)) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
            None => ExitCode::FAILURE,
        };
    }
    println!("| what | steps | peak of memory, MiB | checks |");
    println!("|---|---|---|---|");
    let rows = match arguments.rows.is_empty() {
        true => Row::value_variants().to_vec(),
        false => arguments.rows,
    };
    let mut code = ExitCode::SUCCESS;
    for row in rows {
        if let Err(error) = row.run_apart(arguments.share) {
            eprintln!("{row:?}: {error}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

impl Row {
    /// Measures in a separate process, which prints the row.
    fn run_apart(self, share: f64) -> Result<()> {
        let name = self.to_possible_value().ok_or("a row without a name")?;
        let mut command = Command::new(std::env::current_exe()?);
        let share = share.to_string();
        let status = command.args(["--here", "--share", &share, name.get_name()]).status()?;
        if status.success() { Ok(()) } else { Err(format!("failed: {status}").into()) }
    }

    fn measure(self, share: f64) -> Result<String> {
        let many = |full: u64| ((full as f64 * share) as u64).max(100);
        match self {
            Row::Names => names(many(10_000_000)),
            Row::Directories => directories(many(70_000)),
            Row::Extents => extents(many(1_000_000)),
            Row::File => file(),
            Row::Volume => volume(),
            Row::Groups => groups(many(1_000_000)),
        }
    }
}

/// The steps of a row, each with its time.
struct Steps {
    text: String,
    since: Instant,
    checks: String,
    /// The peak memory in MiB up to the first check of the image by the checker.
    memory: Option<u64>,
}

impl Steps {
    fn new() -> Steps {
        Steps { text: String::new(), since: Instant::now(), checks: String::new(), memory: None }
    }

    /// Ends a step, and records its time.
    fn end(&mut self, what: &str) {
        let took = self.since.elapsed();
        self.add(format_args!("{what} {:.2} s", took.as_secs_f64()));
    }

    fn add(&mut self, what: std::fmt::Arguments<'_>) {
        let comma = if self.text.is_empty() { "" } else { "; " };
        let _ = write!(self.text, "{comma}{what}");
        self.since = Instant::now();
    }

    /// Calls `one` for each number below `count`. Records the average time and CPU time of a call
    /// twice: for the first tenth of the calls, and for the last tenth.
    fn each(
        &mut self,
        what: &str,
        count: u64,
        mut one: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let tenth = (count / 10).max(1);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / tenth as f64;
        let (mut begun, mut spent) = (Instant::now(), processor_time());
        let mut ends = [(0.0, 0.0); 2];
        for n in 0..count {
            if n == count - tenth {
                (begun, spent) = (Instant::now(), processor_time());
            }
            one(n)?;
            let end = if n + 1 == tenth { &mut ends[0] } else { &mut ends[1] };
            if n + 1 == tenth || n + 1 == count {
                *end = (each(begun.elapsed()), each(processor_time() - spent));
            }
        }
        let [first, last] = ends;
        self.add(format_args!(
            "{what} {:.1} to {:.1} µs each (CPU {:.1} to {:.1})",
            first.0, last.0, first.1, last.1
        ));
        Ok(())
    }

    /// Checks the image with the checker; the image must not be mounted.
    fn check(&mut self, image: &Image) -> Result<()> {
        let memory = peak()?;
        self.memory.get_or_insert(memory);
        let begun = Instant::now();
        let report = check(image.device()?, &Options::default(), &|_| {})?;
        if report.verdict() != Verdict::Clean {
            let told: Vec<String> =
                report.findings.iter().take(10).map(|f| f.to_string()).collect();
            return Err(format!("lanefs check: {}", told.join("; ")).into());
        }
        self.checked("lanefs check", begun);
        Ok(())
    }

    /// Checks the image with e2fsck.
    fn check_by_e2fsck(&mut self, image: &Image) -> Result<()> {
        let begun = Instant::now();
        let found = Command::new("e2fsck").arg("-fn").arg(&image.path).output()?;
        if !found.status.success() {
            let said = String::from_utf8_lossy(&found.stdout).into_owned();
            return Err(format!("e2fsck -fn: {said}").into());
        }
        self.checked("e2fsck -fn", begun);
        Ok(())
    }

    fn checked(&mut self, program: &str, begun: Instant) {
        let comma = if self.checks.is_empty() { "" } else { ", " };
        let _ = write!(self.checks, "{comma}{program} {:.1} s", begun.elapsed().as_secs_f64());
        self.since = Instant::now();
    }

    /// Returns the row.
    fn row(self, what: &str) -> String {
        let memory = self.memory.unwrap_or_default();
        format!("| {what} | {} | {memory} | {} |", self.text, self.checks)
    }
}

/// Returns the CPU time of all threads of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}

/// Returns the peak of this process's resident memory in MiB.
fn peak() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? >> 10)
}

/// A sparse image file; removed when dropped.
struct Image {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Image {
    /// Makes an image of `bytes` bytes, with a file system made by Lanefs.
    fn new(bytes: u64, options: &MkfsOptions) -> Result<Image> {
        let image = Image::empty(bytes)?;
        mkfs(&*image.device()?, options)?;
        Ok(image)
    }

    fn empty(bytes: u64) -> Result<Image> {
        let folder = std::env::var_os("TMPDIR").map_or("/dev/shm".into(), PathBuf::from);
        let folder =
            tempfile::tempdir_in(if folder.is_dir() { &folder } else { Path::new("/tmp") })?;
        let path = folder.path().join("image");
        std::fs::File::create(&path)?.set_len(bytes)?;
        Ok(Image { path, _folder: folder })
    }

    fn device(&self) -> Result<Arc<FileDevice>> {
        Ok(Arc::new(FileDevice::open(&self.path, Access::ReadWrite, OpenOptions::default())?))
    }

    fn mount(&self) -> Result<Mount> {
        Ok(Mount::open(self.device()?, MountOptions::default())?)
    }
}

/// Returns options for blocks of 4 KiB and one inode for each `per_inode` bytes.
fn options(per_inode: u32) -> Result<MkfsOptions> {
    Ok(MkfsOptions {
        block_size: Some(BlockSize::new(BLOCK as u32).ok_or("a block size")?),
        inodes: InodeCount::PerBytes(per_inode),
        journal: JournalSize::Blocks(32_768),
        contents: lanefs_mkfs::Contents::Zeros,
        ..MkfsOptions::default()
    })
}

fn new_inode(kind: NewKind<'_>) -> NewInode<'_> {
    NewInode { kind, permissions: 0o755, umask: 0, uid: 0, gid: 0 }
}

fn root_file(fs: &Fs, name: &[u8]) -> Result<InodeRef> {
    Ok(fs.create(&fs.root()?, name, &new_inode(NewKind::Regular))?)
}

fn names(count: u64) -> Result<String> {
    let image = Image::new(count.max(50_000) * 4096, &options(2048)?)?;
    let mount = image.mount()?;
    let fs = mount.fs();
    let dir = fs.create(&fs.root()?, b"dir", &new_inode(NewKind::Directory))?;
    // The index is sorted by hash, so successive names are in distant blocks.
    let name = |n: u64| format!("name-{n:08}").into_bytes();
    let mut steps = Steps::new();
    steps.each("made", count, |n| {
        fs.create(&dir, &name(n), &new_inode(NewKind::Regular))?;
        Ok(())
    })?;
    fs.sync()?;
    let mut listed = 0;
    steps.since = Instant::now();
    fs.read_dir(&dir, 0, &mut |_| {
        listed += 1;
        ControlFlow::Continue(())
    })?;
    if listed != count + 2 {
        return Err(format!("{listed} of {count} names listed").into());
    }
    let each = steps.since.elapsed().as_secs_f64() * 1e6 / count as f64;
    steps.add(format_args!("listed {each:.2} µs each"));
    steps.each("looked up", count, |n| {
        fs.lookup(&dir, &name(n))?.ok_or_else(|| format!("name {n} is missing"))?;
        Ok(())
    })?;
    drop(dir);
    mount.close()?;
    steps.check(&image)?;
    let mount = image.mount()?;
    let fs = mount.fs();
    let found = fs.lookup(&fs.root()?, b"dir")?.ok_or("the directory is missing")?;
    let dir = fs.get(found.ino, None)?;
    steps.since = Instant::now();
    steps.each("removed", count, |n| Ok(fs.unlink(&dir, &name(n))?))?;
    drop(dir);
    mount.close()?;
    steps.check(&image)?;
    steps.check_by_e2fsck(&image)?;
    Ok(steps.row(&format!("directory of {count} names")))
}

fn directories(count: u64) -> Result<String> {
    let image = Image::new(4 << 30, &options(16_384)?)?;
    let mount = image.mount()?;
    let fs = mount.fs();
    let dir = fs.create(&fs.root()?, b"dir", &new_inode(NewKind::Directory))?;
    let mut steps = Steps::new();
    steps.each("made", count, |n| {
        fs.create(&dir, format!("{n}").as_bytes(), &new_inode(NewKind::Directory))?;
        Ok(())
    })?;
    let links = dir.attr().links;
    steps.add(format_args!("its link count is {links}"));
    steps.each("removed", count, |n| Ok(fs.rmdir(&dir, format!("{n}").as_bytes())?))?;
    drop(dir);
    mount.close()?;
    steps.check(&image)?;
    steps.check_by_e2fsck(&image)?;
    Ok(steps.row(&format!("directory of {count} directories")))
}

fn extents(count: u64) -> Result<String> {
    let image = Image::new(count.max(25_000) * 3 * BLOCK, &options(1 << 20)?)?;
    let mount = image.mount()?;
    let fs = mount.fs();
    let file = root_file(fs, b"file")?;
    let mut steps = Steps::new();
    steps.each("every other block allocated", count, |n| {
        Ok(fs.fallocate(&file, Fallocate::Allocate, 2 * n * BLOCK, BLOCK, Privilege::Root)?)
    })?;
    let found = fs.extents(&file)?.len() as u64;
    if found != count {
        return Err(format!("{found} extents").into());
    }
    steps.end("listed");
    let mut block = [0; BLOCK as usize];
    steps.each("read", count, |n| {
        fs.read_at(&file, (n.wrapping_mul(7_368_787) % count) * 2 * BLOCK, &mut block)?;
        Ok(())
    })?;
    fs.sync()?;
    steps.since = Instant::now();
    fs.fallocate(&file, Fallocate::PunchHole, 0, 2 * count * BLOCK, Privilege::Root)?;
    steps.end("all punched");
    drop(file);
    mount.close()?;
    steps.check(&image)?;
    steps.check_by_e2fsck(&image)?;
    Ok(steps.row(&format!("file of {count} extents")))
}

fn file() -> Result<String> {
    let image = Image::new(17 * TIB, &options(16 << 20)?)?;
    let mount = image.mount()?;
    let fs = mount.fs();
    let file = root_file(fs, b"file")?;
    let len = 16 * TIB - BLOCK;
    let mut steps = Steps::new();
    fs.fallocate(&file, Fallocate::Allocate, 0, len, Privilege::Root)?;
    steps.end("allocated");
    fs.write_at(&file, len - 5, b"hello", Privilege::Root)?;
    if fs.write_at(&file, len, b"x", Privilege::Root).is_ok() {
        return Err("a file larger than the format allows".into());
    }
    let gaps = len >> 30;
    steps.each("a block of each GiB punched", gaps, |n| {
        Ok(fs.fallocate(&file, Fallocate::PunchHole, n << 30, BLOCK, Privilege::Root)?)
    })?;
    steps.each("and filled", gaps, |n| {
        fs.write_at(&file, n << 30, &[1; BLOCK as usize], Privilege::Root)?;
        Ok(())
    })?;
    let mut tail = [0; 5];
    fs.read_at(&file, len - 5, &mut tail)?;
    if &tail != b"hello" {
        return Err("wrong data at the end".into());
    }
    let count = fs.extents(&file)?.len();
    steps.add(format_args!("{count} extents"));
    fs.sync()?;
    drop(file);
    mount.close()?;
    steps.check(&image)?;
    Ok(steps.row("file of 16 TiB less a block"))
}

fn volume() -> Result<String> {
    let mut steps = Steps::new();
    let image = Image::new(64 * TIB, &options(16 << 20)?)?;
    steps.end("made");
    let mount = image.mount()?;
    steps.end("mounted");
    let fs = mount.fs();
    let file = root_file(fs, b"file")?;
    fs.fallocate(&file, Fallocate::Allocate, 0, 8 * TIB, Privilege::Root)?;
    fs.write_at(&file, 8 * TIB - 5, b"hello", Privilege::Root)?;
    steps.end("a file of 8 TiB allocated");
    drop(file);
    mount.close()?;
    steps.end("unmounted");
    steps.check(&image)?;
    Ok(steps.row("file system of 64 TiB, blocks of 4 KiB"))
}

fn groups(count: u64) -> Result<String> {
    // A test in `crates/ext4/tests/scale.rs` mounts a file system that is made with the same
    // options.
    let image = Image::empty(0)?;
    let options =
        ["-q", "-F", "-b", "1024", "-J", "size=16", "-O", "^resize_inode", "-i", "524288"];
    let size = format!("{}M", 8 * count);
    let mut mke2fs = Command::new("mke2fs");
    let made = mke2fs.args(["-t", "ext4"]).args(options).arg(&image.path).arg(size).output()?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into_owned().into());
    }
    let mut steps = Steps::new();
    let mount = image.mount()?;
    steps.end("mounted");
    let fs = mount.fs();
    let file = root_file(fs, b"file")?;
    fs.write_at(&file, 0, &[1; 5000], Privilege::Root)?;
    steps.end("a file written");
    drop(file);
    mount.close()?;
    steps.end("unmounted");
    steps.check(&image)?;
    Ok(steps.row(&format!("file system of {count} groups, made by mke2fs")))
}
