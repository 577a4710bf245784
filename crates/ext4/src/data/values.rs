//! Values of extended attributes in inodes of their own (feature `ea_inode`).
//!
//! A new value is written to an inode without a name before the attribute is set. The handle that
//! sets the attribute makes this inode the attribute's value. A crash before this handle leaves an
//! orphan, which recovery deletes. A new value is never shared. Values that the kernel wrote may be
//! shared and have a count of references; the thread that removes the last reference makes the
//! inode an orphan.

use crate::attr::now;
use crate::data::FileData;
use crate::object::dirty::{Credits, Handle};
use crate::object::fs::Fs;
use crate::object::inode::InodeRef;
use crate::object::orphan::Orphans;
use crate::object::state::Concerns;
use lanefs_lanes::{Nameless, set_nameless};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::xattr::{AttributeName, Cause, Value, hash_with_value, is_hash_with_value};
use lanefs_ondisk::{Corruption, Unsupported};
use lanefs_plan::Error;
use lanefs_plan::xattr::{BlockChange, ValueInode, XattrPlan, XattrState};

/// A shared attribute block is copied only if it refers to at most this number of value inodes,
/// because the copy increments all their reference counts in one handle.
const MOST_COPIED: usize = 32;
/// The credits for releasing a value, which becomes an orphan, or for adopting an orphan as a value.
const VALUE: Credits = Credits::INODE.and(Orphans::RECORD);

/// An inode without a name. It holds the value of an attribute that is going to be set.
pub(crate) struct NewValue {
    pub(crate) inode: InodeRef,
    pub(crate) size: u32,
    pub(crate) hash: u32,
}

