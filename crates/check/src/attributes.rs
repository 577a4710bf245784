//! Checks the extended attributes in an inode and in its attribute block.
//!
//! Attributes are stored in areas: a part of an inode, or a block. An area has its entries at the
//! front and its values at the back. No two entries or values may share a byte. Source: kernel
//! documentation, *ext4: Extended Attributes*.

use crate::bytes::{le16, le32, part};
use crate::fault::Fault;
use crate::field::Feature;
use crate::place::Place;
use crate::record::Record;
use crate::run::{BlockContent, Run, SharedBlock, Taken};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::features::{Compat, Incompat};
use lanefs_ondisk::xattr::{self, Cause};
use lanefs_ondisk::{Block, Ino};

const MAGIC: u32 = 0xea02_0000;
const BLOCK_HEADER: usize = 32;
/// The size of an entry without its name.
pub const ENTRY: usize = 16;
/// The number of zero bytes that end the entries.
const END: usize = 4;
/// The number that stands for the prefix `system.`. The attribute `system.data` holds the part of
/// an inline file that does not fit into the block field.
const SYSTEM: u8 = 7;

/// The name of the attribute that holds the encryption context: the number of the prefix, and the
/// rest of the name.
pub const CONTEXT: (u8, &[u8]) = (9, b"c");

/// An entry with its value.
#[derive(Debug, Clone, Copy)]
pub struct Attribute<'a> {
    /// The number that stands for the name's prefix.
    index: u8,
    name: &'a [u8],
    value: &'a [u8],
    /// The inode that holds the value, or 0.
    ino: u32,
    size: u32,
}

/// The bytes of an inode or a block in which attributes are stored.
struct Area<'a> {
    bytes: &'a [u8],
    /// The offset of the first entry.
    entries: usize,
    /// The position to which the offsets of values are relative.
    base: usize,
    /// Whether the area is in an inode. In an inode, a stored hash of 0 means that the entry has no
    /// hash, and e2fsck does not check the offset of an empty value.
    in_inode: bool,
}

/// The space that an attribute block takes if all its values are in the block itself.
const BLOCK: Taken = Taken { clusters: 1, values: 0 };

/// Checks the attributes of an inode.
pub fn check(run: &Run<'_>, ino: Ino, record: &Record, bytes: &[u8]) -> Taken {
    let values = check_inode_area(run, ino, record, bytes);
    let block = record.file_acl(&run.volume.geometry);
    values + block.map_or(Taken::default(), |block| check_block(run, ino, block))
}

fn check_inode_area(run: &Run<'_>, ino: Ino, record: &Record, bytes: &[u8]) -> Taken {
    let place = Place::Attributes { ino, block: None };
    let Some(area) = inode_area(run, record, bytes) else { return Taken::default() };
    match parse(&area) {
        Ok(attributes) => check_values(run, place, &attributes),
        Err(fault) => {
            run.add(place, fault);
            Taken::default()
        }
    }
}

fn inode_area<'a>(run: &Run<'_>, record: &Record, bytes: &'a [u8]) -> Option<Area<'a>> {
    let bytes = bytes.get(record.attributes_at(&run.volume.geometry)?..)?;
    let has_some = le32(bytes, 0) == MAGIC;
    has_some.then_some(Area { bytes, entries: 4, base: 4, in_inode: true })
}

/// Returns the value of `system.data`, which is the part of an inline file that does not fit into
/// the block field; `None` if the inode has no such attribute.
pub fn inline_data<'a>(run: &Run<'_>, record: &Record, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let area = inode_area(run, record, bytes)?;
    let found = parse(&area).ok()?;
    let data = found.into_iter().find(is_inline_data);
    data.map(|attribute| attribute.value)
}

/// Returns whether the inode lacks `system.data`, which every inline file has. Returns false if its
/// attributes are damaged, because [`check`] reports the damage.
pub fn lacks_inline_data(run: &Run<'_>, record: &Record, bytes: &[u8]) -> bool {
    let found = inode_area(run, record, bytes).map_or(Ok(Vec::new()), |area| parse(&area));
    found.is_ok_and(|found| !found.iter().any(is_inline_data))
}

fn is_inline_data(attribute: &Attribute<'_>) -> bool {
    (attribute.index, attribute.name) == (SYSTEM, b"data")
}

