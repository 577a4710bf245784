//! The operations that make a tree with every kind of object that ext4 can hold, and operations
//! that change this tree. Tests run them with the kernel or with Lanefs, and often read the result
//! with the other of the two.

use crate::image::Mappings;
use crate::op::{File, Kind, Op, Path, join};
use lanefs_ext4::{Fallocate, Rename, SetXattr, SyncMode};
use lanefs_ondisk::Time;

/// How large the tree is.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The number of files in the largest directory.
    pub files: u32,
    /// The size in bytes of the largest file without holes.
    pub large: usize,
    /// The number of pieces of the most fragmented file. A leaf of its extent tree holds 340 pieces
    /// if blocks have 4 KiB, and 84 if they have 1 KiB.
    pub pieces: u64,
    /// Whether inodes store nanoseconds and years beyond 2038; inodes of 128 bytes do not.
    pub wide_times: WideTimes,
    /// The way in which files map their blocks.
    pub mappings: Mappings,
    /// The largest file offset that is used.
    pub far: u64,
    /// The block size in bytes, for contents that must fit into a block.
    pub block: usize,
    /// The depth of the nested directories.
    pub depth: u16,
}

/// Whether inodes are large enough for nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WideTimes {
    Yes,
    No,
}

impl WideTimes {
    /// Returns whether the inodes of an image that mke2fs makes with `options` are large enough for
    /// nanoseconds.
    pub fn of(options: &str) -> WideTimes {
        if options.contains("-I 128") { WideTimes::No } else { WideTimes::Yes }
    }

    /// Returns `time` as an inode stores it. Without wide times, an inode stores only 32 bits of
    /// seconds, and no nanoseconds.
    pub fn stored(self, time: Time) -> Time {
        match self {
            WideTimes::Yes => time,
            WideTimes::No => {
                Time { secs: time.secs.clamp(i32::MIN.into(), i32::MAX.into()), nanos: 0 }
            }
        }
    }
}

impl Scale {
    /// Returns the scale for an image of `megabytes` MiB with blocks of `block` bytes.
    pub fn of_image(megabytes: u64, block: usize) -> Scale {
        let files = (megabytes as u32 * 8).clamp(10, 1500);
        Scale {
            files,
            large: (megabytes as usize * 40_000).min(3 << 20),
            pieces: (megabytes * 12).clamp(8, 900),
            wide_times: WideTimes::Yes,
            mappings: Mappings::Extents,
            far: (block as u64) << 31,
            block,
            depth: if megabytes < 8 { 8 } else { 40 },
        }
    }
}

impl Scale {
    /// Returns this scale, adapted to the way in which files map their blocks.
    pub fn with(self, mappings: Mappings) -> Scale {
        let block = self.block as u64;
        let far = match mappings {
            Mappings::Extents | Mappings::Encrypted => self.far,
            // The triple indirect block maps this offset. The offset stays below 2^32 sectors,
            // because the image may lack `huge_file`.
            Mappings::BlockMaps => ((block / 4).pow(2) * 3 * block).min(1 << 40),
        };
        Scale { mappings, far, ..self }
    }
}

fn path(text: &str) -> Path {
    text.as_bytes().to_vec()
}

fn at(text: &str) -> File {
    File::At(path(text))
}

/// Collects the operations.
struct Script(Vec<Op>);

impl Script {
    fn create(&mut self, name: &str, kind: Kind, permissions: u16) {
        let path = path(name);
        self.0.push(Op::Create { path, kind, permissions, uid: 0, gid: 0 });
    }

    fn dir(&mut self, name: &str) {
        self.create(name, Kind::Directory, 0o755);
    }

    fn file(&mut self, name: &str, len: usize) {
        self.create(name, Kind::Regular, 0o644);
        if len > 0 {
            self.write(name, 0, len);
        }
    }

    fn write(&mut self, name: &str, offset: u64, len: usize) {
        let seed = self.0.len() as u64;
        self.0.push(Op::Write { file: at(name), offset, len, seed });
    }

    fn xattr(&mut self, name: &str, key: &str, value: &[u8]) {
        let (path, name, value) = (path(name), path(key), value.to_vec());
        self.0.push(Op::SetXattr { path, name, value, how: SetXattr::Any });
    }
}

/// Returns the operations that fill an empty file system.
pub fn fill(scale: Scale) -> Vec<Op> {
    let mut script = Script(Vec::new());
    directories(&mut script, scale);
    kinds(&mut script, scale);
    mappings(&mut script, scale);
    attributes(&mut script, scale);
    times_and_owners(&mut script, scale);
    script.0.push(Op::Sync);
    script.0
}

