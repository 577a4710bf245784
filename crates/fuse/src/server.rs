//! What each request does to the file system.
//!
//! The kernel checks permissions (`default_permissions`), keeps names and attributes for as long as
//! it likes (every change goes through it, so nothing it keeps can be stale), and owns size and
//! times of a file while its writeback cache has dirty pages of it.

mod attrs;
mod files;
mod ioctls;
#[cfg(test)]
mod malformed;
mod names;
mod syncs;
mod tally;
mod writers;
mod xattrs;

use crate::abi::{self, opcode};
use crate::buffer::Outbox;
use crate::channel::Channel;
use crate::errno::Errno;
use crate::node::Node;
use crate::request::Request;
use crate::service::{Answer, Caching, Service, Weight};
use lanefs_ext4::{Fs, InodeRef, Mount, SyncMode};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use syncs::Syncs;
use tally::Tally;
use writers::Writers;

/// Seconds for which the kernel may keep a name or attributes: for as long as the mount lasts.
const FOREVER: u64 = 365 * 24 * 3600;
/// Data of this many bytes or more is moved while another thread reads requests: from here on the
/// copy costs more than waking that thread.
const BULK: u32 = 128 << 10;
/// Freeing a file of more sectors than this is long: 1 MiB.
const LONG_FREE_SECTORS: u64 = 2048;

/// A mounted file system as the kernel sees it.
pub struct Server {
    mount: Mount,
    block_size: u32,
    caching: Caching,
    writers: Writers,
    tally: Tally,
    syncs: Syncs,
    /// Taken by the one seek that may make the kernel flush; see [`Server::lseek`].
    flushing: AtomicBool,
    /// Set by a panic: memory cannot be trusted any more, so everything fails until the unmount.
    broken: AtomicBool,
}

impl Service for Server {
    fn caching(&self) -> Caching {
        self.caching
    }

    fn weight(&self, request: &Request<'_>) -> Weight {
        let mut body = request.again();
        let (weight, holds) = match request.header.opcode {
            opcode::FSYNC | opcode::FSYNCDIR if self.syncs.are_brief() => (Weight::Brief, true),
            opcode::FSYNC
            | opcode::FSYNCDIR
            | opcode::SYNCFS
            | opcode::FALLOCATE
            | opcode::LSEEK
            | opcode::BATCH_FORGET => (Weight::Slow, true),
            opcode::FORGET => (Weight::Slow, self.frees_much(request.header.nodeid)),
            opcode::SETATTR => {
                let changes_size = |set: abi::SetattrIn| set.valid & abi::fattr::SIZE != 0;
                (Weight::Slow, body.take().is_ok_and(changes_size))
            }
            opcode::OPEN => {
                let truncates = |open: abi::OpenIn| open.flags & libc::O_TRUNC as u32 != 0;
                (Weight::Slow, body.take().is_ok_and(truncates))
            }
            opcode::IOCTL => {
                let sets_flags = |ioctl: abi::IoctlIn| ioctls::sets_flags(ioctl.cmd);
                (Weight::Slow, body.take().is_ok_and(sets_flags))
            }
            opcode::COPY_FILE_RANGE => (Weight::Bulk, true),
            opcode::READ => {
                (Weight::Bulk, body.take().is_ok_and(|read: abi::ReadIn| read.size >= BULK))
            }
            opcode::WRITE => {
                (Weight::Bulk, body.take().is_ok_and(|write: abi::WriteIn| write.size >= BULK))
            }
            _ => (Weight::Quick, true),
        };
        if holds { weight } else { Weight::Quick }
    }

