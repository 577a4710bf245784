//! Finds a copy of the superblock, and tells it from the superblock of another file system.
//!
//! Where the first copy would be, a partition may begin that has a file system of its own. The
//! group number in the superblock does not tell the two apart, because some kernels wrote 0 into
//! the copies of a file system that they enlarged. What does: the start of the file system from
//! which descriptor and inode table lead to a root directory.

use crate::bytes::{le16, le32};
use crate::record::Record;
use lanefs_device::Device;
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::superblock::{
    Cause, Geometry, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use lanefs_ondisk::{Block, BlockSize, Corruption, Ino};
use zerocopy::FromBytes;

/// The magic number of a node of an extent tree.
const EXTENT_MAGIC: u16 = 0xf30a;
/// The deepest extent tree.
const DEEPEST: u16 = 5;

/// A valid superblock at a place where a copy may be.
#[derive(Debug)]
pub struct Backup {
    superblock: Superblock,
    at: u64,
    base: Base,
}

/// The place where the file system of a [`Backup`] begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The start of the device: a root directory was found from there.
    Start,
    /// Another byte of the device, from which a root directory was found. The superblock found is
    /// not a copy.
    Elsewhere(u64),
    /// A root directory was found from neither.
    Unknown,
}

impl Backup {
    /// Finds a copy of the superblock on `device`, or else another superblock in its place.
    pub fn find(device: &dyn Device) -> Option<Backup> {
        let mut found = candidates(device);
        let first = found.next()?;
        let is_copy = |found: &Backup| !matches!(found.base, Base::Elsewhere(_));
        if is_copy(&first) {
            return Some(first);
        }
        found.find(is_copy).or(Some(first))
    }

    /// Returns where the file system begins.
    pub fn base(&self) -> Base {
        self.base
    }

    /// Returns the number of the block that holds the superblock found, and the size of a block in
    /// bytes.
    pub fn place(&self) -> (u64, u64) {
        let bits = self.superblock.geometry().block_size().bits();
        (self.at >> bits, 1 << bits)
    }
}

/// Returns a copy of the superblock.
pub fn copy(device: &dyn Device) -> Option<Superblock> {
    let found = Backup::find(device)?;
    (!matches!(found.base, Base::Elsewhere(_))).then_some(found.superblock)
}

/// Reads the superblock at a byte of the device.
pub fn read(device: &dyn Device, at: u64) -> Result<Superblock, Cause> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(at, &mut bytes).map_err(|_| Cause::Length { len: 0 })?;
    Superblock::decode(&bytes).map_err(|corruption| match corruption {
        Corruption::Superblock { cause } => cause,
        _ => Cause::Length { len: 0 },
    })
}

/// Returns the superblocks at the places of copies. The first place is the start of group 1, as
/// computed from the superblock at its own place, which may be damaged. Then follow the positions
/// at which mke2fs puts the first copy for each block size.
fn candidates(device: &dyn Device) -> impl Iterator<Item = Backup> + '_ {
    let usual = (10..=16).filter_map(|bits: u32| {
        let block_size = BlockSize::new(1 << bits)?;
        Some((bits, u64::from(block_size.most_blocks_per_group())))
    });
    hint(device).into_iter().chain(usual).filter_map(move |(bits, group)| {
        let first = u64::from(bits == 10);
        let at = group.checked_add(first)?.checked_mul(1 << bits)?;
        let superblock = read(device, at).ok()?;
        let is_same_size = superblock.geometry().block_size().bits() == bits;
        let base = is_same_size.then(|| base_of(device, &superblock, at))?;
        Some(Backup { superblock, at, base })
    })
}

/// Returns the binary logarithm of the block size, and the number of blocks per group, as the
/// superblock in place states them. The superblock may be damaged.
fn hint(device: &dyn Device) -> Option<(u32, u64)> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let raw = RawSuperblock::read_from_bytes(&bytes).ok()?;
    let bits = raw.s_log_block_size.get().checked_add(10)?;
    (10..=16).contains(&bits).then(|| (bits, raw.s_blocks_per_group.get().into()))
}

