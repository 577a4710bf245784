//! Serves requests on files: open, read, write, allocation, holes.

use super::{Done, Server};
use crate::protocol::abi::{self, fopen};
use crate::protocol::{Caching, Errno, MAX_DATA, Opens, Outbox, Request};
use crate::service::node::Node;
use crate::transport::Channel;
use lanefs_ext4::{Fallocate, InodeRef, Privilege, Seek};
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::Ino;
use lanefs_vfs::rules::{self, Opening};

/// If a write to a file found no space, the server refuses further writes to the file until this
/// many blocks are free.
const ENOUGH_BLOCKS: u64 = 64;
/// Modes of fallocate(2).
const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | KEEP_SIZE;
const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
const ZERO_RANGE_KEEP_SIZE: u32 = ZERO_RANGE | KEEP_SIZE;

impl Server {
    /// The handle of a file that is open for writing; other handles are 0. A handle carries no
    /// other information, because the inode has everything else.
    pub(super) const WRITES: u64 = 1;

    /// Returns the reply to an open with `flags`, and counts the handle if it is open for writing.
    /// Direct writes to one file may run in parallel,
    /// because the file system itself orders writes that allocate blocks. The kernel runs direct
    /// writes one by one while the file is also open through the cache, or has a shared mapping.
    pub(super) fn opened(&self, ino: Ino, flags: i32) -> Result<abi::OpenOut, Errno> {
        // If the kernel sends no OPEN, it sends no RELEASE either.
        let writes = self.wishes.opens == Opens::Asked && flags & libc::O_ACCMODE != libc::O_RDONLY;
        if writes {
            self.writers.add(ino)?;
        }
        let mut open_flags = fopen::KEEP_CACHE;
        if self.parallel_direct && flags & libc::O_DIRECT != 0 {
            open_flags |= fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
        }
        Ok(abi::OpenOut { fh: if writes { Self::WRITES } else { 0 }, open_flags, backing_id: 0 })
    }

