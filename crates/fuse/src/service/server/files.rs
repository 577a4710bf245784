//! Files: opening, reading, writing, space, holes.

use super::Server;
use crate::protocol::abi::{self, fopen};
use crate::protocol::{Caching, Errno, MAX_DATA, Opens, Outbox, Request};
use crate::service::node::Node;
use crate::transport::Channel;
use lanefs_ext4::{Fallocate, InodeRef, Privilege, Seek, SetAttr};
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::Ino;
use lanefs_vfs::rules::{self, Opening};

/// With so many blocks free, a file that found no room may try again.
const ENOUGH_BLOCKS: u64 = 64;
/// Modes of fallocate(2).
const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | KEEP_SIZE;
const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
const ZERO_RANGE_KEEP_SIZE: u32 = ZERO_RANGE | KEEP_SIZE;

fn opening(flags: i32) -> Opening {
    Opening {
        writes: flags & libc::O_ACCMODE != libc::O_RDONLY,
        appends: flags & libc::O_APPEND != 0,
        truncates: flags & libc::O_TRUNC != 0,
    }
}

impl Server {
    /// The handle of whoever may write; others have 0. That is all that handles are for: the inode
    /// says the rest.
    pub(super) const WRITES: u64 = 1;

    /// The reply to an open with `flags`. Direct writes of one file may overlap, for the file system
    /// orders those that allocate. The kernel runs them one by one while the file is open cached, or
    /// mapped shared.
    pub(super) fn opened(&self, ino: Ino, flags: i32) -> abi::OpenOut {
        // Without OPEN there is no RELEASE either.
        let writes = self.wishes.opens == Opens::Asked && flags & libc::O_ACCMODE != libc::O_RDONLY;
        if writes {
            self.writers.add(ino);
        }
        let mut open_flags = fopen::KEEP_CACHE;
        if self.parallel_direct && flags & libc::O_DIRECT != 0 {
            open_flags |= fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
        }
        abi::OpenOut { fh: if writes { Self::WRITES } else { 0 }, open_flags, backing_id: 0 }
    }

