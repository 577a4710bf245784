//! The blocks of a new directory.

use crate::report::FileFault;
use crate::write::format::Format;
use lanefs_ondisk::dirent::{Name, Packed};
use lanefs_ondisk::htree::{IndexEntry, Kind};
use lanefs_ondisk::{FileBlock, FileType, Ino, dirent, htree};

/// A directory with all its names.
pub(crate) struct Directory<'a> {
    pub(crate) ino: Ino,
    pub(crate) parent: Ino,
    pub(crate) entries: Vec<(&'a [u8], Ino, FileType)>,
    /// The smallest number of blocks that the directory may have. Empty blocks are added to reach
    /// this number.
    pub(crate) least_blocks: usize,
}

/// The blocks of a directory, with checksums.
pub(crate) struct DirectoryBlocks {
    pub(crate) blocks: Vec<Vec<u8>>,
    pub(crate) is_indexed: bool,
}

impl Directory<'_> {
    /// Builds the blocks: one block if all names fit, otherwise an index over full leaves. Without
    /// `dir_index` there are only leaves.
    pub(crate) fn build(&self, format: &Format) -> Result<DirectoryBlocks, FileFault> {
        let packed: Result<Vec<Packed<'_>>, FileFault> = self.entries.iter().map(pack).collect();
        let packed = packed?;
        match self.linear(format, &packed) {
            Some(blocks) => Ok(DirectoryBlocks { blocks, is_indexed: false }),
            None => {
                let too_many = FileFault::Names { entries: packed.len() };
                let blocks = self.indexed(format, packed).ok_or(too_many)?;
                Ok(DirectoryBlocks { blocks, is_indexed: true })
            }
        }
    }

    fn linear(&self, format: &Format, packed: &[Packed<'_>]) -> Option<Vec<Vec<u8>>> {
        let dot = |name: &'static [u8], ino| {
            Some(Packed { ino, file_type: Some(FileType::Directory), name: Name::new(name).ok()? })
        };
        let mut all = vec![dot(b".", self.ino)?, dot(b"..", self.parent)?];
        all.extend(packed);
        let mut blocks = Vec::new();
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let (here, after) = rest.split_at_checked(fitting(format, rest))?;
            blocks.push(dirent::pack(&format.directories, here)?);
            rest = after;
        }
        if blocks.len() > 1 && format.has_indexes {
            return None;
        }
        while blocks.len() < self.least_blocks {
            let mut empty = vec![0; format.block_size.bytes()];
            dirent::clear(&format.directories, &mut empty);
            blocks.push(empty);
        }
        blocks.iter_mut().for_each(|block| self.seal(format, block));
        Some(blocks)
    }

    fn seal(&self, format: &Format, block: &mut [u8]) {
        if let Some(seed) = format.seed_of(self.ino) {
            dirent::seal(&format.directories, seed, block);
        }
    }

    /// Builds the root, then as many levels of nodes as the root needs to lead to all leaves, then
    /// the leaves.
    fn indexed(&self, format: &Format, packed: Vec<Packed<'_>>) -> Option<Vec<Vec<u8>>> {
        let leaves = self.leaves(format, packed)?;
        let directories = &format.directories;
        let most = Kind::Root.limit(directories);
        let per_node = Kind::Node.limit(directories);
        // The numbers of nodes in each level, the lowest first.
        let mut counts = Vec::new();
        while counts.last().copied().unwrap_or(leaves.len()) > most {
            counts.push(counts.last().copied().unwrap_or(leaves.len()).div_ceil(per_node));
        }
        if counts.len() > htree::max_levels(directories).into() {
            return None;
        }
        let mut start = 1 + counts.iter().sum::<usize>();
        let entry =
            |(hash, at)| Some(IndexEntry { hash, block: FileBlock(u32::try_from(at).ok()?) });
        let hashes = leaves.iter().map(|(hash, _)| *hash);
        let mut entries: Vec<IndexEntry> = hashes.zip(start..).map(entry).collect::<Option<_>>()?;
        let mut levels = Vec::new();
        for count in counts {
            start -= count;
            let node =
                |entries| self.sealed(format, Kind::Node, htree::new_node(directories, entries)?);
            levels.push(entries.chunks(per_node).map(node).collect::<Option<Vec<_>>>()?);
            let hashes = entries.chunks(per_node).filter_map(|node| Some(node.first()?.hash));
            entries = hashes.zip(start..).map(entry).collect::<Option<_>>()?;
        }
        let (version, above) = (format.hasher.version, u8::try_from(levels.len()).ok()?);
        let root = htree::new_root(directories, self.ino, self.parent, version, above, &entries)?;
        let mut blocks = vec![self.sealed(format, Kind::Root, root)?];
        blocks.extend(levels.into_iter().rev().flatten());
        blocks.extend(leaves.into_iter().map(|(_, block)| block));
        Some(blocks)
    }

    fn sealed(&self, format: &Format, kind: Kind, mut block: Vec<u8>) -> Option<Vec<u8>> {
        if let Some(seed) = format.seed_of(self.ino) {
            htree::seal(&format.directories, kind, seed, &mut block).ok()?;
        }
        Some(block)
    }

    /// Packs the names into leaves in the order of their hashes, and returns each leaf with the
    /// hash for its index entry. If the previous leaf also has names with this hash, the low bit of
    /// the hash is set.
    fn leaves(&self, format: &Format, packed: Vec<Packed<'_>>) -> Option<Vec<(u32, Vec<u8>)>> {
        let hash = |packed: Packed<'_>| {
            let hash = format.hasher.hash(packed.name.bytes());
            (hash.major, hash.minor)
        };
        let mut sorted: Vec<_> = packed.into_iter().map(|packed| (hash(packed), packed)).collect();
        sorted.sort_by(|(a, one), (b, other)| {
            a.cmp(b).then_with(|| one.name.bytes().cmp(other.name.bytes()))
        });
        let mut leaves: Vec<(u32, Vec<u8>)> = Vec::new();
        let mut rest = sorted.as_slice();
        let mut before = None;
        while let Some((((low, _), _), _)) = rest.split_first() {
            let names = rest.iter().map(|(_, packed)| packed);
            let (here, after) = rest.split_at_checked(fitting(format, names))?;
            let entries: Vec<Packed<'_>> = here.iter().map(|(_, packed)| *packed).collect();
            let mut block = dirent::pack(&format.directories, &entries)?;
            self.seal(format, &mut block);
            let continues = before == Some(*low);
            let hash = if leaves.is_empty() { 0 } else { low | u32::from(continues) };
            leaves.push((hash, block));
            before = here.last().map(|((major, _), _)| *major);
            rest = after;
        }
        Some(leaves)
    }
}

/// Returns the number of names that fit into a block, at least one.
fn fitting<'a, 'n: 'a>(format: &Format, names: impl IntoIterator<Item = &'a Packed<'n>>) -> usize {
    let (room, mut bytes) = (format.directories.record_bytes(), 0);
    let fits = names.into_iter().take_while(|packed| {
        bytes += packed.space();
        bytes <= room
    });
    fits.count().max(1)
}

fn pack<'a>(&(name, ino, file_type): &(&'a [u8], Ino, FileType)) -> Result<Packed<'a>, FileFault> {
    let checked = Name::new(name)
        .map_err(|_| FileFault::Name { name: String::from_utf8_lossy(name).into_owned() })?;
    Ok(Packed { ino, file_type: Some(file_type), name: checked })
}
