//! Files of the host that a command writes.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use xattr::FileExt;

/// The number of temporary files of this process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A file of the host that is being written. An earlier file of this name stays until the new one
/// is complete.
#[derive(Debug)]
pub struct OutputFile {
    pub file: File,
    /// The temporary name, and the file that it will replace.
    unfinished: Option<(PathBuf, PathBuf)>,
}

impl OutputFile {
    /// Creates the file `path`. Writes directly to what cannot be replaced: a device or pipe, a
    /// file with several names, a file in a directory in which the user creates no files.
    pub fn create(path: &Path) -> io::Result<OutputFile> {
        match path.metadata() {
            Ok(old) if old.is_file() && old.nlink() == 1 => {
                // The user may write to the directory, but not to the file.
                File::options().write(true).open(path)?;
                // A link stays, and the file to which it leads is replaced.
                let path = path.canonicalize()?;
                OutputFile::beside(&path, &old).or_else(|_| OutputFile::direct(&path))
            }
            _ => OutputFile::direct(path),
        }
    }

    fn direct(path: &Path) -> io::Result<OutputFile> {
        Ok(OutputFile { file: File::create(path)?, unfinished: None })
    }

    /// Creates a file with the owner and mode of `old` and a temporary name in its directory.
    fn beside(path: &Path, old: &std::fs::Metadata) -> io::Result<OutputFile> {
        // A killed process may have left a file, and its number may have come again.
        let (temporary, file) = loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!(".lanefs-{}-{number}", std::process::id());
            let temporary = path.with_file_name(name);
            match File::create_new(&temporary) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => break (temporary, file?),
            }
        };
        let output = OutputFile { file, unfinished: Some((temporary, path.into())) };
        fchown(&output.file, Some(old.uid()), Some(old.gid()))?;
        // Attributes, such as an access control list, are kept as far as the user may set them.
        for name in xattr::list(path).into_iter().flatten() {
            if let Ok(Some(value)) = xattr::get(path, &name) {
                let _ = output.file.set_xattr(&name, &value);
            }
        }
        output.file.set_permissions(old.permissions())?;
        Ok(output)
    }

    /// Returns the temporary path, if the file replaces an earlier one when it is finished.
    pub fn unfinished(&self) -> Option<&Path> {
        self.unfinished.as_ref().map(|(temporary, _)| &**temporary)
    }

    /// Returns the path at which the data can be read, if this is the output to `path`.
    pub fn data_of(&self, path: &Path) -> Option<&Path> {
        let (temporary, replaced) = self.unfinished.as_ref()?;
        path.canonicalize().is_ok_and(|path| path == *replaced).then_some(temporary)
    }

    /// Puts the complete file in the place of the earlier one.
    pub fn finish(mut self) -> io::Result<()> {
        match self.unfinished.take() {
            Some((temporary, path)) => {
                let renamed = std::fs::rename(&temporary, &path);
                let Err(error) = renamed else { return Ok(()) };
                let copied = match error.kind() {
                    // The file is a mount point, as in a container, so it can only be written.
                    io::ErrorKind::ResourceBusy => std::fs::copy(&temporary, &path).map(drop),
                    _ => Err(error),
                };
                let _ = std::fs::remove_file(temporary);
                copied
            }
            None => Ok(()),
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.unfinished {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

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
