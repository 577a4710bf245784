//! Reads and changes extended attributes and access control lists as an inode stores them.
//!
//! An attribute block that several inodes share (the kernel creates such blocks) is copied on
//! write. Its reference count is decremented under the block's own guard, and the thread that drops
//! the last reference frees the block.
//!
//! With `ea_inode` a value that fits neither into the inode nor into the attribute block is written
//! to an inode of its own (`values.rs`). If a directory has a default ACL of that size, creating a
//! file or directory in it fails with "no space left", because the ACL cannot be inherited. Entry
//! hashes are computed from unsigned bytes, as Linux does since 6.2. Hashes that were computed from
//! signed bytes are accepted too. An ACL that only repeats the mode is not stored.

use crate::alloc::{Claim, GroupHold};
use crate::data::FileData;
use crate::data::values::{Put, ReleasedValues, ValueChange};
use crate::object::dirty::{Credits, Handle, RawRecord};
use crate::object::fs::Fs;
use crate::object::meta::MetaRef;
use crate::object::state::{Concerns, InodeState, StoredXattrs};
use crate::volume::MetaKind;
use lanefs_lanes::Lines;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::acl::Acl;
use lanefs_ondisk::xattr::{AttributeName, Value, set_refcount};
use lanefs_ondisk::{Block, Corruption, FileType, Ino, inode as disk};
use lanefs_plan::xattr::{BlockChange, SetXattr, Stored, XattrState};
use lanefs_plan::{Error, InvalidArgument, xattr};

/// A change of an inode's attributes that is ready for Apply.
pub(crate) struct XattrChange<'f> {
    in_inode: Option<Vec<u8>>,
    /// A hold on the group of the old attribute block, which the change may free.
    hold: Option<GroupHold<'f>>,
    block: BlockEdit,
    values: ValueChange,
    /// The low 12 bits of the new mode, if an access list determines them.
    pub(crate) permissions: Option<u16>,
    pub(crate) credits: Credits,
}

/// The claim of a new attribute block, with its contents.
pub(crate) type NewBlock = (Claim, Arc<[u8]>);

/// Describes the change of the attribute block.
enum BlockEdit {
    Keep,
    /// Writes new contents into a block that only this inode uses.
    Rewrite(MetaRef, Arc<[u8]>),
    /// Allocates a new block, and removes one user of the old block, if there is one.
    New {
        old: Option<MetaRef>,
        claim: Claim,
        data: Arc<[u8]>,
    },
    /// Removes one user of the old block.
    Drop(MetaRef),
}

impl BlockEdit {
    fn credits(&self) -> Credits {
        let new = Credits::RUN.and(Credits::blocks(1));
        match self {
            BlockEdit::Keep => Credits::blocks(0),
            BlockEdit::Rewrite(..) => Credits::blocks(1),
            BlockEdit::New { old: None, .. } => new,
            BlockEdit::New { old: Some(_), .. } => new.and(RELEASE_BLOCK),
            BlockEdit::Drop(_) => RELEASE_BLOCK,
        }
    }
}

/// The change that setting an access control list requires.
pub(crate) struct AclChange {
    /// The list in its form on disk; `None` if no list is stored.
    pub(crate) stored: Option<Vec<u8>>,
    /// The low 12 bits of the new mode, if the list is an access list.
    pub(crate) permissions: Option<u16>,
}

impl XattrChange<'_> {
    /// Sets the permissions that result from an access list.
    pub(crate) fn with_permissions(mut self, permissions: Option<u16>) -> Self {
        self.permissions = permissions;
        self
    }

    /// Creates a change that sets only the permissions.
    pub(crate) fn of_permissions(permissions: Option<u16>) -> Self {
        let (block, values) = (BlockEdit::Keep, ValueChange::default());
        XattrChange {
            in_inode: None,
            hold: None,
            block,
            values,
            permissions,
            credits: Credits::INODE,
        }
    }
}

