//! A thread's directory and files, and the names for its next operation.

use crate::setting::Setting;
use lanefs::{File, FileOptions, FileSystem};
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::hash::{HashVersion, NameHasher};
use std::io::Write;

/// The length of a thread's file in bytes. The file has no holes.
pub const FILE: u64 = 256 << 10;

/// Bytes of a page, and of each read and write.
pub const PAGE: u64 = 4096;

/// The number of directories that a thread creates and removes to load all groups of its lane: a
/// few more than the groups of a lane.
const GROUPS: usize = 10;

/// A thread's part of the tree, and the objects on which its operations work. Unless the setting
/// says otherwise, the thread created these objects itself, as a program creates its own files.
pub struct Stage<'fs> {
    pub fs: &'fs FileSystem,
    me: usize,
    round: u64,
    /// The directory in which the operations work, and the target directory of renames.
    pub home: String,
    pub away: String,
    /// The paths of two existing objects: a file with an attribute, and a symbolic link.
    pub file: String,
    pub link: String,
    /// Two paths that only this thread uses, and only in this round. Operations create, rename or
    /// remove them.
    pub name: String,
    pub other: String,
    /// The open file at the path `file`. It is `None` until [`Stage::enter`] opens the file.
    open: Option<File>,
    /// The file that an operation's preparation opened; the operation uses or closes it.
    pub held: Option<File>,
    pub page: Vec<u8>,
    /// Computes the hashes by which an index orders names. `None` if any name will do.
    hasher: Option<NameHasher>,
}

/// The number of names in a large directory before tracing.
const NAMES: usize = 10_000;

/// Returns the hash function of the file system.
fn hasher(fs: &FileSystem) -> NameHasher {
    let superblock = fs.vfs().fs().superblock();
    let version = HashVersion::from_byte(superblock.hash_version()).expect("what mkfs writes");
    superblock.hasher(version, Folding::None)
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
            hasher: None,
        }
    }

    /// Returns the thread's file, open for reading and writing.
    pub fn open(&self) -> &File {
        self.open.as_ref().expect("a setting was entered")
    }

    /// Returns the offset in the file at which this thread reads and writes. Each thread has its
    /// own page.
    pub fn offset(&self) -> u64 {
        self.me as u64 % (FILE / PAGE) * PAGE
    }

    /// Enters the thread's directory in `setting`, and creates it if it does not exist.
    pub fn enter(&mut self, setting: Setting) {
        let me = self.me;
        (self.open, self.held) = (None, None);
        self.hasher = (setting != Setting::AnyNames).then(|| hasher(self.fs));
        (self.home, self.away) = match setting {
            Setting::Directories => (format!("/{me}"), format!("/{me}-away")),
            Setting::Made => Stage::made_for(me),
            Setting::Names | Setting::AnyNames => ("/all".into(), "/all-away".into()),
            Setting::Small => ("/few".into(), "/few-away".into()),
            Setting::File | Setting::Served | Setting::ServedFile => {
                ("/one".into(), "/one-away".into())
            }
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
                if matches!(setting, Setting::Names | Setting::AnyNames) {
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
        if matches!(
            setting,
            Setting::Directories | Setting::Made | Setting::Names | Setting::AnyNames
        ) {
            // Directories are created in the lane's groups in turn, so this loads all groups before
            // tracing.
            for n in 0..GROUPS {
                let name = format!("{}/{me}-{n}", self.home);
                self.fs.create_dir(&name).expect("room for a directory");
                self.fs.remove_dir(&name).expect("just made");
            }
        }
        let options = FileOptions::new().read(true).write(true);
        self.open = Some(self.fs.open_file_with(&self.file, &options).expect("it is there"));
    }

    /// Returns the directories that the first thread creates for thread `me`. The directories of
    /// all threads have the same parent, as in a tree that one program unpacked.
    fn made_for(me: usize) -> (String, String) {
        (format!("/made/{me}"), format!("/made/{me}-away"))
    }

    /// Creates the directories of thread `me`.
    pub fn make_for(&mut self, me: usize) {
        if !self.fs.exists("/made").expect("a RAM device does not fail") {
            self.fs.create_dir("/made").expect("room for a directory");
        }
        let (home, away) = Stage::made_for(me);
        for dir in [home, away] {
            self.fs.create_dir(dir).expect("room for a directory");
        }
    }

    /// Gives a directory several hundred leaves.
    fn fill(&self, dir: &str) {
        let first = format!("{dir}/names");
        drop(self.fs.create_file(&first).expect("room for a file"));
        for n in 0..NAMES {
            // Links to one file are sufficient, since only the names matter.
            let name = format!("{dir}/{n:0>100}");
            self.fs.hard_link(&first, &name).expect("room for a name");
        }
    }

    /// Creates and removes a name; called many times before tracing.
    pub fn mingle(&mut self) {
        self.next_round();
        for dir in [&self.home, &self.away] {
            let name = format!("{dir}/{}-mingles", self.me);
            drop(self.fs.create_file(&name).expect("room for a file"));
            self.fs.remove_file(&name).expect("just made");
        }
    }

    /// Removes the names of the previous round, so that directories keep their size, and chooses
    /// names for the next round.
    pub fn next_round(&mut self) {
        self.clear();
        self.name();
    }

    /// Removes the names of the previous round.
    pub fn clear(&mut self) {
        self.held = None;
        for left in [&self.name, &self.other] {
            if !left.is_empty() && self.fs.symlink_metadata(left).is_ok() {
                self.fs.remove_dir_all(left).expect("what a thread made it may remove");
            }
        }
    }

    /// Chooses new names for the next round. No other thread uses these names.
    pub fn name(&mut self) {
        self.round += 1;
        self.name = self.own_name("");
        self.other = self.own_name("-other");
    }

    /// Returns a name of this round. Unless any name will do, its hash is in this thread's part of
    /// an index.
    fn own_name(&self, suffix: &str) -> String {
        let (me, round) = (self.me, self.round);
        let names = (0..).map(|n| format!("{me}-{round}{suffix}-{n}"));
        // The part is far from the parts of other threads. Hashes near the borders of a part are
        // left out, because a leaf may extend across a border.
        let part = u32::from((me as u8).reverse_bits() >> 2);
        let own = |name: &String| {
            let Some(hasher) = &self.hasher else { return true };
            let hash = hasher.hash(name.as_bytes()).major;
            hash >> 26 == part && (8..56).contains(&(hash >> 20 & 63))
        };
        let mut own = names.filter(own);
        format!("{}/{}", self.home, own.next().expect("there are enough names"))
    }
}
