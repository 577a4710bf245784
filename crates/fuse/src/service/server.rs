//! Serves requests on an ext4 file system.
//!
//! The kernel checks permissions (`default_permissions`), or the server checks them ([`checks`]).
//! The kernel caches names and attributes without a time limit, because every change passes through
//! the kernel and no cached entry can be stale. On a file system with `casefold` the kernel caches
//! fewer names, since it does not know which spellings are equal. The kernel owns the size and
//! times of a file while its writeback cache has dirty pages of that file.
//!
//! # Permissions
//!
//! The server does the part of the work that the kernel leaves to it, by the rules in
//! [`lanefs_vfs::rules`]. It checks for immutable and append-only files, and applies the umask,
//! unless a default ACL replaces it. It lists `trusted.` names only to user 0, and only if it runs
//! outside of user namespaces. It clears set-user-ID, set-group-ID and file capabilities.
//!
//! With `HANDLE_KILLPRIV_V2` the kernel marks the writes that must clear set-ID bits and
//! capabilities, and sends these writes at once. It does not update its cached mode. So the server
//! invalidates the attributes *before* it answers; otherwise the writer could execute the new
//! contents with the owner's rights. The requests of fallocate(2) and copy_file_range(2) have no
//! such mark; on these requests the server clears the bits unless the caller is root. Without
//! `HANDLE_KILLPRIV_V2` the kernel would ask for `security.capability` before each write(2).

mod attrs;
mod checks;
mod files;
mod host;
mod ioctls;
mod names;
mod tally;
#[cfg(test)]
mod tests;
mod verity;
mod writers;
mod xattrs;

use crate::ids::Ids;
use crate::protocol::abi::{self, InHeader, opcode};
use crate::protocol::{Caching, Checks, Errno, Opens, Outbox, Request, Times, Wishes};
use crate::service::api::{Answer, Service};
use crate::service::control::{self, Control};
use crate::service::node::Node;
use crate::transport::{Carried, Channel};
use lanefs_ext4::flags::folds_names;
use lanefs_ext4::{Fs, InodeRef, Mount, SyncMode};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_ondisk::FileType;
use lanefs_vfs::Vfs;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use tally::Tally;
use writers::Writers;

/// The seconds for which the kernel may cache a name or attributes. One year stands for as long as
/// the mount lasts.
const FOREVER: u64 = 365 * 24 * 3600;

/// The result of serving a request; on success the reply is in the outbox.
type Done = Result<(), Errno>;

/// A mounted file system that serves the kernel's requests.
pub struct Server {
    /// The files and names, without a name cache, since the kernel has one.
    vfs: Vfs,
    ids: Ids,
    block_size: u32,
    wishes: Wishes,
    /// Whether the server runs outside of user namespaces, so that user 0 may use `trusted.`
    /// attributes.
    is_in_first_namespace: bool,
    /// Whether direct writes of one file may run in parallel.
    parallel_direct: bool,
    writers: Writers,
    tally: Tally,
    controls: Vec<Box<dyn Control>>,
    /// Set while a request makes the kernel flush a file's pages. Only one request at a time does
    /// so; see [`Server::lseek`].
    flushing: AtomicBool,
    /// Set by a panic: memory may be inconsistent, so every request fails until the unmount.
    broken: AtomicBool,
}

impl Service for Server {
    fn wishes(&self) -> Wishes {
        self.wishes
    }

    /// If the kernel can map files opened for direct I/O, such files bypass the kernel's cache, and
    /// their writes may run in parallel. With the writeback cache, no file bypasses the kernel's
    /// cache. The reason is that the kernel then owns a file's times, but does not update them for
    /// a write that bypasses the cache.
    fn agreed(&mut self, flags: u64) {
        self.parallel_direct = self.wishes.caching == Caching::Writethrough
            && flags & abi::init::DIRECT_IO_ALLOW_MMAP != 0;
    }

    /// Commits the changes of requests that were served, because on a mount of type `fuse` the
    /// kernel sends no request for sync(2).
    fn paused(&self) {
        if !self.is_broken() {
            // If this commit fails, the next fsync reports the error.
            let _ = self.guarded(|| Ok(self.fs().sync()?));
        }
        // Returns the free memory of `LineHeap` to the system. If the program uses another heap,
        // this has no effect.
        lanefs_lanes::LineHeap::trim_excess();
    }