/// The properties that a new inode inherits from its directory's default list.
pub(crate) struct Inherited {
    /// The low 12 bits of the mode.
    pub(crate) permissions: u16,
    /// The attributes in their on-disk form.
    pub(crate) xattrs: Vec<(AttributeName<'static>, Vec<u8>)>,
}

/// A copy of an inode's attributes, so that no guard is held while they are examined.
struct Snapshot {
    in_inode: Vec<u8>,
    block: Option<MetaRef>,
}

/// An inode's attribute block with its contents; `None` if the inode has no attribute block.
type BlockData = Option<(Block, Arc<[u8]>)>;

impl<'m> FileData<'m> {
    fn xattr_snapshot(&self) -> Result<Snapshot, Error> {
        let fs = self.fs;
        let (in_inode, block) =
            self.with_stored_xattrs(|stored| (stored.in_inode.to_vec(), stored.block));
        let block = match block {
            Some(block) => Some(fs.meta.get(fs, block, MetaKind::Xattr)?),
            None => None,
        };
        Ok(Snapshot { in_inode, block })
    }

    /// Runs `f` on the attributes that the inode stores. The caller holds the operation lock.
    fn with_stored_xattrs<R>(&self, f: impl Fn(&StoredXattrs) -> R) -> R {
        let FileData { fs, inode } = *self;
        {
            let pin = lanefs_lanes::pin();
            if let Some(stored) = inode.xattrs.get(&pin) {
                return f(stored);
            }
        }
        let state = inode.state.lock();
        let area = state.disk.xattr_area(fs.volume.geometry());
        let bytes = area.map(|area| state.raw.area(area)).unwrap_or_default();
        let stored = StoredXattrs { in_inode: Lines::from(&*bytes), block: state.disk.file_acl };
        let result = f(&stored);
        inode.xattrs.store(stored);
        result
    }

    /// Returns the attributes in the inode and a copy of its attribute block, for callers that only
    /// read. The caller holds the operation lock.
    pub(crate) fn read_xattrs(&self) -> Result<(Vec<u8>, BlockData), Error> {
        let fs = self.fs;
        let (in_inode, block) =
            self.with_stored_xattrs(|stored| (stored.in_inode.to_vec(), stored.block));
        let block = match block {
            Some(block) => Some((block, fs.meta.read(fs, block, MetaKind::Xattr)?)),
            None => None,
        };
        Ok((in_inode, block))
    }

