//! Decides where an attribute is stored.

use super::state::{Decoded, ValueInode, XattrState};
use crate::attr::SetXattr;
use crate::error::Error;
use lanefs_ondisk::xattr::{self, Attribute, AttributeName, Value};

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
