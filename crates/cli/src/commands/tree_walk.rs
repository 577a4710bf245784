//! Walks over every file of a tree.

use lanefs::{FileSystem, FileType};
use std::path::{Path, PathBuf};

/// How the walk treats symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Links are skipped.
    Skip,
    /// `act` gets the links themselves.
    Themselves,
}

/// Calls `act` on `top` and, if that is a directory, on everything below it. Continues after errors
/// and returns the first.
pub fn each_below(
    fs: &FileSystem,
    top: &Path,
    links: Links,
    act: &mut dyn FnMut(&Path) -> lanefs::Result<()>,
) -> lanefs::Result<()> {
    let mut first = act(top);
    let mut keep = |result: lanefs::Result<()>| {
        if first.is_ok() {
            first = result;
        }
    };
    let mut dirs: Vec<PathBuf> = Vec::new();
    if fs.symlink_metadata(top)?.is_dir() {
        dirs.push(top.into());
    }
    while let Some(dir) = dirs.pop() {
        let entries = match fs.read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) => {
                keep(Err(error));
                continue;
            }
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => dir.join(entry.file_name()),
                Err(error) => {
                    keep(Err(error));
                    break;
                }
            };
            match fs.symlink_metadata(&path).map(|metadata| metadata.file_type()) {
                Ok(FileType::Symlink) if links == Links::Skip => continue,
                Ok(FileType::Directory) => dirs.push(path.clone()),
                Ok(_) => {}
                Err(error) => {
                    keep(Err(error));
                    continue;
                }
            }
            keep(act(&path));
        }
    }
    first
}