    /// Returns the inode's attributes in the form that `lanefs_plan::xattr` takes.
    pub(crate) fn xattr_state<'a>(
        &self,
        in_inode: &'a [u8],
        block: &'a BlockData,
    ) -> XattrState<'a> {
        xattr_state(self.fs, self.inode.ino, in_inode, block)
    }

    pub(crate) fn stored_xattr(&self, name: AttributeName<'_>) -> Result<Vec<u8>, Error> {
        let (in_inode, block) = self.read_xattrs()?;
        match xattr::get(&self.xattr_state(&in_inode, &block), name)? {
            Stored::Here(value) => Ok(value.to_vec()),
            Stored::Inode(value) => self.read_value(name, value),
        }
    }

    /// Returns whether the attribute already has this value.
    pub(crate) fn is_stored(&self, name: AttributeName<'_>, value: &[u8]) -> bool {
        self.stored_xattr(name).is_ok_and(|stored| stored == value)
    }

    /// Plans to set or remove one attribute, and claims the block that the change needs. The caller
    /// holds the operation lock exclusively.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no block is free, and also if `value` fits only into an inode of its
    /// own but was given as bytes.
    pub(crate) fn plan_xattr(
        &self,
        name: AttributeName<'_>,
        value: Option<Put<'_>>,
        how: SetXattr,
    ) -> Result<XattrChange<'m>, Error> {
        let FileData { fs, inode } = *self;
        let Snapshot { in_inode, block: old } = self.xattr_snapshot()?;
        let data = old.as_ref().map(|block| (block.block, block.data()));
        let mut state = self.xattr_state(&in_inode, &data);
        if matches!(value, Some(Put::HereWithRoom(_))) {
            state.entry_room = (state.block_size / 8).min(1024);
        }
        let stored = value.map(|value| value.to_disk(name));
        let plan = xattr::plan_set(&state, name, stored, how)?;
        let values = self.plan_values(&state, &plan, name, value)?;
        let load = |old: &MetaRef| fs.groups.bitmaps.load_group_of(fs, old.block);
        let hold = old.as_ref().map(load).transpose()?;
        let block = match (plan.block, old) {
            (BlockChange::Keep, _) | (BlockChange::Remove, None) => BlockEdit::Keep,
            (BlockChange::Remove, Some(old)) => BlockEdit::Drop(old),
            (BlockChange::Write(data), Some(old)) if plan.shared_by <= 1 => {
                BlockEdit::Rewrite(old, data.into())
            }
            (BlockChange::Write(data), old) => {
                let claim = fs.claim_xattr_block(inode.ino)?;
                BlockEdit::New { old, claim, data: data.into() }
            }
        };
        let more = if let BlockEdit::New { .. } = block { fs.volume.sectors(1) } else { 0 };
        let (gained, lost) = values.sectors();
        self.check_space(gained + more, lost)?;
        let credits = Credits::INODE.and(block.credits()).and(values.credits());
        Ok(XattrChange { in_inode: plan.in_inode, hold, block, values, permissions: None, credits })
    }

    /// Returns the change that sets an access control list. `value` is the list in the form of the
    /// system call; `special` holds the mode bits that are not in the list. Returns `None` if the
    /// list is a default list that is stored already.
    pub(crate) fn acl_to_store(
        &self,
        name: AttributeName<'_>,
        value: &[u8],
        special: u16,
    ) -> Result<Option<AclChange>, Error> {
        let is_access = name == AttributeName::acl_access();
        if self.inode.file_type == FileType::Symlink {
            return Err(Error::NotSupported);
        }
        if !is_access && self.inode.file_type != FileType::Directory {
            return Err(Error::PermissionDenied);
        }
        let acl = Acl::from_system(value)
            .map_err(|_| Error::InvalidArgument(InvalidArgument::AccessList))?;
        let permissions = acl.as_ref().filter(|_| is_access).map(|acl| special | acl.mode_bits());
        let kept = acl.filter(|acl| !(is_access && acl.is_minimal())).map(|acl| acl.to_disk());
        if !is_access && kept.as_ref().is_some_and(|kept| self.is_stored(name, kept)) {
            return Ok(None);
        }
        Ok(Some(AclChange { stored: kept, permissions }))
    }

    /// Returns the access list as it is after a chmod to `permissions`, if there is a list. The
    /// caller holds the operation lock exclusively.
    pub(crate) fn acl_after_chmod(&self, permissions: u16) -> Result<Option<Vec<u8>>, Error> {
        if !self.may_have_xattrs() {
            return Ok(None);
        }
        let stored = match self.stored_xattr(AttributeName::acl_access()) {
            Err(Error::NoAttribute) => return Ok(None),
            other => other?,
        };
        Ok(Some(self.decode_acl(&stored)?.with_mode(permissions).to_disk()))
    }

    /// Returns `false` only if the inode has no attributes.
    fn may_have_xattrs(&self) -> bool {
        // An attribute area that is in use starts with a magic number.
        self.with_stored_xattrs(|stored| {
            stored.block.is_some()
                || stored.in_inode.first_chunk().is_some_and(|magic| *magic != [0; 4])
        })
    }

    /// Returns the mode and the access control lists of a new inode in this directory. The caller
    /// holds the directory's operation lock.
    pub(crate) fn inherited_acls(
        &self,
        kind: FileType,
        permissions: u16,
        umask: u16,
    ) -> Result<Inherited, Error> {
        let umask = if kind == FileType::Symlink { 0 } else { umask };
        let plain = Inherited { permissions: permissions & !umask, xattrs: Vec::new() };
        if kind == FileType::Symlink || !self.may_have_xattrs() {
            return Ok(plain);
        }
        let default = AttributeName::acl_default();
        let stored = match self.stored_xattr(default) {
            Err(Error::NoAttribute) => return Ok(plain),
            other => other?,
        };
        let acl = self.decode_acl(&stored)?;
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

    pub(crate) fn decode_acl(&self, stored: &[u8]) -> Result<Acl, Error> {
        let ino = self.inode.ino;
        Acl::from_disk(stored).map_err(|cause| Corruption::Acl { ino, cause }.into())
    }

    /// Apply: changes the inode's record and its attribute block. Uses at most
    /// [`XattrChange::credits`].
    pub(crate) fn apply_xattrs(
        &self,
        handle: &mut Handle<'_>,
        change: XattrChange<'_>,
    ) -> ReleasedValues {
        let FileData { fs, inode } = *self;
        let geometry = fs.volume.geometry();
        let XattrChange { in_inode, block, hold: _hold, values, .. } = change;
        values.apply_first(fs, handle);
        let sectors = fs.volume.sectors(1);
        let area = |state: &mut InodeState| {
            let (Some(bytes), Some(area)) = (&in_inode, state.disk.xattr_area(geometry)) else {
                return;
            };
            state.raw.set(geometry.inode_size(), area, bytes);
        };
        let (old, new) = match block {
            BlockEdit::Keep => (None, None),
            BlockEdit::Rewrite(block, data) => {
                block.replace(handle, data);
                (None, None)
            }
            BlockEdit::Drop(old) => (Some(old), None),
            BlockEdit::New { old, claim, data } => (old, Some((claim, data))),
        };
        let lost = old.is_some();
        let ended = old.is_some_and(|old| release_xattr_block(fs, handle, old));
        let (more, less) = values.sectors();
        let gained = new.map(|(claim, data)| {
            let block = claim.start();
            fs.groups.allocate(handle, claim);
            fs.meta.create(handle, block, MetaKind::Xattr, data);
            block
        });
        inode.change(handle, Concerns::Attributes, |state| {
            inode.xattrs.clear();
            inode.lacks_capability.store(false, Ordering::Relaxed);
            area(state);
            if lost {
                state.disk.file_acl = None;
                state.disk.sectors = state.disk.sectors.saturating_sub(sectors);
            }
            if let Some(block) = gained {
                state.disk.file_acl = Some(block);
                state.disk.sectors += sectors;
            }
            state.disk.sectors = (state.disk.sectors + more).saturating_sub(less);
        });
        values.apply_last(fs, handle, ended)
    }

    /// Removes all attributes whose values are in inodes of their own, with one handle for each
    /// attribute. Is called while the inode is being deleted. A value that cannot be found is
    /// skipped. The caller holds the operation lock exclusively, and drops the result after
    /// releasing the lock.
    pub(crate) fn remove_values(&self) -> Result<Vec<ReleasedValues>, Error> {
        let fs = self.fs;
        let mut released = Vec::new();
        if fs.volume.value_seed.is_none() || !self.may_have_xattrs() {
            return Ok(released);
        }
        let (in_inode, block) = self.read_xattrs()?;
        let found = self.xattr_state(&in_inode, &block).value_inodes()?;
        let mut names: Vec<AttributeName<'_>> =
            found.in_inode.iter().map(|(name, _)| *name).collect();
        let has_values = !found.in_block.is_empty();
        let is_left = has_values && found.shared_by > 1 && self.leave_shared_block()?;
        if !is_left {
            names.extend(found.in_block.iter().map(|(name, _)| *name));
        }
        for name in names {
            let change = match self.plan_xattr(name, None, SetXattr::Any) {
                Err(error @ Error::Corruption(_)) => {
                    fs.note_error(&error);
                    continue;
                }
                other => other?,
            };
            let mut handle = fs.join(change.credits)?;
            released.push(self.apply_xattrs(&mut handle, change));
        }
        Ok(released)
    }

    /// Detaches the attribute block from this inode if other inodes use the block too. The block
    /// keeps its references to values. Returns false, and leaves the block to this inode, if no
    /// other inode uses it.
    fn leave_shared_block(&self) -> Result<bool, Error> {
        let FileData { fs, inode } = *self;
        let Some(block) = self.xattr_snapshot()?.block else { return Ok(true) };
        let sectors = fs.volume.sectors(1);
        let mut handle = fs.join(Credits::INODE.and(Credits::blocks(1)))?;
        let left = block.change(&mut handle, |data| {
            let count = refcount(data);
            if count > 1 {
                set_refcount(Arc::make_mut(data), count - 1);
            }
            count > 1
        });
        if left {
            inode.change(&mut handle, Concerns::Attributes, |state| {
                inode.xattrs.clear();
                state.disk.file_acl = None;
                state.disk.sectors = state.disk.sectors.saturating_sub(sectors);
            });
        }
        Ok(left)
    }

    /// Prepares the deletion of an inode: returns its attribute block, if it has one, and the
    /// block's group.
    pub(crate) fn prepare_xattr_release(&self) -> Result<Option<(MetaRef, GroupHold<'m>)>, Error> {
        let FileData { fs, inode } = *self;
        let Some(block) = inode.state.lock().disk.file_acl else { return Ok(None) };
        let found = fs.meta.get(fs, block, MetaKind::Xattr)?;
        Ok(Some((found, fs.groups.bitmaps.load_group_of(fs, block)?)))
    }
}

