//! Removes a directory tree.

use lanefs_ext4::{Error, InodeRef};
use lanefs_ondisk::FileType;
use lanefs_vfs::{Credentials, OpenFlags, Vfs};
use std::ops::ControlFlow;

/// The number of names that are read from a directory at once. It bounds the memory that a removal
/// needs.
const BATCH: usize = 1024;

/// A directory that is being emptied, and its name in its parent.
struct Level {
    name: Vec<u8>,
    dir: InodeRef,
}

/// Removes the file or tree `name` in `dir`. Uses an explicit stack, since a tree may be deeper
/// than the thread's stack.
pub(crate) fn remove_tree(
    vfs: &Vfs,
    who: &Credentials,
    dir: &InodeRef,
    name: &[u8],
) -> Result<(), Error> {
    let top = vfs.lookup(who, dir, name)?;
    if top.attr().file_type != FileType::Directory {
        return vfs.unlink(who, dir, name);
    }
    let mut levels = vec![Level { name: name.to_vec(), dir: top }];
    while let Some(level) = levels.last() {
        match empty(vfs, who, &level.dir)? {
            Some(below) => levels.push(below),
            None => {
                let above = levels.iter().rev().nth(1).map_or(dir, |above| &above.dir);
                vfs.rmdir(who, above, &level.name)?;
                levels.pop();
            }
        }
    }
    Ok(())
}

/// Removes entries of `dir` until one of them is a directory that is not empty, and returns that
/// directory. Returns `None` when all entries are removed.
fn empty(vfs: &Vfs, who: &Credentials, dir: &InodeRef) -> Result<Option<Level>, Error> {
    loop {
        let names = some_names(vfs, who, dir)?;
        if names.is_empty() {
            return Ok(None);
        }
        for name in names {
            let inode = match vfs.lookup(who, dir, &name) {
                Ok(inode) => inode,
                Err(Error::NotFound) => continue,
                Err(error) => return Err(error),
            };
            if inode.attr().file_type != FileType::Directory {
                vfs.unlink(who, dir, &name)?;
                continue;
            }
            match vfs.rmdir(who, dir, &name) {
                Ok(()) => {}
                Err(Error::NotEmpty) => return Ok(Some(Level { name, dir: inode })),
                Err(error) => return Err(error),
            }
        }
    }
}

fn some_names(vfs: &Vfs, who: &Credentials, dir: &InodeRef) -> Result<Vec<Vec<u8>>, Error> {
    let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
    let open = vfs.open_inode(who, dir.clone(), flags)?;
    let mut names = Vec::new();
    vfs.read_dir(&open, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        if names.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(names)
}
