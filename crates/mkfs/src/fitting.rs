//! The layout of a file system whose size is computed from its files.
//!
//! Superblock and descriptors come first, with room for descriptors of a fixed number of groups;
//! then the data; then bitmaps, inode tables and journal, in as many groups as are needed. Only
//! superblock, descriptors and their backups are placed before the data is written; all other
//! metadata is placed afterwards.

use crate::journal;
use crate::layout::{File, Layout, Tables, orphan_file_blocks};
use crate::numbers::Numbers;
use crate::options::{InodeCount, JournalSize, MkfsOptions, Spare};
use crate::report::MkfsError;
use crate::runs::Runs;
use lanefs_ondisk::features::Compat;
use lanefs_ondisk::superblock::Superblock;
use lanefs_ondisk::{BlockSize, Group};

/// Bytes reserved for descriptors behind each superblock. They suffice until the file system grows
/// beyond 128 GiB (8 GiB with 1 KiB blocks).
const DESCRIPTOR_BYTES: u32 = 64 << 10;
/// One additional inode is created per this many bytes of wanted free space.
const FREE_BYTES_PER_INODE: u64 = 16 << 10;
/// A last group with fewer free blocks than this is left out, because its bitmaps and inode table
/// would take more blocks than it adds.
const MIN_LAST_GROUP: u64 = 8;

fn reserve(block_size: BlockSize) -> u32 {
    DESCRIPTOR_BYTES / block_size.bytes() as u32
}

/// Returns the smallest number of blocks that a last group may have.
fn least_group(block_size: BlockSize) -> u64 {
    1 + u64::from(reserve(block_size)) + MIN_LAST_GROUP
}

/// The blocks that are taken before the size of the file system is known.
pub(crate) struct Fitting {
    pub(crate) used: Runs,
    /// The numbers of a file system of the largest possible size.
    numbers: Numbers,
}

fn block_size(options: &MkfsOptions) -> Option<BlockSize> {
    options.block_size.or(BlockSize::new(4096))
}

/// Returns the largest size in bytes of a file system whose size is computed from its files.
pub fn most_bytes_fitted(options: &MkfsOptions) -> u64 {
    let Some(block_size) = block_size(options) else { return 0 };
    let (desc_size, per_group) = (64, u64::from(block_size.most_blocks_per_group()));
    u64::from(DESCRIPTOR_BYTES) / desc_size * per_group * block_size.bytes() as u64
}

impl Fitting {
    /// Takes the blocks of the superblock, of the descriptors, and of all their possible backups.
    pub(crate) fn new(options: &MkfsOptions, device: u64) -> Result<Fitting, MkfsError> {
        let block_size = block_size(options).ok_or(MkfsError::Option { option: "block size" })?;
        let bytes = most_bytes_fitted(options).min(device);
        let blocks = bytes >> block_size.bits();
        // A last group is left out if its own backups would fill it.
        let first = u64::from(block_size.bytes() == 1024);
        let last = blocks.saturating_sub(first) % u64::from(block_size.most_blocks_per_group());
        let blocks = if last < least_group(block_size) { blocks - last } else { blocks };
        let numbers = Numbers::fitted(options, block_size, blocks, 16, reserve(block_size))?;
        let superblock = Superblock::from_raw(numbers.raw_superblock(options))?;
        let geometry = superblock.geometry();
        let mut used = Runs::new(geometry.block_count());
        used.take(0, geometry.first_data_block().0);
        for group in (0..geometry.group_count()).map(Group) {
            let overhead = u64::from(geometry.group_overhead(group));
            let Some(first) = geometry.group_first_block(group) else { continue };
            if used.is_free(first.0, overhead) {
                used.take(first.0, overhead);
            } else {
                return Err(MkfsError::TooSmall { bytes });
            }
        }
        Ok(Fitting { used, numbers })
    }

