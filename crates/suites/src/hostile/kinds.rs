//! The kinds of damage, each with words that the expected error contains.

use super::target::{I_BLOCK, I_FILE_ACL, SUPER, Target};
use lanefs_ondisk::Ino;

/// The offset of the lower half of an inode's size.
const I_SIZE: u64 = 4;

/// A kind of damage.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Words in the expected error; empty if the damage may go unnoticed.
    pub says: &'static str,
    /// Damages the image.
    pub damage: fn(&Target),
}

const fn kind(name: &'static str, says: &'static str, damage: fn(&Target)) -> Kind {
    Kind { name, says, damage }
}

/// Damage to an image that was unmounted cleanly.
pub const CLEAN: &[Kind] = &[
    kind("no magic", "superblock", |v| v.put16(SUPER + 0x38, 0)),
    kind("a block of 2^50 bytes", "superblock", |v| v.put32(SUPER + 0x18, 40)),
    kind("no blocks in a group", "superblock", |v| v.put32(SUPER + 0x20, 0)),
    kind("too many blocks in a group", "superblock", |v| v.put32(SUPER + 0x20, 1 << 30)),
    kind("no inodes in a group", "superblock", |v| v.put32(SUPER + 0x28, 0)),
    kind("too many inodes in a group", "superblock", |v| v.put32(SUPER + 0x28, 1 << 30)),
    kind("another number of inodes", "superblock", |v| v.put32(SUPER, 77)),
    kind("inodes of 7 bytes", "superblock", |v| v.put16(SUPER + 0x58, 7)),
    kind("a first data block far off", "superblock", |v| v.put32(SUPER + 0x14, 999)),
    kind("more blocks than the image", "", |v| v.put32(SUPER + 4, 1 << 28)),
    kind("descriptors of 3 bytes", "superblock", |v| v.put16(SUPER + 0xfe, 3)),
    kind("a first inode of 0", "superblock", |v| v.put32(SUPER + 0x54, 0)),
    kind("groups of 2^200", "superblock", |v| v.put(SUPER + 0x174, &[200])),
    kind("too many reserved descriptors", "superblock", |v| v.put16(SUPER + 0xce, 60_000)),
    kind("an unknown feature", "not supported", |v| {
        v.put32(SUPER + 0x60, v.get32(SUPER + 0x60) | 1 << 31);
    }),
    kind("a journal in no inode", "", |v| v.put32(SUPER + 0xe0, 9_999_999)),
    kind("a journal in the root", "", |v| v.put32(SUPER + 0xe0, 2)),
    kind("an orphan file in the root", "", |v| v.put32(SUPER + 0x280, 2)),
    kind("the root as an orphan", "", |v| v.put32(SUPER + 0xe8, 2)),
    kind("an orphan out of range", "", |v| v.put32(SUPER + 0xe8, u32::MAX)),
    kind("a block bitmap out of range", "descriptor", |v| v.put32(v.descriptor(0), u32::MAX)),
    kind("an inode bitmap in block 0", "descriptor", |v| v.put32(v.descriptor(0) + 4, 0)),
    kind("an inode table out of range", "descriptor", |v| v.put32(v.descriptor(1) + 8, u32::MAX)),
    kind("an inode table at the superblock", "", |v| v.put32(v.descriptor(1) + 8, 1)),
    kind("two bitmaps in one block", "", |v| {
        v.put32(v.descriptor(0), v.get32(v.descriptor(0) + 4));
    }),
    kind("more free blocks than there are", "", |v| v.put16(v.descriptor(0) + 12, 0xffff)),
    kind("more free inodes than there are", "", |v| v.put16(v.descriptor(0) + 14, 0xffff)),
    kind("odd flags of a group", "", |v| v.put16(v.descriptor(0) + 18, 0xffff)),
    kind("a block bitmap of zeros", "", |v| v.put(v.group_blocks(0)[0], &[0; 1024])),
    kind("a block bitmap of ones", "", |v| v.put(v.group_blocks(0)[0], &[255; 1024])),
    kind("an inode bitmap of zeros", "", |v| v.put(v.group_blocks(0)[1], &[0; 1024])),
    kind("an inode bitmap of ones", "", |v| v.put(v.group_blocks(0)[1], &[255; 1024])),
    kind("a root that is a file", "inode 2", |v| v.put16(v.inode(Ino::ROOT), 0x81a4)),
    kind("a root of no type", "", |v| v.put16(v.inode(Ino::ROOT), 0)),
    kind("an inode of no type", "stale", |v| v.put16(v.inode_of("data/large"), 0)),
    kind("an inode without links", "stale", |v| v.put16(v.inode_of("data/large") + 0x1a, 0)),
    kind("a size beyond all", "", |v| v.put32(v.inode_of("data/large") + 0x6c, u32::MAX)),
    kind("a huge directory", "", |v| v.put32(v.inode_of("big") + 4, u32::MAX)),
    kind("a huge symbolic link", "inode", |v| v.put32(v.inode_of("kinds/slow link") + 4, 1 << 30)),
    kind("a long fast link", "inode", |v| v.put32(v.inode_of("kinds/fast link") + 4, 5000)),
    kind("an extra size too large", "inode", |v| v.put16(v.inode_of("data/large") + 0x80, 0xfff0)),
    kind("an extra size that is odd", "inode", |v| v.put16(v.inode_of("data/large") + 0x80, 3)),
    kind("an inode with data inside", "", |v| {
        let flags = v.inode_of("data/large") + 0x20;
        v.put32(flags, v.get32(flags) | 0x1000_0000);
    }),
    kind("an inode without extents", "", |v| v.put32(v.inode_of("data/large") + 0x20, 0)),
    kind("attributes out of range", "", |v| {
        v.put32(v.inode_of("attributes/block") + I_FILE_ACL, u32::MAX);
    }),
    kind("attributes in the superblock", "", |v| {
        v.put32(v.inode_of("attributes/block") + I_FILE_ACL, 1);
    }),
    kind("a node without magic", "extent", |v| v.put16(v.inode_of("data/large") + I_BLOCK, 0)),
    kind("a tree of depth 9", "extent", |v| v.put16(v.inode_of("data/pieces") + I_BLOCK + 6, 9)),
    kind("more extents than fit", "extent", |v| {
        v.put16(v.inode_of("data/large") + I_BLOCK + 2, 5000);
    }),
    kind("room for more than there is", "extent", |v| {
        v.put16(v.inode_of("data/large") + I_BLOCK + 4, 5000);
    }),
    kind("an extent out of range", "extent", |v| {
        v.put32(v.inode_of("data/large") + I_BLOCK + 20, u32::MAX);
    }),
    kind("an extent of length 0", "extent", |v| {
        v.put16(v.inode_of("data/large") + I_BLOCK + 16, 0)
    }),
    kind("an extent over metadata", "", |v| {
        v.put32(v.inode_of("data/large") + I_BLOCK + 20, v.get32(v.descriptor(0)));
    }),
    kind("an extent over another file", "", |v| {
        let other = v.blocks(v.inode_of("data/punched"))[0] / v.block_size();
        v.put32(v.inode_of("data/large") + I_BLOCK + 20, other as u32);
    }),
    kind("a tree that loops", "extent", |v| {
        let nodes = v.nodes(v.inode_of("data/pieces"));
        let own = (nodes[1] / v.block_size()) as u32;
        // An index node that refers to itself as its child.
        v.put16(nodes[1] + 6, v.get16(nodes[0] + 6));
        v.put32(nodes[1] + 12 + 4, own);
    }),
    kind("one node in two trees", "", |v| {
        let nodes = v.nodes(v.inode_of("data/pieces"));
        let other = v.inode_of("data/other pieces") + I_BLOCK;
        v.put32(other + 12 + 4, (nodes[1] / v.block_size()) as u32);
    }),
    kind("extents out of order", "extent", |v| {
        let node = v.nodes(v.inode_of("data/pieces"))[1];
        v.put32(node + 12, u32::MAX);
    }),
    kind("a record of length 0", "directory", |v| v.put16(leaf(v, "names") + 4, 0)),
    kind("a record of odd length", "directory", |v| v.put16(leaf(v, "names") + 4, 13)),
    kind("a record over the end", "directory", |v| v.put16(leaf(v, "names") + 4, 0xfffc)),
    kind("a name over its record", "directory", |v| v.put(leaf(v, "names") + 6, &[255])),
    kind("a name for no inode", "", |v| v.put32(leaf(v, "names") + 24, 99_999_999)),
    kind("a name for the journal", "", |v| v.put32(leaf(v, "names") + 24, 8)),
    kind("an odd type of a name", "", |v| v.put(leaf(v, "names") + 24 + 7, &[99])),
    kind("a name with a slash", "", |v| v.put(leaf(v, "names") + 24 + 8, b"/")),
    kind("a name with a zero byte", "", |v| v.put(leaf(v, "names") + 24 + 8, &[0])),
    kind("a dot to elsewhere", "", |v| v.put32(leaf(v, "deep"), 8)),
    kind("two dots to itself", "", |v| v.put32(leaf(v, "deep") + 12, v.ino("deep").0)),
    kind("two dots to a directory below", "ring", |v| {
        v.put32(leaf(v, "deep") + 12, v.ino("deep/level 0").0);
    }),
    kind("two dots that go round through five", "ring", |v| {
        v.put32(leaf(v, "deep") + 12, v.ino("deep/level 0/level 1/level 2/level 3").0);
    }),
    kind("a directory below itself", "", |v| v.put32(leaf(v, "deep/level 0") + 24, 2)),
    kind("an unknown hash", "directory", |v| v.put(leaf(v, "big") + 0x1c, &[99])),
    kind("an index of 9 levels", "directory", |v| v.put(leaf(v, "big") + 0x1e, &[9])),
    kind("an index with more than fits", "directory", |v| v.put16(leaf(v, "big") + 0x22, 60_000)),
    kind("an index with another limit", "directory", |v| v.put16(leaf(v, "big") + 0x20, 60_000)),
    kind("an index to no block", "directory", |v| v.put32(leaf(v, "big") + 0x24, 0x0fff_fff0)),
    kind("an index to itself", "directory", |v| v.put32(leaf(v, "big") + 0x24, 0)),
    kind("an index out of order", "directory", |v| v.put32(leaf(v, "big") + 0x28, u32::MAX)),
    kind("an attribute block without magic", "attributes", |v| v.put32(xattr(v), 0)),
    kind("an attribute block of two blocks", "attributes", |v| v.put32(xattr(v) + 8, 2)),
    kind("an attribute block without owners", "attributes", |v| v.put32(xattr(v) + 4, 0)),
    kind("an attribute block of all owners", "", |v| v.put32(xattr(v) + 4, u32::MAX)),
    kind("an attribute with a long name", "attributes", |v| v.put(xattr(v) + 32, &[255])),
    kind("an attribute value over the end", "attributes", |v| v.put16(xattr(v) + 34, 0xfff0)),
    kind("an attribute value of 4 GiB", "attributes", |v| v.put32(xattr(v) + 40, u32::MAX)),
    kind("an attribute value in an inode", "", |v| v.put32(xattr(v) + 36, 12)),
    kind("attributes in the inode, too long", "attributes", |v| {
        v.put(v.inode_of("attributes/inside") + 0x80 + 32 + 4, &[255]);
    }),
    kind("no magic in the log", "journal", |v| v.put32(log(v), 0)),
    kind("a log of other blocks", "journal", |v| v.put(log(v) + 12, &[0, 0, 0, 7])),
    kind("a log longer than its file", "journal", |v| v.put(log(v) + 16, &[127, 0, 0, 0])),
    kind("a log of no length", "journal", |v| v.put(log(v) + 16, &[0; 4])),
    kind("a log that begins at 0", "journal", |v| v.put(log(v) + 20, &[0; 4])),
    kind("a log with an unknown feature", "", |v| v.put(log(v) + 0x28, &[128, 0, 0, 0])),
    kind("a log that starts out of range", "journal", |v| v.put(log(v) + 28, &[127, 0, 0, 0])),
    kind("a log with a hole", "journal's inode", |v| {
        let len = v.inode(Ino::JOURNAL) + I_BLOCK + 16;
        v.put16(len, v.get16(len) - 1);
    }),
    kind("a log with a hole at its end", "journal's inode", |v| {
        let size = v.inode(Ino::JOURNAL) + I_SIZE;
        v.put32(size, v.get32(size) + v.block_size() as u32);
    }),
    kind("a log beyond its size", "journal's inode", |v| {
        let size = v.inode(Ino::JOURNAL) + I_SIZE;
        v.put32(size, v.get32(size) - v.block_size() as u32);
    }),
    kind("bits of open inodes clear", "bitmap", |v| {
        for group in 0..2 {
            // Clears the inode bitmap except its first 16 bits, and adds the cleared bits to the
            // descriptor's count of free inodes.
            let (bits, free) = (v.group_blocks(group)[1] + 2, v.descriptor(group) + 14);
            let set: u32 = v.read(bits, 200).iter().map(|byte| byte.count_ones()).sum();
            v.put(bits, &[0; 200]);
            v.put16(free, v.get16(free) + set as u16);
        }
    }),
    kind("a log in another file", "", |v| {
        let other = v.blocks(v.inode_of("data/large"))[0] / v.block_size();
        v.put32(v.inode(Ino::JOURNAL) + I_BLOCK + 20, other as u32);
    }),
];

