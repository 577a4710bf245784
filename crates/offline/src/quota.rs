//! Changes the usage in quota files when a change makes files take more or less space.

use crate::error::Error;
use crate::image::Image;
use lanefs_ext4::Expected;
use lanefs_ext4::LARGEST_QUOTA_FILE;
use lanefs_ext4::extent::{Mapping, State};
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::quota::{BLOCK, Kind, QuotaFile, is_counted};
use lanefs_ondisk::{Block, Corruption, FileBlock, Ino, Unsupported, inode as disk};

/// The quota files of an image, in memory.
pub(crate) struct Quotas {
    files: Vec<(Kind, Ino, QuotaFile)>,
}

impl Image {
    /// Reads the quota files. The result is empty without the feature `quota`.
    ///
    /// # Errors
    /// [`Error::Ext4`] if a quota file is damaged or too large.
    pub(crate) fn read_quotas(&self) -> Result<Quotas, Error> {
        let named = Kind::ALL.into_iter().zip(self.superblock.quota_files());
        let files = named.filter_map(|(kind, ino)| Some((kind, ino?)));
        let read = files.map(|(kind, ino)| Ok((kind, ino, self.read_quota(kind, ino)?)));
        Ok(Quotas { files: read.collect::<Result<_, Error>>()? })
    }

    fn read_quota(&self, kind: Kind, ino: Ino) -> Result<QuotaFile, Error> {
        let inode = self.inode(ino)?;
        if inode.size > LARGEST_QUOTA_FILE {
            let what = format!("a {} quota file of {} bytes", kind.name(), inode.size);
            return Err(lanefs_ext4::Error::from(Unsupported { what }).into());
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < inode.size {
            let place = self.place_in_quota(ino, bytes.len() as u64)?;
            bytes.extend_from_slice(&self.block(place)?);
        }
        bytes.truncate(inode.size as usize);
        Ok(QuotaFile::decode(bytes, kind).map_err(|cause| Corruption::Quota { ino, cause })?)
    }

    /// Returns the block that contains byte `at` of a quota file.
    fn place_in_quota(&self, ino: Ino, at: u64) -> Result<Block, Error> {
        let inode = self.inode(ino)?;
        let (map, _) = self.map(ino, &inode)?;
        let number = FileBlock((at >> self.geometry().block_size().bits()) as u32);
        match map.find(number) {
            Mapping::Mapped { block, state: State::Written, .. } => Ok(block),
            _ => {
                let cause = disk::Cause::Size { size: inode.size };
                Err(Corruption::Inode { ino, cause }.into())
            }
        }
    }

    /// Adds the change of `inode`'s `i_blocks` to the usage of its owners; `before` is the old
    /// `i_blocks`, in sectors. The changed blocks of the quota files become a part of the next
    /// transaction.
    pub(crate) fn count_space(
        &mut self,
        quotas: &mut Quotas,
        (ino, inode): (Ino, &Inode),
        before: u64,
    ) -> Result<(), Error> {
        if before == inode.sectors || !self.is_counted(ino) {
            return Ok(());
        }
        let less = before.saturating_sub(inode.sectors).saturating_mul(512);
        let more = inode.sectors.saturating_sub(before).saturating_mul(512);
        for (kind, file_ino, file) in &mut quotas.files {
            let id = match kind {
                Kind::User => inode.uid,
                Kind::Group => inode.gid,
                Kind::Project => inode.projid,
            };
            // An owner has no entry only if the quota file was wrong before. It is not corrected.
            let Some(mut quota) = file.get(id) else { continue };
            let bytes = quota.usage.bytes;
            quota.usage.bytes = bytes.saturating_sub(less).saturating_add(more);
            if quota.usage.bytes <= quota.limits.kib_soft.saturating_mul(1024) {
                // The soft limit is no longer exceeded, so its grace time ends.
                quota.bytes_until = 0;
            }
            file.set(id, &quota);
            self.put_quota(*file_ino, file)?;
        }
        Ok(())
    }

    fn is_counted(&self, ino: Ino) -> bool {
        let own = self.superblock.quota_files().into_iter().chain([self.superblock.orphan_file()]);
        is_counted(ino, self.geometry().first_ino(), own.flatten())
    }

    /// Adds the changed blocks of a quota file to the blocks that the next transaction writes.
    fn put_quota(&mut self, ino: Ino, file: &mut QuotaFile) -> Result<(), Error> {
        for number in file.take_changed() {
            let at = number as usize * BLOCK;
            let place = self.place_in_quota(ino, at as u64)?;
            let mut bytes = self.block(place)?;
            let within = at % self.block_bytes();
            let old = bytes.get_mut(within..within + BLOCK).expected()?;
            let new = file.bytes().get(at..at + BLOCK).expected()?;
            old.copy_from_slice(new);
            self.blocks.insert(place, bytes);
        }
        Ok(())
    }
}
