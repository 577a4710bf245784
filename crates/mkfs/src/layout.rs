//! Places every block, in the order of mke2fs: superblocks and descriptors, bitmaps and tables,
//! then the files that every file system has.
//!
//! Groups 0 and 1, and groups whose number is a power of 3, 5 or 7, start with the superblock and
//! the descriptors. After these, blocks are reserved for more descriptors. The bitmaps and inode
//! tables of 16 groups are together, at the start of the first of these 16. Then come the root
//! directory, `lost+found`, the resize inode's block of pointers, the journal (near the middle of
//! the file system) and the orphan file. If the descriptors and the reserved blocks would take more
//! than three quarters of a group, each block of descriptors is in the groups that it describes
//! (`meta_bg`). With blocks of 1 KiB this happens from about 700 GiB on. Without extents (ext2,
//! ext3) a file's pointer blocks are before the first block that they point to.
//!
//! If descriptors have checksums, some bitmaps are not written: the block bitmap of a group that
//! contains only its own metadata and is not the last group (`BLOCK_UNINIT`), and the inode bitmap
//! of a group without used inodes (`INODE_UNINIT`).

use crate::journal;
use crate::maps::BlockMap;
use crate::numbers::Numbers;
use crate::options::TablePlaces;
use crate::report::MkfsError;
use crate::runs::Runs;
use crate::tree::NewTree;
use lanefs_ondisk::extent::{Entries, Extent, Index, Node, State};
use lanefs_ondisk::features::{Compat, Incompat};
use lanefs_ondisk::superblock::{Geometry, RawSuperblock};
use lanefs_ondisk::{Block, BlockSize, FileBlock, Group, Ino, extent};

/// The positions of a group's bitmaps and inode table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables {
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
    pub(crate) inode_table: u64,
}

/// The positions of a file's blocks.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) extents: Vec<Extent>,
    /// Blocks of extent nodes or of pointers, if the inode cannot hold all extents or pointers.
    pub(crate) nodes: Vec<u64>,
}

/// The positions of all blocks.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) used: Runs,
    pub(crate) tables: Vec<Tables>,
    pub(crate) root: File,
    pub(crate) lost_and_found: File,
    /// The block of pointers to the reserved descriptor blocks.
    pub(crate) resize: Option<u64>,
    pub(crate) journal: Option<File>,
    /// How many of the journal's last blocks are for fast commits.
    pub(crate) fast_commit_blocks: u32,
    /// The block of multiple mount protection.
    pub(crate) mmp: Option<u64>,
    pub(crate) orphans: Option<File>,
    pub(crate) geometry: Geometry,
    /// Number of used inodes, without the reserved inodes, `lost+found` and the orphan file.
    files: u32,
    /// Directories per group.
    directories: Vec<u32>,
    /// Number of unused blocks that share a cluster with metadata.
    unused: u64,
}

/// Number of extents that an inode holds.
const ROOT_EXTENTS: usize = 4;

impl Layout {
    pub(crate) fn place(geometry: &Geometry, numbers: &Numbers) -> Result<Layout, MkfsError> {
        let mut used = Runs::new(geometry.block_count());
        // Without `bigalloc` no group contains the blocks before the superblock (the boot block),
        // so they are taken here.
        used.take(0, geometry.super_block().0);
        for group in (0..geometry.group_count()).map(Group) {
            let first = geometry.group_head(group).unwrap_or_default();
            let len = u64::from(geometry.group_overhead(group));
            if !used.is_free(first.0, len) {
                return Err(too_small(geometry));
            }
            used.take(first.0, len);
        }
        let tables = place_tables(geometry, numbers.tables, &mut used);
        let tables = tables.ok_or_else(|| too_small(geometry))?;
        // As in mke2fs, superblocks, descriptors, bitmaps and tables share clusters.
        let metadata = used.count();
        used.round_to(geometry.clusters());
        let unused = used.count() - metadata;
        let mut layout = Layout { tables, unused, ..Layout::unplaced(*geometry, used) };
        layout.place_files(numbers).ok_or_else(|| too_small(geometry))?;
        Ok(layout)
    }

    /// Returns a layout in which nothing is placed yet.
    pub(crate) fn unplaced(geometry: Geometry, used: Runs) -> Layout {
        Layout {
            used,
            tables: Vec::new(),
            root: File::default(),
            lost_and_found: File::default(),
            resize: None,
            journal: None,
            fast_commit_blocks: 0,
            mmp: None,
            orphans: None,
            geometry,
            files: 0,
            directories: Vec::new(),
            unused: 0,
        }
    }

