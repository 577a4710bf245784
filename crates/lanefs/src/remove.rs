//! Removes a directory tree.

use crate::directory::{LISTED, ReadDir, Step, WalkDir};
use crate::error::{At, Error, Result};
use crate::filesystem::FileSystem;
use lanefs_ext4::{Error as Ext4Error, InodeRef};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl FileSystem {
    /// Removes the file or tree `name` in `dir`, whose path is `path`.
    pub(crate) fn remove_tree(&self, dir: &InodeRef, name: &[u8], path: &Path) -> Result<()> {
        let (vfs, who) = (self.vfs(), self.credentials());
        let top = vfs.lookup(who, dir, name).at(path)?;
        if !top.file_type().is_dir() {
            return vfs.unlink(who, dir, name).at(path);
        }
        let open = vfs.open_inode(who, top, LISTED).at(path)?;
        let mut walk = WalkDir::new(ReadDir::new(self.mounted().clone(), open, None, path.into()))?;
        while let Some(step) = walk.step() {
            match step? {
                Step::Entry(entry) if entry.file_type()?.is_dir() => {}
                Step::Entry(entry) => {
                    let above = entry.dir.open.inode();
                    match vfs.unlink(who, above, entry.file_name().as_bytes()) {
                        Ok(()) | Err(Ext4Error::NotFound) => {} // another thread was first
                        Err(error) => return Err(Error::at(&entry.path(), error)),
                    }
                }
                Step::Leave(left) => match &left.above {
                    Some(above) => {
                        vfs.rmdir(who, above.open.inode(), left.name.as_os_str().as_bytes())
                    }
                    None => vfs.rmdir(who, dir, name),
                }
                .map_err(|error| Error::at(&left.path(), error))?,
            }
        }
        Ok(())
    }
}