    pub(crate) fn block_size(&self) -> BlockSize {
        self.numbers.block_size
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Decides from the end of the data and the wanted free space whether there is a journal. This
    /// is decided before the files get inode numbers: only with a journal can there be an orphan
    /// file, and its inode number is below those of the files.
    pub(crate) fn choose_journal(
        &mut self,
        options: &mut MkfsOptions,
        data_end: u64,
        spare: Spare,
    ) -> Result<(), MkfsError> {
        let end = data_end + spare.blocks(data_end, self.block_size());
        match options.journal {
            JournalSize::Blocks(blocks) if blocks < journal::LEAST_BLOCKS => {
                return Err(MkfsError::JournalSize { blocks });
            }
            JournalSize::BySize if journal::default_blocks(end) == 0 => {
                options.journal = JournalSize::None;
            }
            _ => {}
        }
        if options.journal == JournalSize::None {
            self.numbers.features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE;
        }
        Ok(())
    }

    /// Chooses the smallest size that has room for the taken blocks and for `files` inodes, and
    /// places the remaining metadata.
    pub(crate) fn close(
        self,
        options: &MkfsOptions,
        files: u64,
        spare: Spare,
        data_end: u64,
    ) -> Result<(Numbers, Layout), MkfsError> {
        let full = || MkfsError::Full { bytes: most_bytes_fitted(options) };
        let mut blocks = data_end;
        // Each round places all metadata for the size that the previous round found; the size never
        // decreases.
        for _ in 0..64 {
            let (numbers, mut layout) = self.attempt(options, files, spare, blocks)?;
            let wanted = layout.place_behind(&numbers, data_end).ok_or_else(full)?;
            let end = wanted + spare.blocks(wanted, self.block_size());
            // Backups that lie within the free space do not count as free space.
            let backups = self.used.used_in(wanted..end).map(|run| run.end - run.start);
            let end = self.round_up(end + backups.sum::<u64>());
            if end > self.used.end() {
                return Err(full());
            }
            if end <= numbers.blocks {
                let blocks = numbers.blocks;
                layout.used.cut(blocks);
                return Ok((numbers, layout));
            }
            blocks = end;
        }
        Err(full())
    }

    /// Rounds `end` up, so that the last group has at least [`MIN_LAST_GROUP`] blocks in addition
    /// to its backups.
    fn round_up(&self, end: u64) -> u64 {
        let first = self.numbers.first_data_block();
        let per_group = u64::from(self.numbers.blocks_per_group);
        let last = end.saturating_sub(first) % per_group;
        let least = least_group(self.block_size());
        if last > 0 && last < least { end - last + least } else { end }
    }

    /// Returns the numbers and an empty layout for a file system of `blocks` blocks.
    fn attempt(
        &self,
        options: &MkfsOptions,
        files: u64,
        spare: Spare,
        blocks: u64,
    ) -> Result<(Numbers, Layout), MkfsError> {
        let bits = self.block_size().bits();
        let free = spare.bytes + (blocks << bits) / 100 * u64::from(spare.percent);
        let wanted = match options.inodes {
            InodeCount::BySize => files + 11 + free / FREE_BYTES_PER_INODE,
            InodeCount::PerBytes(ratio) => (files + 11).max((blocks << bits) / u64::from(ratio)),
            InodeCount::Count(count) => (files + 11).max(count.into()),
        };
        let many = MkfsError::TooManyInodes { inodes: wanted };
        let inodes = u32::try_from(wanted).map_err(|_| many)?;
        // A group has at most as many inodes as its bitmap has bits, so many small files need more
        // groups.
        let per_group = u64::from(self.numbers.blocks_per_group);
        let groups = wanted.div_ceil(self.numbers.most_inodes_per_group().into());
        let blocks = self.round_up(blocks.max((groups - 1) * per_group + 2));
        let reserve = reserve(self.block_size());
        let mut numbers = Numbers::fitted(options, self.block_size(), blocks, inodes, reserve)?;
        let by_size = journal::default_blocks(blocks).max(journal::LEAST_BLOCKS);
        numbers.set_journal(options, by_size);
        let superblock = Superblock::from_raw(numbers.raw_superblock(options))?;
        let layout = Layout::unplaced(superblock.geometry(), self.used.clone());
        Ok((numbers, layout))
    }
}

impl Layout {
    /// Places bitmaps, tables and journal after block `end`, and returns the block after the last
    /// of them.
    fn place_behind(&mut self, numbers: &Numbers, end: u64) -> Option<u64> {
        let groups = numbers.groups as usize;
        let table = u64::from(self.geometry.itable_blocks());
        let mut cursor = end;
        let mut place = |used: &mut Runs, len: u64| {
            let start = used.first_fit(cursor..used.end(), len)?;
            used.take(start, len);
            cursor = start + len;
            Some(start)
        };
        let block_bitmaps: Option<Vec<u64>> =
            (0..groups).map(|_| place(&mut self.used, 1)).collect();
        let inode_bitmaps: Option<Vec<u64>> =
            (0..groups).map(|_| place(&mut self.used, 1)).collect();
        let tables: Option<Vec<u64>> = (0..groups).map(|_| place(&mut self.used, table)).collect();
        let bitmaps = block_bitmaps?.into_iter().zip(inode_bitmaps?);
        let all = bitmaps.zip(tables?);
        self.tables = all
            .map(|((block_bitmap, inode_bitmap), inode_table)| Tables {
                block_bitmap,
                inode_bitmap,
                inode_table,
            })
            .collect();
        let compat = self.geometry.features().compat;
        if compat.contains(Compat::RESIZE_INODE) {
            self.resize = Some(place(&mut self.used, 1)?);
        }
        let mut last = cursor;
        let mut file = |layout: &mut Layout, blocks: u32| {
            let file = layout.place_file(last, blocks)?;
            last = file.end();
            Some(file)
        };
        if numbers.journal.blocks > 0 {
            self.journal = Some(file(self, numbers.journal.blocks)?);
            self.fast_commit_blocks = numbers.journal.fast_commit_blocks;
        }
        if compat.contains(Compat::ORPHAN_FILE) {
            self.orphans = Some(file(self, orphan_file_blocks(numbers.blocks))?);
        }
        Some(last)
    }
}

impl Spare {
    /// Returns how many blocks are to stay free if `used` blocks are used.
    fn blocks(self, used: u64, block_size: BlockSize) -> u64 {
        let percent = u128::from(used) * u128::from(self.percent) / 100;
        (self.bytes >> block_size.bits()) + percent as u64
    }
}

impl File {
    /// Returns the block after the file's last block.
    fn end(&self) -> u64 {
        let ends = self.extents.iter().map(|extent| extent.block.0 + u64::from(extent.len));
        ends.max().unwrap_or(0)
    }
}
