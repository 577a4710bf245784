//! Reads verity files: every block of data is compared with the hash tree before a caller sees it.
//!
//! The hash of a block is in a block of the level above, which is verified itself before it is
//! used, and so on up to the root hash in the descriptor. The tree and the descriptor are read like
//! data, so the tree and the descriptor of an encrypted file are decrypted.

use crate::data::bytes::in_whole_units;
use crate::data::file_data::FileData;
use crate::flags;
use crate::verity::{Hash, Verity};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::verity::{Cause, Descriptor};
use lanefs_ondisk::{Corruption, FileType, verity as disk};
use lanefs_plan::Error;

/// Page size in bytes. The bytes from the end of a file to the end of its last page must be zeros,
/// because a program that maps the file sees them.
const PAGE: u64 = 4096;

impl<'m> FileData<'m> {
    /// Returns whether this is a verity file.
    pub(crate) fn is_verity(&self) -> bool {
        self.inode.file_type == FileType::Regular && flags::is_verity(&self.inode.rights())
    }

    /// Returns the checked descriptor of a verity file. The descriptor is loaded when it is first
    /// needed. The caller holds the operation lock.
    ///
    /// # Errors
    /// [`Corruption::Verity`].
    pub(crate) fn verity(&self) -> Result<&'m Verity, Error> {
        if let Some(verity) = self.inode.verity.get() {
            return Ok(verity);
        }
        let descriptor = self.load_descriptor()?;
        Ok(self.inode.verity.get_or_init(|| Box::new(Verity::new(descriptor))))
    }

    fn load_descriptor(&self) -> Result<Descriptor, Error> {
        let ino = self.inode.ino;
        let damaged = |cause| Error::from(Corruption::Verity { ino, cause });
        let flags = InodeFlags::from_bits_retain(self.inode.rights().flags);
        if self.is_inline() || !flags.contains(InodeFlags::EXTENTS) {
            return Err(damaged(Cause::NoExtents));
        }
        let block_size = self.objects.volume.geometry().block_size();
        let (size, end) = (self.inode.size(), self.with_map(|map| map.last().map(|e| e.end()))?);
        let end = u64::from(end.unwrap_or(0)) << block_size.bits();
        let size_at = disk::size_place(size, end).map_err(damaged)?;
        let mut len = [0; 4];
        self.read(size_at, &mut len)?;
        let place = disk::descriptor_place(size, size_at, u32::from_le_bytes(len), block_size);
        let place = place.map_err(damaged)?;
        let mut bytes = vec![0; (place.end - place.start) as usize];
        self.read(place.start, &mut bytes)?;
        Descriptor::decode(&bytes, size, block_size).map_err(damaged)
    }

    /// Does the same as [`FileData::read`] for a verity file, and verifies what it reads. The range
    /// must end inside the file. If the descriptor is valid and a later step fails, `buf` is filled
    /// with zeros.
    ///
    /// # Errors
    /// [`Error::NotVerified`] if the data or the hash tree was changed; [`Corruption::Verity`] if
    /// there is no valid descriptor.
    pub(crate) fn read_verified(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let verity = self.verity()?;
        let unit = verity.descriptor.tree().block_bytes();
        let read = |at, part: &mut [u8]| self.read_blocks_verified(verity, at, part);
        let end = offset + buf.len() as u64;
        let done = in_whole_units(unit, offset, buf, read);
        let done = match end == self.inode.size() {
            true => done.and_then(|()| self.check_rest_of_page(verity)),
            false => done,
        };
        done.inspect_err(|_| buf.fill(0))
    }

    /// Reads and verifies whole blocks of data.
    fn read_blocks_verified(
        &self,
        verity: &Verity,
        offset: u64,
        blocks: &mut [u8],
    ) -> Result<(), Error> {
        self.read(offset, blocks)?;
        let tree = verity.descriptor.tree();
        let first = tree.block_at(offset);
        let numbered = (first..).zip(blocks.chunks(tree.block_bytes()));
        { numbered }.try_for_each(|(index, block)| self.verify(verity, 0, index, block))
    }

    /// Fails unless block `index` of the given level has the right hash. Level 0 is the data.
    fn verify(&self, verity: &Verity, level: usize, index: u64, block: &[u8]) -> Result<(), Error> {
        match verity.hasher.hash(block) == self.hash_of(verity, level, index)? {
            true => Ok(()),
            false => Err(Error::NotVerified { ino: self.inode.ino, level, block: index }),
        }
    }

    /// Returns the verified hash of block `index` of the given level. Calls itself once for each
    /// level above, of which there are at most 8.
    fn hash_of(&self, verity: &Verity, level: usize, index: u64) -> Result<Hash, Error> {
        let Verity { descriptor, digest, .. } = verity;
        let tree = descriptor.tree();
        let Some(child) = tree.child(level, index) else {
            return Ok(Hash::new(descriptor.root_hash()));
        };
        let kept = &self.objects.verified;
        if let Some(hash) = kept.hash(digest, child.stored, child.offset) {
            return Ok(hash);
        }
        let mut block = vec![0; tree.block_bytes()];
        let start = disk::tree_start(self.inode.size());
        self.read(start + tree.offset_of(child.stored), &mut block)?;
        self.verify(verity, level + 1, child.parent, &block)?;
        kept.keep(digest, child.stored, &block, self.objects.volume.block_size());
        let len = digest.algorithm().hash_bytes();
        Ok(Hash::new(block.get(child.offset..child.offset + len).unwrap_or_default()))
    }

    /// Fails unless all bytes after the last block of data, up to the end of its page, are zeros.
    /// (Within the last block of data, the hash covers the bytes after the end of the file.)
    fn check_rest_of_page(&self, verity: &Verity) -> Result<(), Error> {
        let size = self.inode.size();
        let tree = verity.descriptor.tree();
        let from = size.next_multiple_of(tree.block_bytes() as u64);
        let mut rest = vec![0; (size.next_multiple_of(PAGE).saturating_sub(from)) as usize];
        self.read(from, &mut rest)?;
        match rest.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => {
                let block = tree.block_at(from);
                Err(Error::NotVerified { ino: self.inode.ino, level: 0, block })
            }
        }
    }
}
