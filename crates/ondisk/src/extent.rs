//! Nodes of the extent tree.
//!
//! A node is a header and an array of 12-byte entries. In a leaf (depth 0) the entries are extents.
//! In every other node they are pointers to nodes one level down. The root is the 60 bytes of
//! `i_block` in the inode, without a checksum of its own; every other node fills a block and, with
//! `metadata_csum`, contains a checksum after its last possible entry. Format:
//! <https://docs.kernel.org/filesystems/ext4/>, "Extent Tree"; details that the documentation lacks
//! were checked against `debugfs` and a running kernel.
//!
//! *Invariants* of a decoded [`Node`]: entries ascend, do not overlap, and lie in the logical range
//! that the parent node assigns to the node. In a node below the root, the first entry starts at
//! the first block of this range. Entries refer only to blocks that files may use.

pub use crate::cause::ExtentCause as Cause;
use crate::checksum::Seed;
use crate::types::{Block, BlockSize, FileBlock};
use std::ops::Range;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic` of every node.
pub const MAGIC: u16 = 0xf30a;
/// Bytes of the root node, which is in the inode.
pub const ROOT_BYTES: usize = 60;
/// Number of entries that the root can hold.
pub const ROOT_ENTRIES: u16 = ((ROOT_BYTES - HEADER) / ENTRY) as u16;
/// The root of a tree without extents: a leaf without entries.
pub const EMPTY_ROOT: [u8; ROOT_BYTES] = {
    let mut bytes = [0; ROOT_BYTES];
    [bytes[0], bytes[1]] = MAGIC.to_le_bytes();
    [bytes[4], bytes[5]] = ROOT_ENTRIES.to_le_bytes();
    bytes
};
/// The largest depth of a tree. Five levels of index nodes above the leaves are enough to map every
/// file.
pub const MAX_DEPTH: u16 = 5;
/// The first logical block that no file can have. Because of this limit, lengths and ends fit into
/// 32 bits.
pub const END: u32 = u32::MAX;

const HEADER: usize = size_of::<RawHeader>();
const ENTRY: usize = size_of::<RawExtent>();
const TAIL: usize = 4;
/// If `ee_len` is above this value, the extent is unwritten, and its length is `ee_len` minus this
/// value.
const LEN_WRITTEN_MAX: u16 = 1 << 15;

/// `struct ext4_extent_header`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    eh_magic: U16,
    eh_entries: U16,
    eh_max: U16,
    eh_depth: U16,
    eh_generation: U32,
}
const _: () = assert!(size_of::<RawHeader>() == 12);

/// `struct ext4_extent`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtent {
    ee_block: U32,
    ee_len: U16,
    ee_start_hi: U16,
    ee_start_lo: U32,
}
const _: () = assert!(size_of::<RawExtent>() == 12);

/// `struct ext4_extent_idx`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawIndex {
    ei_block: U32,
    ei_leaf_lo: U32,
    ei_leaf_hi: U16,
    ei_unused: U16,
}
const _: () = assert!(size_of::<RawIndex>() == 12);

/// Whether the blocks of an extent hold data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The blocks contain data.
    Written,
    /// The blocks are allocated, but reading them returns zeros.
    Unwritten,
}

impl State {
    /// Returns the length of the longest extent of this state, in blocks.
    pub fn max_len(self) -> u32 {
        match self {
            State::Written => LEN_WRITTEN_MAX as u32,
            State::Unwritten => (u16::MAX - LEN_WRITTEN_MAX) as u32,
        }
    }
}

/// `len` blocks of a file from `start` on, stored in consecutive blocks from `block` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The first logical block.
    pub start: FileBlock,
    /// Length in blocks, from 1 to [`State::max_len`].
    pub len: u32,
    /// The first physical block.
    pub block: Block,
    /// Whether the blocks contain data.
    pub state: State,
}

impl Extent {
    /// Returns the logical block after the extent's last block.
    pub fn end(&self) -> u32 {
        self.start.0.saturating_add(self.len)
    }

    /// Returns the part of the extent in the logical blocks `range`, if there is one.
    pub fn clip(&self, range: &Range<u32>) -> Option<Extent> {
        let from = self.start.0.max(range.start);
        let to = self.end().min(range.end);
        (from < to).then(|| Extent {
            start: FileBlock(from),
            len: to - from,
            block: Block(self.block.0 + u64::from(from - self.start.0)),
            state: self.state,
        })
    }

    /// Returns whether `next` begins where this extent ends, both in the file and on the device,
    /// and has the same state.
    pub fn continued_by(&self, next: &Extent) -> bool {
        self.state == next.state
            && self.end() == next.start.0
            && self.block.0 + u64::from(self.len) == next.block.0
    }
}

/// A pointer to the node one level down that maps the logical blocks from `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Index {
    /// The first logical block of the child.
    pub start: FileBlock,
    /// The block of the child.
    pub child: Block,
}

