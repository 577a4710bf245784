//! Unpacks the archives of golden arrays. The tests of `lanefs-ondisk` use this file too.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Unpacks the archive of this name from the folder of test data. Returns the folder, which is
/// removed when dropped, and the paths of the files in it, sorted by name; `None` if tar fails.
pub fn unpack(testdata: &Path, archive: &str) -> Option<(TempDir, Vec<PathBuf>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let done = Command::new("tar")
        .arg("-xJSf")
        .arg(testdata.join(archive).with_extension("tar.xz"))
        .arg("-C")
        .arg(folder.path())
        .status();
    if !done.is_ok_and(|status| status.success()) {
        println!("skipped: tar cannot unpack {archive} (package xz-utils)");
        return None;
    }
    let mut paths = Vec::new();
    let mut folders = vec![folder.path().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { paths.push(path) }
        }
    }
    paths.sort();
    Some((folder, paths))
}
