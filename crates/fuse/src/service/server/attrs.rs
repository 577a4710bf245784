//! Serves GETATTR, STATX and SETATTR.

use super::{Done, FOREVER, Server};
use crate::protocol::abi::{self, fattr};
use crate::protocol::{Caching, Opens, Outbox, Request};
use crate::service::node::Node;
use crate::transport::Channel;
use lanefs_ext4::{Attr, Error, InodeRef, Privilege, Rdev, Rights, SetAttr, SetTime};
use lanefs_ondisk::{FileType, Time};
use lanefs_vfs::rules::{self, Change, Member, without_set_id};

/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_BASIC: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// Encodes a device number as the kernel's 32-bit `dev_t`.
pub fn rdev_word(rdev: Rdev) -> u32 {
    (rdev.minor & 0xff) | (rdev.major & 0xfff) << 8 | (rdev.minor & !0xff) << 12
}

/// Decodes the device number of a 32-bit `dev_t`.
pub fn rdev_of(word: u32) -> Rdev {
    Rdev { major: (word >> 8) & 0xfff, minor: (word & 0xff) | ((word >> 12) & 0xfff00) }
}

/// Returns whether `set` changes nothing, because it has only times that the file has already. With
/// the writeback cache, the kernel sends the times that it has for a file after each unlink, link
/// and rename of the file. Usually these times equal the stored ones, because both were read in the
/// same clock tick. No transaction is then needed.
fn is_told_already(set: &SetAttr, now: &Attr) -> bool {
    let SetAttr {
        permissions,
        uid,
        gid,
        size,
        atime,
        mtime,
        ctime,
        crtime,
        flags,
        casefold,
        project,
    } = *set;
    let only_times = permissions.is_none()
        && uid.is_none()
        && gid.is_none()
        && size.is_none()
        && crtime.is_none()
        && flags.is_none()
        && casefold.is_none()
        && project.is_none();
    let same = |asked: Option<SetTime>, is: Time| match asked {
        None => true,
        Some(SetTime::At(time)) => time == is,
        Some(SetTime::Now) => false,
    };
    // For an immutable file, even a request that changes nothing is refused.
    !rules::is_immutable(&now.rights())
        && only_times
        && ctime == Some(now.ctime)
        && same(atime, now.atime)
        && same(mtime, now.mtime)
}

/// Returns the parts of a change that inode flags can forbid. With its writeback cache, the kernel
/// also sends times that it has set itself. For a file that was written, it sends the change time
/// and the modification time, which are then equal, together with a handle of the file. A request
/// of this form counts as the kernel's, because it does not tell whether a program or the kernel
/// set the times. If a program sets a modification time other than the current time, the two times
/// differ.
fn change_of(input: &abi::SetattrIn, set: &SetAttr) -> Change {
    let given = |bits: u32| input.valid & bits != 0;
    let time = |secs, nanos| Time { secs, nanos };
    let mtime = time(input.mtime, input.mtimensec);
    let is_now = given(fattr::MTIME_NOW)
        || given(fattr::CTIME) && mtime == time(input.ctime, input.ctimensec);
    let by_kernel = given(fattr::FH) && is_now && !given(fattr::MTIME_NOW);
    let times = match (given(fattr::ATIME), given(fattr::MTIME)) {
        (false, false) => Change::empty(),
        // The right to change the size includes the right to change the times.
        _ if given(fattr::SIZE) => Change::empty(),
        (true, true) if given(fattr::ATIME_NOW) && is_now => Change::TOUCH,
        (false, true) if by_kernel => Change::empty(),
        _ => Change::TIMES,
    };
    let mut change = times;
    change.set(Change::MODE, set.permissions.is_some());
    change.set(Change::OWNER, set.uid.is_some() || set.gid.is_some());
    change.set(Change::SIZE, set.size.is_some());
    change
}

/// Returns the permissions to set in a change that must remove set-ID bits: `asked`, or else the
/// present permissions, without the bits that the caller may not keep. If there are no such bits,
/// returns `asked`. Fails if the inode's flags forbid the change. Since the kernel does not send
/// the caller's groups, the caller counts as a possible member of the file's group.
fn stripped(rights: &Rights, asked: Option<u16>) -> Result<Option<u16>, Error> {
    let before = asked.unwrap_or(rights.permissions);
    let left = without_set_id(before, Member::Possibly);
    if left == before {
        return Ok(asked);
    }
    rules::check_attributes(rights, Change::MODE)?;
    Ok(Some(left))
}

