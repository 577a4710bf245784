//! The attributes of an inode, as bytes and decoded.

use crate::error::Error;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::xattr::{self, Attribute, AttributeName, Cause, NameError, Value};
use lanefs_ondisk::{Block, Corruption, Ino, Unsupported};

/// The attributes of an inode, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct XattrState<'a> {
    /// The inode number, for errors.
    pub ino: Ino,
    /// The area after the inode's fields; empty if the inode has none.
    pub in_inode: &'a [u8],
    /// The block and its place, if the inode has one.
    pub block: Option<(Block, &'a [u8])>,
    /// Block size in bytes.
    pub block_size: usize,
}

/// The attributes of an inode, decoded.
pub(super) struct Decoded<'a> {
    pub(super) in_inode: Vec<Attribute<'a>>,
    pub(super) in_block: Vec<Attribute<'a>>,
    /// Number of inodes that use the block; 0 without a block.
    pub(super) refcount: u32,
}

impl<'a> XattrState<'a> {
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

/// Returns the value of an attribute as it is stored: an ACL in its form on disk.
///
/// # Errors
/// [`Error::NoAttribute`], corruption, and [`Error::Unsupported`] for a value in an inode of its
/// own.
pub fn get<'a>(state: &XattrState<'a>, name: AttributeName<'_>) -> Result<&'a [u8], Error> {
    let decoded = state.decode()?;
    let mut all = decoded.in_inode.iter().chain(&decoded.in_block);
    match all.find(|attribute| attribute.name == name).map(|attribute| attribute.value) {
        None => Err(Error::NoAttribute),
        Some(Value::Here(value)) => Ok(value),
        Some(Value::Inode { .. }) => Err(value_in_inode()),
    }
}

/// Returns the names of all attributes with their prefixes. The caller decides whether attributes
/// of `trusted.` are visible.
pub fn list(state: &XattrState<'_>) -> Result<Vec<Vec<u8>>, Error> {
    let decoded = state.decode()?;
    let all = decoded.in_inode.iter().chain(&decoded.in_block);
    Ok(all.filter_map(|attribute| attribute.name.full()).collect())
}

/// Parses a name as getxattr(2) receives it.
///
/// # Errors
/// [`Error::NotSupported`] for a prefix that ext4 does not support, [`Error::NameTooLong`],
/// [`Error::InvalidArgument`].
pub fn parse_name(full: &[u8]) -> Result<AttributeName<'_>, Error> {
    AttributeName::parse(full).map_err(|error| match error {
        NameError::Prefix => Error::NotSupported,
        NameError::TooLong => Error::NameTooLong,
        NameError::Rest => Error::InvalidArgument { what: "the attribute's name" },
    })
}

/// Sets the checksum of a block of attributes at `place`; `seed` is the file system's, `None`
/// without `metadata_csum`.
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

pub(super) fn value_in_inode() -> Error {
    Error::Unsupported(Unsupported { what: "ea_inode".into() })
}