    fn carried(&self, carried: &Carried) {
        self.tally.note_carried(carried);
    }

    /// Returns true for LSEEK and IOCTL. Before a search for holes, a change of flags, or the
    /// creation of a verity file, the server may make the kernel write the file's dirty pages. It
    /// then waits until other threads have served these writes.
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
        // A request that writes pages back has pid 0, not the pid of the process that wrote them.
        let client = request.header.pid;
        lanefs_ext4::work_for((client != 0).then_some(client));
        let (opcode, begun) = (request.header.opcode, Instant::now());
        let answer = self.guarded(|| self.dispatch(request, outbox, kernel));
        self.tally.count(opcode, begun.elapsed());
        answer
    }
}

impl Server {
    /// Creates the server of `mount`. `ids` maps users and groups between the host and the image.
    /// If the file system can have verity files, the kernel is asked to send OPEN. Without OPEN,
    /// the kernel would write to its cached pages of a verity file, and show them to readers,
    /// before the server could refuse the write. If inodes store whole seconds, the kernel is told
    /// so. Otherwise it would show nanoseconds that are not stored.
    ///
    /// # Errors
    /// If the root directory cannot be read.
    pub fn new(mount: Mount, wishes: Wishes, ids: Ids) -> Result<Server, lanefs_ext4::Error> {
        let block_size = mount.fs().stat_fs().block_size;
        let times = if mount.fs().has_fine_times() { Times::Fine } else { Times::Seconds };
        let opens = if mount.fs().has_verity() { Opens::Asked } else { wishes.opens };
        Ok(Server {
            vfs: Vfs::without_names(mount)?,
            ids,
            block_size,
            wishes: Wishes { opens, times, ..wishes },
            is_in_first_namespace: host::is_in_first_namespace(),
            parallel_direct: false,
            writers: Writers::new(),
            tally: Tally::new(),
            controls: Vec::new(),
            flushing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        })
    }

    /// Adds `control`, which then serves its attributes of the root directory.
    #[must_use]
    pub fn with(mut self, control: Box<dyn Control>) -> Server {
        self.controls.push(control);
        self
    }

    /// Returns the controls if `name` can belong to a control, and the caller is root or the owner
    /// of the mount. No other user may see how a mount is used.
    fn controls(&self, header: &InHeader, name: &[u8]) -> &[Box<dyn Control>] {
        let may =
            header.nodeid == abi::ROOT_ID && name.starts_with(control::PREFIX) && is_owner(header);
        if may { &self.controls } else { &[] }
    }

    /// Closes the file system: commits, checkpoints the log, and marks the file system clean. After
    /// a panic it writes nothing, because the log on disk has a consistent state.
    ///
    /// # Errors
    /// The errors of [`Mount::close`].
    pub fn close(self) -> Result<(), lanefs_ext4::Error> {
        if self.broken.load(Ordering::Relaxed) {
            // Dropping the mount would commit, so the mount is leaked.
            let _ = std::mem::ManuallyDrop::new(self.vfs);
            return Ok(());
        }
        // At an unmount the kernel sends no FORGET for the inodes that it still holds.
        self.fs().forget_all();
        self.vfs.close()
    }

