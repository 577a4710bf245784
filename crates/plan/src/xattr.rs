//! Plans changes of extended attributes, using no locks, journal or I/O.
//!
//! Attributes are stored in the space after an inode's fields. Those that do not fit there are
//! stored in one block, which several inodes may share. [`plan_set`] decides where an attribute is
//! stored, in the kernel's order of preference. The caller holds the inode's operation lock, and
//! claims a block if the plan needs a new one. The caller does not change a block that other inodes
//! use too, but gives the inode a block of its own: see [`XattrPlan::shared_by`].

use crate::error::{Error, InvalidArgument};
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::xattr::{Attribute, AttributeName, Cause, NameError, Value};
use lanefs_ondisk::{Block, Corruption, Ino, xattr};

// The attributes of an inode, as bytes and decoded.

/// The attributes of an inode, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct XattrState<'a> {
    /// The inode number, for errors.
    pub ino: Ino,
    /// The area after the inode's fields; empty if the inode has none.
    pub in_inode: &'a [u8],
    /// The contents of the attribute block and its position, if the inode has such a block.
    pub block: Option<(Block, &'a [u8])>,
    /// Block size in bytes.
    pub block_size: usize,
    /// The number of bytes at the start of the block that are for entries only: a new value must
    /// not use them.
    pub entry_room: usize,
}

/// The attributes of an inode, decoded.
pub(crate) struct Decoded<'a> {
    pub(crate) in_inode: Vec<Attribute<'a>>,
    pub(crate) in_block: Vec<Attribute<'a>>,
    /// Number of inodes that use the block; 0 without a block.
    pub(crate) refcount: u32,
}

/// The value of an attribute, stored in an inode of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueInode {
    /// The inode.
    pub ino: Ino,
    /// Size of the value in bytes.
    pub size: u32,
    /// The hash of the entry that refers to the inode.
    pub entry_hash: u32,
}

impl ValueInode {
    /// Returns the inode that holds the attribute's value, if the value is in an inode of its own.
    pub(crate) fn of(attribute: &Attribute<'_>) -> Option<ValueInode> {
        match attribute.value {
            Value::Here(_) => None,
            Value::Inode { ino, size, hash } => Some(ValueInode { ino, size, entry_hash: hash }),
        }
    }
}

/// A stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The value itself.
    Here(&'a [u8]),
    /// The inode that holds the value.
    Inode(ValueInode),
}

impl<'a> Decoded<'a> {
    pub(crate) fn find(&self, name: AttributeName<'_>) -> Option<&Attribute<'a>> {
        self.in_inode.iter().chain(&self.in_block).find(|attribute| attribute.name == name)
    }
}

impl<'a> XattrState<'a> {
    /// Returns the attributes whose values are in inodes of their own. Attributes with entries in
    /// this inode are listed separately from those with entries in the block.
    ///
    /// # Errors
    /// A corruption error.
    pub fn value_inodes(&self) -> Result<ValueInodes<'a>, Error> {
        let decoded = self.decode()?;
        let named = |attributes: &[Attribute<'a>]| -> Vec<(AttributeName<'a>, ValueInode)> {
            let named = |one: &Attribute<'a>| Some((one.name, ValueInode::of(one)?));
            attributes.iter().filter_map(named).collect()
        };
        Ok(ValueInodes {
            in_inode: named(&decoded.in_inode),
            in_block: named(&decoded.in_block),
            shared_by: decoded.refcount,
        })
    }

    pub(crate) fn decode(&self) -> Result<Decoded<'a>, Error> {
        let damaged = |block| {
            move |cause| Error::Corruption(Corruption::Xattr { ino: self.ino, block, cause })
        };
        let in_inode = xattr::decode_inode(self.in_inode).map_err(damaged(None))?;
        let Some((place, bytes)) = self.block else {
            return Ok(Decoded { in_inode, in_block: Vec::new(), refcount: 0 });
        };
        if bytes.len() != self.block_size {
            return Err(damaged(Some(place))(Cause::Length { len: bytes.len() }));
        }
        let block = xattr::decode_block(bytes).map_err(damaged(Some(place)))?;
        Ok(Decoded { in_inode, in_block: block.attributes, refcount: block.refcount })
    }
}