fn sx_time(time: Time) -> abi::SxTime {
    abi::SxTime { tv_sec: time.secs, tv_nsec: time.nanos, reserved: 0 }
}

impl Server {
    /// Returns the number of sectors to show for an inode: at least one if the kernel may have data
    /// of the file in its writeback cache. Programs such as `tar -S` do not read a file without
    /// sectors, because they take the whole file for a hole.
    ///
    /// After each close(2) the kernel asks for the attributes again. If a reply has shown one
    /// sector, [`Server::release`] makes the kernel ask once more after the last handle for writing
    /// was closed. If the kernel sends no OPEN, the server does not know which files are open, and
    /// shows one sector for every regular file that has none.
    fn shown_sectors(&self, attr: &Attr) -> u64 {
        let may_have_data = self.may_hide_data(attr)
            && (self.wishes.opens == Opens::NotAsked || self.writers.show_sector(attr.ino));
        if may_have_data { 1 } else { attr.sectors }
    }

    /// Returns whether all data of an inode may be only in the kernel's cache, provided that the
    /// inode is open for writing.
    pub(super) fn may_hide_data(&self, attr: &Attr) -> bool {
        self.wishes.caching == Caching::Writeback
            && attr.sectors == 0
            && attr.file_type == FileType::Regular
    }

    /// Encodes attributes for the kernel.
    pub(super) fn wire_attr(&self, attr: &Attr) -> abi::Attr {
        let (uid, gid) = self.ids.shown(attr.uid, attr.gid);
        abi::Attr {
            ino: u64::from(attr.ino.0),
            size: attr.size,
            blocks: self.shown_sectors(attr),
            atime: attr.atime.secs,
            mtime: attr.mtime.secs,
            ctime: attr.ctime.secs,
            atimensec: attr.atime.nanos,
            mtimensec: attr.mtime.nanos,
            ctimensec: attr.ctime.nanos,
            mode: u32::from(attr.mode()),
            nlink: attr.links,
            uid,
            gid,
            rdev: rdev_word(attr.rdev),
            blksize: self.block_size,
            flags: 0,
        }
    }

    /// Returns the reply to a look-up that found an inode; the kernel may cache the name for
    /// `entry_valid` seconds. The calling function has to count the look-up (`Fs::hold`).
    pub(super) fn entry(&self, attr: &Attr, entry_valid: u64) -> abi::EntryOut {
        abi::EntryOut {
            nodeid: Node::id(attr.ino, attr.generation),
            generation: u64::from(attr.generation),
            entry_valid,
            attr_valid: FOREVER,
            attr: self.wire_attr(attr),
            ..Default::default()
        }
    }

    fn put_attr(&self, attr: &Attr, outbox: &mut Outbox) {
        let attr = self.wire_attr(attr);
        outbox.put(&abi::AttrOut { attr_valid: FOREVER, attr, ..Default::default() });
    }

    pub(super) fn getattr(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let input: abi::GetattrIn = request.take()?;
        let attr = self.fs().stat(&self.inode(request.header.nodeid)?);
        if input.getattr_flags & abi::GETATTR_FH != 0 && input.fh == Self::WRITES {
            self.check_space(attr.ino, self.privilege(&request.header))?;
        }
        self.put_attr(&attr, outbox);
        Ok(())
    }

    pub(super) fn statx(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        request.take::<abi::StatxIn>()?;
        let attr = self.fs().stat(&self.inode(request.header.nodeid)?);
        let (uid, gid) = self.ids.shown(attr.uid, attr.gid);
        let btime = if attr.crtime.is_some() { STATX_BTIME } else { 0 };
        outbox.put(&abi::StatxOut {
            attr_valid: FOREVER,
            mask: STATX_BASIC | btime,
            blksize: self.block_size,
            nlink: attr.links,
            uid,
            gid,
            mode: attr.mode(),
            ino: u64::from(attr.ino.0),
            size: attr.size,
            blocks: self.shown_sectors(&attr),
            atime: sx_time(attr.atime),
            btime: sx_time(attr.crtime.unwrap_or_default()),
            ctime: sx_time(attr.ctime),
            mtime: sx_time(attr.mtime),
            rdev_major: attr.rdev.major,
            rdev_minor: attr.rdev.minor,
            ..Default::default()
        });
        Ok(())
    }