/// The entries of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entries {
    /// The extents of a leaf, depth 0.
    Leaf(Vec<Extent>),
    /// The pointers of an index node.
    Index(Vec<Index>),
}

impl Entries {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self {
            Entries::Leaf(extents) => extents.len(),
            Entries::Index(children) => children.len(),
        }
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Divides the entries into nodes of at most `max` entries. Returns each node with the file
    /// block at which its first entry starts.
    fn parts(&self, max: usize) -> Vec<(FileBlock, Entries)> {
        match self {
            Entries::Leaf(extents) => {
                let parts = extents.chunks(max);
                parts.map(|part| (part[0].start, Entries::Leaf(part.to_vec()))).collect()
            }
            Entries::Index(children) => {
                let parts = children.chunks(max);
                parts.map(|part| (part[0].start, Entries::Index(part.to_vec()))).collect()
            }
        }
    }
}

/// The position of a node in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePosition {
    /// The node is in the inode. The depth is not known in advance: the node's header contains it,
    /// and it is at most [`MAX_DEPTH`].
    Root,
    /// The node is in a block, at this depth. Its first entry starts where the range in
    /// [`Expected`] starts.
    Depth(u16),
}

/// The properties that a node must have because of its position in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The root, or the depth.
    pub position: NodePosition,
    /// The logical blocks that the node may map; the end is at most [`END`].
    pub range: Range<u32>,
    /// The physical blocks that files may use: all blocks of the file system after the superblock's
    /// block.
    pub space: Range<u64>,
}

/// A decoded node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Levels below this node: 0 for a leaf.
    pub depth: u16,
    /// Capacity in entries; the checksum follows the last possible entry.
    pub max: u16,
    /// Kept unchanged; no known file system uses it.
    pub generation: u32,
    /// The entries.
    pub entries: Entries,
}

/// Returns the number of entries that fit into a node of `bytes` bytes.
pub fn capacity(bytes: usize) -> u16 {
    (bytes.saturating_sub(HEADER) / ENTRY).min(u16::MAX as usize) as u16
}

/// Returns whether the tree with this root has nodes outside of the inode.
pub fn has_nodes(root: &[u8; ROOT_BYTES]) -> bool {
    // eh_depth
    root[6..8] != [0, 0]
}

/// Builds the tree of a file with these extents, leaves first. `put` writes a node, which has no
/// checksum yet, and returns its block. Returns the root, which is in the inode.
///
/// # Errors
/// Errors of `put`.
pub fn build<E>(
    extents: Vec<Extent>,
    block_size: BlockSize,
    put: &mut dyn FnMut(Vec<u8>) -> Result<Block, E>,
) -> Result<[u8; ROOT_BYTES], E> {
    let max = capacity(block_size.bytes() - TAIL);
    let (mut entries, mut depth) = (Entries::Leaf(extents), 0);
    while entries.len() > usize::from(ROOT_ENTRIES) {
        let mut index = Vec::new();
        for (start, entries) in entries.parts(max.into()) {
            let mut bytes = vec![0; block_size.bytes()];
            Node { depth, max, generation: 0, entries }.encode_into(&mut bytes);
            index.push(Index { start, child: put(bytes)? });
        }
        (entries, depth) = (Entries::Index(index), depth + 1);
    }
    let mut root = [0; ROOT_BYTES];
    Node { depth, max: ROOT_ENTRIES, generation: 0, entries }.encode_into(&mut root);
    Ok(root)
}

