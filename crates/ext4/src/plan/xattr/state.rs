//! The attributes of an inode, as bytes and decoded.

use crate::error::{Error, InvalidArgument};
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::xattr::{self, Attribute, AttributeName, Cause, NameError, Value};
use lanefs_ondisk::{Block, Corruption, Ino};

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
pub(super) struct Decoded<'a> {
    pub(super) in_inode: Vec<Attribute<'a>>,
    pub(super) in_block: Vec<Attribute<'a>>,
    /// Number of inodes that use the block; 0 without a block.
    pub(super) refcount: u32,
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
    pub(super) fn of(attribute: &Attribute<'_>) -> Option<ValueInode> {
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
    pub(super) fn find(&self, name: AttributeName<'_>) -> Option<&Attribute<'a>> {
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

    pub(super) fn decode(&self) -> Result<Decoded<'a>, Error> {
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