/// Damage to an image that has orphans, and transactions in its log.
pub const CRASHED: &[Kind] = &[
    kind("a first descriptor without magic", "", |v| v.put32(tag(v) - 12, 0)),
    kind("a tag to block 0", "", |v| v.put(tag(v), &[0; 4])),
    kind("a tag out of range", "logged block", |v| v.put(tag(v), &[127, 255, 255, 255])),
    kind("a tag into the log", "logged block", |v| {
        let own = (log(v) / v.block_size()) as u32;
        v.put(tag(v), &own.to_be_bytes());
    }),
    kind("a descriptor without a last tag", "", |v| v.put(tag(v) + 4, &[0; 4])),
    kind("a log with another sequence", "", |v| v.put(log(v) + 24, &[1, 2, 3, 4])),
    kind("a log that is noise", "", |v| {
        let mut rng = fastrand::Rng::with_seed(1);
        for block in v.log().into_iter().skip(v.log_start()).take(30) {
            let bytes: Vec<u8> = (0..v.block_size()).map(|_| rng.u8(..)).collect();
            v.put(block, &bytes);
        }
    }),
    kind("an orphan of the root", "", |v| orphan(v, 2)),
    kind("an orphan of the journal", "", |v| orphan(v, 8)),
    kind("an orphan out of range", "", |v| orphan(v, u32::MAX)),
    kind("an orphan with names", "", |v| orphan(v, v.ino("data/large").0)),
];

