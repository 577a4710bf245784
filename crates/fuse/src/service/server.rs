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
mod tally;
mod writers;
mod xattrs;

use crate::protocol::abi::{self, InHeader, opcode};
use crate::protocol::{Caching, Errno, Outbox, Request, Wishes};
use crate::service::api::{Answer, Service};
use crate::service::control::{self, Control};
use crate::service::node::Node;
use crate::transport::{Carried, Channel};
use lanefs_ext4::{Fs, InodeRef, Mount, SyncMode};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use tally::Tally;
use writers::Writers;

/// Seconds for which the kernel may keep a name or attributes: for as long as the mount lasts.
const FOREVER: u64 = 365 * 24 * 3600;

/// A mounted file system as the kernel sees it.
pub struct Server {
    mount: Mount,
    block_size: u32,
    wishes: Wishes,
    /// Whether direct writes of one file may run in parallel.
    parallel_direct: bool,
    writers: Writers,
    tally: Tally,
    controls: Vec<Box<dyn Control>>,
    /// Taken by the one seek that may make the kernel flush; see [`Server::lseek`].
    flushing: AtomicBool,
    /// Set by a panic: memory cannot be trusted any more, so everything fails until the unmount.
    broken: AtomicBool,
}

impl Service for Server {
    fn wishes(&self) -> Wishes {
        self.wishes
    }

    /// Files opened for direct I/O go past the kernel's cache, and their writes in parallel, where they can
    /// be mapped nevertheless; not with the writeback cache, where the kernel keeps a file's times and
    /// sets none for such a write.
    fn agreed(&mut self, flags: u64) {
        self.parallel_direct = self.wishes.caching == Caching::Writethrough
            && flags & abi::init::DIRECT_IO_ALLOW_MMAP != 0;
    }

    /// Commits what was answered: on type `fuse` the kernel does not tell of sync(2).
    fn paused(&self) {
        if !self.is_broken() {
            // What fails here is told by the next fsync.
            let _ = self.guarded(|| Ok(self.fs().sync()?));
        }
        // Nothing is given back unless the program has chosen this heap.
        lanefs_lanes::LineHeap::trim_excess();
    }

    fn carried(&self, carried: &Carried) {
        self.tally.is_carried(carried);
    }

    /// A search for holes and a change of flags first have the kernel write a file's dirty pages.
    fn waits_for_kernel(&self, opcode: u32) -> bool {
        matches!(opcode, opcode::LSEEK | opcode::IOCTL)
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
    pub fn new(mount: Mount, wishes: Wishes) -> Server {
        let block_size = mount.fs().stat_fs().block_size;
        Server {
            mount,
            block_size,
            wishes,
            parallel_direct: false,
            writers: Writers::new(),
            tally: Tally::new(),
            controls: Vec::new(),
            flushing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    /// With more that it answers on its root.
    #[must_use]
    pub fn with(mut self, control: Box<dyn Control>) -> Server {
        self.controls.push(control);
        self
    }

    /// The controls, if a request is for one, by somebody who may use them: what others do on a mount
    /// is nobody's business but its owner's.
    fn controls(&self, header: &abi::InHeader, name: &[u8]) -> &[Box<dyn Control>] {
        let owner = rustix::process::geteuid().as_raw();
        let may = header.nodeid == abi::ROOT_ID
            && name.starts_with(control::PREFIX)
            && (header.uid == 0 || header.uid == owner);
        if may { &self.controls } else { &[] }
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
        Ok(self.fs().fsync(&inode, mode)?)
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

impl Server {
    /// What `lanefs stats` asks for: lines of a name and a number.
    fn statistics(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.fs().statistics().entries() {
            let _ = writeln!(text, "{name} {value}");
        }
        self.tally.tell(&mut text);
        text
    }

    /// Whether a request is for the statistics, by a user who may see them: only the owner of
    /// the mount and root see what others do on it.
    fn may_see_statistics(header: &InHeader, name: &[u8]) -> bool {
        let owner = rustix::process::geteuid().as_raw();
        header.nodeid == abi::ROOT_ID
            && name == tally::ATTRIBUTE
            && (header.uid == 0 || header.uid == owner)
    }
}