    /// Counts the files of the tree, and the directories in each group. Fails if there are too few
    /// inodes.
    pub(crate) fn hold(&mut self, tree: &NewTree) -> Result<(), MkfsError> {
        let files = tree.files().len() as u64;
        let inodes = self.geometry.inode_count();
        let too_few = MkfsError::TooFewInodes { files, inodes: inodes.into() };
        self.files = u32::try_from(files - 2).map_err(|_| too_few.clone())?;
        if u64::from(self.geometry.first_ino().0) + 1 + files - 2 > inodes.into() {
            return Err(too_few);
        }
        self.directories = vec![0; self.geometry.group_count() as usize];
        let directories = tree.files().iter().zip(0..).filter(|(file, _)| file.is_directory());
        for (_, index) in directories {
            let ino = ino_of(index, self.orphans.is_some());
            let place = self.geometry.inode_place(ino);
            let count = place.and_then(|place| self.directories.get_mut(place.group.0 as usize));
            *count.ok_or_else(|| too_few.clone())? += 1;
        }
        Ok(())
    }

    /// Returns the number of directories in a group.
    pub(crate) fn directories_in(&self, group: Group) -> u32 {
        self.directories.get(group.0 as usize).copied().unwrap_or(0)
    }

    fn place_files(&mut self, numbers: &Numbers) -> Option<()> {
        let geometry = self.geometry;
        self.root = self.place_file(0, 1)?;
        let lost_and_found = lost_and_found_blocks(geometry.block_size());
        self.lost_and_found = self.place_file(0, lost_and_found)?;
        let compat = geometry.features().compat;
        if compat.contains(Compat::RESIZE_INODE) {
            let behind_table = u64::from(geometry.reserved_gdt_blocks())
                + geometry.first_data_block().0
                + 3
                + u64::from(geometry.itable_blocks());
            self.resize = Some(self.place_file(behind_table, 1)?.extents.first()?.block.0);
        }
        if numbers.journal.blocks > 0 {
            // As in mke2fs, a journal without extents is not placed near the middle of the file
            // system.
            let goal = match numbers.tables {
                TablePlaces::ByGroup if self.has_extents() => journal::goal(&geometry, &self.used),
                _ => 0,
            };
            self.journal = Some(self.place_file(goal, numbers.journal.blocks)?);
            self.fast_commit_blocks = numbers.journal.fast_commit_blocks;
        }
        if geometry.features().incompat.contains(Incompat::MMP) {
            let free = self.used.next_free(0)?;
            self.used.take(free.start, 1);
            self.mmp = Some(free.start);
        }
        if compat.contains(Compat::ORPHAN_FILE) {
            // As in mke2fs, the length of the orphan file is rounded up to whole clusters.
            let blocks = geometry.clusters().ceil(orphan_file_blocks(numbers.blocks));
            self.orphans = Some(self.place_file(0, blocks)?);
        }
        Some(())
    }

    /// Takes the next free blocks at or after `goal`; if they do not suffice, continues at the
    /// first free block of the file system.
    pub(crate) fn place_file(&mut self, goal: u64, blocks: u32) -> Option<File> {
        if !self.has_extents() {
            return self.place_mapped(goal, blocks);
        }
        let mut file = File::default();
        let mut goal = goal;
        let mut start = 0;
        while start < blocks {
            let free = self.used.next_free(goal).or_else(|| self.used.next_free(0))?;
            let most = u64::from(State::Written.max_len().min(blocks - start));
            let len = (free.end - free.start).min(most);
            self.used.take(free.start, len);
            let extent = Extent {
                start: FileBlock(start),
                len: len as u32,
                block: Block(free.start),
                state: State::Written,
            };
            file.extents.push(extent);
            start += len as u32;
            goal = free.start + len;
            // A node is allocated when there are too many extents for the root, or for the nodes
            // allocated so far. It is placed near the file's start.
            let room = self.leaf_extents() * file.nodes.len().max(1);
            let outgrown = file.extents.len() > ROOT_EXTENTS && file.nodes.is_empty();
            if outgrown || file.extents.len() > room {
                let near = file.extents.first()?.block.0 - 1;
                let free = self.used.next_free(near).or_else(|| self.used.next_free(0))?;
                self.used.take(free.start, 1);
                file.nodes.push(free.start);
            }
        }
        // Four leaves suffice for the longest journal with the smallest blocks.
        (file.nodes.len() <= ROOT_EXTENTS).then_some(file)
    }

