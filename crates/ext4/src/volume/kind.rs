//! The kinds of metadata blocks, and how their contents are checked and sealed.

use crate::volume::Volume;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::{Block, Corruption, FileBlock, Ino, extent, orphan};
use lanefs_plan::Error;
use lanefs_plan::mapping::Form;
use lanefs_plan::{dir, xattr};

/// The kind and the owner of a metadata block. They determine the checksum of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaKind {
    /// Block `block` of directory `ino`.
    Directory { ino: Ino, generation: u32, block: FileBlock },
    /// A node of the extent tree of `ino`.
    Extents { ino: Ino, generation: u32 },
    /// An indirect block of the block map of `ino`. It has no checksum.
    Indirect { ino: Ino, generation: u32 },
    /// Extended attributes; several inodes may share the block, so the block has no owner.
    Xattr,
    /// Block `block` of the orphan file `ino`.
    Orphans { ino: Ino, generation: u32, block: FileBlock },
}

impl MetaKind {
    /// Returns the kind of the nodes of an inode's mappings.
    pub(crate) fn node(form: Form, ino: Ino, generation: u32) -> MetaKind {
        match form {
            Form::Extents => MetaKind::Extents { ino, generation },
            Form::BlockMap => MetaKind::Indirect { ino, generation },
        }
    }

    /// Returns the inode that owns the block; 0 if several inodes may own it.
    fn owner(self) -> Ino {
        match self {
            MetaKind::Directory { ino, .. }
            | MetaKind::Extents { ino, .. }
            | MetaKind::Indirect { ino, .. }
            | MetaKind::Orphans { ino, .. } => ino,
            MetaKind::Xattr => Ino(0),
        }
    }

    /// Fails if a block of this kind must not be at this position on the device.
    pub(crate) fn check_place(self, volume: &Volume, block: Block) -> Result<(), Error> {
        volume.check_place(self.owner(), block, 1)
    }

    /// Checks contents that were read from `block`. For a directory block, `flags_of` returns the
    /// flags of the directory's inode.
    pub(crate) fn verify(
        self,
        volume: &Volume,
        block: Block,
        bytes: &[u8],
        flags_of: impl FnOnce(Ino) -> InodeFlags,
    ) -> Result<(), Error> {
        match self {
            MetaKind::Directory { ino, generation, block: n } => {
                let mut context = volume.dir_context(ino, generation, flags_of(ino));
                context.format.inodes = volume.geometry().inode_count();
                dir::verify(&context, n, bytes)
            }
            MetaKind::Extents { ino, generation } => {
                if volume.checksums.seed().is_none() {
                    return Ok(());
                }
                extent::verify(bytes, volume.seed_of(ino, generation)).map_err(|cause| {
                    Corruption::ExtentNode { ino, block: Some(block), cause }.into()
                })
            }
            MetaKind::Indirect { .. } => Ok(()),
            MetaKind::Xattr => xattr::verify(volume.checksums.seed(), Ino(0), block, bytes),
            MetaKind::Orphans { ino, generation, block: n } => {
                let seed = OrphanSeed::new(volume.checksums, ino, generation);
                OrphanBlock::decode(bytes, block, seed)
                    .map(|_| ())
                    .map_err(|cause| Corruption::OrphanFile { ino, block: n, cause }.into())
            }
        }
    }

    /// Sets the checksum of contents that are added to a transaction.
    pub(crate) fn seal(self, volume: &Volume, block: Block, mut data: Arc<[u8]>) -> Arc<[u8]> {
        let Some(seed) = volume.checksums.seed() else { return data };
        let bytes = Arc::make_mut(&mut data);
        match self {
            MetaKind::Directory { ino, generation, .. } => {
                // The flags of the directory's inode are not needed, because a block's shape shows
                // whether it is an index block or a leaf.
                let context = volume.dir_context(ino, generation, InodeFlags::empty());
                dir::seal(&context, bytes);
            }
            MetaKind::Extents { ino, generation } => {
                extent::seal(bytes, volume.seed_of(ino, generation));
            }
            MetaKind::Indirect { .. } => {}
            MetaKind::Xattr => xattr::seal(Some(seed), block, bytes),
            MetaKind::Orphans { ino, generation, .. } => {
                orphan::seal(bytes, block, OrphanSeed::new(volume.checksums, ino, generation));
            }
        }
        data
    }
}
