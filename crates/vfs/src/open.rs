//! Open files.
//!
//! Permissions are checked only when a file is opened. Reads and writes check only the flags with
//! which the file was opened.

use crate::credentials::Credentials;
use crate::path::{Last, Slash, check_name};
use crate::rules::{NewNode, Opening, Want, check_allocation, check_opening};
use crate::vfs::Vfs;
use crate::walk::{Follow, Walk};
use lanefs_ext4::{
    Attr, DirEntry, Error, Fallocate, InodeRef, InvalidArgument, NewKind, Rights, Seek, SyncMode,
};
use lanefs_ondisk::FileType;
use std::ops::ControlFlow;

bitflags::bitflags! {
    /// The flags of open(2), under other names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// The file can be read, or the directory listed.
        const READ = 1;
        /// The file can be written.
        const WRITE = 1 << 1;
        /// Each write appends to the file.
        const APPEND = 1 << 2;
        /// The file is created if it does not exist.
        const CREATE = 1 << 3;
        /// With `CREATE`: the open fails if the name exists, even as a symbolic link.
        const EXCLUSIVE = 1 << 4;
        /// The size is set to zero.
        const TRUNCATE = 1 << 5;
        /// The open fails if the inode is not a directory.
        const DIRECTORY = 1 << 6;
        /// The open fails if the inode is a symbolic link.
        const NO_FOLLOW = 1 << 7;
        /// Reads do not set the access time; only the owner may use this flag.
        const NO_ATIME = 1 << 8;
    }
}

/// An open file or directory; [`Vfs::release`] closes it, and each of its clones.
#[derive(Clone)]
pub struct OpenFile {
    inode: InodeRef,
    flags: OpenFlags,
    opener: Credentials,
}

impl OpenFile {
    /// Returns the inode.
    pub fn inode(&self) -> &InodeRef {
        &self.inode
    }

    /// Returns the flags with which the file was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }
}

const BAD_FLAGS: Error = Error::InvalidArgument(InvalidArgument::OpenMode);

impl Vfs {
    /// Opens the inode to which `path` leads from `start`. If the inode has to be created, `new`
    /// describes it.
    pub fn open_path(
        &self,
        who: &Credentials,
        start: &InodeRef,
        path: &[u8],
        flags: OpenFlags,
        new: &NewNode<'_>,
    ) -> Result<OpenFile, Error> {
        check_flags(flags, new)?;
        if !flags.intersects(OpenFlags::CREATE | OpenFlags::NO_FOLLOW) {
            return self.open_found(who, self.walk(who, start, path, Follow::Links)?, flags);
        }
        let mut walk = Walk::to_parent(self, who, start, path)?;
        loop {
            let (name, slash) = match walk.last()? {
                Last::Name(name, slash) => (name, slash),
                // The last component is ".", ".." or the root: a directory that exists.
                _ if flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE) => {
                    return Err(Error::Exists);
                }
                last => {
                    let inode = match last {
                        Last::DotDot => self.lookup(who, walk.dir(), b"..")?,
                        _ => walk.dir().clone(),
                    };
                    return self.open_found(who, inode, flags);
                }
            };
            if slash == Slash::Trailing && flags.contains(OpenFlags::CREATE) {
                return Err(Error::IsDirectory);
            }
            let Some(inode) = self.child(walk.dir(), &name)? else {
                if !flags.contains(OpenFlags::CREATE) {
                    return Err(Error::NotFound);
                }
                match self.make(who, walk.dir(), &name, new) {
                    Ok(inode) => return Ok(opened(who, inode, flags)),
                    // Another caller has created the file meanwhile. The file is opened, unless its
                    // existence is an error.
                    Err(Error::Exists) if !flags.contains(OpenFlags::EXCLUSIVE) => {
                        walk.again(&name, slash);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            };
            if flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE) {
                return Err(Error::Exists);
            }
            let file_type = inode.file_type();
            if file_type == FileType::Symlink
                && (slash == Slash::Trailing || !flags.contains(OpenFlags::NO_FOLLOW))
            {
                walk.follow(&inode, slash)?;
                continue;
            }
            if slash == Slash::Trailing && file_type != FileType::Directory {
                return Err(Error::NotDirectory);
            }
            return self.open_found(who, inode, flags);
        }
    }

    /// Opens an inode.
    pub fn open_inode(
        &self,
        who: &Credentials,
        inode: InodeRef,
        flags: OpenFlags,
    ) -> Result<OpenFile, Error> {
        if !flags.intersects(OpenFlags::READ | OpenFlags::WRITE) {
            return Err(BAD_FLAGS);
        }
        self.open_found(who, inode, flags)
    }