    fn has_extents(&self) -> bool {
        self.geometry.features().incompat.contains(Incompat::EXTENTS)
    }

    /// Places a file without extents: each pointer block lies before the first block that it
    /// points to.
    fn place_mapped(&mut self, goal: u64, blocks: u32) -> Option<File> {
        let mut file = File::default();
        let mut map = BlockMap::new(self.geometry.block_size().bits());
        let (mut goal, mut start) = (goal, 0);
        while start < blocks {
            let used = &mut self.used;
            let mut one = || {
                let free = used.next_free(goal).or_else(|| used.next_free(0)).ok_or(())?;
                used.take(free.start, 1);
                goal = free.start + 1;
                Ok(free.start)
            };
            // Later, `fill` sets the positions of the data. Here the map only shows where pointer
            // blocks are needed.
            let mut nodes = Vec::new();
            map.set(start.into(), 0, 1, &mut || {
                let place = one()?;
                nodes.push(place);
                Ok::<u64, ()>(place)
            })
            .ok()?;
            file.nodes.append(&mut nodes);
            let free = used.next_free(goal).or_else(|| used.next_free(0))?;
            let most = (map.next_node(start.into()) as u32).min(blocks) - start;
            let len = (free.end - free.start).min(most.into());
            used.take(free.start, len);
            file.extents.push(Extent {
                start: FileBlock(start),
                len: len as u32,
                block: Block(free.start),
                state: State::Written,
            });
            start += len as u32;
            goal = free.start + len;
        }
        Some(file)
    }

    /// Returns the map of a file without extents.
    fn map_of(&self, file: &File) -> BlockMap {
        let mut map = BlockMap::new(self.geometry.block_size().bits());
        let mut nodes = file.nodes.iter();
        let filled = map.fill(&file.extents, &mut || nodes.next().copied().ok_or(()));
        debug_assert!(filled.is_ok(), "the layout has a place for each pointer block");
        map
    }

    fn leaf_extents(&self) -> usize {
        usize::from(extent::capacity(self.geometry.block_size().bytes()))
    }

    /// Returns the number of inodes in use: the reserved inodes, and the inodes of `lost+found`, of
    /// the orphan file and of the other files.
    pub(crate) fn used_inodes(&self) -> u32 {
        self.geometry.first_ino().0 + u32::from(self.orphans.is_some()) + self.files
    }

    /// Returns the number of inodes in use in a group.
    pub(crate) fn used_inodes_in(&self, group: Group) -> u32 {
        let per_group = self.geometry.inodes_per_group();
        self.used_inodes().saturating_sub(group.0.saturating_mul(per_group)).min(per_group)
    }

    /// Returns the number of blocks in use in a group.
    pub(crate) fn used_blocks_in(&self, group: Group) -> u32 {
        let runs = self.used.used_in(group_range(&self.geometry, group));
        runs.map(|run| (run.end - run.start) as u32).sum()
    }

    /// Returns the root node of a file's extents.
    ///
    /// If the inode cannot hold all extents, index entries overwrite the first extents there, and
    /// the bytes after the last index entry remain. They mean nothing, but mke2fs leaves them too,
    /// and the images must be equal.
    pub(crate) fn root_node(&self, file: &File) -> [u8; 60] {
        if !self.has_extents() {
            return self.map_of(file).block_field();
        }
        let held = file.extents.iter().take(ROOT_EXTENTS).copied().collect();
        let mut bytes = root_bytes(0, Entries::Leaf(held));
        if !file.nodes.is_empty() {
            let leaves = file.extents.chunks(self.leaf_extents()).zip(&file.nodes);
            let index = leaves.map(|(extents, &node)| Index {
                start: extents.first().map_or(FileBlock(0), |extent| extent.start),
                child: Block(node),
            });
            let index = root_bytes(1, Entries::Index(index.collect()));
            let len = 12 * (1 + file.nodes.len());
            bytes[..len].copy_from_slice(&index[..len]);
        }
        bytes
    }

    /// Returns the leaves of the file's extent tree with their positions, but without checksums.
    /// For a file without extents, returns its pointer blocks, which never have checksums.
    pub(crate) fn leaf_nodes(&self, file: &File) -> Vec<(u64, Vec<u8>)> {
        if !self.has_extents() {
            return self.map_of(file).blocks().collect();
        }
        let block_size = self.geometry.block_size().bytes();
        let leaves = file.extents.chunks(self.leaf_extents()).zip(&file.nodes);
        leaves
            .map(|(extents, &place)| {
                let max = extent::capacity(block_size);
                let entries = Entries::Leaf(extents.to_vec());
                let mut bytes = vec![0; block_size];
                Node { depth: 0, max, generation: 0, entries }.encode_into(&mut bytes);
                (place, bytes)
            })
            .collect()
    }