/// Returns the encryption context of an inode, which is the value of an attribute; `None` if the
/// inode has no such attribute.
pub fn encryption_context(run: &Run<'_>, record: &Record, bytes: &[u8]) -> Option<Vec<u8>> {
    let within = |area: &Area<'_>| {
        let found = parse(area).ok()?;
        // A context in an inode of its own is none.
        let mut found = found.into_iter().filter(|a| a.ino == 0);
        Some(found.find(|a| (a.index, a.name) == CONTEXT)?.value.to_vec())
    };
    if let Some(context) = inode_area(run, record, bytes).and_then(|area| within(&area)) {
        return Some(context);
    }
    let block = record.file_acl(&run.volume.geometry).filter(|b| run.volume.is_for_files(*b))?;
    let bytes = run.volume.read_block(block).ok()?;
    within(&Area { bytes: &bytes, entries: BLOCK_HEADER, base: 0, in_inode: false })
}

fn check_block(run: &Run<'_>, ino: Ino, block: Block) -> Taken {
    let place = Place::Attributes { ino, block: Some(block) };
    let is_for_files = run.volume.is_for_files(block);
    if !run.volume.compat(Compat::EXT_ATTR) || !is_for_files {
        let bytes = is_for_files.then(|| run.volume.read_block(block).ok()).flatten();
        match bytes.is_some_and(|bytes| le32(&bytes, 0) == MAGIC) {
            true => run.add(Place::Superblock, Fault::Feature { feature: Feature::ExtAttr }),
            false => run.add(place, Fault::WildBlock { block }),
        }
        return Taken::default();
    }
    let content = {
        let mut shared = run.shared.lock();
        let known = shared.entry(block).or_insert_with(|| SharedBlock::new(ino));
        known.found = known.found.saturating_add(1);
        Arc::clone(&known.content)
    };
    // Only one thread checks the block. Other threads that find the same block wait until the space
    // of its values is known.
    BLOCK + content.get_or_init(|| check_content(run, place, block)).values
}

fn check_content(run: &Run<'_>, place: Place, block: Block) -> BlockContent {
    run.claim(place, block, 1);
    let Ok(bytes) = run.volume.read_block(block) else {
        run.add(place, Fault::Unreadable);
        return BlockContent::default();
    };
    let values = check_block_bytes(run, place, block, &bytes).unwrap_or_else(|fault| {
        run.add(place, fault);
        Taken::default()
    });
    BlockContent { references: le32(&bytes, 4), values }
}

fn check_block_bytes(
    run: &Run<'_>,
    place: Place,
    block: Block,
    bytes: &[u8],
) -> Result<Taken, Fault> {
    let (magic, blocks) = (le32(bytes, 0), le32(bytes, 8));
    if magic != MAGIC {
        return Err(Cause::Magic { found: magic }.into());
    }
    if let Some(seed) = run.volume.checksums.seed() {
        xattr::verify(seed, block, bytes)?;
    }
    if blocks != 1 {
        return Err(Cause::Blocks { found: blocks }.into());
    }
    let area = Area { bytes, entries: BLOCK_HEADER, base: 0, in_inode: false };
    Ok(check_values(run, place, &parse(&area)?))
}

/// Checks the references to inodes that hold values. Returns how many clusters the values take,
/// because the block count of the inode that has the attributes includes these clusters.
fn check_values(run: &Run<'_>, place: Place, attributes: &[Attribute<'_>]) -> Taken {
    let geometry = &run.volume.geometry;
    let cluster = 1u64 << (geometry.block_size().bits() + geometry.cluster_bits());
    let mut taken = Taken::default();
    for attribute in attributes.iter().filter(|attribute| attribute.ino != 0) {
        let target = Ino(attribute.ino);
        if !run.volume.incompat(Incompat::EA_INODE) || !run.volume.geometry.has_inode(target) {
            run.add(place, Fault::ValueInode { ino: target.0 });
            continue;
        }
        *run.values.lock().entry(target).or_default() += 1;
        let clusters = u64::from(attribute.size).div_ceil(cluster);
        taken = taken + Taken { clusters, values: 1 };
    }
    taken
}