fn directories(script: &mut Script, scale: Scale) {
    let mut deep = path("deep");
    for n in 0..scale.depth {
        let op = Op::Create {
            path: deep.clone(),
            kind: Kind::Directory,
            permissions: 0o700 + n % 64,
            uid: 0,
            gid: 0,
        };
        script.0.push(op);
        deep = join(&deep, format!("level {n}").as_bytes());
    }
    script.dir("big");
    for n in 0..scale.files {
        // The names are so long and so many that the index has two levels if blocks have 1 KiB.
        let long = if n % 3 == 0 { "long name ".repeat(23) } else { String::new() };
        script.file(&format!("big/{long}{n}"), if n % 50 == 0 { 100 } else { 0 });
    }
    for n in (0..scale.files).step_by(4) {
        let long = if n % 3 == 0 { "long name ".repeat(23) } else { String::new() };
        script.0.push(Op::Unlink { path: path(&format!("big/{long}{n}")) });
    }
    script.dir("names");
    script.file(&format!("names/{}", "n".repeat(255)), 10);
    script.file("names/\u{1f600} \\ \" \n tab\t", 10);
    script.file("names/...", 1);
    script.dir("empty");
    script.dir("kept after losing all");
    script.file("kept after losing all/x", 1);
    script.0.push(Op::Unlink { path: path("kept after losing all/x") });
}

fn kinds(script: &mut Script, scale: Scale) {
    script.dir("kinds");
    script.create("kinds/fast link", Kind::Symlink(vec![b'f'; 59]), 0o777);
    script.create("kinds/slow link", Kind::Symlink(vec![b's'; 60]), 0o777);
    // The stored form of an encrypted target begins with the length of the target.
    let length = if scale.mappings == Mappings::Encrypted { 2 } else { 0 };
    let most = scale.block - 1 - length;
    script.create("kinds/longest link", Kind::Symlink(vec![b'l'; most.min(4095)]), 0o777);
    script.create("kinds/pipe", Kind::Fifo, 0o640);
    script.create("kinds/socket", Kind::Socket, 0o600);
    script.create("kinds/old char", Kind::CharDevice(5, 1), 0o620);
    script.create("kinds/new char", Kind::CharDevice(300, 70_000), 0o620);
    script.create("kinds/block", Kind::BlockDevice(4095, 0xf_ffff), 0o660);
    script.file("kinds/set-id", 20);
    script.0.push(Op::Chmod { path: path("kinds/set-id"), permissions: 0o6751 });
    script.dir("kinds/sticky");
    script.0.push(Op::Chmod { path: path("kinds/sticky"), permissions: 0o1777 });
    script.file("kinds/links", 5000);
    for n in 0..20 {
        let new = path(&format!("empty/link {n}"));
        script.0.push(Op::Link { file: at("kinds/links"), new });
    }
}

fn mappings(script: &mut Script, scale: Scale) {
    script.dir("data");
    script.file("data/small", 11);
    script.file("data/block", scale.block);
    script.file("data/large", scale.large);
    script.file("data/sparse", 0);
    for n in 0..8 {
        script.write("data/sparse", n * (scale.far / 9) / 512 * 512 + 100, 3000);
    }
    script.file("data/hole at end", 100);
    script.0.push(Op::Truncate { file: at("data/hole at end"), size: 1 << 30 });
    // Writes alternately to two files, leaving holes, so that any allocator fragments them.
    script.file("data/pieces", 0);
    script.file("data/other pieces", 0);
    let block = scale.block as u64;
    for n in 0..scale.pieces {
        script.write("data/pieces", n * 3 * block, scale.block);
        script.write("data/other pieces", n * 2 * block, 200);
    }
    if scale.mappings == Mappings::Extents {
        unwritten(script, scale);
    }
    script.file("data/punched", scale.large / 2);
    for n in 1..10 {
        let (how, offset) = (Fallocate::PunchHole, n * scale.large as u64 / 20);
        script.0.push(Op::Fallocate { file: at("data/punched"), how, offset, len: 10_000 });
    }
    script.file("data/cut", scale.large / 2);
    script.0.push(Op::Truncate { file: at("data/cut"), size: 1234 });
}

/// Adds files with unwritten blocks.
fn unwritten(script: &mut Script, scale: Scale) {
    script.file("data/unwritten", 0);
    let how = Fallocate::Allocate;
    let (offset, len) = (0, scale.large.min(200_000) as u64);
    script.0.push(Op::Fallocate { file: at("data/unwritten"), how, offset, len });
    script.write("data/unwritten", 17_000, 5000);
    script.file("data/beyond", 5000);
    let how = Fallocate::AllocateKeepSize;
    script.0.push(Op::Fallocate { file: at("data/beyond"), how, offset, len });
    script.file("data/zeroed", scale.large.min(100_000));
    let how = Fallocate::ZeroRange;
    script.0.push(Op::Fallocate { file: at("data/zeroed"), how, offset: 3000, len: 30_000 });
}

