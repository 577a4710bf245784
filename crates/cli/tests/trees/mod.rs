//! Trees with every type of file, and records of their attributes for comparison.

#![allow(dead_code, reason = "each test program uses its own part")]

use crate::mounting::shell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// All attributes of a file that a copy has to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u64,
    pub rdev: u64,
    pub size: u64,
    pub mtime: (i64, i64),
    /// The first path in sorted order among all paths of the same file.
    pub same_as: Option<PathBuf>,
    pub target: Option<PathBuf>,
    pub attributes: BTreeMap<OsString, Vec<u8>>,
    pub contents: Option<Vec<u8>>,
    /// Whether holes make up more than half of the file.
    pub sparse: bool,
}

/// Returns the records of all files below `top`, except `lost+found`.
pub fn survey(top: &Path) -> BTreeMap<PathBuf, Record> {
    let mut records = BTreeMap::new();
    let mut paths = vec![top.to_path_buf()];
    let mut all = Vec::new();
    while let Some(path) = paths.pop() {
        if path.symlink_metadata().unwrap().is_dir() {
            for entry in path.read_dir().unwrap() {
                let entry = entry.unwrap();
                if entry.file_name() != "lost+found" {
                    paths.push(entry.path());
                }
            }
        }
        all.push(path);
    }
    all.sort();
    let mut first: BTreeMap<u64, PathBuf> = BTreeMap::new();
    for path in all {
        let name = path.strip_prefix(top).unwrap().to_path_buf();
        let metadata = path.symlink_metadata().unwrap();
        let kind = metadata.file_type();
        let is_device = kind.is_char_device() || kind.is_block_device();
        let same_as = match metadata.is_dir() {
            true => None,
            false => Some(first.entry(metadata.ino()).or_insert_with(|| name.clone()).clone()),
        };
        let attributes = xattr::list(&path).unwrap().map(|attribute| {
            let value = xattr::get(&path, &attribute).unwrap().unwrap();
            (attribute, value)
        });
        let record = Record {
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            links: if metadata.is_dir() { 0 } else { metadata.nlink() },
            rdev: if is_device { metadata.rdev() } else { 0 },
            size: if metadata.is_dir() { 0 } else { metadata.size() },
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            same_as,
            target: kind.is_symlink().then(|| path.read_link().unwrap()),
            attributes: attributes.collect(),
            contents: kind.is_file().then(|| std::fs::read(&path).unwrap()),
            sparse: kind.is_file() && metadata.blocks() * 512 < metadata.size() / 2,
        };
        records.insert(name, record);
    }
    records
}

/// Panics with a description of the first difference.
pub fn assert_same(found: &BTreeMap<PathBuf, Record>, expected: &BTreeMap<PathBuf, Record>) {
    let names = |records: &BTreeMap<PathBuf, Record>| records.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "the names");
    for (name, record) in expected {
        let brief = |record: &Record| Record {
            contents: record.contents.as_ref().map(|c| c[..c.len().min(20)].to_vec()),
            ..record.clone()
        };
        let copy = &found[name];
        assert_eq!(brief(copy), brief(record), "{}", name.display());
        assert!(copy.contents == record.contents, "contents of {}", name.display());
    }
}

/// Creates one file of each type in `dir`, which has to be on a file system with extended
/// attributes and access control lists. Needs root.
pub fn fill(dir: &Path) {
    shell(
        dir,
        r#"
        umask 022
        mkdir -p d/e/f empty many deep sticky sgid
        echo hello > d/hello
        : > d/nothing
        seq 1 200000 > d/e/numbers
        head -c 3000001 /dev/urandom > d/e/f/noise
        printf A | dd of=d/e/f/noise bs=1 seek=2000000 conv=notrunc status=none
        truncate -s 100M d/hole
        printf 'x' | dd of=d/spots bs=1 seek=5000000 conv=notrunc status=none
        printf 'y' | dd of=d/spots bs=1 seek=50000000 conv=notrunc status=none
        ln -s hello d/short
        ln -s "$(printf 'a%.0s' $(seq 200))" d/long
        ln -s ../nowhere d/dangling
        ln d/hello d/hello-again
        ln d/hello empty/hello-elsewhere
        mkfifo d/pipe
        mknod d/null c 1 3
        mknod d/disk b 259 70000
        perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "d/socket", Listen => 1)' || true
        chmod 1777 sticky; chmod 2775 sgid; chmod 4755 d/e/numbers; chmod 000 d/nothing
        chown 1000:1001 d/hello; chown -h 70000:70001 d/short; chown 5:6 sgid; chmod 2775 sgid
        setfattr -n user.note -v 'a value' d/hello
        setfattr -n user.big -v "$(printf 'b%.0s' $(seq 600))" d/hello
        setfattr -n trusted.hidden -v secret d/e
        setfattr -n user.dir -v 1 d
        setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 d/e/f/noise
        setfacl -m u:1234:rw,g:4321:r,m::rw d/e/numbers
        setfacl -m u:1234:rwx sgid; setfacl -d -m u:77:rx sgid
        for n in $(seq 1 1500); do : > "many/a file with a rather long name $n"; done
        p=deep; for n in $(seq 1 30); do p=$p/$n; mkdir $p; done; echo bottom > $p/file
        : > "odd
name"; : > "$(printf '\377\001')"
        touch -d '1969-07-20T20:17:40.5Z' d/hello
        touch -d '2200-01-01T00:00:00.123456789Z' d/e/numbers
        touch -h -d '2001-02-03T04:05:06Z' d/short
        touch -d '2010-10-10T10:10:10Z' many deep d/e d
        "#,
    );
}