/// An inode's attributes, but only those with values in separate inodes.
pub struct ValueInodes<'a> {
    /// The attributes in the inode.
    pub in_inode: Vec<(AttributeName<'a>, ValueInode)>,
    /// The attributes in the block.
    pub in_block: Vec<(AttributeName<'a>, ValueInode)>,
    /// Number of inodes that use the block; 0 without a block.
    pub shared_by: u32,
}

/// Returns the value of an attribute as it is stored. An ACL is returned in its on-disk form.
///
/// # Errors
/// [`Error::NoAttribute`], or a corruption error.
pub fn get<'a>(state: &XattrState<'a>, name: AttributeName<'_>) -> Result<Stored<'a>, Error> {
    let decoded = state.decode()?;
    let found = decoded.find(name).ok_or(Error::NoAttribute)?;
    Ok(match found.value {
        Value::Here(value) => Stored::Here(value),
        Value::Inode { ino, size, hash } => {
            Stored::Inode(ValueInode { ino, size, entry_hash: hash })
        }
    })
}

/// Returns the names of all attributes with their prefixes. The caller decides whether attributes
/// with the prefix `trusted.` are visible.
pub fn list(state: &XattrState<'_>) -> Result<Vec<Vec<u8>>, Error> {
    let decoded = state.decode()?;
    let all = decoded.in_inode.iter().chain(&decoded.in_block);
    Ok(all.filter_map(|attribute| attribute.name.full()).collect())
}

/// Parses a name as getxattr(2) receives it.
///
/// # Errors
/// [`Error::NotSupported`] if ext4 does not support the prefix; [`Error::NameTooLong`];
/// [`Error::InvalidArgument`] if the rest of the name is invalid.
pub fn parse_name(full: &[u8]) -> Result<AttributeName<'_>, Error> {
    AttributeName::parse(full).map_err(|error| match error {
        NameError::Prefix => Error::NotSupported,
        NameError::TooLong => Error::NameTooLong,
        NameError::Rest => Error::InvalidArgument(InvalidArgument::AttributeName),
    })
}

/// Sets the checksum of a block of attributes at `place`. `seed` is the checksum seed of the file
/// system; `None` without `metadata_csum`.
pub fn seal(seed: Option<Seed>, place: Block, block: &mut [u8]) {
    if let Some(seed) = seed {
        xattr::seal(seed, place, block);
    }
}

/// Checks a block of attributes of `ino` that was read from `place`: the checksum and all entries.
pub fn verify(seed: Option<Seed>, ino: Ino, place: Block, block: &[u8]) -> Result<(), Error> {
    let check = || {
        seed.map_or(Ok(()), |seed| xattr::verify(seed, place, block))?;
        xattr::decode_block(block).map(|_| ())
    };
    check().map_err(|cause| Error::Corruption(Corruption::Xattr { ino, block: Some(place), cause }))
}

// Decides where an attribute is stored.

/// Whether setxattr(2) expects the attribute to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Creates or replaces the attribute.
    Any,
    /// Fails with [`Error::Exists`] if the attribute exists.
    Create,
    /// Fails with [`Error::NoAttribute`] if the attribute does not exist.
    Replace,
    /// Always fails: with [`Error::Exists`] if the attribute exists, otherwise with
    /// [`Error::NoAttribute`].
    CreateAndReplace,
}

/// The changes that set or remove an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrPlan {
    /// New contents of the area in the inode, if it changes.
    pub in_inode: Option<Vec<u8>>,
    /// The change of the block.
    pub block: BlockChange,
    /// Number of inodes that use the present block, this inode included; 0 if there is no block. If
    /// the number is above 1, the block must not be changed. Instead the inode gets a new block, or
    /// none, and the old block's reference count decreases.
    pub shared_by: u32,
    /// The inode that holds the replaced or removed value, if the value was in an inode of its own.
    pub old_value: Option<ValueInode>,
}

/// The change of an inode's block of attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockChange {
    /// The block does not change; an inode without a block gets none.
    Keep,
    /// The block gets these contents, with one inode as its user. The checksum is not set yet.
    Write(Vec<u8>),
    /// The block is not needed any more.
    Remove,
}