/// Damage to files with block maps.
pub const MAPS: &[Kind] = &[
    kind("a pointer out of range", "block map", |v| {
        v.put32(v.inode_of("data/large") + I_BLOCK + 8, u32::MAX);
    }),
    kind("an indirect block out of range", "block map", |v| {
        v.put32(v.inode_of("data/large") + I_BLOCK + 48, u32::MAX);
    }),
    kind("a pointer in a node out of range", "block map", |v| v.put32(map_node(v, 0), u32::MAX)),
    kind("a pointer over metadata", "metadata", |v| v.put32(map_node(v, 0), 3)),
    kind("a pointer to the journal", "metadata", |v| {
        v.put32(map_node(v, 0), (v.log()[9] / v.block_size()) as u32);
    }),
    kind("an indirect block over metadata", "metadata", |v| {
        v.put32(v.inode_of("data/large") + I_BLOCK + 48, v.get32(v.descriptor(0)));
    }),
    kind("a pointer over another file", "", |v| {
        let other = v.blocks(v.inode_of("data/punched"))[0] / v.block_size();
        v.put32(map_node(v, 0), other as u32);
    }),
    kind("a node that refers to itself", "twice", |v| {
        let node = map_node(v, 0);
        v.put32(node, (node / v.block_size()) as u32);
    }),
    kind("all pointers of each level to one node", "twice", |v| {
        let top = v.get32(v.inode_of("data/sparse") + I_BLOCK + 56);
        let nodes: Vec<u64> = (1..3).map(|n| map_node(v, n)).collect();
        let mut node = u64::from(top) * v.block_size();
        for next in nodes {
            let pointer = (next / v.block_size()) as u32;
            v.put(node, &pointer.to_le_bytes().repeat(256));
            node = next;
        }
        v.put32(v.inode_of("data/sparse") + I_BLOCK + 52, 0);
    }),
    kind("one node in two maps", "", |v| {
        let node = (map_node(v, 0) / v.block_size()) as u32;
        v.put32(v.inode_of("data/large") + I_BLOCK + 48, node);
    }),
    kind("a node that is a block of data", "", |v| {
        let file = v.inode_of("data/large");
        v.put32(file + I_BLOCK + 48, v.get32(file + I_BLOCK));
    }),
    kind("a journal whose map is out of range", "block map", |v| {
        v.put32(v.inode(Ino::JOURNAL) + I_BLOCK + 48, u32::MAX);
    }),
    kind("a journal without a map", "", |v| v.put(v.inode(Ino::JOURNAL) + I_BLOCK, &[0; 60])),
    kind("a directory with a hole", "directory", |v| {
        v.put32(v.inode_of("big") + I_BLOCK + 4, 0);
    }),
];

