//! The caller of a request, and the permissions that the server checks where the kernel does not.
//!
//! With `-o fakeroot` the owner of the mount acts as root of the image. The kernel does not know
//! about this option, and would refuse most of the owner's operations. So on such a mount the
//! kernel does not check permissions ([`Checks`]). The server then applies all rules of
//! [`lanefs_vfs`] to every request, for the owner and for other users.
//!
//! Without `allow_other` the kernel admits only the owner of the mount, and caches names as usual.
//! With `allow_other`, any user would walk through a cached name unchecked. So the names in the
//! server's replies expire at once. The kernel then sends a LOOKUP for each component of a path,
//! and the server checks the search permission. The kernel also sends OPEN, OPENDIR and ACCESS (the
//! option `no_open` is refused on such a mount). The writeback cache is not enabled, because with
//! it the kernel would send changes of times on behalf of any user, and the server could not check
//! the caller. A request does not contain the caller's supplementary groups; the server reads them
//! from `/proc/PID/status`, if this file shows the same user and group as the request. Leaving a
//! directory by ".." needs no permission, because the kernel sends no request for it.

use super::host::supplementary_groups;
use super::{Done, Server};
use crate::ids::Refusal;
use crate::protocol::abi::{self, InHeader};
use crate::protocol::{Checks, Errno, Outbox, Request};
use lanefs_ext4::{Error, InodeRef, Privilege};
use lanefs_ondisk::FileType;
use lanefs_vfs::{Credentials, Want};

/// The flag of an OPEN that execve(2) causes (`__FMODE_EXEC`). This OPEN needs no read permission.
/// open(2) does not accept the flag.
const FOR_EXECUTION: i32 = 0x20;

/// A user and a group that own no file of the image, for callers whose ids are unmapped.
const NO_IDS: (u32, u32) = (u32::MAX, u32::MAX);

impl Server {
    /// Returns the credentials of the caller if the server has to check them.
    pub(super) fn checked_caller(&self, header: &InHeader) -> Option<Credentials> {
        (self.wishes.checks != Checks::ByKernel).then(|| self.credentials(header))
    }

    /// Returns the credentials of the caller.
    pub(super) fn credentials(&self, header: &InHeader) -> Credentials {
        let caller = self.ids.caller(header.uid, header.gid);
        if caller.is_superuser {
            return Credentials::superuser();
        }
        let (uid, gid) = caller.ids.unwrap_or(NO_IDS);
        let groups = self.ids.groups(supplementary_groups(header));
        Credentials::new(uid, gid, groups)
    }

    /// If the server checks permissions, fails for a caller without the permissions `want`.
    pub(super) fn check(&self, header: &InHeader, inode: &InodeRef, want: Want) -> Done {
        match self.checked_caller(header) {
            Some(who) => Ok(self.vfs.check(&who, inode, want)?),
            None => Ok(()),
        }
    }

    /// If the server checks permissions, fails for a caller that may not open the file with
    /// `flags`.
    pub(super) fn check_open(&self, header: &InHeader, inode: &InodeRef, flags: i32) -> Done {
        let access = flags & libc::O_ACCMODE;
        let want = match access {
            libc::O_RDONLY if flags & FOR_EXECUTION != 0 => Want::EXECUTE,
            libc::O_RDONLY => Want::READ,
            libc::O_WRONLY => Want::WRITE,
            _ => Want::READ | Want::WRITE,
        };
        self.check(header, inode, want)
    }

    /// Returns the image's user and group for files that the caller creates.
    ///
    /// # Errors
    /// EOVERFLOW if the caller's ids are unmapped. The kernel returns the same error on an idmapped
    /// mount.
    pub(super) fn creator(&self, header: &InHeader) -> Result<(u32, u32), Errno> {
        self.ids.caller(header.uid, header.gid).ids.ok_or(Errno::OVERFLOW)
    }

    /// Returns whether the caller may use the blocks that are reserved for root.
    pub(super) fn privilege(&self, header: &InHeader) -> Privilege {
        match self.ids.caller(header.uid, header.gid).is_superuser {
            true => Privilege::Root,
            false => Privilege::Ordinary,
        }
    }

    /// If a user with these host ids and groups may not create files in the root directory, returns
    /// the user and the group of that directory, as the host sees them; otherwise `None`.
    pub fn root_closed_to(&self, uid: u32, gid: u32, groups: &[u32]) -> Option<(u32, u32)> {
        let root = self.vfs.root();
        let mut rights = root.rights();
        (rights.uid, rights.gid) = self.ids.shown(rights.uid, rights.gid);
        let who = match self.ids.caller(uid, gid).is_superuser {
            true => Credentials::superuser(),
            false => Credentials::new(uid, gid, groups),
        };
        let allowed = self.vfs.check_rights(&who, root, &rights, Want::WRITE | Want::EXECUTE);
        matches!(allowed, Err(Error::PermissionDenied)).then_some((rights.uid, rights.gid))
    }

    /// Serves ACCESS: access(2) and chdir(2). If the kernel checks permissions itself, the reply is
    /// ENOSYS, after which the kernel sends no more ACCESS requests.
    pub(super) fn access(&self, request: &mut Request<'_>) -> Done {
        let Some(who) = self.checked_caller(&request.header) else { return Err(Errno::NOSYS) };
        let mask = request.take::<abi::AccessIn>()?.mask;
        let inode = self.inode(request.header.nodeid)?;
        Ok(self.vfs.check(&who, &inode, Want::from_bits_truncate(mask as u16))?)
    }

    /// Serves OPENDIR. If the kernel checks permissions itself, the reply is ENOSYS, after which
    /// the kernel sends no more OPENDIR requests.
    pub(super) fn opendir(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let Some(who) = self.checked_caller(&request.header) else { return Err(Errno::NOSYS) };
        let inode = self.inode(request.header.nodeid)?;
        if inode.file_type() != FileType::Directory {
            return Err(Errno(libc::ENOTDIR));
        }
        self.vfs.check(&who, &inode, Want::READ)?;
        outbox.put(&abi::OpenOut { fh: 0, open_flags: 0, backing_id: 0 });
        Ok(())
    }
}

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Errno {
        match refusal {
            Refusal::Unmapped => Errno::OVERFLOW,
            Refusal::Fixed => Errno::PERM,
        }
    }
}