/// Returns where the file system of the superblock at byte `at` begins.
fn base_of(device: &dyn Device, superblock: &Superblock, at: u64) -> Base {
    let geometry = superblock.geometry();
    let bits = geometry.block_size().bits();
    let desc = geometry.desc_block(0).map_or(0, |block| block.0 << bits);
    // The descriptors of group 0 follow the superblock and each of its old copies.
    let from_start = [desc, at.saturating_add(1 << bits)];
    let is_start =
        from_start.into_iter().any(|desc| View { device, base: 0 }.root(&geometry, desc).is_some());
    // A number other than 0 proves a copy. Nothing follows from 0.
    let base = at.checked_sub(SUPERBLOCK_OFFSET);
    let base = base.filter(|_| superblock.raw().s_block_group_nr.get() == 0);
    let is_elsewhere = |base: u64| View { device, base }.root(&geometry, desc).is_some();
    match base {
        // If both are possible, the device is left alone.
        Some(base) if is_elsewhere(base) => Base::Elsewhere(base),
        _ if is_start => Base::Start,
        _ => Base::Unknown,
    }
}

/// A device as seen by a file system that begins at byte `base`.
struct View<'d> {
    device: &'d dyn Device,
    base: u64,
}

impl View<'_> {
    fn read(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.device.read_at(self.base.checked_add(at)?, &mut bytes).ok()?;
        Some(bytes)
    }

    fn read_block(&self, geometry: &Geometry, block: u64) -> Option<Vec<u8>> {
        let size = geometry.block_size();
        self.read(block.checked_mul(1 << size.bits())?, size.bytes())
    }

    /// Returns `Some` if the descriptor of group 0 at byte `desc` leads to a root directory.
    fn root(&self, geometry: &Geometry, desc: u64) -> Option<()> {
        let bytes = self.read(desc, geometry.desc_size())?;
        let table = GroupDesc::decode_unchecked(&bytes, geometry).ok()?.inode_table;
        let table = Some(table).filter(|table| *table != Block(0) && geometry.contains(*table))?;
        let at = table.0.checked_mul(1 << geometry.block_size().bits())?;
        let index = u64::from(Ino::ROOT.0 - 1) * geometry.inode_size() as u64;
        let root = Record::decode(&self.read(at.checked_add(index)?, geometry.inode_size())?);
        if !root.is_directory() || root.links == 0 {
            return None;
        }
        let names = match root.flags.contains(InodeFlags::INLINE_DATA) {
            true if geometry.features().incompat.contains(Incompat::INLINE_DATA) => {
                return (le32(&root.block, 0) == Ino::ROOT.0).then_some(());
            }
            true => return None,
            false => self.read_block(geometry, self.first_block(geometry, &root)?)?,
        };
        let name = names.get(6..9)?;
        (le32(&names, 0) == Ino::ROOT.0 && *name.first()? == 1 && name.get(2) == Some(&b'.'))
            .then_some(())
    }

    /// Returns the first block of a directory.
    fn first_block(&self, geometry: &Geometry, directory: &Record) -> Option<u64> {
        if !directory.flags.contains(InodeFlags::EXTENTS) {
            return Some(le32(&directory.block, 0).into()).filter(|block| *block != 0);
        }
        let mut node = directory.block.to_vec();
        for _ in 0..=DEEPEST {
            if le16(&node, 0) != EXTENT_MAGIC || le16(&node, 2) == 0 {
                return None;
            }
            let is_leaf = le16(&node, 6) == 0;
            let (low, high) = if is_leaf { (20, 18) } else { (16, 20) };
            let block = u64::from(le16(&node, high)) << 32 | u64::from(le32(&node, low));
            if is_leaf {
                return Some(block);
            }
            node = self.read_block(geometry, block)?;
        }
        None
    }
}