    /// Sets the fields of the superblock that depend on the layout.
    pub(crate) fn complete_superblock(&self, raw: &mut RawSuperblock) {
        let geometry = &self.geometry;
        let groups = || (0..geometry.group_count()).map(Group);
        let free = geometry.block_count() - self.used.count();
        raw.s_free_blocks_count_lo.set(free as u32);
        raw.s_free_blocks_count_hi.set((free >> 32) as u32);
        raw.s_free_inodes_count.set(geometry.inode_count() - self.used_inodes());
        let heads: u64 = groups().map(|group| u64::from(geometry.group_overhead(group))).sum();
        let tables = u64::from(geometry.group_count()) * (2 + u64::from(geometry.itable_blocks()));
        let journal = self.journal.as_ref().map_or(0, File::blocks);
        let clusters = geometry.clusters();
        let metadata = geometry.super_block().0 + heads + tables + self.unused;
        let overhead = (metadata >> clusters.bits()) + u64::from(clusters.holding(journal));
        raw.s_overhead_clusters.set(overhead as u32);
        raw.s_mmp_block.set(self.mmp.unwrap_or(0));
        if let Some(journal) = &self.journal {
            // A copy of the journal's mappings, which e2fsck uses if the journal's inode is
            // damaged.
            raw.s_jnl_backup_type = 1;
            let words = self.root_node(journal);
            for (word, bytes) in raw.s_jnl_blocks.iter_mut().zip(words.as_chunks().0) {
                word.set(u32::from_le_bytes(*bytes));
            }
            let size = u64::from(journal.blocks()) << geometry.block_size().bits();
            raw.s_jnl_blocks[15].set((size >> 32) as u32);
            raw.s_jnl_blocks[16].set(size as u32);
        }
    }
}

impl File {
    /// Returns the length in blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.extents.iter().map(|extent| extent.len).sum()
    }

    /// Returns the blocks of the file in order.
    pub(crate) fn places(&self) -> impl Iterator<Item = u64> {
        self.extents.iter().flat_map(|extent| (extent.block.0..).take(extent.len as usize))
    }
}

fn root_bytes(depth: u16, entries: Entries) -> [u8; 60] {
    let mut bytes = [0; 60];
    Node { depth, max: ROOT_EXTENTS as u16, generation: 0, entries }.encode_into(&mut bytes);
    bytes
}

/// Returns the blocks of a group.
pub(crate) fn group_range(geometry: &Geometry, group: Group) -> std::ops::Range<u64> {
    match (geometry.group_first_block(group), geometry.group_last_block(group)) {
        (Some(first), Some(last)) => first.0..last.0 + 1,
        _ => 0..0,
    }
}

/// The inode of the orphan file: the first one after `lost+found`.
pub(crate) const ORPHAN_FILE: Ino = Ino(12);

/// Returns the inode of the file with this index in the tree.
pub(crate) fn ino_of(index: u32, with_orphan_file: bool) -> Ino {
    match index {
        0 => Ino::ROOT,
        // `lost+found` is the first inode that is not reserved, and the orphan file is the next
        // one.
        1 => Ino(ORPHAN_FILE.0 - 1),
        _ => Ino(ORPHAN_FILE.0 - 2 + index + u32::from(with_orphan_file)),
    }
}

/// Returns the length of `lost+found` in blocks: 16 KiB, so that e2fsck can add names without
/// allocating. It is at least two blocks, and at most twelve, which need no indirect block.
pub(crate) fn lost_and_found_blocks(block_size: BlockSize) -> u32 {
    (16384 / block_size.bytes() as u32).clamp(2, 12)
}

pub(crate) fn orphan_file_blocks(blocks: u64) -> u32 {
    match blocks / 4096 {
        0..32 => 32,
        // A file system of 2^17 to 2^21 blocks has an orphan file with one block per 4,096 blocks
        // of the file system.
        count @ 32..512 => count as u32,
        _ => 512,
    }
}

fn too_small(geometry: &Geometry) -> MkfsError {
    MkfsError::TooSmall { bytes: geometry.block_count() << geometry.block_size().bits() }
}

fn place_tables(geometry: &Geometry, places: TablePlaces, used: &mut Runs) -> Option<Vec<Tables>> {
    let mut tables = Vec::new();
    match places {
        TablePlaces::ByGroup => return place_tables_from(geometry, used, 0),
        TablePlaces::AtStart => {
            let groups = 0..geometry.group_count();
            place_flexible(geometry, used, groups.clone(), groups.end, &mut tables)?
        }
    }
    Some(tables)
}

