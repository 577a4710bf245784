//! Extended attributes and access control lists of inodes.
//!
//! An attribute block that several inodes share (the kernel makes such) is copied on write; its
//! count falls under its own guard, and whoever finds himself the last frees it.

use crate::alloc::{Claim, GroupHold};
use crate::fs::Fs;
use crate::object::commit::Handle;
use crate::object::inode::{Concerns, Inode, InodeRef, StoredXattrs};
use crate::object::meta::{MetaKind, MetaRef};
use crate::object::record::RawRecord;
use crate::ops::read::now;
use crate::plan::xattr::{self, BlockChange, XattrState};
use crate::{Attr, Error, SetXattr};
use lanefs_lanes::Lines;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::acl::Acl;
use lanefs_ondisk::xattr::{AttributeName, set_refcount};
use lanefs_ondisk::{Block, Corruption, FileType, Ino, inode as disk};

/// A change of an inode's attributes, ready to be applied.
pub(crate) struct XattrChange<'f> {
    in_inode: Option<Vec<u8>>,
    /// The group of the block that may be freed.
    hold: Option<GroupHold<'f>>,
    block: BlockStep,
    /// The permissions, twelve bits, that go with an access list that was set.
    permissions: Option<u16>,
    pub(crate) credits: u32,
}

/// A new attribute block and its contents.
pub(crate) type NewBlock = (Claim, Arc<[u8]>);

/// What becomes of the attribute block.
enum BlockStep {
    Keep,
    /// The inode's own: new contents.
    Rewrite(MetaRef, Arc<[u8]>),
    /// A new one; the old one, if there is one, loses an owner.
    New {
        old: Option<MetaRef>,
        claim: Claim,
        data: Arc<[u8]>,
    },
    /// The old one loses an owner.
    Drop(MetaRef),
}

/// What a new inode takes over from its directory's default list.
pub(crate) struct Inherited {
    /// The low 12 bits of the mode.
    pub(crate) permissions: u16,
    /// Attributes in the form of the disk.
    pub(crate) xattrs: Vec<(AttributeName<'static>, Vec<u8>)>,
}

/// An inode's attributes as they are: copies, so that no guard is held while they are looked at.
struct Snapshot {
    in_inode: Vec<u8>,
    block: Option<MetaRef>,
}

/// An attribute block, if there is one, and its contents.
type BlockData = Option<(Block, Arc<[u8]>)>;

impl Fs {
    /// The value of an attribute by its full name (`user.x`). Access control lists come in the form
    /// of the system call.
    pub fn get_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>, Error> {
        let name = xattr::parse_name(name)?;
        let _shared = inode.op.shared();
        let value = self.stored_xattr(inode, name)?;
        if !is_acl(name) {
            return Ok(value);
        }
        Ok(self.decode_acl(inode.ino, &value)?.to_system())
    }

    /// Sets an attribute. An access list that says no more than a mode changes the mode alone. That it
    /// is append-only does not forbid it here: see [`crate::flags::check_xattrs`].
    pub fn set_xattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<(), Error> {
        self.set_xattr_as(inode, name, value, how, |attr| Ok(attr.permissions))
    }

    /// As [`Fs::set_xattr`], if `judge` allows it: it is asked with the attributes that the inode has when
    /// that is done. With an access list the mode becomes what the list says, and beyond that, in the
    /// bits of set-user-ID, set-group-ID and sticky, what `judge` gives.
    ///
    /// # Errors
    /// What `judge` fails with, too.
    ///
    /// # Locking
    /// `judge` runs under the operation lock and takes none.
    pub fn set_xattr_as(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        judge: impl FnOnce(&Attr) -> Result<u16, Error>,
    ) -> Result<(), Error> {
        self.check_writable()?;
        let name = xattr::parse_name(name)?;
        let _exclusive = inode.op.exclusive();
        self.check_not_immutable(inode)?;
        let special = judge(&inode.attr())? & 0o7000;
        let change = match is_acl(name) {
            // The kernel's ext4 does not move ctime for it either.
            false if how != SetXattr::Create && self.is_stored(inode, name, value) => None,
            false => Some(self.plan_xattr(inode, name, Some(value), how)?),
            true => self.plan_acl(inode, name, value, special)?,
        };
        self.commit_xattrs(inode, change)
    }

    /// Removes an attribute; [`Error::NoAttribute`] if it is not there.
    pub fn remove_xattr(&self, inode: &InodeRef, name: &[u8]) -> Result<(), Error> {
        self.remove_xattr_as(inode, name, |_| Ok(()))
    }