    fn serve(
        &self,
        request: Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Result<Answer, Errno> {
        outbox.clear();
        if self.is_broken() {
            return match request.header.opcode {
                opcode::FORGET | opcode::BATCH_FORGET => Ok(Answer::Silence),
                opcode::RELEASE => Ok(Answer::Reply),
                _ => Err(Errno::IO),
            };
        }
        let (opcode, begun) = (request.header.opcode, Instant::now());
        let answer = self.guarded(|| self.dispatch(request, outbox, kernel));
        self.tally.count(opcode, begun.elapsed());
        answer
    }
}

impl Server {
    /// Serves `mount`.
    pub fn new(mount: Mount, caching: Caching) -> Server {
        let block_size = mount.fs().stat_fs().block_size;
        Server {
            mount,
            block_size,
            caching,
            writers: Writers::new(),
            tally: Tally::new(),
            syncs: Syncs::new(),
            flushing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    /// Ends: commits, writes home, marks clean. After a panic nothing is written: the log that is
    /// on disk says what is true.
    ///
    /// # Errors
    /// As [`Mount::close`].
    pub fn close(self) -> Result<(), lanefs_ext4::Error> {
        if self.broken.load(Ordering::Relaxed) {
            // Not even dropped: that would commit.
            let _ = std::mem::ManuallyDrop::new(self.mount);
            return Ok(());
        }
        // The kernel drops what it had still to forget when it unmounts.
        self.fs().forget_all();
        self.mount.close()
    }

    /// True after a panic.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn fs(&self) -> &Fs {
        self.mount.fs()
    }

    /// The inode of a node id: held by the kernel's look-up count, so still there.
    fn inode(&self, id: u64) -> Result<InodeRef, Errno> {
        let node = Node::from_id(id);
        Ok(self.fs().get(node.ino, node.generation)?)
    }

    /// Whether the last forget of this node frees many blocks.
    fn frees_much(&self, id: u64) -> bool {
        self.guarded(|| Ok(self.inode(id)?.attr()))
            .is_ok_and(|attr| attr.links == 0 && attr.sectors > LONG_FREE_SECTORS)
    }

    /// Does `work`; a panic becomes an I/O error, of this request and of all that follow. The handle
    /// that it dropped has aborted the journal.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            self.broken.store(true, Ordering::Relaxed);
            Err(Errno::IO)
        })
    }

    fn dispatch(
        &self,
        mut request: Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Result<Answer, Errno> {
        let request = &mut request;
        match request.header.opcode {
            opcode::LOOKUP => self.lookup(request, outbox)?,
            opcode::GETATTR => self.getattr(request, outbox)?,
            opcode::STATX => self.statx(request, outbox)?,
            opcode::SETATTR => self.setattr(request, outbox)?,
            opcode::READLINK => self.readlink(request, outbox)?,
            opcode::SYMLINK => self.symlink(request, outbox)?,
            opcode::MKNOD => self.mknod(request, outbox)?,
            opcode::MKDIR => self.mkdir(request, outbox)?,
            opcode::CREATE => self.create(request, outbox)?,
            opcode::TMPFILE => self.tmpfile(request, outbox)?,
            opcode::UNLINK => self.unlink(request)?,
            opcode::RMDIR => self.rmdir(request)?,
            opcode::RENAME | opcode::RENAME2 => self.rename(request)?,
            opcode::LINK => self.link(request, outbox)?,
            opcode::READDIR => self.readdir(request, outbox)?,
            opcode::READDIRPLUS => self.readdirplus(request, outbox)?,
            opcode::OPEN => self.open(request, outbox, kernel)?,
            opcode::READ => self.read(request, outbox)?,
            opcode::WRITE => self.write(request, outbox, kernel)?,
            opcode::RELEASE => self.release(request)?,
            opcode::FALLOCATE => self.fallocate(request, kernel)?,
            opcode::COPY_FILE_RANGE => self.copy_file_range(request, outbox, kernel)?,
            opcode::LSEEK => self.lseek(request, outbox, kernel)?,
            opcode::FSYNC | opcode::FSYNCDIR => self.fsync(request)?,
            opcode::SYNCFS => self.fs().sync()?,
            opcode::SETXATTR => self.setxattr(request)?,
            opcode::GETXATTR => self.getxattr(request, outbox)?,
            opcode::LISTXATTR => self.listxattr(request, outbox)?,
            opcode::REMOVEXATTR => self.removexattr(request)?,
            opcode::IOCTL => self.ioctl(request, outbox, kernel)?,
            opcode::STATFS => self.statfs(outbox),
            opcode::DESTROY => {}
            opcode::FORGET => {
                self.forget(request.header.nodeid, request.take::<abi::ForgetIn>()?.nlookup);
                return Ok(Answer::Silence);
            }
            opcode::BATCH_FORGET => {
                let count = request.take::<abi::BatchForgetIn>()?.count;
                for _ in 0..count {
                    let one = request.take::<abi::ForgetOne>()?;
                    self.forget(one.nodeid, one.nlookup);
                }
                return Ok(Answer::Silence);
            }
            // OPENDIR, FLUSH, ACCESS, POLL, locks and the like: the kernel does without, and asks once.
            _ => return Err(Errno::NOSYS),
        }
        Ok(Answer::Reply)
    }

    fn forget(&self, id: u64, n: u64) {
        if id != abi::ROOT_ID {
            self.fs().forget(Node::from_id(id).ino, n);
        }
    }

    fn fsync(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let input: abi::FsyncIn = request.take()?;
        let mode = if input.fsync_flags & abi::FSYNC_FDATASYNC != 0 {
            SyncMode::Data
        } else {
            SyncMode::Full
        };
        let inode = self.inode(request.header.nodeid)?;
        let begun = Instant::now();
        self.fs().fsync(&inode, mode)?;
        self.syncs.took(begun.elapsed());
        Ok(())
    }

    fn statfs(&self, outbox: &mut Outbox) {
        let stat = self.fs().stat_fs();
        outbox.put(&abi::StatfsOut {
            blocks: stat.blocks,
            bfree: stat.blocks_free,
            bavail: stat.blocks_available,
            files: stat.inodes,
            ffree: stat.inodes_free,
            bsize: stat.block_size,
            namelen: stat.name_max,
            frsize: stat.block_size,
            padding: 0,
            spare: [0; 6],
        });
    }
}
