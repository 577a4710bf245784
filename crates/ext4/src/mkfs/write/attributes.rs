//! The extended attributes of new files. Files with the same attributes share a block.

use super::BlockWriter;
use super::format::Format;
use crate::mkfs::{FileFault, MkfsError};
use lanefs_ondisk::Block;
use lanefs_ondisk::acl::Acl;
use lanefs_ondisk::xattr::{self, Attribute, AttributeName, Value};
use std::collections::HashMap;

/// The largest number of inodes that may share a block; e2fsck and the kernel allow this number.
const MOST_SHARERS: u32 = 1024;

/// The attributes of one inode.
pub(super) struct Stored {
    /// The bytes in the inode.
    pub(super) area: Vec<u8>,
    pub(super) block: Option<Block>,
}

/// A block of attributes that further inodes may use.
struct Shared {
    place: u64,
    users: u32,
}

/// The attribute blocks that further inodes may use, keyed by the contents of the block.
#[derive(Default)]
pub(super) struct AttributeBlocks {
    open: HashMap<Vec<u8>, Shared>,
}

impl AttributeBlocks {
    /// Stores attributes in the given order. Each is stored in the inode if there is still room for
    /// it, otherwise in a block.
    pub(super) fn store(
        &mut self,
        out: &mut BlockWriter<'_>,
        format: &Format,
        attributes: &[(Vec<u8>, Vec<u8>)],
        claim: &mut dyn FnMut() -> Result<u64, MkfsError>,
    ) -> Result<Result<Stored, FileFault>, MkfsError> {
        let room = format.attribute_room;
        let blank = || Stored { area: vec![0; room], block: None };
        if attributes.is_empty() {
            return Ok(Ok(blank()));
        }
        let on_disk: Result<Vec<_>, FileFault> = attributes.iter().map(on_disk).collect();
        let on_disk = match on_disk {
            Ok(on_disk) => on_disk,
            Err(fault) => return Ok(Err(fault)),
        };
        let mut here: Vec<Attribute<'_>> = Vec::new();
        let mut rest = Vec::new();
        for (name, value) in on_disk.iter().flatten() {
            let attribute = Attribute { name: *name, value: Value::Here(value) };
            here.push(attribute);
            if xattr::encode_inode(room, &here).is_none() || room < 4 {
                rest.extend(here.pop());
            }
        }
        let area = xattr::encode_inode(room, &here).unwrap_or_else(|| vec![0; room]);
        if rest.is_empty() {
            return Ok(Ok(Stored { area, block: None }));
        }
        let Some(block) = xattr::encode_block(format.block_size.bytes(), &rest) else {
            let bytes = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
            let most = format.block_size.bytes();
            return Ok(Err(FileFault::Attributes { bytes, most }));
        };
        let place = self.place(out, format, block, claim)?;
        Ok(Ok(Stored { area, block: Some(Block(place)) }))
    }

    fn place(
        &mut self,
        out: &mut BlockWriter<'_>,
        format: &Format,
        block: Vec<u8>,
        claim: &mut dyn FnMut() -> Result<u64, MkfsError>,
    ) -> Result<u64, MkfsError> {
        if let Some(shared) = self.open.get_mut(&block) {
            shared.users += 1;
            let place = shared.place;
            if shared.users == MOST_SHARERS {
                let shared = self.open.remove_entry(&block);
                shared
                    .into_iter()
                    .try_for_each(|(block, shared)| seal(out, format, block, &shared))?;
            }
            return Ok(place);
        }
        let place = claim()?;
        self.open.insert(block, Shared { place, users: 1 });
        Ok(place)
    }

    /// Writes all blocks that are not written yet.
    pub(super) fn finish(
        self,
        out: &mut BlockWriter<'_>,
        format: &Format,
    ) -> Result<(), MkfsError> {
        let mut open: Vec<_> = self.open.into_iter().collect();
        open.sort_by_key(|(_, shared)| shared.place);
        open.into_iter().try_for_each(|(block, shared)| seal(out, format, block, &shared))
    }
}

fn seal(
    out: &mut BlockWriter<'_>,
    format: &Format,
    mut block: Vec<u8>,
    shared: &Shared,
) -> Result<(), MkfsError> {
    xattr::set_refcount(&mut block, shared.users);
    if let Some(seed) = format.checksums.seed() {
        xattr::seal(seed, Block(shared.place), &mut block);
    }
    out.write(shared.place, &block)
}

type OnDisk<'a> = (AttributeName<'a>, Vec<u8>);

/// Returns the attribute as ext4 stores it; `None` for an empty access control list.
fn on_disk((name, value): &(Vec<u8>, Vec<u8>)) -> Result<Option<OnDisk<'_>>, FileFault> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    let parsed =
        AttributeName::parse(name).map_err(|_| FileFault::AttributeName { name: shown() })?;
    if ![AttributeName::acl_access(), AttributeName::acl_default()].contains(&parsed) {
        return Ok(Some((parsed, value.clone())));
    }
    let list = Acl::from_system(value).map_err(|_| FileFault::AccessList { name: shown() })?;
    Ok(list.map(|list| (parsed, list.to_disk())))
}