    pub(super) fn setattr(&self, request: &mut Request<'_>, outbox: &mut Outbox) -> Done {
        let input: abi::SetattrIn = request.take()?;
        let inode = self.inode(request.header.nodeid)?;
        let given = |bit: u32| input.valid & bit != 0;
        let time = |bit: u32, now: u32, secs: i64, nanos: u32| match () {
            () if given(now) => Some(SetTime::Now),
            () if given(bit) => Some(SetTime::At(Time { secs, nanos })),
            () => None,
        };
        let set = SetAttr {
            permissions: given(fattr::MODE).then_some((input.mode & 0o7777) as u16),
            uid: if given(fattr::UID) { self.ids.chosen_user(input.uid)? } else { None },
            gid: if given(fattr::GID) { self.ids.chosen_group(input.gid)? } else { None },
            size: given(fattr::SIZE).then_some(input.size),
            atime: time(fattr::ATIME, fattr::ATIME_NOW, input.atime, input.atimensec),
            mtime: time(fattr::MTIME, fattr::MTIME_NOW, input.mtime, input.mtimensec),
            ctime: given(fattr::CTIME)
                .then_some(Time { secs: input.ctime, nanos: input.ctimensec }),
            crtime: None,
            flags: None,
            casefold: None,
            project: None,
        };
        let now = inode.attr();
        // Before a write that removes set-ID bits, the kernel may send a SETATTR that changes
        // nothing. The server ignores this SETATTR, since the WRITE itself has a flag for the
        // removal.
        if is_told_already(&set, &now) || input.valid & !(fattr::FH | fattr::LOCK_OWNER) == 0 {
            self.put_attr(&now, outbox);
            return Ok(());
        }
        if let Some(who) = self.checked_caller(&request.header) {
            let attr = match set.size {
                // Opening the file for writing has already given the right to ftruncate(2).
                Some(size) if given(fattr::FH) && input.fh == Self::WRITES => {
                    self.vfs.set_len_of_open(&who, &inode, size)?
                }
                // Changing the size also sets the times.
                Some(_) => {
                    let set = SetAttr { atime: None, mtime: None, ctime: None, ..set };
                    self.vfs.set_attr(&who, &inode, &set)?
                }
                None => self.vfs.set_attr(&who, &inode, &set)?,
            };
            self.put_attr(&attr, outbox);
            return Ok(());
        }
        let change = change_of(&input, &set);
        rules::check_attributes(&now.rights(), change)?;
        let chown = set.uid.is_some() || set.gid.is_some();
        let costs = now.file_type != FileType::Directory && (chown || set.size.is_some());
        if costs {
            self.fs().drop_capability(&inode)?;
        }
        // A new owner always removes the privileges; a new size does so only if the kernel sets the
        // flag.
        let drops = costs && (chown || given(fattr::KILL_SUIDGID));
        let by = self.privilege(&request.header);
        let attr = self.fs().set_attr_as(&inode, by, |now| {
            let rights = now.rights();
            rules::check_attributes(&rights, change)?;
            let asked = set.permissions;
            let permissions = if drops { stripped(&rights, asked)? } else { asked };
            Ok(Some(SetAttr { permissions, ..set }))
        })?;
        if costs {
            self.fs().drop_capability(&inode)?;
        }
        self.put_attr(&attr, outbox);
        Ok(())
    }

    /// Removes set-user-ID, set-group-ID and capabilities, as a write does. A reply to a write
    /// cannot report the new mode, so without further action the kernel would continue to use its
    /// cached mode. Therefore a notification before the reply drops the cached attributes, so that
    /// no program can execute the new contents with the old mode.
    pub(super) fn drop_privileges(&self, inode: &InodeRef, kernel: &Channel) -> Done {
        let now = inode.attr();
        if stripped(&now.rights(), None)?.is_some() {
            // The mode is read again in the transaction, since a chmod(2) may have changed it
            // meanwhile.
            self.fs().set_attr_as(inode, Privilege::Ordinary, |now| {
                let permissions = stripped(&now.rights(), None)?;
                Ok(permissions.map(|_| SetAttr { permissions, ..SetAttr::default() }))
            })?;
            kernel.forget_attributes(Node::id(now.ino, now.generation));
        }
        Ok(self.fs().drop_capability(inode)?)
    }

    /// Does the same as [`Server::drop_privileges`] for requests that have no flag for the removal.
    /// For a root caller, only capabilities are removed.
    pub(super) fn drop_privileges_for(
        &self,
        by: Privilege,
        inode: &InodeRef,
        kernel: &Channel,
    ) -> Done {
        match by {
            Privilege::Root => Ok(self.fs().drop_capability(inode)?),
            Privilege::Ordinary => self.drop_privileges(inode, kernel),
        }
    }
}

#[cfg(test)]
mod tests;