    /// Opens `name` in `dir`; with the flag `CREATE`, creates it as `new` if it does not exist.
    /// Symbolic links are not followed.
    pub fn open_at(
        &self,
        who: &Credentials,
        dir: &InodeRef,
        name: &[u8],
        flags: OpenFlags,
        new: &NewNode<'_>,
    ) -> Result<OpenFile, Error> {
        check_flags(flags, new)?;
        check_name(name)?;
        loop {
            match self.lookup(who, dir, name) {
                Ok(_) if flags.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE) => {
                    return Err(Error::Exists);
                }
                Ok(inode) => return self.open_found(who, inode, flags),
                Err(Error::NotFound) if flags.contains(OpenFlags::CREATE) => {}
                Err(error) => return Err(error),
            }
            match self.make(who, dir, name, new) {
                Ok(inode) => return Ok(opened(who, inode, flags)),
                Err(Error::Exists) if !flags.contains(OpenFlags::EXCLUSIVE) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates and opens a file without a name. Checks and inherited properties are those of a new
    /// file in `dir`.
    pub fn open_unnamed(
        &self,
        who: &Credentials,
        dir: &InodeRef,
        flags: OpenFlags,
        new: &NewNode<'_>,
    ) -> Result<OpenFile, Error> {
        if !flags.contains(OpenFlags::WRITE) {
            return Err(BAD_FLAGS);
        }
        Ok(opened(who, self.make_unnamed(who, dir, new)?, flags))
    }

    /// Opens an existing inode, with all checks.
    fn open_found(
        &self,
        who: &Credentials,
        inode: InodeRef,
        flags: OpenFlags,
    ) -> Result<OpenFile, Error> {
        let rights = inode.rights();
        check_type(inode.file_type(), flags)?;
        let mut want = Want::empty();
        want.set(Want::READ, flags.contains(OpenFlags::READ));
        want.set(Want::WRITE, flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE));
        self.check_rights(who, &inode, &rights, want)?;
        check_marks(who, &rights, flags)?;
        self.fs().check_contents(&inode)?;
        if flags.contains(OpenFlags::TRUNCATE) {
            self.set_len_of_open(who, &inode, 0)?;
        }
        Ok(opened(who, inode, flags))
    }

    /// Closes an open file. The caller must do this before it drops `file`.
    pub fn release(&self, file: &OpenFile) {
        if file.flags.contains(OpenFlags::WRITE) {
            self.fs().release(&file.inode);
        }
    }

    /// Reads from `offset`; returns fewer bytes than requested only at the end of the file.
    pub fn read(&self, file: &OpenFile, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        file.needs(OpenFlags::READ)?;
        let read = self.fs().read_at(&file.inode, offset, buf)?;
        self.record_read_of(file);
        Ok(read)
    }

    /// Writes at `offset`, or at the end if the file was opened for appending. Returns the position
    /// and the number of bytes written, which is less than requested only if space ran out.
    pub fn write(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<(u64, usize), Error> {
        file.needs(OpenFlags::WRITE)?;
        self.before_write(file)?;
        let by = file.opener.privilege();
        let written = match file.flags.contains(OpenFlags::APPEND) {
            true => self.fs().append(&file.inode, data, by)?,
            false => (offset, self.fs().write_at(&file.inode, offset, data, by)?),
        };
        self.fs().drop_capability(&file.inode)?;
        Ok(written)
    }

    /// Writes data from a kernel's writeback cache. Unlike [`Vfs::write`], changes no times and
    /// clears no privileges: the process that wrote the data is unknown, and the kernel has already
    /// set times and modes.
    pub fn write_back(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<usize, Error> {
        file.needs(OpenFlags::WRITE)?;
        self.fs().write_back(&file.inode, offset, data, file.opener.privilege())
    }

    /// Sets the size of a file that is open for writing.
    pub fn set_len(&self, file: &OpenFile, size: u64) -> Result<Attr, Error> {
        file.needs(OpenFlags::WRITE)?;
        self.set_len_of_open(&file.opener, &file.inode, size)
    }

    /// Allocates, punches or zeroes a range of a file. The file must be open for writing.
    pub fn fallocate(
        &self,
        file: &OpenFile,
        how: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        file.needs(OpenFlags::WRITE)?;
        check_allocation(&file.inode.rights(), how)?;
        self.before_write(file)?;
        self.fs().fallocate(&file.inode, how, offset, len, file.opener.privilege())?;
        self.fs().drop_capability(&file.inode)
    }

    /// Moves a file's data to fewer runs of blocks. The file must be open for writing.
    pub fn defragment(&self, file: &OpenFile) -> Result<(), Error> {
        file.needs(OpenFlags::WRITE)?;
        self.fs().defragment(&file.inode, file.opener.privilege())
    }

    /// Returns the offset of the next data, or of the next hole, at or after `offset`.
    pub fn seek(&self, file: &OpenFile, what: Seek, offset: u64) -> Result<u64, Error> {
        self.fs().seek(&file.inode, what, offset)
    }

    /// Makes the file durable.
    pub fn fsync(&self, file: &OpenFile, mode: SyncMode) -> Result<(), Error> {
        self.fs().fsync(&file.inode, mode)
    }

    /// Returns the entries after `cookie` (0: from the start), including "." and "..", as
    /// [`lanefs_ext4::Fs::read_dir`]. The directory is locked meanwhile, so `each` must not use the
    /// file system.
    pub fn read_dir(
        &self,
        dir: &OpenFile,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        dir.needs(OpenFlags::READ)?;
        self.fs().read_dir(&dir.inode, cookie, each)?;
        self.record_read_of(dir);
        Ok(())
    }

    fn record_read_of(&self, file: &OpenFile) {
        if !file.flags.contains(OpenFlags::NO_ATIME) {
            self.record_read(&file.inode);
        }
    }

    fn before_write(&self, file: &OpenFile) -> Result<(), Error> {
        self.drop_set_id(&file.opener, &file.inode)?;
        self.fs().drop_capability(&file.inode)
    }
}

impl OpenFile {
    fn needs(&self, flags: OpenFlags) -> Result<(), Error> {
        if self.flags.contains(flags) { Ok(()) } else { Err(Error::BadDescriptor) }
    }
}

fn opened(who: &Credentials, inode: InodeRef, flags: OpenFlags) -> OpenFile {
    OpenFile { inode, flags, opener: who.clone() }
}

fn check_flags(flags: OpenFlags, new: &NewNode<'_>) -> Result<(), Error> {
    if !flags.intersects(OpenFlags::READ | OpenFlags::WRITE) {
        return Err(BAD_FLAGS);
    }
    let regular = !flags.contains(OpenFlags::DIRECTORY) && matches!(new.kind, NewKind::Regular);
    if flags.contains(OpenFlags::CREATE) && !regular {
        return Err(InvalidArgument::CreatesOnlyFiles.into());
    }
    Ok(())
}

/// Refuses flags that no caller may use with an inode of this type.
fn check_type(file_type: FileType, flags: OpenFlags) -> Result<(), Error> {
    let writes = flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE);
    match file_type {
        FileType::Directory if writes || flags.contains(OpenFlags::CREATE) => {
            Err(Error::IsDirectory)
        }
        FileType::Directory => Ok(()),
        _ if flags.contains(OpenFlags::DIRECTORY) => Err(Error::NotDirectory),
        FileType::Symlink => Err(Error::Loop),
        FileType::Regular => Ok(()),
        // The data of a device, a pipe or a socket is not in the image.
        _ => Err(Error::NotSupported),
    }
}

/// Checks the inode's flags, and refuses `NO_ATIME` to callers that do not own the inode. Called
/// after the check of the mode.
fn check_marks(who: &Credentials, rights: &Rights, flags: OpenFlags) -> Result<(), Error> {
    let opening = Opening {
        writes: flags.contains(OpenFlags::WRITE),
        appends: flags.contains(OpenFlags::APPEND),
        truncates: flags.contains(OpenFlags::TRUNCATE),
    };
    check_opening(rights, opening)?;
    if flags.contains(OpenFlags::NO_ATIME) && !who.owns(rights.uid) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::attr;

    #[test]
    fn directories_are_opened_to_be_read_only() {
        assert!(check_type(FileType::Directory, OpenFlags::READ).is_ok());
        let write = check_type(FileType::Directory, OpenFlags::WRITE);
        assert!(matches!(write, Err(Error::IsDirectory)));
        let create = check_type(FileType::Directory, OpenFlags::READ | OpenFlags::CREATE);
        assert!(matches!(create, Err(Error::IsDirectory)));
        let file = check_type(FileType::Regular, OpenFlags::READ | OpenFlags::DIRECTORY);
        assert!(matches!(file, Err(Error::NotDirectory)));
    }

    #[test]
    fn a_symbolic_link_that_is_not_followed_is_not_opened() {
        let opened = check_type(FileType::Symlink, OpenFlags::READ | OpenFlags::NO_FOLLOW);
        assert!(matches!(opened, Err(Error::Loop)));
    }

    #[test]
    fn only_the_owner_may_open_without_setting_the_access_time() {
        let file = attr(FileType::Regular, 0o644, 5, 5).rights();
        let flags = OpenFlags::READ | OpenFlags::NO_ATIME;
        assert!(check_marks(&Credentials::new(6, 5, []), &file, flags).is_err());
        assert!(check_marks(&Credentials::new(5, 5, []), &file, flags).is_ok());
    }
}