/// Plans to set an attribute, or to remove it if `value` is `None`. The new value, or the number of
/// the inode that holds the value, is stored in the file's inode if it fits there, else in the
/// block. The old value is removed from wherever it is stored.
///
/// # Errors
/// [`Error::Exists`] if the attribute exists and `how` forbids that. [`Error::NoAttribute`] if the
/// attribute does not exist, and `how` requires it or `value` is `None`. [`Error::NoSpace`] if the
/// attribute does not fit. A corruption error. After an error the attributes are unchanged.
pub fn plan_set(
    state: &XattrState<'_>,
    name: AttributeName<'_>,
    value: Option<Value<'_>>,
    how: SetXattr,
) -> Result<XattrPlan, Error> {
    let decoded = state.decode()?;
    let old = decoded.find(name);
    match (old, how) {
        (Some(_), SetXattr::Create | SetXattr::CreateAndReplace) => return Err(Error::Exists),
        (None, SetXattr::Replace | SetXattr::CreateAndReplace) => return Err(Error::NoAttribute),
        (None, _) if value.is_none() => return Err(Error::NoAttribute),
        _ => {}
    }
    let new = value.map(|value| Attribute { name, value });
    let old_value = old.and_then(ValueInode::of);
    let old = Parts::without(&decoded, name);
    let (in_inode, block) = place(state, &old, new).ok_or(Error::NoSpace)?;
    Ok(XattrPlan { in_inode, block, shared_by: decoded.refcount, old_value })
}

/// The remaining attributes, and where the attribute to be set was stored before.
struct Parts<'a> {
    in_inode: Vec<Attribute<'a>>,
    in_block: Vec<Attribute<'a>>,
    was_in_inode: bool,
    was_in_block: bool,
}

impl<'a> Parts<'a> {
    fn without(decoded: &Decoded<'a>, name: AttributeName<'_>) -> Parts<'a> {
        let others = |attributes: &[Attribute<'a>]| -> Vec<Attribute<'a>> {
            attributes.iter().copied().filter(|attribute| attribute.name != name).collect()
        };
        let (in_inode, in_block) = (others(&decoded.in_inode), others(&decoded.in_block));
        Parts {
            was_in_inode: in_inode.len() < decoded.in_inode.len(),
            was_in_block: in_block.len() < decoded.in_block.len(),
            in_inode,
            in_block,
        }
    }
}

type Placed = (Option<Vec<u8>>, BlockChange);

/// Places the attributes; `None` if the new attribute does not fit.
fn place<'a>(
    state: &XattrState<'_>,
    old: &Parts<'a>,
    new: Option<Attribute<'a>>,
) -> Option<Placed> {
    let Some(new) = new else {
        return Some((inode_without(state, old)?, block_without(state, old)?));
    };
    let with = |attributes: &[Attribute<'a>]| [attributes, &[new]].concat();
    if let Some(in_inode) = xattr::encode_inode(state.in_inode.len(), &with(&old.in_inode)) {
        return Some((Some(in_inode), block_without(state, old)?));
    }
    let in_block = with(&old.in_block);
    if xattr::value_room(&new.value) > 0 && !leaves_entry_room(state, &in_block) {
        return None;
    }
    let block = xattr::encode_block(state.block_size, &in_block)?;
    Some((inode_without(state, old)?, BlockChange::Write(block)))
}

/// Returns whether the values in the block leave at least [`XattrState::entry_room`] bytes for
/// entries.
fn leaves_entry_room(state: &XattrState<'_>, in_block: &[Attribute<'_>]) -> bool {
    let values = in_block.iter().map(|attribute| xattr::value_room(&attribute.value));
    values.sum::<usize>().saturating_add(state.entry_room) <= state.block_size
}

fn inode_without(state: &XattrState<'_>, old: &Parts<'_>) -> Option<Option<Vec<u8>>> {
    match old.was_in_inode {
        true => xattr::encode_inode(state.in_inode.len(), &old.in_inode).map(Some),
        false => Some(None),
    }
}

fn block_without(state: &XattrState<'_>, old: &Parts<'_>) -> Option<BlockChange> {
    match (old.was_in_block, old.in_block.is_empty()) {
        (false, _) => Some(BlockChange::Keep),
        (true, true) => Some(BlockChange::Remove),
        (true, false) => {
            xattr::encode_block(state.block_size, &old.in_block).map(BlockChange::Write)
        }
    }
}

#[cfg(test)]
mod tests;
