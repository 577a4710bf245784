//! A thread's directory and files, and what its next operation needs.

use crate::setting::Setting;
use lanefs::{File, FileOptions, FileSystem};
use lanefs_ondisk::hash::{HashVersion, NameBytes, NameHasher};
use lanefs_ondisk::superblock::SuperFlags;
use std::io::Write;

/// Bytes of a thread's file, all written.
pub const FILE: u64 = 256 << 10;

/// Bytes of a page, and of each read and write.
pub const PAGE: u64 = 4096;

/// Groups of a lane, and a few more.
const GROUPS: usize = 10;

/// A thread's part of the tree, and the objects of its operations. The thread made all of them
/// itself, as a program does with its own files.
pub struct Stage<'fs> {
    pub fs: &'fs FileSystem,
    me: usize,
    round: u64,
    /// The directory of the operations, and the one that renames lead to.
    pub home: String,
    pub away: String,
    /// A file that exists, with an attribute; and a symbolic link.
    pub file: String,
    pub link: String,
    /// The name that this round makes, moves or removes.
    pub name: String,
    pub other: String,
    /// `file`, open; set by entering a setting.
    open: Option<File>,
    /// Opened by an operation's preparation, to be used or let go by the operation.
    pub held: Option<File>,
    pub page: Vec<u8>,
    /// How an index sorts names.
    hasher: NameHasher,
}

/// Names that a large directory has before anything is traced in it.
const NAMES: usize = 10_000;

/// How the file system hashes names.
fn hasher(fs: &FileSystem) -> NameHasher {
    let superblock = fs.vfs().fs().superblock();
    let version = HashVersion::from_byte(superblock.hash_version()).expect("what mkfs writes");
    let unsigned = superblock.flags().contains(SuperFlags::UNSIGNED_HASH);
    let bytes = if unsigned { NameBytes::Unsigned } else { NameBytes::Signed };
    NameHasher { version, bytes, seed: superblock.hash_seed() }
}

/// The attribute of each file.
pub const ATTRIBUTE: &str = "user.colour";

impl<'fs> Stage<'fs> {
    pub fn new(fs: &'fs FileSystem, me: usize) -> Stage<'fs> {
        Stage {
            fs,
            me,
            round: 0,
            home: String::new(),
            away: String::new(),
            file: String::new(),
            link: String::new(),
            name: String::new(),
            other: String::new(),
            open: None,
            held: None,
            page: vec![me as u8; PAGE as usize],
            hasher: hasher(fs),
        }
    }

    /// The thread's file, open for reading and writing.
    pub fn open(&self) -> &File {
        self.open.as_ref().expect("a setting was entered")
    }

    /// Where in the file this thread reads and writes: a page of its own.
    pub fn offset(&self) -> u64 {
        self.me as u64 % (FILE / PAGE) * PAGE
    }

    /// Goes to the thread's directory in `setting`, and makes it if it does not exist.
    pub fn enter(&mut self, setting: Setting) {
        let me = self.me;
        (self.open, self.held) = (None, None);
        (self.home, self.away) = match setting {
            Setting::Directories => (format!("/{me}"), format!("/{me}-away")),
            Setting::Names => ("/all".into(), "/all-away".into()),
            Setting::Small => ("/few".into(), "/few-away".into()),
            Setting::File => ("/one".into(), "/one-away".into()),
        };
        self.file = match setting {
            Setting::File => "/one/file".into(),
            _ => format!("{}/{me}-file", self.home),
        };
        self.link = match setting {
            Setting::File => "/one/link".into(),
            _ => format!("{}/{me}-link", self.home),
        };
        for dir in [&self.home, &self.away] {
            if !self.fs.exists(dir).expect("a RAM device does not fail") {
                self.fs.create_dir(dir).expect("room for a directory");
                if setting == Setting::Names {
                    self.fill(dir);
                }
            }
        }
        if !self.fs.exists(&self.file).expect("a RAM device does not fail") {
            let mut file = self.fs.create_file(&self.file).expect("room for a file");
            file.write_all(&vec![1; FILE as usize]).expect("room for its data");
            self.fs.set_xattr(&self.file, ATTRIBUTE, b"blue").expect("room for an attribute");
            self.fs.symlink("file", &self.link).expect("room for a link");
        }
        if matches!(setting, Setting::Directories | Setting::Names) {
            // Directories are made in the lane's groups in turn: all groups are read before
            // tracing.
            for n in 0..GROUPS {
                let name = format!("{}/{me}-{n}", self.home);
                self.fs.create_dir(&name).expect("room for a directory");
                self.fs.remove_dir(&name).expect("just made");
            }
        }
        let options = FileOptions::new().read().write();
        self.open = Some(self.fs.open_file_with(&self.file, &options).expect("it is there"));
    }

    /// Makes a directory one of some hundred leaves.
    fn fill(&self, dir: &str) {
        let first = format!("{dir}/names");
        drop(self.fs.create_file(&first).expect("room for a file"));
        for n in 0..NAMES {
            // Only names matter here.
            let name = format!("{dir}/{n:0>100}");
            self.fs.hard_link(&first, &name).expect("room for a name");
        }
    }

    /// Makes and removes a name; called many times before tracing.
    pub fn mingle(&mut self) {
        self.next_round();
        for dir in [&self.home, &self.away] {
            let name = format!("{dir}/{}-mingles", self.me);
            drop(self.fs.create_file(&name).expect("room for a file"));
            self.fs.remove_file(&name).expect("just made");
        }
    }

    /// Names for the next round that no other thread has, and that did not exist before. Names that
    /// the last round left are removed, so that directories keep their size.
    pub fn next_round(&mut self) {
        self.round += 1;
        self.held = None;
        for left in [&self.name, &self.other] {
            if !left.is_empty() && self.fs.symlink_metadata(left).is_ok() {
                self.fs.remove_dir_all(left).expect("what a thread made it may remove");
            }
        }
        self.name = self.own_name("");
        self.other = self.own_name("-other");
    }

    /// A name of this round among those that hash to this thread's part of an index.
    fn own_name(&self, suffix: &str) -> String {
        let (me, round) = (self.me, self.round);
        let names = (0..).map(|n| format!("{me}-{round}{suffix}-{n}"));
        // Far from the parts of the next threads, and without its borders: a leaf may lie on both
        // sides.
        let part = u32::from((me as u8).reverse_bits() >> 2);
        let own = |name: &String| {
            let hash = self.hasher.hash(name.as_bytes()).major;
            hash >> 26 == part && (8..56).contains(&(hash >> 20 & 63))
        };
        let mut own = names.filter(own);
        format!("{}/{}", self.home, own.next().expect("there are enough names"))
    }
}