/// Damage to `data/large`, which is a verity file. Its data is followed by 6 blocks of the hash
/// tree, and then by the block of the verity descriptor.
pub const VERITY: &[Kind] = &[
    kind("a verity descriptor of no bytes", "a descriptor of 0 bytes", |v| {
        v.put32(descriptor(v) + v.block_size() - 4, 0);
    }),
    kind("a verity descriptor of 4 GiB", "a descriptor of 4294967295 bytes", |v| {
        v.put32(descriptor(v) + v.block_size() - 4, u32::MAX);
    }),
    kind("a verity descriptor over the data", "and the hash tree begins at byte 196608", |v| {
        v.put32(descriptor(v) + v.block_size() - 4, 16_384);
    }),
    kind("a verity descriptor of version 2", "descriptor of version 2", |v| {
        v.put(descriptor(v), &[2]);
    }),
    kind("an unknown algorithm of a hash tree", "unknown hash algorithm 9", |v| {
        v.put(descriptor(v) + 1, &[9]);
    }),
    kind("a hash tree of huge blocks", "blocks of 2^60 bytes in the hash tree", |v| {
        v.put(descriptor(v) + 2, &[60]);
    }),
    kind("a salt longer than its field", "a salt of 200 bytes", |v| {
        v.put(descriptor(v) + 3, &[200]);
    }),
    kind("a signature longer than its descriptor", "a signature of 4294967295 bytes", |v| {
        v.put32(descriptor(v) + 4, u32::MAX);
    }),
    kind("a hash tree for another size", "the hash tree is for 7 bytes", |v| {
        v.put32(descriptor(v) + 8, 7);
    }),
    kind("a reserved byte of a verity descriptor", "reserved bytes of the descriptor", |v| {
        v.put(descriptor(v) + 255, &[1]);
    }),
    kind("a verity file whose tree is inside it", "it has no block after its data", |v| {
        v.put32(v.inode_of("data/large") + 4, 300_000);
    }),
    kind("a verity file of a TiB", "it has no block after its data", |v| {
        let (inode, descriptor) = (v.inode_of("data/large"), descriptor(v));
        [inode + 0x6c, descriptor + 12].into_iter().for_each(|high| v.put32(high, 1 << 8));
    }),
    kind("a verity file without a tree", "it has no block after its data", |v| {
        let flags = v.inode_of("data/punched") + 0x20;
        v.put32(flags, v.get32(flags) | 0x10_0000);
    }),
    kind("a verity file without extents", "its blocks are not mapped by extents", |v| {
        let flags = v.inode_of("data/large") + 0x20;
        v.put32(flags, v.get32(flags) & !0x8_0000);
    }),
    kind("another root hash", "block 0 of level 2 of its hash tree was changed", |v| {
        v.put(descriptor(v) + 16, &[0; 32]);
    }),
    kind(
        "a changed block of a hash tree",
        "block 4 of level 1 of its hash tree was changed",
        |v| {
            v.put(descriptor(v) - v.block_size(), &[0; 32]);
        },
    ),
    kind("a changed block of a verity file", "block 77 of its data was changed", |v| {
        v.put(v.blocks(v.inode_of("data/large"))[77], b"other data");
    }),
];

