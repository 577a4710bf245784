//! Serves requests on names: look-ups, creations, deletions, and directory listings.

use super::attrs::rdev_of;
use super::{Done, Server};
use crate::protocol::abi::InHeader;
use crate::protocol::{Errno, MAX_DATA, Outbox, Request, abi};
use lanefs_ext4::{Attr, DirEntry, InodeRef, NewInode, NewKind, Privilege, Rename};
use lanefs_ondisk::{FileType, Ino};
use lanefs_vfs::{NewNode, Want};
use std::ops::ControlFlow;

/// Returns the `DT_*` value of a directory entry.
fn entry_kind(file_type: Option<FileType>) -> u32 {
    file_type.map_or(0, |kind| u32::from(kind.mode_bits() >> 12))
}

impl Server {
    /// Appends the reply with the node of an inode that was found or created in `dir`, and counts
    /// the look-up. A later FORGET reduces this count.
    fn put_node(&self, dir: &InodeRef, inode: &InodeRef, outbox: &mut Outbox) {
        self.put_counted(dir, inode, self.fs().stat(inode), outbox);
    }

    /// Appends the reply with the node of a file that was created and opened, and with its handle.
    fn put_opened(
        &self,
        dir: &InodeRef,
        inode: &InodeRef,
        flags: i32,
        outbox: &mut Outbox,
    ) -> Done {
        let opened = self.opened(inode.ino(), flags)?;
        let mut attr = self.fs().stat(inode);
        if opened.fh == Self::WRITES && self.may_hide_data(&attr) {
            // One sector is shown, for the reason given in `Server::shown_sectors`. When the file
            // is closed, the kernel drops its cached number of sectors.
            attr.sectors = 1;
        }
        self.put_counted(dir, inode, attr, outbox);
        outbox.put(&opened);
        Ok(())
    }

    fn put_counted(&self, dir: &InodeRef, inode: &InodeRef, attr: Attr, outbox: &mut Outbox) {
        outbox.put(&self.entry(&attr, self.name_validity(dir, attr.file_type)));
        self.fs().hold(inode, 1);
    }

    pub(super) fn lookup(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let dir = self.inode(request.header.nodeid)?;
        let name = request.name()?;
        // When a network file server opens a file handle, the request arrives as a look-up of "."
        // in a node of any type.
        if name == b"." {
            self.put_node(&dir, &dir, outbox);
            return Ok(());
        }
        self.check(&request.header, &dir, Want::EXECUTE)?;
        // The kernel locks the directory against changes until the reply. So the name stays, and
        // the number of its inode is not reused before the inode is read.
        match self.fs().lookup(&dir, name)? {
            Some(named) => {
                let inode = self.fs().get(named.ino, None)?;
                // The mark that `lookup` made is gone if the inode was evicted since.
                self.fs().check_child(&dir, &inode)?;
                self.put_node(&dir, &inode, outbox);
            }
            // This reply lets the kernel cache that the name does not exist.
            None => {
                let entry_valid = self.absence_validity();
                outbox.put(&abi::EntryOut { entry_valid, ..Default::default() });
            }
        }
        Ok(())
    }

