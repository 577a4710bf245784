//! Sets attributes of inodes, and reports space.

use crate::alloc::Privilege;
use crate::attr::{Attr, SetAttr, SetTime, StatFs, SyncMode};
use crate::clock::now;
use crate::flags::{IMMUTABLE, folds_names, is_immutable};
use crate::fs::Fs;
use crate::name::directory::Directory;
use crate::object::fast_track::FastPart;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::Concerns;
use crate::quota::{Counted, Held, Wanted};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::quota::Kind;
use lanefs_plan::Error;

const CHANGEABLE: InodeFlags = InodeFlags::from_bits_retain(crate::attr::CHANGEABLE_FLAGS);

impl Fs {
    /// Changes the given attributes, sets ctime and returns the new attributes. If an owner (user,
    /// group or project) changes, the quota limits of the new owner apply. Does not check the
    /// inode's flags: see `flags::check_attributes`.
    pub fn set_attr(&self, inode: &InodeRef, set: &SetAttr) -> Result<Attr, Error> {
        self.set_attr_as(inode, Privilege::Ordinary, |_| Ok(Some(*set)))
    }

    /// Does the same as [`Fs::set_attr`] with the attributes that `decide` returns. Changes nothing
    /// if `decide` returns `None`. `decide` gets the current attributes; no other thread changes
    /// owner, mode or flags between the call of `decide` and the change. The limits of new owners
    /// do not apply to [`Privilege::Root`].
    ///
    /// # Errors
    /// The errors of `decide` are returned too.
    ///
    /// # Locking
    /// `decide` runs under the operation lock and takes no operation lock itself.
    pub fn set_attr_as(
        &self,
        inode: &InodeRef,
        by: Privilege,
        decide: impl FnOnce(&Attr) -> Result<Option<SetAttr>, Error>,
    ) -> Result<Attr, Error> {
        self.objects.check_writable()?;
        // Declared before the lock so that these values are dropped after its release, because
        // dropping them may delete inodes of attribute values.
        let (mut elsewhere, mut _released) = (None, None);
        let exclusive = inode.op.exclusive();
        let Some(set) = decide(&inode.attr())? else { return Ok(inode.attr()) };
        if let Some(size) = set.size {
            inode.check_regular()?;
            self.set_size(inode, size)?;
        }
        let acl = match set.permissions {
            Some(permissions) => self.plan_acl_chmod(inode, permissions, &mut elsewhere)?,
            None => None,
        };
        if set.project.is_some_and(|project| project != 0) {
            let has_room = inode.state.lock().disk.has_project();
            if !self.objects.volume.projects || !has_room {
                return Err(Error::NotSupported);
            }
        }
        let casefold = self.check_casefold(inode, &set)?;
        self.objects.know_owners(&[set.uid, set.gid, set.project])?;
        let _held = self.hold_for_owners(inode, &set, by)?;
        let now = now();
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let mut handle = self.objects.join(4 + acl.as_ref().map_or(0, |change| change.credits))?;
        if let Some(acl) = acl {
            _released = Some(self.data(inode).apply_xattrs(&mut handle, acl));
        }
        let part = match (set.flags, set.project, casefold) {
            (None, None, None) => FastPart::Record,
            _ => FastPart::None,
        };
        inode.change_part(&mut handle, Concerns::Attributes, part, |state| {
            let disk = &mut state.disk;
            if let Some(permissions) = set.permissions {
                disk.mode = (disk.mode & 0xf000) | (permissions & 0xfff);
            }
            disk.uid = set.uid.unwrap_or(disk.uid);
            disk.gid = set.gid.unwrap_or(disk.gid);
            disk.projid = set.project.unwrap_or(disk.projid);
            if let Some(atime) = set.atime {
                disk.set_atime(time(atime));
            }
            if let Some(mtime) = set.mtime {
                disk.set_mtime(time(mtime));
            }
            disk.set_ctime(set.ctime.unwrap_or(now));
            if let Some(crtime) = set.crtime {
                disk.set_crtime(crtime);
            }
            if let Some(flags) = set.flags {
                let asked = InodeFlags::from_bits_retain(flags) & CHANGEABLE;
                disk.flags = (disk.flags & !CHANGEABLE) | asked;
            }
            if let Some(casefold) = casefold {
                disk.flags.set(InodeFlags::CASEFOLD, casefold);
            }
        });
        drop(handle);
        drop(exclusive);
        self.obey_sync(inode, SyncMode::Data)?;
        Ok(inode.attr())
    }

    /// Returns whether the directory will ignore case; `None` if this property does not change. The
    /// caller holds the operation lock exclusively.
    fn check_casefold(&self, inode: &InodeRef, set: &SetAttr) -> Result<Option<bool>, Error> {
        let folds = folds_names(&inode.rights());
        let Some(asked) = set.casefold.filter(|asked| *asked != folds) else { return Ok(None) };
        let stays_immutable = set.flags.is_none_or(|flags| flags & IMMUTABLE != 0);
        if is_immutable(&inode.rights()) && stays_immutable {
            return Err(Error::NotPermitted);
        }
        // If an encrypted directory ignores case, its names are hashed with a key, which is not
        // supported.
        if self.objects.volume.folding.is_none() || self.data(inode).crypt()?.is_some() {
            return Err(Error::NotSupported);
        }
        // Names would have other hashes afterwards, so the directory must be empty.
        match Directory::of(&self.objects, inode)?.is_empty()? {
            true => Ok(Some(asked)),
            false => Err(Error::NotEmpty),
        }
    }

    /// Reserves the inode's usage within the limits of new owners.
    fn hold_for_owners(
        &self,
        inode: &Arc<Inode>,
        set: &SetAttr,
        by: Privilege,
    ) -> Result<Vec<Held>, Error> {
        if self.objects.mount.quotas().is_none() {
            return Ok(Vec::new());
        }
        let now = Counted::of(&inode.state.lock().disk);
        let new = |kind: Kind, id: Option<u32>| id.filter(|_| now.owners[kind.index()] != id);
        let owners =
            [new(Kind::User, set.uid), new(Kind::Group, set.gid), new(Kind::Project, set.project)];
        let wanted = Wanted { inodes: 1, unit: 512, units: inode.attr().sectors };
        let (held, units) = self.objects.hold(inode.ino, &owners, wanted, by)?;
        if units < wanted.units { Err(Error::OverQuota) } else { Ok(held) }
    }

    /// Sets only times, without the operation lock.
    pub(crate) fn set_times(
        &self,
        inode: &Arc<Inode>,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    ) -> Result<(), Error> {
        let now = now();
        let resolve = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let mut handle = self.objects.join(2)?;
        inode.change_part(&mut handle, Concerns::Attributes, FastPart::Record, |state| {
            if let Some(atime) = atime {
                state.disk.set_atime(resolve(atime));
            }
            if let Some(mtime) = mtime {
                state.disk.set_mtime(resolve(mtime));
            }
        });
        Ok(())
    }

    /// Returns the block and inode counts as the kernel reports them, that is, without metadata
    /// overhead.
    pub fn stat_fs(&self) -> StatFs {
        let (free, inodes_free) = self.objects.groups.free_counts();
        StatFs {
            block_size: self.objects.volume.block_size() as u32,
            blocks: self.objects.volume.usable_blocks(),
            blocks_free: free,
            blocks_available: free.saturating_sub(self.objects.volume.reserved_blocks),
            inodes: u64::from(self.objects.volume.geometry().inode_count()),
            inodes_free,
            name_max: 255,
            fsid: self.objects.volume.fsid,
        }
    }
}