impl Node {
    /// Decodes a node, and checks it against the format and against `expected`. Does not check the
    /// checksum: see [`verify`].
    pub fn decode(bytes: &[u8], expected: &Expected) -> Result<Node, Cause> {
        let short = || Cause::Short { len: bytes.len() };
        let (header, rest) = RawHeader::ref_from_prefix(bytes).map_err(|_| short())?;
        let magic = header.eh_magic.get();
        if magic != MAGIC {
            return Err(Cause::Magic { magic });
        }
        let depth = header.eh_depth.get();
        if depth > MAX_DEPTH {
            return Err(Cause::TooDeep { depth, max: MAX_DEPTH });
        }
        if let NodePosition::Depth(due) = expected.position
            && depth != due
        {
            return Err(Cause::Depth { depth, expected: due });
        }
        let (max, fits) = (header.eh_max.get(), capacity(bytes.len()));
        if max == 0 || max > fits {
            return Err(Cause::Max { max, fits });
        }
        let entries = header.eh_entries.get();
        if entries > max {
            return Err(Cause::Entries { entries, max });
        }
        let raw = rest.get(..usize::from(entries) * ENTRY).ok_or_else(short)?;
        let entries = if depth == 0 {
            Entries::Leaf(decode_extents(raw, expected)?)
        } else {
            Entries::Index(decode_children(raw, expected)?)
        };
        Ok(Node { depth, max, generation: header.eh_generation.get(), entries })
    }

    /// Overwrites `bytes` with the node, and fills the space after the entries with zeros; [`seal`]
    /// adds the checksum later.
    ///
    /// # Panics
    /// If there are more than `max` entries, if `bytes` has no room for `max` entries, or if the
    /// format cannot express an extent. Each of these is an error of this program, never of the
    /// image, because [`Node::decode`] checked the image.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        assert!(self.max <= capacity(bytes.len()), "a node of {} entries is too large", self.max);
        assert!(self.entries.len() <= usize::from(self.max), "a node has more entries than room");
        assert!(self.depth <= MAX_DEPTH && (self.depth == 0) == self.is_leaf());
        bytes.fill(0);
        let header = RawHeader {
            eh_magic: MAGIC.into(),
            eh_entries: (self.entries.len() as u16).into(),
            eh_max: self.max.into(),
            eh_depth: self.depth.into(),
            eh_generation: self.generation.into(),
        };
        let (head, rest) = bytes.split_at_mut(HEADER);
        head.copy_from_slice(header.as_bytes());
        let slots = rest.chunks_exact_mut(ENTRY);
        match &self.entries {
            Entries::Leaf(extents) => {
                for (slot, extent) in slots.zip(extents) {
                    slot.copy_from_slice(RawExtent::of(extent).as_bytes());
                }
            }
            Entries::Index(children) => {
                for (slot, child) in slots.zip(children) {
                    slot.copy_from_slice(RawIndex::of(child).as_bytes());
                }
            }
        }
    }

    fn is_leaf(&self) -> bool {
        matches!(self.entries, Entries::Leaf(_))
    }
}

fn decode_extents(raw: &[u8], expected: &Expected) -> Result<Vec<Extent>, Cause> {
    let raw = <[RawExtent]>::ref_from_bytes(raw).map_err(|_| Cause::Short { len: raw.len() })?;
    let mut extents = Vec::with_capacity(raw.len());
    let mut from = expected.range.start;
    for (i, raw) in raw.iter().enumerate() {
        let extent = raw.decode();
        let Extent { start, len, block, .. } = extent;
        if len == 0 {
            return Err(Cause::EmptyExtent { start });
        }
        check_start(start, i, from, expected)?;
        let end = start.0.checked_add(len).filter(|end| *end <= expected.range.end);
        from = end.ok_or(Cause::Range { start, to: FileBlock(expected.range.end) })?;
        check_target(start, block, len, expected)?;
        extents.push(extent);
    }
    Ok(extents)
}

fn decode_children(raw: &[u8], expected: &Expected) -> Result<Vec<Index>, Cause> {
    let raw = <[RawIndex]>::ref_from_bytes(raw).map_err(|_| Cause::Short { len: raw.len() })?;
    if raw.is_empty() {
        return Err(Cause::EmptyIndex);
    }
    let mut children = Vec::with_capacity(raw.len());
    let mut from = expected.range.start;
    for (i, raw) in raw.iter().enumerate() {
        let index = raw.decode();
        let start = index.start;
        check_start(start, i, from, expected)?;
        if start.0 >= expected.range.end {
            return Err(Cause::Range { start, to: FileBlock(expected.range.end) });
        }
        from = start.0 + 1; // below END, as the range's end is at most that
        check_target(start, index.child, 1, expected)?;
        children.push(index);
    }
    Ok(children)
}