/// A value to be stored.
#[derive(Clone, Copy)]
pub(crate) enum Put<'v> {
    /// The value is stored in the inode or the attribute block.
    Here(&'v [u8]),
    /// The value is stored in the inode, or in the attribute block if the values in the block then
    /// still leave some room for entries. Without this room, the first large value could fill the
    /// block, and no other value could move to an inode of its own, because its entry would have no
    /// place. The kernel's ext4 leaves the same room.
    HereWithRoom(&'v [u8]),
    /// The value is stored in this separate inode.
    Elsewhere(&'v NewValue),
}

impl<'v> Put<'v> {
    /// Returns the value of the attribute `name` in its form on disk.
    pub(crate) fn to_disk(self, name: AttributeName<'_>) -> Value<'v> {
        match self {
            Put::Here(bytes) | Put::HereWithRoom(bytes) => Value::Here(bytes),
            Put::Elsewhere(new) => Value::Inode {
                ino: new.inode.ino,
                size: new.size,
                hash: hash_with_value(name, new.hash),
            },
        }
    }
}

/// The changes to value inodes that are part of an attribute change.
#[derive(Default)]
pub(crate) struct ValueChange {
    /// The inode that becomes the attribute's value, and the hash of the value.
    adopted: Option<(InodeRef, u32)>,
    /// The values that the copy of a shared attribute block refers to.
    copied: Vec<InodeRef>,
    /// The values that lose a reference.
    released: Vec<InodeRef>,
    /// The values that lose a reference if no inode uses the old attribute block any more.
    in_old_block: Vec<InodeRef>,
    /// The sectors that the owner of the attribute gains and loses.
    sectors: (u64, u64),
}

/// The value inodes of a change that was applied. Dropping the last hold on a released value
/// deletes its inode. So the values are dropped after the handle, and after their owner's operation
/// lock is released.
#[must_use = "dropped after the handle and the operation lock"]
pub(crate) struct ReleasedValues(#[expect(dead_code, reason = "held for its drop")] Vec<InodeRef>);

impl ValueChange {
    pub(crate) fn credits(&self) -> Credits {
        let orphans = self.adopted.iter().len() + self.released.len() + self.in_old_block.len();
        // Those that are copied are in the old block too.
        VALUE.times(orphans)
    }

    /// Returns the sectors that the owner gains and loses.
    pub(crate) fn sectors(&self) -> (u64, u64) {
        self.sectors
    }

    /// Apply: adopts the new value, and adds a reference to each value that a copied block refers
    /// to. Must be called before the old block is released, because until then the old block keeps
    /// a reference to each copied value.
    pub(crate) fn apply_first(&self, fs: &Fs, handle: &mut Handle<'_>) {
        if let Some((inode, hash)) = &self.adopted {
            fs.orphans.remove(handle, inode);
            set_nameless(inode, Nameless::No);
            inode.change(handle, Concerns::Attributes, |state| {
                state.disk.become_attribute_value(*hash);
                state.linkable = false;
            });
        }
        for value in &self.copied {
            value.change(handle, Concerns::Attributes, |state| {
                let references = state.disk.value_references();
                state.disk.set_value_references(references.saturating_add(1));
            });
        }
    }

    /// Apply: releases the values. `old_block_ended` is set if the old attribute block lost its
    /// last user.
    pub(crate) fn apply_last(
        self,
        fs: &Fs,
        handle: &mut Handle<'_>,
        old_block_ended: bool,
    ) -> ReleasedValues {
        let old = self.in_old_block.iter().filter(|_| old_block_ended);
        for value in self.released.iter().chain(old) {
            release(fs, handle, value);
        }
        // Another thread may release values that this change does not release. Then this change may
        // have the last hold on them. So these values, too, stay held until the handle is dropped.
        let mut held = self.released;
        held.extend(self.copied);
        held.extend(self.in_old_block);
        held.extend(self.adopted.map(|(inode, _)| inode));
        ReleasedValues(held)
    }
}

/// Apply: removes one reference to a value.
fn release(fs: &Fs, handle: &mut Handle<'_>, value: &InodeRef) {
    let now = now();
    let ends = value.change(handle, Concerns::Attributes, |state| {
        let disk = &mut state.disk;
        let left = disk.value_references().saturating_sub(1);
        if left > 0 || disk.links == 0 {
            disk.set_value_references(left);
            return false;
        }
        // From here on the inode is treated like every other orphan.
        disk.links = 0;
        disk.flags -= InodeFlags::EA_INODE;
        disk.ctime = now;
        true
    });
    if ends {
        fs.orphans.add(handle, value);
        set_nameless(value, Nameless::Yes);
    }
}

impl FileData<'_> {
    fn no_value(&self, value: ValueInode) -> Error {
        let cause = Cause::NoValue { ino: value.ino, size: value.size };
        Corruption::Xattr { ino: self.inode.ino, block: None, cause }.into()
    }

    /// Returns a hold on the inode that stores `value`, which must be the value of one of this
    /// inode's attributes.
    fn value_inode(&self, value: ValueInode) -> Result<InodeRef, Error> {
        let fs = self.fs;
        if fs.volume.value_seed.is_none() {
            return Err(Unsupported { what: "ea_inode".into() }.into());
        }
        if !fs.volume.is_for_names(value.ino) {
            return Err(self.no_value(value));
        }
        let inode = fs.get_any(value.ino, None).map_err(|error| match error {
            Error::Stale => self.no_value(value),
            error => error,
        })?;
        let state = inode.state.lock();
        let fits = state.disk.is_attribute_value() && state.disk.size == u64::from(value.size);
        drop(state);
        if fits { Ok(inode) } else { Err(self.no_value(value)) }
    }

    /// Reads the value of the attribute `name` from its inode. The caller holds the operation lock
    /// of the inode that has the attribute. The value's inode needs no lock: its contents never
    /// change.
    pub(crate) fn read_value(
        &self,
        name: AttributeName<'_>,
        value: ValueInode,
    ) -> Result<Vec<u8>, Error> {
        let fs = self.fs;
        let inode = self.value_inode(value)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(value.size as usize).map_err(|_| Error::FileTooLarge)?;
        bytes.resize(value.size as usize, 0);
        FileData { fs, inode: &inode }.read(0, &mut bytes)?;
        let disk = inode.state.lock().disk.clone();
        if disk.is_value_of(self.inode.ino, self.inode.generation) {
            // Values that Lustre wrote have no hash.
            return Ok(bytes);
        }
        let seed = fs.volume.value_seed.ok_or(Error::NotSupported)?;
        let (found, computed) = (disk.value_hash(), seed.chain(&bytes).value());
        if found != computed || !is_hash_with_value(name, found, value.entry_hash) {
            let cause = Cause::ValueHash { ino: value.ino, found, computed };
            return Err(Corruption::Xattr { ino: self.inode.ino, block: None, cause }.into());
        }
        Ok(bytes)
    }

    /// Plans the changes to value inodes that `plan` requires. `plan` sets or removes the attribute
    /// `name`.
    pub(crate) fn plan_values(
        &self,
        state: &XattrState<'_>,
        plan: &XattrPlan,
        name: AttributeName<'_>,
        new: Option<Put<'_>>,
    ) -> Result<ValueChange, Error> {
        let mut change = ValueChange::default();
        if let Some(Put::Elsewhere(new)) = new {
            change.adopted = Some((new.inode.clone(), new.hash));
            change.sectors.0 = self.value_sectors(new.size);
        }
        let old = plan.old_value;
        if self.fs.volume.value_seed.is_none() && old.is_none() {
            return Ok(change);
        }
        let copies = plan.shared_by > 1 && plan.block != BlockChange::Keep;
        let in_block = if copies { state.value_inodes()?.in_block } else { Vec::new() };
        if in_block.len() > MOST_COPIED {
            let what = "a shared attribute block of many values in inodes (ea_inode)".into();
            return Err(Unsupported { what }.into());
        }
        for (other, value) in &in_block {
            let inode = self.value_inode(*value)?;
            if *other != name {
                change.copied.push(inode.clone());
            }
            change.in_old_block.push(inode);
        }
        if let Some(old) = old {
            let inode = self.value_inode(old)?;
            if !self.is_of_lustre(&inode) {
                change.sectors.1 = self.value_sectors(old.size);
            }
            if !in_block.iter().any(|(other, _)| *other == name) {
                change.released.push(inode);
            }
        }
        Ok(change)
    }

    /// Returns whether Lustre wrote the value. Lustre counts neither the references nor the space
    /// of a value.
    fn is_of_lustre(&self, value: &InodeRef) -> bool {
        value.state.lock().disk.is_value_of(self.inode.ino, self.inode.generation)
    }

    /// Returns the number of sectors by which a value of `size` bytes increases the space of its
    /// owner.
    fn value_sectors(&self, size: u32) -> u64 {
        let volume = &self.fs.volume;
        let blocks = u64::from(size).div_ceil(self.block_size()) as u32;
        volume.sectors(volume.clusters().holding(blocks).into())
    }
}