    /// Returns whether a thread has panicked while it served a request.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn fs(&self) -> &Fs {
        self.vfs.fs()
    }

    /// Returns the seconds for which the kernel may cache that a name in `dir` refers to an inode
    /// of this type.
    ///
    /// In a directory that ignores case, the kernel does not recognise a cached name in another
    /// spelling. If a file is removed by another spelling, its cached name would therefore stay
    /// valid. A rename moves the kernel's cached name together with its validity, possibly into a
    /// directory that ignores case. So on a file system with `casefold` no name of a file may be
    /// cached, whatever its directory. The kernel caches only one name of a subdirectory: if it
    /// looks the subdirectory up by another spelling, it replaces the cached name. So the name of a
    /// subdirectory may be cached unless `dir` ignores case.
    fn name_validity(&self, dir: &InodeRef, found: FileType) -> u64 {
        let folds = self.fs().has_casefold()
            && (found != FileType::Directory || folds_names(&dir.rights()));
        self.validity_unless(folds)
    }

    /// Returns the seconds for which the kernel may cache that a name does not exist. A name can
    /// come into existence without a request that contains this name: after `chattr +F` of an empty
    /// directory, a name created there also matches other spellings.
    fn absence_validity(&self) -> u64 {
        self.validity_unless(self.fs().has_casefold())
    }

    fn validity_unless(&self, folds: bool) -> u64 {
        if folds || self.wishes.checks == Checks::ByServerEachName { 0 } else { FOREVER }
    }

    /// Returns the inode of a node id. The kernel's look-up count keeps the inode, so the inode
    /// still exists.
    fn inode(&self, id: u64) -> Result<InodeRef, Errno> {
        let node = Node::from_id(id);
        Ok(self.fs().get(node.ino, node.generation)?)
    }

    /// Runs `work`. A panic becomes an I/O error of this request and of all later ones. The panic
    /// drops the handle of the transaction, which aborts the journal.
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
            opcode::OPENDIR => self.opendir(request, outbox)?,
            opcode::RELEASEDIR if self.wishes.checks != Checks::ByKernel => {}
            opcode::ACCESS => self.access(request)?,
            opcode::READDIR => self.readdir(request, outbox)?,
            opcode::READDIRPLUS => self.readdirplus(request, outbox)?,
            opcode::OPEN => self.open(request, outbox, kernel)?,
            opcode::READ => self.read(request, outbox)?,
            opcode::WRITE => self.write(request, outbox, kernel)?,
            opcode::RELEASE => self.release(request, kernel)?,
            opcode::FALLOCATE => self.fallocate(request, kernel)?,
            opcode::COPY_FILE_RANGE => self.copy_file_range(request, outbox, kernel)?,
            opcode::LSEEK => self.lseek(request, outbox, kernel)?,
            opcode::FSYNC | opcode::FSYNCDIR => self.fsync(request, kernel)?,
            opcode::SYNCFS => self.fs().sync()?,
            opcode::SETXATTR => self.setxattr(request, kernel)?,
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
            // FLUSH, POLL, locks and the like. The kernel works without these requests, and sends
            // no more of the same kind after this error.
            _ => return Err(Errno::NOSYS),
        }
        Ok(Answer::Reply)
    }

    fn forget(&self, id: u64, n: u64) {
        if id != abi::ROOT_ID {
            self.fs().forget(Node::from_id(id).ino, n);
        }
    }

    fn fsync(&self, request: &mut Request<'_>, kernel: &Channel) -> Done {
        let input: abi::FsyncIn = request.take()?;
        let mode = if input.fsync_flags & abi::FSYNC_FDATASYNC != 0 {
            SyncMode::Data
        } else {
            SyncMode::Full
        };
        let inode = self.inode(request.header.nodeid)?;
        self.fs().fsync(&inode, mode)?;
        if self.writers.set_more_sectors(inode.ino(), false) {
            // Before this request the kernel has written the file's dirty pages, but its cached
            // number of sectors is that of before.
            kernel.forget_attributes(request.header.nodeid);
        }
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
            ..Default::default()
        });
    }
}

impl Server {
    /// Returns the text of `lanefs stats`. Each line has a name and a number.
    fn statistics(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.fs().statistics().entries() {
            let _ = writeln!(text, "{name} {value}");
        }
        for (name, value) in self.controls.iter().flat_map(|control| control.figures()) {
            let _ = writeln!(text, "{name} {value}");
        }
        for (name, value) in self.ids.figures() {
            let _ = writeln!(text, "{name} {value}");
        }
        self.tally.append_to(&mut text);
        text
    }

    /// Returns whether a request is for the statistics, and comes from the owner of the mount or
    /// root. No other user may see how a mount is used.
    fn may_see_statistics(header: &InHeader, name: &[u8]) -> bool {
        header.nodeid == abi::ROOT_ID && name == tally::ATTRIBUTE && is_owner(header)
    }
}

/// Returns whether the caller is root or the owner of the mount.
fn is_owner(header: &InHeader) -> bool {
    header.uid == 0 || header.uid == rustix::process::geteuid().as_raw()
}