    /// Returns the description of the inode that the caller creates.
    fn described<'a>(
        &self,
        header: &InHeader,
        kind: NewKind<'a>,
        mode: u32,
        umask: u32,
    ) -> NewNode<'a> {
        let mut permissions = (mode & 0o7777) as u16;
        if self.privilege(header) == Privilege::Ordinary {
            permissions = self.ids.new_permissions(header.uid, header.gid, permissions);
        }
        NewNode { kind, permissions, umask: (umask & 0o777) as u16 }
    }

    /// Returns the description of a new inode, for a mount on which the kernel checks permissions.
    fn new_inode<'a>(&self, header: &InHeader, new: &NewNode<'a>) -> Result<NewInode<'a>, Errno> {
        let (uid, gid) = self.creator(header)?;
        let NewNode { kind, permissions, umask } = *new;
        Ok(NewInode { kind, permissions, umask, uid, gid })
    }

    fn make_named(
        &self,
        header: &InHeader,
        dir: &InodeRef,
        new: &NewNode<'_>,
        name: &[u8],
    ) -> Result<InodeRef, Errno> {
        Ok(match self.checked_caller(header) {
            Some(who) => self.vfs.make(&who, dir, name, new)?,
            None => self.fs().create(dir, name, &self.new_inode(header, new)?)?,
        })
    }

    fn create_named(
        &self,
        header: &InHeader,
        new: &NewNode<'_>,
        name: &[u8],
        outbox: &mut Outbox,
    ) -> Done {
        let dir = self.inode(header.nodeid)?;
        let inode = self.make_named(header, &dir, new, name)?;
        self.put_node(&dir, &inode, outbox);
        Ok(())
    }

    pub(super) fn symlink(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let (name, target) = (request.name()?, request.name()?);
        let new = self.described(&request.header, NewKind::Symlink(target), 0o777, 0);
        self.create_named(&request.header, &new, name, outbox)
    }

    pub(super) fn mknod(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let input: abi::MknodIn = request.take()?;
        let rdev = rdev_of(input.rdev);
        let kind = match FileType::from_mode(input.mode as u16) {
            Some(FileType::Regular) => NewKind::Regular,
            Some(FileType::CharDevice) => NewKind::CharDevice(rdev),
            Some(FileType::BlockDevice) => NewKind::BlockDevice(rdev),
            Some(FileType::Fifo) => NewKind::Fifo,
            Some(FileType::Socket) => NewKind::Socket,
            Some(FileType::Directory | FileType::Symlink) | None => return Err(Errno::INVAL),
        };
        let name = request.name()?;
        let new = self.described(&request.header, kind, input.mode, input.umask);
        self.create_named(&request.header, &new, name, outbox)
    }

    pub(super) fn mkdir(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let input: abi::MkdirIn = request.take()?;
        let name = request.name()?;
        let new = self.described(&request.header, NewKind::Directory, input.mode, input.umask);
        self.create_named(&request.header, &new, name, outbox)
    }

    pub(super) fn create(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let input: abi::CreateIn = request.take()?;
        let name = request.name()?;
        let new = self.described(&request.header, NewKind::Regular, input.mode, input.umask);
        let dir = self.inode(request.header.nodeid)?;
        let inode = self.make_named(&request.header, &dir, &new, name)?;
        self.put_opened(&dir, &inode, input.flags as i32, outbox)
    }

    pub(super) fn tmpfile(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let input: abi::CreateIn = request.take()?;
        let header = &request.header;
        let new = self.described(header, NewKind::Regular, input.mode, input.umask);
        let dir = self.inode(header.nodeid)?;
        let inode = match self.checked_caller(header) {
            Some(who) => self.vfs.make_unnamed(&who, &dir, &new)?,
            None => self.fs().create_unnamed(&dir, &self.new_inode(header, &new)?)?,
        };
        self.put_opened(&dir, &inode, input.flags as i32, outbox)
    }

    pub(super) fn unlink(&self, request: &mut Request<'_>) -> Done {
        let dir = self.inode(request.header.nodeid)?;
        let name = request.name()?;
        let done = match self.checked_caller(&request.header) {
            Some(who) => self.vfs.unlink(&who, &dir, name),
            None => self.fs().unlink(&dir, name),
        };
        Ok(done?)
    }

    pub(super) fn rmdir(&self, request: &mut Request<'_>) -> Done {
        let dir = self.inode(request.header.nodeid)?;
        let name = request.name()?;
        let done = match self.checked_caller(&request.header) {
            Some(who) => self.vfs.rmdir(&who, &dir, name),
            None => self.fs().rmdir(&dir, name),
        };
        Ok(done?)
    }

    pub(super) fn rename(&self, request: &mut Request<'_>) -> Done {
        let (to, flags) = if request.header.opcode == abi::opcode::RENAME2 {
            let input: abi::Rename2In = request.take()?;
            (input.newdir, input.flags)
        } else {
            (request.take::<abi::RenameIn>()?.newdir, 0)
        };
        const WHITEOUT_NOREPLACE: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
        let how = match flags {
            0 => Rename::Replace,
            libc::RENAME_NOREPLACE => Rename::NoReplace,
            libc::RENAME_EXCHANGE => Rename::Exchange,
            libc::RENAME_WHITEOUT => {
                let (uid, gid) = self.creator(&request.header)?;
                Rename::Whiteout { uid, gid }
            }
            WHITEOUT_NOREPLACE => {
                let (uid, gid) = self.creator(&request.header)?;
                Rename::WhiteoutNoReplace { uid, gid }
            }
            _ => return Err(Errno::INVAL),
        };
        let (from, to) = (self.inode(request.header.nodeid)?, self.inode(to)?);
        let (name, new_name) = (request.name()?, request.name()?);
        let done = match self.checked_caller(&request.header) {
            Some(who) => self.vfs.rename(&who, &from, name, &to, new_name, how),
            None => self.fs().rename(&from, name, &to, new_name, how),
        };
        Ok(done?)
    }

    pub(super) fn link(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let inode = self.inode(request.take::<abi::LinkIn>()?.oldnodeid)?;
        let dir = self.inode(request.header.nodeid)?;
        let name = request.name()?;
        match self.checked_caller(&request.header) {
            Some(who) => self.vfs.link(&who, &inode, &dir, name)?,
            None => self.fs().link(&inode, &dir, name)?,
        }
        self.put_node(&dir, &inode, outbox);
        Ok(())
    }

    pub(super) fn readlink(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let inode = self.inode(request.header.nodeid)?;
        self.record_read(&inode);
        outbox.put_bytes(&self.fs().read_link(&inode)?);
        Ok(())
    }

    pub(super) fn readdir(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let input: abi::ReadIn = request.take()?;
        let dir = self.inode(request.header.nodeid)?;
        let room = MAX_DATA.min(input.size as usize);
        let start = outbox.len();
        let read = self.fs().read_dir(&dir, input.offset, &mut |entry| {
            if outbox.len() + dirent_len(entry.name) > room {
                return ControlFlow::Break(());
            }
            put_dirent(outbox, entry.ino, entry.next, entry.file_type, entry.name);
            ControlFlow::Continue(())
        });
        // A directory with a fault is listed as far as it can be read; the file system has noted
        // it.
        if outbox.len() == start {
            read?;
        }
        self.record_read(&dir);
        Ok(())
    }

    /// Serves READDIRPLUS: READDIR with each entry's node. All entries are read before the first of
    /// their inodes, so that no inode is read while the directory is locked. The entries stay valid
    /// meanwhile, because all changes to names come from the kernel, which allows none in this
    /// directory during the request.
    pub(super) fn readdirplus(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let input: abi::ReadIn = request.take()?;
        let dir = self.inode(request.header.nodeid)?;
        let room = MAX_DATA.min(input.size as usize);
        let mut names = Vec::new();
        let mut entries = Vec::new();
        let mut needed = 0;
        let read = self.fs().read_dir(&dir, input.offset, &mut |entry: &DirEntry<'_>| {
            needed += size_of::<abi::EntryOut>() + dirent_len(entry.name);
            if needed > room {
                return ControlFlow::Break(());
            }
            let start = names.len();
            names.extend_from_slice(entry.name);
            entries.push((entry.ino, entry.next, entry.file_type, start..names.len()));
            ControlFlow::Continue(())
        });
        if entries.is_empty() {
            read?;
        }
        for (ino, next, file_type, name) in entries {
            let name = &names[name];
            // The kernel accepts no nodes for "." and "..". A damaged inode has no node either, but
            // its name must still be listed.
            let inode = match name {
                b"." | b".." => None,
                _ => self.fs().get(ino, None).ok(),
            };
            let fits = |inode: &InodeRef| self.fs().check_child(&dir, inode).is_ok();
            match inode.filter(fits) {
                Some(inode) => self.put_node(&dir, &inode, outbox),
                None => outbox.put(&abi::EntryOut::default()),
            }
            put_dirent(outbox, ino, next, file_type, name);
        }
        self.record_read(&dir);
        Ok(())
    }
}

fn put_dirent(outbox: &mut Outbox, ino: Ino, off: u64, kind: Option<FileType>, name: &[u8]) {
    let (ino, kind) = (u64::from(ino.0), entry_kind(kind));
    outbox.put(&abi::Dirent { ino, off, namelen: name.len() as u32, kind });
    outbox.put_bytes(name);
    outbox.pad();
}

/// Returns the length in bytes of an entry with this name.
fn dirent_len(name: &[u8]) -> usize {
    (size_of::<abi::Dirent>() + name.len()).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_kinds_are_those_of_readdir() {
        assert_eq!(entry_kind(Some(FileType::Regular)), 8);
        assert_eq!(entry_kind(Some(FileType::Directory)), 4);
        assert_eq!(entry_kind(Some(FileType::Symlink)), 10);
        assert_eq!(entry_kind(None), 0);
    }

    #[test]
    fn entries_are_padded_to_eight_bytes() {
        assert_eq!(dirent_len(b"a"), 32);
        assert_eq!(dirent_len(b"12345678"), 32);
        assert_eq!(dirent_len(b"123456789"), 40);
    }
}