    /// As [`Fs::remove_xattr`], if `judge` allows it: see [`Fs::set_xattr_as`].
    ///
    /// # Errors
    /// What `judge` fails with, too.
    pub fn remove_xattr_as(
        &self,
        inode: &InodeRef,
        name: &[u8],
        judge: impl FnOnce(&Attr) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.check_writable()?;
        let name = xattr::parse_name(name)?;
        let _exclusive = inode.op.exclusive();
        self.check_not_immutable(inode)?;
        judge(&inode.attr())?;
        let change = match self.plan_xattr(inode, name, None, SetXattr::Any) {
            // A list that is not kept is one that says what the mode says.
            Err(Error::NoAttribute) if is_acl(name) => None,
            other => Some(other?),
        };
        self.commit_xattrs(inode, change)
    }

    /// The full names of all attributes, those of `trusted.` too.
    pub fn list_xattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>, Error> {
        let _shared = inode.op.shared();
        let (in_inode, block) = self.read_xattrs(inode)?;
        xattr::list(&self.xattr_state(inode.ino, &in_inode, &block))
    }

    fn commit_xattrs(
        &self,
        inode: &InodeRef,
        change: Option<XattrChange<'_>>,
    ) -> Result<(), Error> {
        let Some(change) = change else { return Ok(()) };
        let now = now();
        let permissions = change.permissions;
        let mut handle = self.join(change.credits + 2)?;
        self.apply_xattrs(&mut handle, inode, change);
        inode.change(&mut handle, Concerns::Attributes, |state| {
            state.disk.ctime = now;
            if let Some(permissions) = permissions {
                state.disk.mode = (state.disk.mode & !0o7777) | permissions;
            }
        });
        Ok(())
    }

    fn xattr_snapshot(&self, inode: &Arc<Inode>) -> Result<Snapshot, Error> {
        let (in_inode, block) =
            self.with_stored_xattrs(inode, |stored| (stored.in_inode.to_vec(), stored.block));
        let block = match block {
            Some(block) => Some(self.meta.get(self, block, MetaKind::Xattr)?),
            None => None,
        };
        Ok(Snapshot { in_inode, block })
    }

    /// Runs `f` on what the inode stores of its attributes; the operation lock is held.
    fn with_stored_xattrs<R>(&self, inode: &Inode, f: impl Fn(&StoredXattrs) -> R) -> R {
        {
            let pin = lanefs_lanes::pin();
            if let Some(stored) = inode.xattrs.get(&pin) {
                return f(stored);
            }
        }
        let state = inode.state.lock();
        let area = state.disk.xattr_area(&self.geometry);
        let bytes = area.map(|area| state.raw.area(area)).unwrap_or_default();
        let stored = StoredXattrs { in_inode: Lines::from(&*bytes), block: state.disk.file_acl };
        let result = f(&stored);
        inode.xattrs.store(stored);
        result
    }

    /// The attributes in the inode, and a copy of its attribute block: for who only reads. The
    /// operation lock is held.
    fn read_xattrs(&self, inode: &Inode) -> Result<(Vec<u8>, BlockData), Error> {
        let (in_inode, block) =
            self.with_stored_xattrs(inode, |stored| (stored.in_inode.to_vec(), stored.block));
        let block = match block {
            Some(block) => Some((block, self.meta.read(self, block, MetaKind::Xattr)?)),
            None => None,
        };
        Ok((in_inode, block))
    }

