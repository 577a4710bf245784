//! Makes sure that the owners of inodes have entries in the quota files, and finds the project of a
//! new inode.

use crate::alloc::Privilege;
use crate::data::FileData;
use crate::data::holes::{Covered, Overlap};
use crate::object::dirty::{Credits, Dirty};
use crate::object::fs::Fs;
use crate::object::inode::Inode;
use crate::object::state::Concerns;
use crate::quota::{Held, Ledger, Owners, Wanted, owners};
use crate::volume::BlockReader;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::quota::{CHANGES_OF_AN_ID, Kind, QuotaFile};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, Unsupported, inode as disk};
use lanefs_plan::Error;
use lanefs_plan::Expected;
use lanefs_plan::extent::{Extent, Mapping, State};

impl Fs {
    /// Makes sure that, from the running transaction on, the owners have entries in the quota
    /// files. An operation that gives an inode to these owners calls this function before it joins
    /// its transaction. Sleeps if an owner is new.
    pub(crate) fn know_owners(&self, owners: &Owners) -> Result<(), Error> {
        let Some(quotas) = self.mount.quotas() else { return Ok(()) };
        for ledger in quotas.ledgers() {
            match owners[ledger.kind.index()] {
                Some(id) if !ledger.knows(id) => self.add_owner(ledger, id)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Reserves as much of `wanted` as the limits of an inode's owners allow a caller with this
    /// privilege. Returns the reservation and the number of reserved units. The caller drops the
    /// reservation after the change.
    pub(crate) fn hold_quota(
        &self,
        ino: Ino,
        owners: &Owners,
        wanted: Wanted,
        by: Privilege,
    ) -> Result<(Vec<Held>, u64), Error> {
        match self.mount.quotas() {
            Some(quotas) if by == Privilege::Ordinary => quotas.hold(ino, owners, wanted),
            _ => Ok((Vec::new(), wanted.units)),
        }
    }

    /// Adds an entry for `id`, after making room for it in the quota file.
    #[cold]
    fn add_owner(&self, ledger: &Ledger, id: u32) -> Result<(), Error> {
        let inode = self.get_any(ledger.ino, None)?;
        // A quota file has no name, so no file operation takes its operation lock, and this
        // function does not take it either: the caller may hold the operation lock of an inode that
        // comes after the quota file in the lock order. The lock of its mappings serialises the
        // threads that add ids, and keeps eviction from the mappings.
        let _adding = inode.mapping.lock();
        if ledger.knows(id) {
            return Ok(());
        }
        while !ledger.has_room() {
            FileData { fs: self, inode: &inode }.grow_quota_file(ledger)?;
        }
        let mut handle = self.join(Credits::blocks(CHANGES_OF_AN_ID))?;
        handle.charge(CHANGES_OF_AN_ID);
        handle.dirty(Dirty::NewOwner(ledger.kind, id));
        ledger.promise(id);
        Ok(())
    }
}

impl FileData<'_> {
    /// Adds spare bytes to a quota file: the rest of its last block, or a new block. The committer
    /// writes a new block as a whole before the file's header counts the block as used, so this
    /// function does not write the block.
    fn grow_quota_file(&self, ledger: &Ledger) -> Result<(), Error> {
        let FileData { fs, inode } = *self;
        let (len, rest) = ledger.len();
        if rest > 0 {
            let mut handle = fs.join(Credits::INODE)?;
            inode.change(&mut handle, Concerns::Data, |state| {
                state.disk.size = (len + rest) as u64;
            });
            ledger.grow(rest, None);
            return Ok(());
        }
        let block_size = fs.volume.block_size();
        if len as u64 + block_size as u64 > LARGEST_QUOTA_FILE {
            return Err(Error::NoSpace);
        }
        let n = (len / block_size) as u32;
        let Covered { claims, extents, held: _held } =
            self.claim_holes(n..n + 1, Privilege::Root, Overlap::Anywhere)?;
        let Extent { block, .. } = extents.first().copied().expected()?;
        let new = Extent { start: FileBlock(n), len: 1, block, state: State::Written };
        let change = self.plan_mapping(n..n + 1, &[new])?;
        let mut handle = fs.join(change.credits.and(Credits::RUN.times(claims.len())))?;
        for (_, claim) in claims {
            fs.groups.allocate(&mut handle, claim);
        }
        self.apply_mapping(&mut handle, change, |state| {
            state.disk.size = (len + block_size) as u64;
        });
        ledger.grow(block_size, Some(block));
        Ok(())
    }

    /// Reserves up to `clusters` clusters for this inode, as far as the limits of its owners allow.
    /// Returns the reservation and the number of reserved clusters.
    pub(crate) fn hold_clusters(
        &self,
        clusters: u32,
        by: Privilege,
    ) -> Result<(Vec<Held>, u32), Error> {
        let FileData { fs, inode } = *self;
        if fs.mount.quotas().is_none() || by == Privilege::Root {
            return Ok((Vec::new(), clusters));
        }
        let owners = owners(&inode.state.lock().disk);
        let unit = fs.volume.cluster_bytes();
        let wanted = Wanted { inodes: 0, unit, units: clusters.into() };
        let (held, units) = fs.hold_quota(inode.ino, &owners, wanted, by)?;
        Ok((held, u32::try_from(units).unwrap_or(clusters)))
    }

    /// Returns the project of a new inode in this directory.
    pub(crate) fn project_for_new(&self, new: &disk::Inode) -> u32 {
        match self.passes_project_on() && new.has_project() {
            true => self.inode.project(),
            false => 0,
        }
    }

    /// Fails if this directory passes its project on and `inode` belongs to another project, so
    /// that the inode cannot get a name in this directory.
    pub(crate) fn check_project(&self, inode: &Inode) -> Result<(), Error> {
        match self.passes_project_on() && self.inode.project() != inode.project() {
            true => Err(Error::OtherProject),
            false => Ok(()),
        }
    }

    /// Returns whether new files in this directory get its project. As in the kernel, only the flag
    /// of the directory decides.
    fn passes_project_on(&self) -> bool {
        let flags = InodeFlags::from_bits_retain(self.inode.rights().flags);
        flags.contains(InodeFlags::PROJINHERIT)
    }
}

// Reads quota files.

/// The size in bytes of the largest supported quota file, which has entries for 450,000 ids. Quota
/// files are kept in memory.
pub const LARGEST_QUOTA_FILE: u64 = 32 << 20;

impl Fs {
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
        let map = FileData { fs: self, inode: &inode }.map()?;
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
