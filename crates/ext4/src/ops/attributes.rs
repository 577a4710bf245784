//! Sets attributes of inodes, and reports space.

use crate::alloc::Privilege;
use crate::attr::{Attr, SetAttr, SetTime, StatFs, SyncMode, now};
use crate::data::values::{NewValue, Put, ReleasedValues};
use crate::data::xattrs::{XattrChange, is_acl};
use crate::flags;
use crate::flags::{IMMUTABLE, folds_names, is_immutable};
use crate::name::directory::Directory;
use crate::object::dirty::{Credits, Dirty};
use crate::object::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::{Concerns, FastPart};
use crate::quota::{Counted, Held, Ledger, Owners, Wanted, entries};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::quota::{Kind, Limits, Quota};
use lanefs_ondisk::xattr::AttributeName;
use lanefs_ondisk::{FileType, Time, inode as disk};
use lanefs_plan::xattr::SetXattr;
use lanefs_plan::{Error, xattr};

/// The credits for a change of attributes. Old and new owners are counted.
const CHOWN: Credits = Credits { owners: 2, ..Credits::INODE };

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
        self.check_writable()?;
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
        let has_room = || self.volume.projects && inode.state.lock().disk.has_project();
        if set.project.is_some_and(|project| project != 0) && !has_room() {
            return Err(Error::NotSupported);
        }
        let casefold = self.check_casefold(inode, &set)?;
        self.know_owners(&[set.uid, set.gid, set.project])?;
        let _held = self.hold_for_owners(inode, &set, by)?;
        let now = now();
        let mut handle =
            self.join(acl.as_ref().map_or(CHOWN, |change| change.credits.and(CHOWN)))?;
        if let Some(acl) = acl {
            _released = Some(self.data(inode).apply_xattrs(&mut handle, acl));
        }
        let part = match (set.flags, set.project, casefold) {
            (None, None, None) => FastPart::Record,
            _ => FastPart::None,
        };
        inode.change_part(&mut handle, Concerns::Attributes, part, |state| {
            set_in(&mut state.disk, &set, now);
            if let Some(casefold) = casefold {
                state.disk.flags.set(InodeFlags::CASEFOLD, casefold);
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
        if self.volume.folding.is_none() || self.data(inode).crypt()?.is_some() {
            return Err(Error::NotSupported);
        }
        // Names would have other hashes afterwards, so the directory must be empty.
        match Directory::of(self, inode)?.is_empty()? {
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
        if self.mount.quotas().is_none() {
            return Ok(Vec::new());
        }
        let now = Counted::of(&inode.state.lock().disk);
        let new = |kind: Kind, id: Option<u32>| id.filter(|_| now.owners[kind.index()] != id);
        let owners =
            [new(Kind::User, set.uid), new(Kind::Group, set.gid), new(Kind::Project, set.project)];
        let wanted = Wanted { inodes: 1, unit: 512, units: inode.attr().sectors };
        let (held, units) = self.hold_quota(inode.ino, &owners, wanted, by)?;
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
        let mut handle = self.join(Credits::INODE)?;
        inode.change_part(&mut handle, Concerns::Attributes, FastPart::Record, |state| {
            set_times_in(&mut state.disk, now, atime, mtime);
        });
        Ok(())
    }

    /// Returns the block and inode counts as the kernel reports them, that is, without metadata
    /// overhead.
    pub fn stat_fs(&self) -> StatFs {
        let (free, inodes_free) = self.groups.free_counts();
        StatFs {
            block_size: self.volume.block_size() as u32,
            blocks: self.volume.usable_blocks(),
            blocks_free: free,
            blocks_available: free.saturating_sub(self.volume.reserved_blocks),
            inodes: u64::from(self.volume.geometry().inode_count()),
            inodes_free,
            name_max: 255,
            fsid: self.volume.fsid,
        }
    }
}

// Reads, sets and removes extended attributes and access control lists.
//
// An attribute block that several inodes share (the kernel creates such blocks) is copied on
// write. The reference count of the old block is decremented under that block's guard, and the
// operation that decrements the count to zero frees the block.
//
// With the feature `ea_inode`, a value that fits neither into the inode nor into the inode's
// attribute block gets an inode of its own.

/// The attribute with a program's file capabilities.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Sets what a record stores unchanged: all attributes but the size and the use of case.
fn set_in(disk: &mut disk::Inode, set: &SetAttr, now: Time) {
    if let Some(permissions) = set.permissions {
        disk.mode = (disk.mode & 0xf000) | (permissions & 0xfff);
    }
    disk.uid = set.uid.unwrap_or(disk.uid);
    disk.gid = set.gid.unwrap_or(disk.gid);
    disk.projid = set.project.unwrap_or(disk.projid);
    set_times_in(disk, now, set.atime, set.mtime);
    disk.set_ctime(set.ctime.unwrap_or(now));
    if let Some(crtime) = set.crtime {
        disk.set_crtime(crtime);
    }
    if let Some(flags) = set.flags {
        let asked = InodeFlags::from_bits_retain(flags) & CHANGEABLE;
        disk.flags = (disk.flags & !CHANGEABLE) | asked;
    }
}

fn set_times_in(disk: &mut disk::Inode, now: Time, atime: Option<SetTime>, mtime: Option<SetTime>) {
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::At(time) => time,
    };
    if let Some(atime) = atime {
        disk.set_atime(time(atime));
    }
    if let Some(mtime) = mtime {
        disk.set_mtime(time(mtime));
    }
}

fn may_replace(how: SetXattr) -> bool {
    matches!(how, SetXattr::Any | SetXattr::Replace)
}

impl Fs {
    /// Returns the value of an attribute by its full name (`user.x`). Access control lists are
    /// returned in the form of the system call.
    pub fn get_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>, Error> {
        let name = xattr::parse_name(name)?;
        self.check_process()?;
        let _shared = inode.op.shared();
        let value = self.data(inode).stored_xattr(name)?;
        if !is_acl(name) {
            return Ok(value);
        }
        Ok(self.data(inode).decode_acl(&value)?.to_system())
    }

    /// Sets an attribute. Setting an access list that is equivalent to a mode changes only the
    /// mode. Does not check the inode's append-only flag: see [`crate::flags::check_xattrs`].
    pub fn set_xattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<(), Error> {
        self.set_xattr_as(inode, name, value, how, |attr| Ok(attr.permissions))
    }

    /// Does the same as [`Fs::set_xattr`], if `decide` allows it. `decide` gets the attributes that
    /// the inode has at the time of the change. If the attribute is an access list, the mode
    /// changes too: the list determines the permission bits, and `decide` returns the set-user-ID,
    /// set-group-ID and sticky bits.
    ///
    /// # Errors
    /// The errors of `decide` are returned too.
    ///
    /// # Locking
    /// `decide` runs under the operation lock and takes no operation lock itself.
    pub fn set_xattr_as(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        decide: impl FnOnce(&Attr) -> Result<u16, Error>,
    ) -> Result<(), Error> {
        self.check_writable()?;
        let name = xattr::parse_name(name)?;
        // Declared before the lock so that these values are dropped after its release, because
        // dropping them may delete inodes of attribute values.
        let mut elsewhere = None;
        let _released;
        let exclusive = inode.op.exclusive();
        flags::check_not_immutable(&inode.rights())?;
        let special = decide(&inode.attr())? & 0o7000;
        let change = match is_acl(name) {
            // Nothing changes if the attribute already has this value: the kernel's ext4 does not
            // change ctime then either.
            false if may_replace(how) && self.data(inode).is_stored(name, value) => None,
            false => Some(self.plan_set(inode, name, value, how, &mut elsewhere)?),
            true => self.plan_acl(inode, name, value, special, &mut elsewhere)?,
        };
        _released = self.commit_xattrs(inode, change)?;
        drop(exclusive);
        self.obey_sync(inode, SyncMode::Full)
    }

    /// Removes an attribute; [`Error::NoAttribute`] if it does not exist.
    pub fn remove_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.remove_xattr_as(inode, name, |_| Ok(()))
    }

    /// Does the same as [`Fs::remove_xattr`], if `decide` allows it: see [`Fs::set_xattr_as`].
    ///
    /// # Errors
    /// The errors of `decide` are returned too.
    pub fn remove_xattr_as(
        &self,
        inode: &InodeRef,
        name: &[u8],
        decide: impl FnOnce(&Attr) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.check_writable()?;
        let name = xattr::parse_name(name)?;
        // Declared before the lock so that these values are dropped after its release, because
        // dropping them may delete inodes of attribute values.
        let _released;
        let exclusive = inode.op.exclusive();
        flags::check_not_immutable(&inode.rights())?;
        decide(&inode.attr())?;
        let change = match self.data(inode).plan_xattr(name, None, SetXattr::Any) {
            // It is no error to remove a list that is not stored: an access list that only repeats
            // the mode is never stored.
            Err(Error::NoAttribute) if is_acl(name) => None,
            other => Some(other?),
        };
        _released = self.commit_xattrs(inode, change)?;
        drop(exclusive);
        self.obey_sync(inode, SyncMode::Full)
    }

    /// Removes the file capabilities of a regular file. A caller that changes the data, the size or
    /// the owner calls this first, because the capabilities were granted to the old data. It calls
    /// this again after the change, because they may have been set after the first call.
    pub fn drop_capability(&self, inode: &InodeRef) -> Result<(), Error> {
        if inode.file_type != FileType::Regular || inode.lacks_capability.load(Ordering::Relaxed) {
            return Ok(());
        }
        let name = xattr::parse_name(CAPABILITY)?;
        {
            self.check_process()?;
            let _shared = inode.op.shared();
            match self.data(inode).stored_xattr(name) {
                Ok(_) => {}
                Err(Error::NoAttribute) => {
                    inode.lacks_capability.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                // Attributes that cannot be decoded grant nothing.
                Err(Error::Corruption(_) | Error::Unsupported(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        match self.remove_xattr(inode, CAPABILITY) {
            // Another writer has removed the attribute meanwhile.
            Err(Error::NoAttribute) => Ok(()),
            removed => removed,
        }
    }

    /// Returns the full names of all attributes, including those of `trusted.`.
    pub fn list_xattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>, Error> {
        self.check_process()?;
        let _shared = inode.op.shared();
        let (in_inode, block) = self.data(inode).read_xattrs()?;
        xattr::list(&self.data(inode).xattr_state(&in_inode, &block))
    }

    /// Plans to set an attribute. A value that fits neither into the inode nor into the inode's
    /// attribute block is written to a new inode, which is left in `elsewhere`; the caller drops
    /// `elsewhere` after releasing the operation lock.
    fn plan_set<'f>(
        &'f self,
        inode: &'f InodeRef,
        name: AttributeName<'_>,
        value: &[u8],
        how: SetXattr,
        elsewhere: &mut Option<NewValue>,
    ) -> Result<XattrChange<'f>, Error> {
        let data = self.data(inode);
        if self.volume.value_seed.is_none() {
            return data.plan_xattr(name, Some(Put::Here(value)), how);
        }
        match data.plan_xattr(name, Some(Put::HereWithRoom(value)), how) {
            Err(Error::NoSpace) => {
                let new = self.write_value(inode, value, elsewhere)?;
                data.plan_xattr(name, Some(Put::Elsewhere(new)), how)
            }
            planned => planned,
        }
    }

    /// Plans to set an access control list given in the form of the system call.
    fn plan_acl<'f>(
        &'f self,
        inode: &'f InodeRef,
        name: AttributeName<'_>,
        value: &[u8],
        special: u16,
        elsewhere: &mut Option<NewValue>,
    ) -> Result<Option<XattrChange<'f>>, Error> {
        let Some(acl) = self.data(inode).acl_to_store(name, value, special)? else {
            return Ok(None);
        };
        let permissions = acl.permissions;
        let planned = match &acl.stored {
            Some(list) => self.plan_set(inode, name, list, SetXattr::Any, elsewhere),
            None => self.data(inode).plan_xattr(name, None, SetXattr::Any),
        };
        match planned {
            Ok(change) => Ok(Some(change.with_permissions(permissions))),
            // There is no list to store and no stored list to remove.
            Err(Error::NoAttribute) if permissions.is_some() => {
                Ok(Some(XattrChange::of_permissions(permissions)))
            }
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Plans the change that a chmod makes to the access list, if the inode has one. The caller
    /// holds the operation lock exclusively.
    pub(crate) fn plan_acl_chmod<'f>(
        &'f self,
        inode: &'f InodeRef,
        permissions: u16,
        elsewhere: &mut Option<NewValue>,
    ) -> Result<Option<XattrChange<'f>>, Error> {
        let Some(list) = self.data(inode).acl_after_chmod(permissions)? else { return Ok(None) };
        let name = AttributeName::acl_access();
        self.plan_set(inode, name, &list, SetXattr::Any, elsewhere).map(Some)
    }

    fn commit_xattrs(
        &self,
        inode: &InodeRef,
        change: Option<XattrChange<'_>>,
    ) -> Result<Option<ReleasedValues>, Error> {
        let Some(change) = change else { return Ok(None) };
        let now = now();
        let permissions = change.permissions;
        let mut handle = self.join(change.credits)?;
        let released = self.data(inode).apply_xattrs(&mut handle, change);
        inode.change(&mut handle, Concerns::Attributes, |state| {
            state.disk.ctime = now;
            if let Some(permissions) = permissions {
                state.disk.mode = (state.disk.mode & !0o7777) | permissions;
            }
        });
        Ok(Some(released))
    }
}

// Reports usage and limits of users, groups and projects, and sets limits.

/// The entries of one quota file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaReport {
    /// The kind of the owners.
    pub kind: Kind,
    /// For how many seconds soft limits of space may be exceeded.
    pub bytes_grace: u32,
    /// For how many seconds soft limits of inodes may be exceeded.
    pub inodes_grace: u32,
    /// The owners' ids with their entries, in ascending order of the ids.
    pub entries: Vec<(u32, Quota)>,
}