fn attributes(script: &mut Script, scale: Scale) {
    script.dir("attributes");
    script.file("attributes/inside", 3);
    script.xattr("attributes/inside", "user.short", b"value");
    script.xattr("attributes/inside", "user.empty", b"");
    script.file("attributes/block", 3);
    script.xattr("attributes/block", "user.long", &vec![b'v'; scale.block / 2]);
    for n in 0..8 {
        script.xattr("attributes/block", &format!("user.number {n}"), &[n; 20]);
    }
    script.xattr("attributes/block", "trusted.thing", b"trusted");
    script.xattr("attributes/block", "security.thing", b"label\0");
    // Inodes with the same attributes may share an attribute block.
    for n in 0..3 {
        let name = format!("attributes/same {n}");
        script.file(&name, 3);
        script.xattr(&name, "user.same", &vec![b's'; scale.block / 2]);
    }
    script.dir("attributes/directory");
    script.xattr("attributes/directory", "user.on a directory", b"yes");
    script.xattr("attributes/inside", "system.posix_acl_access", &acl());
    script.xattr("attributes/directory", "system.posix_acl_default", &acl());
    script.file("attributes/directory/inherits", 1);
    script.dir("attributes/directory/inherits too");
    script.create("attributes/link", Kind::Symlink(path("x")), 0o777);
    script.xattr("attributes/link", "trusted.on a link", b"yes");
}

/// Returns an access control list in the format of the system call. The version (2) is followed by
/// entries for the owner, one user, the group, the mask and others. Each entry has a tag,
/// permissions and an id.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, u32::MAX),
        (0x02, 7, 70_001),
        (0x04, 4, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn times_and_owners(script: &mut Script, scale: Scale) {
    script.dir("times");
    let wide = [(-(1i64 << 31), 0), ((1 << 34) - (1 << 31) - 1, 999_999_999), (1 << 32, 1)];
    let narrow = [(-(1i64 << 31), 0), ((1 << 31) - 1, 0), (0, 0)];
    let times = if scale.wide_times == WideTimes::Yes { wide } else { narrow };
    for (n, (secs, nanos)) in times.into_iter().enumerate() {
        let name = path(&format!("times/{n}"));
        script.file(&format!("times/{n}"), 1);
        let mtime = Time { secs, nanos };
        let atime = Time { secs: secs / 2, nanos };
        script.0.push(Op::Times { path: name, atime, mtime });
    }
    script.dir("owners");
    for (n, (uid, gid)) in
        [(1000, 1000), (65_536, 70_000), (u32::MAX - 1, u32::MAX - 1)].into_iter().enumerate()
    {
        script.file(&format!("owners/{n}"), 1);
        script.0.push(Op::Chown { path: path(&format!("owners/{n}")), uid, gid });
    }
}

/// Returns operations that change the tree of [`fill`]: remove, replace, move, truncate, convert.
pub fn change(scale: Scale) -> Vec<Op> {
    let mut script = Script(Vec::new());
    let rename = |from: &str, to: &str, how| Op::Rename { path: path(from), new: path(to), how };
    script.0.extend([
        rename("data/small", "deep/level 0/moved", Rename::Replace),
        rename("data/block", "data/large", Rename::Replace),
        rename("empty", "kinds", Rename::Exchange),
        rename("kept after losing all", "deep/level 0/level 1/kept", Rename::NoReplace),
        Op::Rmdir { path: path("deep/level 0/level 1/kept") },
        Op::Unlink { path: path("empty/links") },
        Op::Truncate { file: at("data/pieces"), size: scale.pieces * scale.block as u64 },
        Op::Truncate { file: at("data/sparse"), size: 1 << 20 },
        Op::RemoveXattr { path: path("attributes/block"), name: path("user.long") },
        Op::RemoveXattr { path: path("attributes/inside"), name: path("user.short") },
        Op::Unlink { path: path("attributes/same 0") },
        Op::Chmod { path: path("attributes/inside"), permissions: 0o600 },
        Op::Fsync { file: at("data/pieces"), mode: SyncMode::Full },
    ]);
    script.xattr("attributes/same 1", "user.same", b"no more");
    if scale.mappings == Mappings::Extents {
        script.write("data/unwritten", 10, scale.large.min(150_000));
    }
    script.write("data/punched", 0, scale.large / 3);
    for n in (1..scale.files).step_by(4) {
        let long = if n % 3 == 0 { "long name ".repeat(23) } else { String::new() };
        script.0.push(Op::Unlink { path: path(&format!("big/{long}{n}")) });
        script.file(&format!("big/again {n}"), 0);
    }
    for n in 0..scale.pieces / 2 {
        script.write("data/other pieces", (n * 4 + 1) * scale.block as u64, scale.block);
    }
    script.0.push(Op::Sync);
    script.0
}
