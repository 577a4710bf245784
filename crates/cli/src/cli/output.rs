//! Files of the host that a command writes.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, openat, renameat_with};
use rustix::io::Errno;
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use xattr::FileExt;

/// The number of temporary files of this process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A file of the host that is being written. An earlier file of this name stays until the new one
/// is complete, and a new file is removed unless it is.
#[derive(Debug)]
pub struct OutputFile {
    pub file: File,
    path: PathBuf,
    place: Place,
}

/// Where the data of a file is until the file is complete.
#[derive(Debug)]
enum Place {
    /// In what was there before.
    Direct,
    /// In a new file of the final name.
    Made(MadeFile),
    /// In a file without a name, which disappears if the program is interrupted.
    Unnamed,
    /// In a file of this temporary name, which replaces the earlier file.
    Beside(PathBuf),
    /// In a file of this temporary name, which gets the final name by such a rename or not at all.
    Whole(PathBuf, RenameFlags),
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
                OutputFile::replacing(&path, &old).or_else(|_| OutputFile::direct(&path))
            }
            Err(_) if path.symlink_metadata().is_err() => {
                let (made, file) = MadeFile::open(path)?;
                Ok(OutputFile { file, path: path.into(), place: Place::Made(made) })
            }
            _ => OutputFile::direct(path),
        }
    }

    /// Creates the file `path`, without a name until it is complete if there is no such file and
    /// the host supports this.
    pub fn unnamed(path: &Path) -> io::Result<OutputFile> {
        OutputFile::nameless(path).map_or_else(|| OutputFile::create(path), Ok)
    }

    /// Creates the file `path`, which gets its name only when it is complete, and until then a
    /// temporary one if the host does not support files without a name. With `force`, replaces an
    /// earlier file then. Unlike [`OutputFile::create`], never writes to what was there before.
    pub fn whole(path: &Path, force: bool) -> io::Result<OutputFile> {
        if force && let Ok(path) = path.canonicalize() {
            let mut output = OutputFile::replacing(&path, &path.metadata()?)?;
            if let Place::Beside(temporary) = &mut output.place {
                output.place = Place::Whole(std::mem::take(temporary), RenameFlags::empty());
            }
            return Ok(output);
        }
        if let Some(new) = OutputFile::nameless(path) {
            return Ok(new);
        }
        let (temporary, file) = beside(path)?;
        let place = Place::Whole(temporary, RenameFlags::NOREPLACE);
        Ok(OutputFile { file, path: path.into(), place })
    }

    fn nameless(path: &Path) -> Option<OutputFile> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if path.symlink_metadata().is_ok() {
            return None;
        }
        let file = openat(CWD, folder, flags, Mode::from_raw_mode(0o666)).ok()?;
        let new = OutputFile { file: file.into(), path: path.into(), place: Place::Unnamed };
        new.now().exists().then_some(new)
    }

    fn direct(path: &Path) -> io::Result<OutputFile> {
        Ok(OutputFile { file: File::create(path)?, path: path.into(), place: Place::Direct })
    }

    /// Creates a file with the owner and mode of `old` and a temporary name in its directory.
    fn replacing(path: &Path, old: &std::fs::Metadata) -> io::Result<OutputFile> {
        let (temporary, file) = beside(path)?;
        let output = OutputFile { file, path: path.into(), place: Place::Beside(temporary) };
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

    /// Returns a path by which this process can open the file now.
    pub fn now(&self) -> Cow<'_, Path> {
        match &self.place {
            Place::Direct | Place::Made(_) => self.path.as_path().into(),
            Place::Unnamed => {
                PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())).into()
            }
            Place::Beside(temporary) | Place::Whole(temporary, _) => temporary.as_path().into(),
        }
    }

    /// Returns the path at which the data can be read, if this is the output to `path`.
    pub fn data_of(&self, path: &Path) -> Option<&Path> {
        let Place::Beside(temporary) = &self.place else { return None };
        path.canonicalize().is_ok_and(|path| path == self.path).then_some(temporary)
    }

    /// Gives the complete file its name, in the place of the earlier one.
    ///
    /// # Errors
    /// Errors of the host; also if another program has created a file of a new name meanwhile.
    pub fn finish(mut self) -> io::Result<()> {
        match &mut self.place {
            Place::Direct => {}
            Place::Made(made) => made.made = None,
            Place::Unnamed => {
                linkat(CWD, &*self.now(), CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
            }
            Place::Beside(temporary) => match std::fs::rename(&*temporary, &self.path) {
                // The file is a mount point, as in a container, so it can only be written.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::fs::copy(&*temporary, &self.path)?;
                }
                renamed => {
                    renamed?;
                    // The temporary name may be another program's from now on.
                    self.place = Place::Direct;
                }
            },
            Place::Whole(temporary, flags) => {
                match renameat_with(CWD, &*temporary, CWD, &self.path, *flags) {
                    // The host's file system knows no such rename: then the file gets a second
                    // name, and loses the temporary one.
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        std::fs::hard_link(&*temporary, &self.path)?;
                    }
                    renamed => {
                        renamed?;
                        self.place = Place::Direct;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Creates a file with a temporary name in the directory of `path`.
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    // A killed process may have left a file, and its number may have come again.
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".lanefs-{}-{number}", std::process::id());
        let temporary = path.with_file_name(name);
        match File::options().read(true).write(true).create_new(true).open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return Ok((temporary, file?)),
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Place::Beside(temporary) | Place::Whole(temporary, _) = &self.place {
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
        let (made, file) = MadeFile::open(path)?;
        file.set_len(len)?;
        Ok(made)
    }

    fn open(path: &Path) -> io::Result<(MadeFile, File)> {
        let file = File::create_new(path)?;
        let metadata = file.metadata()?;
        let made = Some((metadata.dev(), metadata.ino()));
        Ok((MadeFile { path: path.into(), made }, file))
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