/// Places the bitmaps and tables of group `from` and of all later groups.
pub(crate) fn place_tables_from(
    geometry: &Geometry,
    used: &mut Runs,
    from: u32,
) -> Option<Vec<Tables>> {
    let groups = from..geometry.group_count();
    if !geometry.features().incompat.contains(Incompat::FLEX_BG) {
        return groups.map(|group| place_alone(geometry, used, Group(group))).collect();
    }
    let mut tables = Vec::with_capacity(groups.len());
    let (flex, mut leader) = (geometry.flex_size(), groups.start);
    while leader < groups.end {
        let end = (leader - leader % flex).saturating_add(flex).min(groups.end);
        // A flexible group that has only one group so far leaves room for the other groups.
        let gap = if end - leader == 1 { flex } else { end - leader };
        place_flexible(geometry, used, leader..end, gap, &mut tables)?;
        leader = end;
    }
    Some(tables)
}

/// Places all block bitmaps of a flexible group one after another, then all inode bitmaps, then all
/// tables; `gap` is the room for the bitmaps of one kind. They are as near to the start of the
/// first group as the free room permits. If a table does not fit before a used run, it is placed
/// after that run.
fn place_flexible(
    geometry: &Geometry,
    used: &mut Runs,
    groups: std::ops::Range<u32>,
    gap: u32,
    tables: &mut Vec<Tables>,
) -> Option<()> {
    let members = groups.len() as u32;
    let last = Group(groups.end - 1);
    let space = group_range(geometry, Group(groups.start)).start..group_range(geometry, last).end;
    let table = u64::from(geometry.itable_blocks());
    let most = u64::from(geometry.blocks_per_group() / 4);
    let mut place = |near: Option<u64>, len: u64| {
        let fits = near.filter(|&near| used.is_free(near, len));
        let together =
            || used.first_fit(space.clone(), (u64::from(members) * len).min(most).max(len));
        let alone = || used.first_fit(space.clone(), len);
        let anywhere = || used.first_fit(0..geometry.block_count(), len);
        let start = fits.or_else(together).or_else(alone).or_else(anywhere)?;
        used.take(start, len);
        Some(start)
    };
    let mut before: Option<Tables> = None;
    for _ in 0..members {
        let block_bitmap = place(before.map(|b| b.block_bitmap + 1), 1)?;
        let near = before.map_or(block_bitmap + u64::from(gap), |b| b.inode_bitmap + 1);
        let inode_bitmap = place(Some(near), 1)?;
        let near = before.map_or(inode_bitmap + u64::from(gap), |b| b.inode_table + table);
        let inode_table = place(Some(near), table)?;
        let placed = Tables { block_bitmap, inode_bitmap, inode_table };
        before = Some(placed);
        tables.push(placed);
    }
    Some(())
}

fn place_alone(geometry: &Geometry, used: &mut Runs, group: Group) -> Option<Tables> {
    let space = group_range(geometry, group);
    let mut place = |len: u64| {
        let start = used.first_fit(space.clone(), len)?;
        used.take(start, len);
        Some(start)
    };
    Some(Tables {
        block_bitmap: place(1)?,
        inode_bitmap: place(1)?,
        inode_table: place(u64::from(geometry.itable_blocks()))?,
    })
}

/// Returns the positions of descriptor block `index` and of its backups. `with_super` are the
/// groups that have a superblock.
pub(crate) fn descriptor_copies(
    geometry: &Geometry,
    with_super: &[Group],
    index: u32,
) -> Vec<Block> {
    let behind = |group: Group, distance: u64| {
        geometry.group_head(group).map(|head| Block(head.0 + distance))
    };
    if geometry.is_meta_bg(index) {
        let first = index * geometry.descs_per_block();
        let last = first + geometry.descs_per_block() - 1;
        let holders = [first, first + 1, last].map(Group);
        let place = |group| behind(group, geometry.group_has_super(group).into());
        return holders.into_iter().filter_map(place).collect();
    }
    // Groups in the `meta_bg` area have no copy of this descriptor block, but only of the block
    // that describes them.
    let has_all = |group: &&Group| !geometry.is_meta_bg(group.0 / geometry.descs_per_block());
    let holders = with_super.iter().filter(has_all);
    holders.filter_map(|&group| behind(group, 1 + u64::from(index))).collect()
}