/// Checks that entry `i` starts at `from` or later. In a node below the root, the first entry must
/// start exactly at `from`. Because of this check, no walk visits a node twice. The kernel and
/// e2fsck have the same requirement.
fn check_start(start: FileBlock, i: usize, from: u32, expected: &Expected) -> Result<(), Cause> {
    if i == 0 && start.0 != from && expected.position != NodePosition::Root {
        return Err(Cause::FirstEntry { start, expected: FileBlock(from) });
    }
    if start.0 < from {
        return Err(Cause::Order { start });
    }
    Ok(())
}

fn check_target(
    start: FileBlock,
    block: Block,
    len: u32,
    expected: &Expected,
) -> Result<(), Cause> {
    let end = block.0.checked_add(u64::from(len));
    if block.0 < expected.space.start || end.is_none_or(|end| end > expected.space.end) {
        return Err(Cause::Target { start, block, len });
    }
    Ok(())
}

impl RawExtent {
    fn decode(&self) -> Extent {
        let raw_len = self.ee_len.get();
        let (len, state) = if raw_len <= LEN_WRITTEN_MAX {
            (raw_len, State::Written)
        } else {
            (raw_len - LEN_WRITTEN_MAX, State::Unwritten)
        };
        Extent {
            start: FileBlock(self.ee_block.get()),
            len: u32::from(len),
            block: join(self.ee_start_hi, self.ee_start_lo),
            state,
        }
    }

    fn of(extent: &Extent) -> RawExtent {
        assert!(
            extent.len > 0 && extent.len <= extent.state.max_len(),
            "{extent:?} cannot be encoded"
        );
        let len = extent.len as u16;
        let (hi, lo) = split(extent.block);
        RawExtent {
            ee_block: extent.start.0.into(),
            ee_len: match extent.state {
                State::Written => len.into(),
                State::Unwritten => (len + LEN_WRITTEN_MAX).into(),
            },
            ee_start_hi: hi,
            ee_start_lo: lo,
        }
    }
}

impl RawIndex {
    fn decode(&self) -> Index {
        Index {
            start: FileBlock(self.ei_block.get()),
            child: join(self.ei_leaf_hi, self.ei_leaf_lo),
        }
    }

    fn of(index: &Index) -> RawIndex {
        let (hi, lo) = split(index.child);
        RawIndex {
            ei_block: index.start.0.into(),
            ei_leaf_lo: lo,
            ei_leaf_hi: hi,
            ei_unused: 0.into(),
        }
    }
}

/// Joins the halves of a physical block number, which has 48 bits.
fn join(hi: U16, lo: U32) -> Block {
    Block(u64::from(hi.get()) << 32 | u64::from(lo.get()))
}

fn split(block: Block) -> (U16, U32) {
    assert!(block.0 >> 48 == 0, "{block} has more than 48 bits");
    (((block.0 >> 32) as u16).into(), (block.0 as u32).into())
}

/// Verifies the checksum of a node in a block. `seed` is the result of [`Seed::of_inode`].
pub fn verify(bytes: &[u8], seed: Seed) -> Result<(), Cause> {
    let at = tail_offset(bytes)?;
    let short = Cause::Short { len: bytes.len() };
    let (covered, tail) = bytes.split_at_checked(at).ok_or(short.clone())?;
    let (found, _) = U32::ref_from_prefix(tail).map_err(|_| short)?;
    let (found, computed) = (found.get(), seed.chain(covered).value());
    if found == computed { Ok(()) } else { Err(Cause::Checksum { found, computed }) }
}

/// Sets the checksum of a node in a block. `seed` is the result of [`Seed::of_inode`].
///
/// # Panics
/// If `bytes` is not a node that fills a block.
pub fn seal(bytes: &mut [u8], seed: Seed) {
    let at = tail_offset(bytes).expect("only our own nodes are sealed");
    let (covered, tail) = bytes.split_at_mut(at);
    tail[..TAIL].copy_from_slice(&seed.chain(covered).value().to_le_bytes());
}

/// Returns the offset of the checksum: after the last possible entry, not at the end of the block.
fn tail_offset(bytes: &[u8]) -> Result<usize, Cause> {
    let (header, _) =
        RawHeader::ref_from_prefix(bytes).map_err(|_| Cause::Short { len: bytes.len() })?;
    let (max, fits) = (header.eh_max.get(), capacity(bytes.len().saturating_sub(TAIL)));
    if max > fits {
        return Err(Cause::Max { max, fits });
    }
    Ok(HEADER + usize::from(max) * ENTRY)
}

#[cfg(test)]
mod tests;
