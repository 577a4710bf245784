//! Repairs extended attributes. A wrong hash or checksum is corrected. After any other damage to an
//! attribute block, or to the part of an inode that holds attributes, all attributes in it are
//! removed.

use super::inode_offsets::{ACL_HIGH, FLAGS};
use super::mender::{Mender, put16, put32};
use crate::attributes::{CONTEXT, ENTRY};
use crate::bytes::le32;
use crate::encryption::Policy;
use crate::fault::Fault;
use crate::place::Place;
use crate::record::Record;
use crate::report::Finding;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::xattr::{self, Attribute, AttributeBlock, AttributeName, Cause, Value};
use lanefs_ondisk::{Block, FileType, Ino};
use std::collections::HashSet;

const ACL: usize = 0x68;
/// The offset of the hash in an entry.
const HASH: usize = 12;
const REFERENCES: usize = 4;
const LOST: &str = "those whose values are lost are removed";

fn is_damaged_context(one: &Attribute<'_>) -> bool {
    let Value::Here(value) = one.value else { return false };
    (one.name.index, one.name.rest) == CONTEXT
        && matches!(Policy::in_context(value), Policy::Damaged(_))
}

impl Mender<'_> {
    /// Mends the attributes in the attribute block `block` of an inode, or in the inode itself if
    /// `block` is `None`.
    pub fn mend_attributes(
        &mut self,
        ino: Ino,
        bytes: &mut [u8],
        block: Option<Block>,
        fault: &Fault,
    ) {
        let place = Place::Attributes { ino, block };
        match block {
            Some(block) => {
                if self.mend_block(block, fault) {
                    return self.act(place, "hash or checksum corrected");
                }
                put32(bytes, ACL, 0);
                put16(bytes, ACL_HIGH, 0);
            }
            None => {
                let record = Record::decode(bytes);
                let Some(start) = record.attributes_at(&self.run.volume.geometry) else { return };
                let Some(area) = bytes.get_mut(start..) else { return };
                if let Fault::Attributes(Cause::Hash { offset, computed, .. }) = fault {
                    put32(area, offset + HASH, *computed);
                    return self.act(place, "hash corrected");
                }
                area.fill(0);
                if record.flags.contains(InodeFlags::INLINE_DATA) {
                    empty_inline_data(area);
                }
            }
        }
        self.act(place, "removed: they are damaged");
    }

    /// Shortens the name of an attribute in an inode if the name has a zero byte: what follows is
    /// the padding of the entry. Returns whether there is such a name.
    pub fn shorten_name(&self, bytes: &mut [u8], finding: &Finding) -> bool {
        let Place::Attributes { block: None, .. } = finding.place else { return false };
        let Fault::Attributes(Cause::NameByte { offset }) = finding.fault else { return false };
        let start = Record::decode(bytes).attributes_at(&self.run.volume.geometry);
        let entry = start.and_then(|start| bytes.get_mut(start + offset..)).unwrap_or_default();
        let name = entry.get(ENTRY..).unwrap_or_default();
        let len = name.iter().position(|byte| *byte == 0).unwrap_or_default();
        let padding = name.get(len..len.next_multiple_of(4)).unwrap_or(&[1]);
        let is_name = len > 0 && padding.iter().all(|byte| *byte == 0);
        match entry.first_mut().filter(|_| is_name) {
            Some(name_len) => *name_len = (*name_len).min(len as u8),
            None => return false,
        }
        true
    }

    /// Mends an attribute block in which only a hash or the checksum is wrong.
    fn mend_block(&mut self, block: Block, fault: &Fault) -> bool {
        let Fault::Attributes(cause) = fault else { return false };
        if self.is_shared(block) {
            return false;
        }
        let Some(mut bytes) = self.read_block(block) else { return false };
        match cause {
            Cause::Checksum { .. } => {}
            Cause::Hash { offset, computed, .. } => {
                put32(&mut bytes, offset + HASH, *computed);
                // A name out of order, padding that is not zero, or an encryption context that is
                // none: more than the hash is wrong.
                let is_damaged = match xattr::decode_block(&bytes) {
                    Ok(block) => block.attributes.iter().any(is_damaged_context),
                    Err(Cause::Hash { offset: at, .. }) => at == *offset,
                    Err(why) => matches!(why, Cause::Order { .. }),
                };
                if is_damaged {
                    return false;
                }
            }
            _ => return false,
        }
        self.seal_attributes(block, bytes);
        true
    }

    fn seal_attributes(&mut self, block: Block, mut bytes: Vec<u8>) {
        if let Some(seed) = self.run.volume.checksums.seed() {
            xattr::seal(seed, block, &mut bytes);
        }
        self.write_block(block, &bytes);
    }

    /// Mends inodes that attributes name as those of their values. A file without a name only lost
    /// its mark. Otherwise, the attributes lose their values, and are removed.
    pub fn mend_values(&mut self, inos: impl Iterator<Item = Ino>) {
        let mut lost = HashSet::new();
        for ino in inos {
            let state = self.run.states.get(ino);
            let is_file = state.names() == 0 && state.file_type() == Some(FileType::Regular);
            match self.read_inode(ino).filter(|_| state.is_used() && is_file) {
                Some((mut bytes, record)) => {
                    put32(&mut bytes, FLAGS, (record.flags | InodeFlags::EA_INODE).bits());
                    self.write_inode(ino, bytes);
                    self.act(Place::Inode { ino }, "marked as the value of an attribute");
                }
                None => drop(lost.insert(ino)),
            }
        }
        let inodes = if lost.is_empty() { 0 } else { self.run.volume.geometry.inode_count() };
        for ino in (1..=inodes).map(Ino).filter(|ino| self.run.states.get(*ino).is_used()) {
            self.drop_values(ino, &lost);
        }
    }

    /// Removes from an inode, and from its attribute block, the attributes whose values are lost.
    fn drop_values(&mut self, ino: Ino, lost: &HashSet<Ino>) {
        let Some((mut bytes, record)) = self.read_inode(ino) else { return };
        let geometry = self.run.volume.geometry;
        let is_lost = |one: &Attribute<'_>| match one.value {
            Value::Inode { ino, .. } => lost.contains(&ino),
            Value::Here(_) => false,
        };
        if let Some(area) = record.attributes_at(&geometry).and_then(|at| bytes.get_mut(at..))
            && let old = area.to_vec()
            && let Ok(mut all) = xattr::decode_inode(&old)
            && all.iter().any(is_lost)
        {
            all.retain(|one| !is_lost(one));
            if let Some(new) = xattr::encode_inode(area.len(), &all) {
                area.copy_from_slice(&new);
                self.act(Place::Attributes { ino, block: None }, LOST);
            }
        }
        if let Some(block) =
            record.file_acl(&geometry).filter(|at| self.run.volume.is_for_files(*at))
            && let Some(old) = self.read_block(block)
            && let Ok(AttributeBlock { refcount, mut attributes }) = xattr::decode_block(&old)
            && attributes.iter().any(is_lost)
        {
            attributes.retain(|one| !is_lost(one));
            match xattr::encode_block(old.len(), &attributes).filter(|_| !attributes.is_empty()) {
                Some(mut new) => {
                    xattr::set_refcount(&mut new, refcount);
                    self.seal_attributes(block, new);
                }
                None => {
                    put32(&mut bytes, ACL, 0);
                    put16(&mut bytes, ACL_HIGH, 0);
                }
            }
            self.act(Place::Attributes { ino, block: Some(block) }, LOST);
        }
        self.write_inode(ino, bytes);
    }

    /// Gives an inode its own copy of an attribute block that another file uses too. If there is no
    /// space for a copy, the inode loses the attributes in the block.
    pub fn part_attributes(&mut self, ino: Ino, block: Block) {
        let Some((mut bytes, _)) = self.read_inode(ino) else { return };
        let copy = self.read_block(block).and_then(|bytes| Some((self.allocate()?, bytes)));
        let (at, what) = match copy {
            Some((at, bytes)) => {
                self.seal_attributes(at, bytes);
                (at.0, "copied: another file uses it")
            }
            None => (0, "dropped: another file uses it, and there is no space for a copy"),
        };
        put32(&mut bytes, ACL, at as u32);
        put16(&mut bytes, ACL_HIGH, (at >> 32) as u16);
        self.write_inode(ino, bytes);
        self.act(Place::Attributes { ino, block: Some(block) }, what);
    }

    /// Sets the reference count of an attribute block, or of an inode that holds a value.
    pub fn set_references(&mut self, place: Place, expected: u32) {
        match place {
            Place::Attributes { block: Some(block), .. } => {
                let Some(mut bytes) = self.read_block(block) else { return };
                put32(&mut bytes, REFERENCES, expected);
                self.seal_attributes(block, bytes);
            }
            Place::Inode { ino } => {
                const LOW: usize = 0x24;
                const HIGH: usize = 0x0c;
                let Some((mut bytes, _)) = self.read_inode(ino) else { return };
                put32(&mut bytes, LOW, expected);
                put32(&mut bytes, HIGH, 0);
                self.write_inode(ino, bytes);
            }
            _ => return,
        }
        self.act(place, "reference count corrected");
    }
}

impl Mender<'_> {
    /// Sets the value of `system.data` among the attributes of an inode, or removes this attribute
    /// if the data of the inode moves into a block.
    pub fn set_inline_data(&self, bytes: &mut [u8], record: &Record, data: Option<&[u8]>) {
        let Some(start) = record.attributes_at(&self.run.volume.geometry) else { return };
        let Some(area) = bytes.get_mut(start..) else { return };
        let old = area.to_vec();
        let Ok(mut all) = xattr::decode_inode(&old) else { return };
        all.retain(|attribute| attribute.name != AttributeName::inline_data());
        let name = AttributeName::inline_data();
        all.extend(data.map(|data| Attribute { name, value: Value::Here(data) }));
        if let Some(new) = xattr::encode_inode(area.len(), &all) {
            area.copy_from_slice(&new);
        }
    }
}

/// Writes an empty `system.data`, which every inline file has.
pub fn empty_inline_data(area: &mut [u8]) {
    let attribute = Attribute { name: AttributeName::inline_data(), value: Value::Here(&[]) };
    if let Some(bytes) = xattr::encode_inode(area.len(), &[attribute]) {
        area.copy_from_slice(&bytes);
    }
    debug_assert!(area.len() < 24 || le32(area, 0) != 0);
}
