//! Uses encrypted directories through the library: with the key, without the key, and with another
//! key.

use crate::images::*;
use lanefs::{FileOptions, FileSystem, MasterKey, OpenOptions, Rename};
use std::path::{Path, PathBuf};

const NO_KEY: i32 = 126; // ENOKEY
const CROSSES: i32 = 18; // EXDEV
const EXISTS: i32 = 17; // EEXIST
const NOT_EMPTY: i32 = 39; // ENOTEMPTY
const NOT_PERMITTED: i32 = 1; // EPERM
const NOT_SUPPORTED: i32 = 95; // EOPNOTSUPP

fn key(byte: u8) -> MasterKey {
    MasterKey::new(&[byte; 64]).unwrap()
}

fn open(image: &Image, keys: &[MasterKey]) -> FileSystem {
    FileSystem::open_with(&image.path, &OpenOptions::new().keys(keys)).unwrap()
}

/// Returns an image with the empty directory `/d`, which is encrypted by key 1, and its open file
/// system.
fn encrypted() -> (Image, FileSystem) {
    let image = Image::with("32M", &["-O", "encrypt"]);
    let fs = open(&image, &[key(1), key(2)]);
    fs.create_dir("/d").unwrap();
    // Looks up a name that is absent. The name cache must forget this absence when the directory is
    // encrypted.
    assert!(!fs.exists("/d/sub").unwrap());
    fs.encrypt_dir("/d", &key(1)).unwrap();
    (image, fs)
}

fn names(fs: &FileSystem, dir: &str) -> Vec<PathBuf> {
    let entries = fs.read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| Path::new(dir).join(entry.unwrap().file_name())).collect();
    names.sort();
    names
}

fn errno<T>(result: lanefs::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.errno())
}

#[test]
fn files_come_back_with_the_key_and_cannot_be_opened_without() {
    let (image, fs) = encrypted();
    fs.create_dir("/d/sub").unwrap();
    fs.write("/d/sub/file", b"secret").unwrap();
    fs.symlink("sub/file", "/d/link").unwrap();
    fs.close().unwrap();
    image.assert_clean();
    let bytes = std::fs::read(&image.path).unwrap();
    assert!(!bytes.windows(6).any(|found| found == b"secret"));

    let fs = open(&image, &[key(1)]);
    assert_eq!(fs.read("/d/link").unwrap(), b"secret");
    assert_eq!(fs.symlink_metadata("/d/link").unwrap().len(), 8);
    fs.close().unwrap();

    for keys in [vec![], vec![key(2)]] {
        let fs = open(&image, &keys);
        assert_eq!(names(&fs, "/d").len(), 2);
        assert!(!fs.exists("/d/sub").unwrap());
        for name in names(&fs, "/d") {
            let metadata = fs.symlink_metadata(&name).unwrap();
            if metadata.file_type() == lanefs::FileType::Directory {
                let file = names(&fs, name.to_str().unwrap()).remove(0);
                assert_eq!(fs.metadata(&file).unwrap().len(), 6);
                assert_eq!(errno(fs.read(&file)), NO_KEY);
                assert_eq!(errno(fs.create_dir(name.join("new"))), NO_KEY);
                assert_eq!(errno(fs.hard_link(&file, name.join("new"))), NO_KEY);
                assert_eq!(errno(fs.rename(&file, "/out")), NO_KEY);
            } else {
                let target = fs.read_link(&name).unwrap();
                assert_eq!(target.as_os_str().len() as u64, metadata.len());
            }
        }
        assert_eq!(errno(fs.write("/d/new", b"")), NO_KEY);
        fs.close().unwrap();
    }
    let fs = open(&image, &[]);
    fs.remove_dir_all("/d").unwrap();
    fs.close().unwrap();
    image.assert_clean();
}

#[test]
fn parts_of_blocks_change_alone_and_truncated_bytes_are_zeros() {
    let (image, fs) = encrypted();
    let mut model = vec![0; 0];
    let mut random = fastrand::Rng::with_seed(seed());
    let file =
        fs.open_file_with("/d/f", &FileOptions::new().read(true).write(true).create(true)).unwrap();
    for _ in 0..300 {
        let at = random.usize(0..40_000);
        match random.u8(0..8) {
            0 => {
                file.set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            1 => {
                let len = random.usize(1..9000);
                file.fallocate(lanefs::Fallocate::ZeroRangeKeepSize, at as u64, len as u64)
                    .unwrap();
                let end = model.len().min(at + len);
                model.get_mut(at..end).unwrap_or_default().fill(0);
            }
            _ => {
                let aligned = random.bool();
                let at = if aligned { at / 4096 * 4096 } else { at };
                let len = if aligned { 4096 * random.usize(1..4) } else { random.usize(1..9000) };
                let data: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
                file.write_all_at(&data, at as u64).unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&data);
            }
        }
        let mut read = vec![1; model.len()];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == model);
    }
    drop(file);
    fs.close().unwrap();
    image.assert_clean();
    let fs = open(&image, &[key(1)]);
    assert!(fs.read("/d/f").unwrap() == model);
}

#[test]
fn names_cross_between_policies_only_outwards() {
    let (image, fs) = encrypted();
    fs.create_dir("/e").unwrap();
    fs.encrypt_dir("/e", &key(2)).unwrap();
    fs.write("/d/f", b"1").unwrap();
    fs.write("/plain", b"2").unwrap();
    for (from, to) in [("/plain", "/d/new"), ("/d/f", "/e/new")] {
        assert_eq!(errno(fs.hard_link(from, to)), CROSSES);
        assert_eq!(errno(fs.rename(from, to)), CROSSES);
    }
    assert_eq!(errno(fs.rename_with("/d/f", "/plain", Rename::Exchange)), CROSSES);
    fs.hard_link("/d/f", "/out").unwrap();
    assert_eq!(fs.read("/out").unwrap(), b"1");
    fs.hard_link("/out", "/d/again").unwrap();
    fs.create_dir("/d/sub").unwrap();
    fs.rename("/d/again", "/d/sub/moved").unwrap();
    fs.close().unwrap();
    image.assert_clean();
}

#[test]
fn only_an_empty_directory_below_the_root_gets_a_policy() {
    let (image, fs) = encrypted();
    fs.create_dir("/full").unwrap();
    fs.write("/full/f", b"").unwrap();
    assert_eq!(errno(fs.encrypt_dir("/full", &key(1))), NOT_EMPTY);
    assert_eq!(errno(fs.encrypt_dir("/", &key(1))), NOT_PERMITTED);
    assert_eq!(errno(fs.encrypt_dir("/d", &key(2))), EXISTS);
    assert_eq!(errno(fs.encrypt_dir("/d", &key(1))), 0);
    fs.create_dir("/unknown").unwrap();
    assert_eq!(errno(fs.encrypt_dir("/unknown", &key(3))), NO_KEY);
    fs.close().unwrap();
    image.assert_clean();
    let plain = Image::new("16M");
    let fs = open(&plain, &[key(1)]);
    fs.create_dir("/d").unwrap();
    assert_eq!(errno(fs.encrypt_dir("/d", &key(1))), NOT_SUPPORTED);
}