/// Stores the first attributes of a new inode in its record. If they do not all fit there, returns
/// an attribute block with the others.
pub(crate) fn prepare_new_xattrs(
    fs: &Fs,
    ino: Ino,
    disk: &disk::Inode,
    raw: &mut RawRecord,
    xattrs: &[(AttributeName<'static>, Vec<u8>)],
) -> Result<Option<NewBlock>, Error> {
    if xattrs.is_empty() {
        return Ok(None);
    }
    let area = disk.xattr_area(fs.volume.geometry()).unwrap_or(0..0);
    let mut in_inode = raw.area(area.clone()).into_owned();
    let mut block: Option<(Block, Arc<[u8]>)> = None;
    for (name, value) in xattrs {
        let state = xattr_state(fs, ino, &in_inode, &block);
        let plan = xattr::plan_set(&state, *name, Some(Value::Here(value)), SetXattr::Any)?;
        if let BlockChange::Write(data) = plan.block {
            block = Some((Block(0), data.into()));
        }
        in_inode = plan.in_inode.unwrap_or(in_inode);
    }
    raw.set(fs.volume.geometry().inode_size(), area, &in_inode);
    let Some((_, data)) = block else { return Ok(None) };
    Ok(Some((fs.claim_xattr_block(ino)?, data)))
}

/// The credits of [`release_xattr_block`].
pub(crate) const RELEASE_BLOCK: Credits =
    Credits::blocks(1).and(Credits::RUN).and(Credits::revokes(1));

/// Apply: removes one user of the block, and frees the block if that user was the last. Returns
/// whether the block was freed.
pub(crate) fn release_xattr_block(fs: &Fs, handle: &mut Handle<'_>, block: MetaRef) -> bool {
    let last = block.change(handle, |data| {
        let count = refcount(data);
        if count > 1 {
            set_refcount(Arc::make_mut(data), count - 1);
        }
        count <= 1
    });
    if last {
        fs.meta.free(handle, block.block);
        fs.free_run(handle, block.block, 1);
    }
    last
}

fn xattr_state<'a>(fs: &Fs, ino: Ino, in_inode: &'a [u8], block: &'a BlockData) -> XattrState<'a> {
    XattrState {
        ino,
        in_inode,
        block: block.as_ref().map(|(block, bytes)| (*block, &**bytes)),
        block_size: fs.volume.block_size(),
        entry_room: 0,
    }
}

pub(crate) fn is_acl(name: AttributeName<'_>) -> bool {
    matches!(name.index, AttributeName::ACL_ACCESS | AttributeName::ACL_DEFAULT)
}

/// Returns the number of inodes that use a block: `h_refcount`, at byte 4 (kernel documentation,
/// "Extended Attributes").
fn refcount(data: &[u8]) -> u32 {
    data.get(4..8).and_then(|bytes| bytes.try_into().ok()).map_or(1, u32::from_le_bytes)
}