    fn xattr_state<'a>(
        &self,
        ino: Ino,
        in_inode: &'a [u8],
        block: &'a BlockData,
    ) -> XattrState<'a> {
        XattrState {
            ino,
            in_inode,
            block: block.as_ref().map(|(block, bytes)| (*block, &**bytes)),
            block_size: self.geometry.block_size().bytes(),
        }
    }

    fn stored_xattr(&self, inode: &Arc<Inode>, name: AttributeName<'_>) -> Result<Vec<u8>, Error> {
        let (in_inode, block) = self.read_xattrs(inode)?;
        xattr::get(&self.xattr_state(inode.ino, &in_inode, &block), name).map(<[u8]>::to_vec)
    }

    /// Whether an attribute has that value already.
    fn is_stored(&self, inode: &Arc<Inode>, name: AttributeName<'_>, value: &[u8]) -> bool {
        self.stored_xattr(inode, name).is_ok_and(|stored| stored == value)
    }

    /// Plans to set or remove one attribute and claims what that needs; the operation lock is held
    /// exclusively.
    fn plan_xattr(
        &self,
        inode: &Arc<Inode>,
        name: AttributeName<'_>,
        value: Option<&[u8]>,
        how: SetXattr,
    ) -> Result<XattrChange<'_>, Error> {
        let Snapshot { in_inode, block: old } = self.xattr_snapshot(inode)?;
        let data = old.as_ref().map(|block| (block.block, block.data()));
        let plan =
            xattr::plan_set(&self.xattr_state(inode.ino, &in_inode, &data), name, value, how)?;
        let hold = old.as_ref().map(|old| self.load_group_of(old.block)).transpose()?;
        let block = match (plan.block, old) {
            (BlockChange::Keep, _) | (BlockChange::Remove, None) => BlockStep::Keep,
            (BlockChange::Remove, Some(old)) => BlockStep::Drop(old),
            (BlockChange::Write(data), Some(old)) if plan.shared_by <= 1 => {
                BlockStep::Rewrite(old, data.into())
            }
            (BlockChange::Write(data), old) => {
                let claim = self.claim_first_block(inode.ino)?;
                BlockStep::New { old, claim, data: data.into() }
            }
        };
        Ok(XattrChange { in_inode: plan.in_inode, hold, block, permissions: None, credits: 10 })
    }

    /// Plans to set an access control list given in the form of the system call; `special` are the bits
    /// of the mode beyond those of the list.
    fn plan_acl(
        &self,
        inode: &Arc<Inode>,
        name: AttributeName<'_>,
        value: &[u8],
        special: u16,
    ) -> Result<Option<XattrChange<'_>>, Error> {
        let is_access = name == AttributeName::acl_access();
        if inode.file_type == FileType::Symlink {
            return Err(Error::NotSupported);
        }
        if !is_access && inode.file_type != FileType::Directory {
            return Err(Error::PermissionDenied);
        }
        let acl = Acl::from_system(value)
            .map_err(|_| Error::InvalidArgument { what: "an access control list" })?;
        let permissions = acl.as_ref().filter(|_| is_access).map(|acl| special | acl.mode_bits());
        let kept = acl.filter(|acl| !(is_access && acl.is_minimal())).map(|acl| acl.to_disk());
        if !is_access && kept.as_ref().is_some_and(|kept| self.is_stored(inode, name, kept)) {
            return Ok(None);
        }
        match self.plan_xattr(inode, name, kept.as_deref(), SetXattr::Any) {
            Ok(change) => Ok(Some(XattrChange { permissions, ..change })),
            // Nothing is kept and nothing was.
            Err(Error::NoAttribute) if permissions.is_some() => {
                let block = BlockStep::Keep;
                let change =
                    XattrChange { in_inode: None, hold: None, block, permissions, credits: 2 };
                Ok(Some(change))
            }
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The access list after a chmod, if there is one; the operation lock is held exclusively.
    pub(crate) fn prepare_acl_chmod(
        &self,
        inode: &Arc<Inode>,
        permissions: u16,
    ) -> Result<Option<XattrChange<'_>>, Error> {
        if !self.may_have_xattrs(inode) {
            return Ok(None);
        }
        let name = AttributeName::acl_access();
        let stored = match self.stored_xattr(inode, name) {
            Err(Error::NoAttribute) => return Ok(None),
            other => other?,
        };
        let acl = self.decode_acl(inode.ino, &stored)?.with_mode(permissions);
        self.plan_xattr(inode, name, Some(&acl.to_disk()), SetXattr::Any).map(Some)
    }

    /// Whether looking for attributes can find any.
    fn may_have_xattrs(&self, inode: &Inode) -> bool {
        // The area begins with a magic number if it is in use.
        self.with_stored_xattrs(inode, |stored| {
            stored.block.is_some() || stored.in_inode.iter().take(4).any(|byte| *byte != 0)
        })
    }

    /// The mode and lists of a new inode in `dir`, whose operation lock is held.
    pub(crate) fn inherited_acls(
        &self,
        dir: &Arc<Inode>,
        kind: FileType,
        permissions: u16,
        umask: u16,
    ) -> Result<Inherited, Error> {
        let plain = Inherited { permissions: permissions & !umask, xattrs: Vec::new() };
        if kind == FileType::Symlink || !self.may_have_xattrs(dir) {
            return Ok(if kind == FileType::Symlink {
                Inherited { permissions, ..plain }
            } else {
                plain
            });
        }
        let default = AttributeName::acl_default();
        let stored = match self.stored_xattr(dir, default) {
            Err(Error::NoAttribute) => return Ok(plain),
            other => other?,
        };
        let acl = self.decode_acl(dir.ino, &stored)?;
        let inherited = acl.inherit(permissions);
        let mut xattrs = Vec::new();
        if let Some(access) = &inherited.access {
            xattrs.push((AttributeName::acl_access(), access.to_disk()));
        }
        if kind == FileType::Directory {
            xattrs.push((default, stored));
        }
        Ok(Inherited { permissions: inherited.mode & 0xfff, xattrs })
    }

    fn decode_acl(&self, ino: Ino, stored: &[u8]) -> Result<Acl, Error> {
        Acl::from_disk(stored).map_err(|cause| Corruption::Acl { ino, cause }.into())
    }

    /// Puts the first attributes of a new inode into its record, or into a block of its own.
    pub(crate) fn prepare_new_xattrs(
        &self,
        ino: Ino,
        disk: &disk::Inode,
        raw: &mut RawRecord,
        xattrs: &[(AttributeName<'static>, Vec<u8>)],
    ) -> Result<Option<NewBlock>, Error> {
        if xattrs.is_empty() {
            return Ok(None);
        }
        let area = disk.xattr_area(&self.geometry).unwrap_or(0..0);
        let mut in_inode = raw.area(area.clone()).into_owned();
        let mut block: Option<(Block, Arc<[u8]>)> = None;
        for (name, value) in xattrs {
            let state = self.xattr_state(ino, &in_inode, &block);
            let plan = xattr::plan_set(&state, *name, Some(value), SetXattr::Any)?;
            if let BlockChange::Write(data) = plan.block {
                block = Some((Block(0), data.into()));
            }
            in_inode = plan.in_inode.unwrap_or(in_inode);
        }
        raw.set(self.geometry.inode_size(), area, &in_inode);
        let Some((_, data)) = block else { return Ok(None) };
        Ok(Some((self.claim_first_block(ino)?, data)))
    }

    /// Apply: the record and the block. At most [`XattrChange::credits`].
    pub(crate) fn apply_xattrs(
        &self,
        handle: &mut Handle<'_>,
        inode: &Arc<Inode>,
        change: XattrChange<'_>,
    ) {
        let XattrChange { in_inode, block, hold: _hold, .. } = change;
        let sectors = self.sectors_a_block();
        let area = |state: &mut crate::object::inode::InodeState| {
            let (Some(bytes), Some(area)) = (&in_inode, state.disk.xattr_area(&self.geometry))
            else {
                return;
            };
            state.raw.set(self.geometry.inode_size(), area, bytes);
        };
        let (old, new) = match block {
            BlockStep::Keep => (None, None),
            BlockStep::Rewrite(block, data) => {
                block.replace(handle, data);
                (None, None)
            }
            BlockStep::Drop(old) => (Some(old), None),
            BlockStep::New { old, claim, data } => (old, Some((claim, data))),
        };
        let lost = old.is_some();
        if let Some(old) = old {
            self.release_xattr_block(handle, old);
        }
        let gained = new.map(|(claim, data)| {
            let block = claim.start();
            self.groups.allocate(handle, claim);
            self.meta.create(handle, block, MetaKind::Xattr, data);
            block
        });
        inode.change(handle, Concerns::Attributes, |state| {
            inode.xattrs.clear();
            area(state);
            if lost {
                state.disk.file_acl = None;
                state.disk.sectors = state.disk.sectors.saturating_sub(sectors);
            }
            if let Some(block) = gained {
                state.disk.file_acl = Some(block);
                state.disk.sectors += sectors;
            }
        });
    }

    /// Prepare for the end of an inode: its attribute block, if it has one.
    pub(crate) fn prepare_xattr_release(
        &self,
        inode: &Arc<Inode>,
    ) -> Result<Option<(MetaRef, GroupHold<'_>)>, Error> {
        let Some(block) = inode.state.lock().disk.file_acl else { return Ok(None) };
        let found = self.meta.get(self, block, MetaKind::Xattr)?;
        Ok(Some((found, self.load_group_of(block)?)))
    }

    /// Apply: the block loses an owner; the last one frees it. At most 4 credits.
    pub(crate) fn release_xattr_block(&self, handle: &mut Handle<'_>, block: MetaRef) {
        let last = block.change(handle, |data| {
            let count = refcount(data);
            if count > 1 {
                set_refcount(Arc::make_mut(data), count - 1);
            }
            count <= 1
        });
        if last {
            self.meta.free(handle, block.block);
            self.free_run(handle, block.block, 1);
        }
    }

    pub(crate) fn verify_xattr_block(&self, block: Block, bytes: &[u8]) -> Result<(), Error> {
        xattr::verify(self.checksums.seed(), Ino(0), block, bytes)
    }
}

fn is_acl(name: AttributeName<'_>) -> bool {
    matches!(name.index, AttributeName::ACL_ACCESS | AttributeName::ACL_DEFAULT)
}

/// How many inodes use a block: `h_refcount`, at byte 4 (kernel documentation, "Extended Attributes").
fn refcount(data: &[u8]) -> u32 {
    data.get(4..8).and_then(|bytes| bytes.try_into().ok()).map_or(1, u32::from_le_bytes)
}
