//! A file that a command creates, and removes again if the command fails.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that this command created; removed on drop unless it is kept.
///
/// Only the file itself is removed: not a link that leads nowhere, and not a file that another
/// program has put in its place or created first.
#[derive(Debug)]
pub struct MadeFile {
    path: PathBuf,
    /// The numbers of the host's file system and of the inode; `None` once the file is kept.
    made: Option<(u64, u64)>,
}

impl MadeFile {
    /// Creates the file with this length.
    ///
    /// # Errors
    /// Errors of the host; also if there is a file or a link of this name.
    pub fn create(path: &Path, len: u64) -> io::Result<MadeFile> {
        let file = File::create_new(path)?;
        let metadata = file.metadata()?;
        let made = MadeFile { path: path.into(), made: Some((metadata.dev(), metadata.ino())) };
        file.set_len(len)?;
        Ok(made)
    }

    /// Keeps the file: it has become what it was created for, or this is not known.
    pub fn keep(mut self) {
        self.made = None;
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        let Some(made) = self.made else { return };
        let there = self.path.symlink_metadata();
        if there.is_ok_and(|there| (there.dev(), there.ino()) == made) {
            // An error while removing it is ignored, because the message about the failure names
            // the file, so the user can remove it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_that_was_created_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made");
        drop(MadeFile::create(&path, 10).unwrap());
        assert!(!path.exists());
        MadeFile::create(&path, 10).unwrap().keep();
        assert_eq!(path.metadata().unwrap().len(), 10);
        MadeFile::create(&path, 10).expect_err("it exists");
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
        let made = MadeFile::create(&path, 10).unwrap();
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        std::fs::write(&path, "another program's").unwrap();
        drop(made);
        assert!(path.exists() && dir.path().join("moved").exists());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        MadeFile::create(&link, 10).expect_err("a link");
        assert!(link.symlink_metadata().is_ok());
    }
}