    pub(super) fn open(
        &self,
        request: &mut Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Result<(), Errno> {
        if self.wishes.opens == Opens::NotAsked {
            // The kernel does without from now on.
            return Err(Errno::NOSYS);
        }
        let input: abi::OpenIn = request.take()?;
        let flags = input.flags as i32;
        let inode = self.inode(request.header.nodeid)?;
        rules::check_opening(&inode.rights(), opening(flags))?;
        if flags & libc::O_TRUNC != 0 {
            if input.open_flags & abi::OPEN_KILL_SUIDGID != 0 {
                self.drop_privileges(&inode, kernel)?;
            }
            self.fs().set_attr(&inode, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        }
        outbox.put(&self.opened(inode.ino(), flags));
        Ok(())
    }

    pub(super) fn release(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let input: abi::ReleaseIn = request.take()?;
        if input.fh == Self::WRITES {
            let node = Node::from_id(request.header.nodeid);
            self.writers.remove(node.ino);
            let inode = self.inode(request.header.nodeid)?;
            self.fs().release(&inode);
        }
        Ok(())
    }

    pub(super) fn read(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Result<(), Errno> {
        let input: abi::ReadIn = request.take()?;
        let inode = self.inode(request.header.nodeid)?;
        let room = outbox.data(input.size as usize);
        let n = self.fs().read_at(&inode, input.offset, room)?;
        outbox.set_len(n);
        let flags = input.flags as i32;
        // What is not open to be read, the kernel reads to write part of a page.
        let by_program = flags & libc::O_ACCMODE != libc::O_WRONLY;
        if by_program && flags & libc::O_NOATIME == 0 {
            self.record_read(&inode);
        }
        Ok(())
    }

    pub(super) fn write(
        &self,
        request: &mut Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Result<(), Errno> {
        let input: abi::WriteIn = request.take()?;
        let data = request.data(input.size as usize)?;
        let inode = self.inode(request.header.nodeid)?;
        let n = if input.write_flags & abi::WRITE_CACHE != 0 {
            let written = self.write_pages(&inode, input.offset, data);
            if self.wishes.caching == Caching::Writethrough {
                // The times that we have set are news to the kernel.
                kernel.forget_attributes(request.header.nodeid);
            }
            if matches!(written, Err(Errno::NOSPC)) {
                self.writers.set_out_of_space(inode.ino(), true);
                kernel.forget_attributes(request.header.nodeid);
            }
            written?;
            data.len()
        } else {
            if input.write_flags & abi::WRITE_KILL_SUIDGID != 0 {
                self.drop_privileges(&inode, kernel)?;
            } else {
                self.drop_capabilities(&inode, &inode.attr())?;
            }
            self.fs().write_at(&inode, input.offset, data, privilege(request.header.uid))?
        };
        outbox.put(&abi::WriteOut { size: n as u32, padding: 0 });
        Ok(())
    }

    /// Writes pages that the kernel kept: with its writeback cache that never sets times nor takes
    /// privileges away, for it may come long after the program's own write, and after a utimensat(2) or
    /// chmod(2) that followed it. Without, these are pages that were changed through a mapping, and
    /// nobody but us would set the time of that. All of it or an error: the kernel does not look at how
    /// much was written.
    fn write_pages(&self, inode: &InodeRef, offset: u64, data: &[u8]) -> Result<(), Errno> {
        // The kernel does not say whose pages these are; the owner's are the best guess.
        let by = privilege(inode.attr().uid);
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let n = match self.wishes.caching {
                Caching::Writeback => self.fs().write_back(inode, at, rest, by)?,
                Caching::Writethrough => self.fs().write_at(inode, at, rest, by)?,
            };
            if n == 0 {
                return Err(Errno::NOSPC);
            }
            at += n as u64;
            rest = rest.get(n..).unwrap_or_default();
        }
        Ok(())
    }

    /// Records that `inode` was read. A time that cannot be stored does not make the read fail.
    pub(super) fn record_read(&self, inode: &InodeRef) {
        let _ = self.fs().touch_atime(inode);
    }

    /// Whether the kernel may have data of a file that the server has not.
    fn may_be_written(&self, ino: Ino) -> bool {
        self.wishes.opens == Opens::NotAsked || self.writers.has(ino)
    }

    /// Whether a program may go on writing to a file whose pages found no room. The kernel would take
    /// its data for ever and tell it at the next fsync; so after such a failure it is made to ask for
    /// the size, as it does before each write when it does not know it, and is told then.
    pub(super) fn check_space(&self, ino: Ino, uid: u32) -> Result<(), Errno> {
        if !self.writers.is_out_of_space(ino) {
            return Ok(());
        }
        let stat = self.fs().stat_fs();
        let free = match privilege(uid) {
            Privilege::Root => stat.blocks_free,
            Privilege::Ordinary => stat.blocks_available,
        };
        if free < ENOUGH_BLOCKS {
            return Err(Errno::NOSPC);
        }
        self.writers.set_out_of_space(ino, false);
        Ok(())
    }

    pub(super) fn fallocate(
        &self,
        request: &mut Request<'_>,
        kernel: &Channel,
    ) -> Result<(), Errno> {
        let input: abi::FallocateIn = request.take()?;
        let how = match input.mode {
            0 => Fallocate::Allocate,
            KEEP_SIZE => Fallocate::AllocateKeepSize,
            PUNCH_HOLE => Fallocate::PunchHole,
            ZERO_RANGE => Fallocate::ZeroRange,
            ZERO_RANGE_KEEP_SIZE => Fallocate::ZeroRangeKeepSize,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let inode = self.inode(request.header.nodeid)?;
        let by = privilege(request.header.uid);
        rules::check_allocation(&inode.rights(), how)?;
        self.drop_privileges_for(by, &inode, kernel)?;
        Ok(self.fs().fallocate(&inode, how, input.offset, input.length, by)?)
    }

    /// Has the kernel write the dirty pages of a file, if it can have any. One request at a time does
    /// that, for it keeps its thread while others serve the writes: false if another one is at it.
    pub(super) fn flush_pages(&self, inode: &InodeRef, id: u64, kernel: &Channel) -> bool {
        if !self.may_be_written(inode.ino()) {
            return true;
        }
        if self.flushing.swap(true, Ordering::Acquire) {
            return false;
        }
        kernel.flush_pages(id);
        self.flushing.store(false, Ordering::Release);
        true
    }

    /// The kernel asks without writing its dirty pages first, which may lie in what is a hole here;
    /// whoever copies the file by its holes would lose them. So they are flushed first if there may be
    /// any. One seek at a time does that, for it keeps its thread while others serve the writes; the
    /// rest are told that holes are not known, and programs then take all for data.
    pub(super) fn lseek(
        &self,
        request: &mut Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Result<(), Errno> {
        let input: abi::LseekIn = request.take()?;
        let what = match input.whence as i32 {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        let inode = self.inode(request.header.nodeid)?;
        if !self.flush_pages(&inode, request.header.nodeid, kernel) {
            return Err(Errno::INVAL);
        }
        let offset = self.fs().seek(&inode, what, input.offset)?;
        outbox.put(&abi::LseekOut { offset });
        Ok(())
    }

    /// Copies at most [`MAX_DATA`] bytes: copy_file_range(2) may do less than asked, and callers go on.
    pub(super) fn copy_file_range(
        &self,
        request: &mut Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Result<(), Errno> {
        let input: abi::CopyFileRangeIn = request.take()?;
        if input.flags != 0 {
            return Err(Errno::INVAL);
        }
        let (from, to) = (self.inode(request.header.nodeid)?, self.inode(input.nodeid_out)?);
        let len = input.len.min(MAX_DATA as u64) as usize;
        let data = outbox.data(len);
        let n = self.fs().read_at(&from, input.off_in, data)?;
        let written = if n == 0 {
            0
        } else {
            let by = privilege(request.header.uid);
            self.drop_privileges_for(by, &to, kernel)?;
            self.fs().write_at(&to, input.off_out, &data[..n], by)?
        };
        self.record_read(&from);
        outbox.clear();
        outbox.put(&abi::WriteOut { size: written as u32, padding: 0 });
        Ok(())
    }
}

/// Who may use the blocks that are reserved for root.
fn privilege(uid: u32) -> Privilege {
    if uid == 0 { Privilege::Root } else { Privilege::Ordinary }
}