/// Decodes the entries, and checks that no two parts of the area share a byte.
fn parse<'a>(area: &Area<'a>) -> Result<Vec<Attribute<'a>>, Fault> {
    let mut found = Vec::new();
    let mut taken = vec![(0, area.entries)];
    let mut hashed = Vec::new();
    let mut at = area.entries;
    while le32(area.bytes, at) != 0 {
        let head = part(area.bytes, at, ENTRY).ok_or(Cause::NoEnd)?;
        let name_len = usize::from(head.first().copied().unwrap_or_default());
        let name = part(area.bytes, at + ENTRY, name_len).ok_or(Cause::NoEnd)?;
        if name.contains(&0) {
            return Err(Cause::NameByte { offset: at }.into());
        }
        let len = (ENTRY + name_len).next_multiple_of(4);
        let (ino, size) = (le32(head, 4), le32(head, 8));
        let value = match ino {
            0 => value(area, at, head, &mut taken)?,
            _ => &[],
        };
        if ino == 0 {
            hashed.push((at, head, name));
        }
        let index = head.get(1).copied().unwrap_or_default();
        // As in e2fsck, this is a fault in a block only.
        if index == 0 && !area.in_inode {
            return Err(Fault::AttributePrefix { offset: at });
        }
        found.push(Attribute { index, name, value, ino, size });
        taken.push((at, at + len));
        at += len;
    }
    if at + END > area.bytes.len() {
        return Err(Cause::NoEnd.into());
    }
    taken.push((at, at + END));
    taken.sort_unstable();
    if let Some(pair) =
        taken.windows(2).find(|pair| matches!(pair, [(_, end), (start, _)] if start < end))
    {
        return Err(Cause::ValueOverlap { offset: pair.first().map_or(0, |p| p.0) }.into());
    }
    // Hashes are checked last, when it is certain that no parts overlap. A repair corrects a wrong
    // hash in its entry. If a value overlapped the entry, this would change the value.
    for (at, head, name) in hashed {
        check_hash(area, at, head, name)?;
    }
    Ok(found)
}

fn value<'a>(
    area: &Area<'a>,
    offset: usize,
    head: &[u8],
    taken: &mut Vec<(usize, usize)>,
) -> Result<&'a [u8], Cause> {
    let size = usize::try_from(le32(head, 8)).unwrap_or(usize::MAX);
    let start = area.base + usize::from(le16(head, 2));
    let wrong = Cause::ValueRange { offset, value: start, size };
    if size == 0 {
        let is_within = area.in_inode || start <= area.bytes.len();
        return if is_within { Ok(&[]) } else { Err(wrong) };
    }
    let value = part(area.bytes, start, size).ok_or(wrong.clone())?;
    let end = start + size.next_multiple_of(4);
    if end > area.bytes.len() {
        return Err(wrong);
    }
    taken.push((start, end));
    Ok(value)
}

/// Checks the hash of an entry. The hash covers the name, the value, and the padding after the
/// value.
fn check_hash(area: &Area<'_>, offset: usize, head: &[u8], name: &[u8]) -> Result<(), Cause> {
    let found = le32(head, 12);
    let start = area.base + usize::from(le16(head, 2));
    let len = usize::try_from(le32(head, 8)).unwrap_or(usize::MAX).checked_next_multiple_of(4);
    let words = part(area.bytes, start, len.unwrap_or(usize::MAX)).unwrap_or_default();
    let valid = xattr::entry_hashes(name, words);
    if valid.contains(&found) || (area.in_inode && found == 0) {
        return Ok(());
    }
    let [computed, _] = valid;
    Err(Cause::Hash { offset, found, computed })
}

/// Compares the reference count of each attribute block with the number of inodes that refer to the
/// block. Compares the reference count of each inode that holds a value with the number of entries
/// that refer to the inode.
pub fn check_references(run: &Run<'_>) {
    let shared = std::mem::take(&mut *run.shared.lock());
    for (block, shared) in shared {
        let stored = shared.content.get().map_or(0, |content| content.references);
        if stored != shared.found {
            let place = Place::Attributes { ino: shared.ino, block: Some(block) };
            let (found, expected) = (stored, shared.found);
            run.add(place, Fault::References { found, expected });
        }
    }
    let values = std::mem::take(&mut *run.values.lock());
    for (ino, expected) in &values {
        let place = Place::Inode { ino: *ino };
        let bytes = run.read_inode(*ino).filter(|_| run.states.get(*ino).has_values());
        let Some(stored) = bytes.map(|bytes| Record::decode(&bytes).value_references()) else {
            run.add(place, Fault::ValueInode { ino: ino.0 });
            continue;
        };
        if stored != u64::from(*expected) {
            let (found, expected) = (stored as u32, *expected);
            run.add(place, Fault::References { found, expected });
        }
    }
}