impl QuotaReport {
    fn of(ledger: &Ledger) -> QuotaReport {
        ledger.with_file(|file| {
            let (bytes_grace, inodes_grace) = file.grace();
            QuotaReport { kind: ledger.kind, bytes_grace, inodes_grace, entries: entries(file) }
        })
    }
}

impl Fs {
    /// Returns the entries of each quota file as of the last commit. The result is empty if the
    /// file system has no quota files.
    pub fn quotas(&self) -> Result<Vec<QuotaReport>, Error> {
        if let Some(quotas) = self.mount.quotas() {
            return Ok(quotas.ledgers().map(QuotaReport::of).collect());
        }
        let ledgers = self.read_quotas()?;
        Ok(ledgers.iter().flatten().map(QuotaReport::of).collect())
    }

    /// Sets the limits of an owner, durably. A mount with [`limits`](crate::MountOptions::limits)
    /// obeys them immediately if the owner already had limits when the file system was mounted.
    /// Otherwise they are obeyed from the next mount on.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the file system has no quota file of this kind.
    pub fn set_quota(&self, kind: Kind, id: u32, limits: Limits) -> Result<(), Error> {
        self.check_writable()?;
        let ledger = self.mount.quotas().and_then(|quotas| quotas.ledger(kind));
        let ledger = ledger.ok_or(Error::NotSupported)?;
        let mut owners: Owners = [None; 3];
        owners[kind.index()] = Some(id);
        self.know_owners(&owners)?;
        // If the owner is new, this commit adds the owner's entry to the quota file.
        self.sync()?;
        let mut handle = self.join(Credits::blocks(1))?;
        handle.charge(1);
        handle.dirty(Dirty::NewOwner(kind, id));
        ledger.set_limits(id, limits);
        drop(handle);
        self.sync()
    }
}
