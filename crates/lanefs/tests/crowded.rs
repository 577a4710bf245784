//! Where memory is short, attributes are told from blocks and names from rolls of directories: they
//! tell what a plain model of the tree says.

use lanefs::device::RamDevice;
use lanefs::{FileSystem, FormatOptions, OpenOptions};
use std::collections::HashMap;
use std::sync::Arc;

/// ENOENT.
const NOT_FOUND: i32 = 2;

const THREADS: u64 = 3;
const DIRECTORIES: usize = 4;
/// Of one directory, at most: it has some blocks then.
const NAMES: usize = 300;

/// Room for a hundred inodes or two.
const CAP: u64 = 1 << 20;

/// One thread's directories: the size of a file is its identity.
struct Own<'f> {
    fs: &'f FileSystem,
    me: u64,
    random: fastrand::Rng,
    files: HashMap<String, u64>,
    sizes: u64,
}

impl Own<'_> {
    fn some_path(&mut self) -> String {
        let (d, n) = (self.random.usize(..DIRECTORIES), self.random.usize(..NAMES));
        format!("/{}/{d}/a name that takes some room {n}", self.me)
    }

    fn change(&mut self) {
        let (path, other) = (self.some_path(), self.some_path());
        match (self.files.remove(&path), self.random.u8(..4)) {
            (None, _) => {
                self.sizes += 1;
                self.fs.create_file(&path).unwrap().set_len(self.sizes).unwrap();
                self.files.insert(path, self.sizes);
            }
            (Some(_), 0) => self.fs.remove_file(&path).unwrap(),
            (Some(size), 1) => {
                self.fs.rename(&path, &other).unwrap();
                self.files.insert(other, size);
            }
            (Some(size), _) => drop(self.files.insert(path, size)),
        }
    }

    /// Asks for files of one directory, as who walks it does.
    fn look(&mut self) {
        let d = self.random.usize(..DIRECTORIES);
        let first = self.random.usize(..NAMES);
        for n in first..NAMES.min(first + 40) {
            let path = format!("/{}/{d}/a name that takes some room {n}", self.me);
            let found = match self.fs.symlink_metadata(&path) {
                Ok(metadata) => Some(metadata.len()),
                Err(error) if error.errno() == NOT_FOUND => None,
                Err(error) => panic!("{path}: {error}"),
            };
            assert_eq!(found, self.files.get(&path).copied(), "{path}");
        }
    }
}

#[test]
fn what_is_told_from_blocks_is_what_is_there() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let device = Arc::new(RamDevice::create(1 << 30).unwrap());
    FileSystem::format(&*device, &FormatOptions::default()).unwrap();
    let options = OpenOptions::new().cache_bytes(CAP);
    let fs = FileSystem::open_device(device, &options).unwrap();
    std::thread::scope(|scope| {
        for me in 0..THREADS {
            let fs = &fs;
            scope.spawn(move || {
                fs.create_dir(format!("/{me}")).unwrap();
                (0..DIRECTORIES).for_each(|d| fs.create_dir(format!("/{me}/{d}")).unwrap());
                let random = fastrand::Rng::with_seed(seed.wrapping_add(me));
                let mut own = Own { fs, me, random, files: HashMap::new(), sizes: 0 };
                (0..2 * NAMES).for_each(|_| own.change());
                for _ in 0..400 {
                    (0..own.random.usize(..4)).for_each(|_| own.change());
                    (0..own.random.usize(..4)).for_each(|_| own.look());
                }
            });
        }
    });
    fs.close().unwrap();
}