    pub(super) fn open(
        &self,
        request: &mut Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Done {
        if self.wishes.opens == Opens::NotAsked {
            // After this error the kernel stops sending OPEN.
            return Err(Errno::NOSYS);
        }
        let input: abi::OpenIn = request.take()?;
        let (nodeid, flags) = (request.header.nodeid, input.flags as i32);
        let inode = self.inode(nodeid)?;
        self.check_open(&request.header, &inode, flags)?;
        // The handle is counted before the flags are checked. If the file becomes a verity file,
        // either this open fails, or `enable_verity` sees the handle.
        let reply = self.opened(inode.ino(), flags)?;
        if let Err(error) = self.check_opened(&inode, flags) {
            if reply.fh == Self::WRITES && self.writers.remove(inode.ino()) {
                kernel.forget_attributes(nodeid);
            }
            return Err(error);
        }
        if reply.fh == Self::WRITES && self.may_hide_data(&inode.attr()) {
            // The attributes in the kernel's cache say that the file has 0 sectors. See
            // `Server::shown_sectors`.
            kernel.forget_attributes(nodeid);
        }
        outbox.put(&reply);
        Ok(())
    }

    /// Fails if the file's flags or contents forbid this open. Changes nothing, because the kernel
    /// may still refuse the open(2). For O_TRUNC it sends a SETATTR afterwards.
    fn check_opened(&self, inode: &InodeRef, flags: i32) -> Done {
        let opening = Opening {
            writes: flags & libc::O_ACCMODE != libc::O_RDONLY,
            appends: flags & libc::O_APPEND != 0,
            truncates: false,
        };
        rules::check_opening(&inode.rights(), opening)?;
        Ok(self.fs().check_contents(inode)?)
    }

    pub(super) fn release(&self, request: &mut Request<'_>, kernel: &Channel) -> Done {
        let input: abi::ReleaseIn = request.take()?;
        if input.fh == Self::WRITES {
            let node = Node::from_id(request.header.nodeid);
            if self.writers.remove(node.ino) {
                kernel.forget_attributes(request.header.nodeid);
            }
            let inode = self.inode(request.header.nodeid)?;
            self.fs().release(&inode);
        }
        Ok(())
    }

    pub(super) fn read(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let input: abi::ReadIn = request.take()?;
        let inode = self.inode(request.header.nodeid)?;
        let room = outbox.data(input.size as usize);
        let n = self.fs().read_at(&inode, input.offset, room)?;
        outbox.set_len(n);
        let flags = input.flags as i32;
        // If the file is open for writing only, this read is the kernel's own, before it writes
        // part of a page.
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
    ) -> Done {
        let input: abi::WriteIn = request.take()?;
        let data = request.data(input.size as usize)?;
        let inode = self.inode(request.header.nodeid)?;
        let n = if input.write_flags & abi::WRITE_CACHE != 0 {
            let sectors = inode.snapshot().sectors;
            let written = self.write_pages(&inode, input.offset, data);
            if inode.snapshot().sectors != sectors {
                self.writers.set_more_sectors(inode.ino(), true);
            }
            if self.wishes.caching == Caching::Writethrough {
                // The times that the kernel has cached are out of date now.
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
                self.fs().drop_capability(&inode)?;
            }
            let by = self.privilege(&request.header);
            let n = self.fs().write_at(&inode, input.offset, data, by)?;
            self.fs().drop_capability(&inode)?;
            n
        };
        outbox.put(&abi::WriteOut { size: n as u32, padding: 0 });
        Ok(())
    }

    /// Stores dirty pages from the kernel's cache. With the writeback cache this function sets no
    /// times and removes no privileges, because the request may come long after the program's
    /// write, and even after a utimensat(2) or chmod(2) that followed the write. Without the
    /// writeback cache, the pages were changed through a mapping, so only the server can set the
    /// time. Writes everything or returns an error, because the kernel does not check the number of
    /// bytes written.
    fn write_pages(&self, inode: &InodeRef, offset: u64, data: &[u8]) -> Done {
        // The kernel does not send the user who made these writes; the file's owner is the best
        // guess.
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

    /// Records that `inode` was read. The read succeeds even if the time cannot be stored.
    pub(super) fn record_read(&self, inode: &InodeRef) {
        let _ = self.fs().touch_atime(inode);
    }

    /// Returns whether the kernel may have data of a file that the server does not have yet.
    fn may_be_written(&self, ino: Ino) -> bool {
        self.wishes.opens == Opens::NotAsked || self.writers.has(ino)
    }

    /// Returns an error if the kernel's dirty pages of a file recently could not be stored for lack
    /// of space, and there is still too little space. Without this error the kernel would accept
    /// data without limit and report the failure at the next fsync. If a write finds no space, the
    /// server makes the kernel drop the file's cached attributes. The kernel then asks for the
    /// file's size before each write, and gets this error.
    pub(super) fn check_space(&self, ino: Ino, by: Privilege) -> Done {
        if !self.writers.is_out_of_space(ino) {
            return Ok(());
        }
        let stat = self.fs().stat_fs();
        let free = match by {
            Privilege::Root => stat.blocks_free,
            Privilege::Ordinary => stat.blocks_available,
        };
        if free < ENOUGH_BLOCKS {
            return Err(Errno::NOSPC);
        }
        self.writers.set_out_of_space(ino, false);
        Ok(())
    }

    pub(super) fn fallocate(&self, request: &mut Request<'_>, kernel: &Channel) -> Done {
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
        let by = self.privilege(&request.header);
        rules::check_allocation(&inode.rights(), how)?;
        self.drop_privileges_for(by, &inode, kernel)?;
        self.fs().fallocate(&inode, how, input.offset, input.length, by)?;
        Ok(self.fs().drop_capability(&inode)?)
    }

    /// Makes the kernel write the dirty pages of a file, if there can be any. Only one request at a
    /// time does so, because it blocks its thread while other threads serve the writes. Returns
    /// false if another request is flushing pages at this moment.
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

    /// Searches for data or a hole. The kernel sends LSEEK without writing its dirty pages first.
    /// But dirty pages may lie in a hole of the stored file. A program that copies a file and skips
    /// its holes would then lose the data of these pages. So dirty pages are flushed first, if
    /// there can be any. Only one seek at a time flushes pages, because a flush blocks the seek's
    /// thread while other threads serve the writes. Other seeks fail meanwhile, and programs then
    /// treat everything as data.
    pub(super) fn lseek(
        &self,
        request: &mut Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Done {
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

    /// Copies at most [`MAX_DATA`] bytes. This is allowed, because copy_file_range(2) may copy less
    /// than asked, and callers repeat it.
    pub(super) fn copy_file_range(
        &self,
        request: &mut Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Done {
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
            let by = self.privilege(&request.header);
            self.drop_privileges_for(by, &to, kernel)?;
            let written = self.fs().write_at(&to, input.off_out, &data[..n], by)?;
            self.fs().drop_capability(&to)?;
            written
        };
        self.record_read(&from);
        outbox.clear();
        outbox.put(&abi::WriteOut { size: written as u32, padding: 0 });
        Ok(())
    }
}

/// Returns whether a user may use the blocks that are reserved for root.
fn privilege(uid: u32) -> Privilege {
    if uid == 0 { Privilege::Root } else { Privilege::Ordinary }
}
