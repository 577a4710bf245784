//! Reads quota files.

use crate::data::file_data::FileData;
use crate::object::objects::Objects;
use crate::quota::Ledger;
use crate::volume::reader::BlockReader;
use lanefs_ondisk::quota::{Kind, QuotaFile};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, Unsupported, inode as disk};
use lanefs_plan::Error;
use lanefs_plan::extent::{Mapping, State};

/// The size in bytes of the largest supported quota file, which has entries for 450,000 ids. Quota
/// files are kept in memory.
pub const LARGEST_QUOTA_FILE: u64 = 32 << 20;

impl Objects {
    /// Reads the quota file of each kind, in the order of [`Kind`].
    pub(crate) fn read_quotas(&self) -> Result<[Option<Ledger>; 3], Error> {
        let files = self.superblock.snapshot().quota_files();
        let mut ledgers = [None, None, None];
        for ((place, kind), ino) in ledgers.iter_mut().zip(Kind::ALL).zip(files) {
            let read = |ino| self.read_quota(kind, ino).inspect_err(|error| self.note_error(error));
            *place = ino.map(read).transpose()?;
        }
        Ok(ledgers)
    }

    fn read_quota(&self, kind: Kind, ino: Ino) -> Result<Ledger, Error> {
        let damage = |cause| Error::from(Corruption::Inode { ino, cause });
        let inode = self.get_any(ino, None).map_err(|error| match error {
            Error::Stale => damage(disk::Cause::NoSuchInode),
            error => error,
        })?;
        let size = inode.attr().size;
        if size > LARGEST_QUOTA_FILE {
            let what = format!("a {} quota file of {size} bytes", kind.name());
            return Err(Unsupported { what }.into());
        }
        if inode.file_type != FileType::Regular {
            return Err(damage(disk::Cause::NoSuchInode));
        }
        let map = FileData { objects: self, inode: &inode }.map()?;
        let block_size = self.volume.block_size();
        let (mut bytes, mut blocks): (Vec<u8>, Vec<Block>) = (Vec::new(), Vec::new());
        for n in 0..(size as usize).div_ceil(block_size) {
            let found = map.find(FileBlock(n as u32));
            let Mapping::Mapped { block, state: State::Written, .. } = found else {
                return Err(damage(disk::Cause::Size { size }));
            };
            bytes.extend_from_slice(&self.read_block(block)?);
            blocks.push(block);
        }
        bytes.truncate(size as usize);
        let file = QuotaFile::decode(bytes, kind)
            .map_err(|cause| Error::from(Corruption::Quota { ino, cause }))?;
        Ok(Ledger::new((kind, ino), file, blocks, block_size))
    }
}