/// Returns the byte offset of the verity file's descriptor.
fn descriptor(v: &Target) -> u64 {
    v.blocks(v.inode_of("data/large")).pop().expect("a block")
}

/// Returns the byte offset of the `n`-th indirect block of `data/sparse`, a file with many holes.
fn map_node(v: &Target, n: usize) -> u64 {
    v.block_map(v.inode_of("data/sparse")).0[n]
}

/// Returns the byte offset of a directory's first block.
fn leaf(v: &Target, path: &str) -> u64 {
    v.blocks(v.inode_of(path))[0]
}

/// Returns the byte offset of the attribute block of a file that has one.
fn xattr(v: &Target) -> u64 {
    u64::from(v.get32(v.inode_of("attributes/block") + I_FILE_ACL)) * v.block_size()
}

/// Returns the byte offset of the log's superblock, whose numbers are big-endian.
fn log(v: &Target) -> u64 {
    v.log()[0]
}

/// Returns the byte offset of the first tag in the first live descriptor block of the log.
fn tag(v: &Target) -> u64 {
    v.log()[v.log_start()] + 12
}

/// Makes `ino` the head of the orphan list and, if there is an orphan file, also the first entry of
/// that file.
fn orphan(v: &Target, ino: u32) {
    v.put32(SUPER + 0xe8, ino);
    let file = v.get32(SUPER + 0x280);
    if file != 0 {
        v.put32(v.blocks(v.inode(Ino(file)))[0], ino);
    }
}
