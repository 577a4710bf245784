//! Makes verity files, and returns their digests.
//!
//! While the hash tree is written after the end of the file, the inode is recorded as an orphan:
//! after a crash the next mount frees the tree's blocks, as it does after an unfinished truncation.
//! One handle then sets the flag `VERITY` and, if the file has a name, removes the orphan record.
//! The commit of that handle flushes the device first, so the tree is durable before the flag.

use crate::alloc::Privilege;
use crate::attr::SyncMode;
use crate::clock::now;
use crate::flags;
use crate::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::Concerns;
use crate::ops::write::{At, Stamp, Write};
use crate::verity::{FileDigest, Hasher, NewVerity, Verity};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::verity as disk;
use lanefs_ondisk::verity::{Descriptor, Method, Tree};
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, InvalidArgument};

/// The number of bytes that are hashed at once; a multiple of every block size.
const BATCH: u64 = 1 << 20;
/// The number of bytes of hashes that are written at once.
const WRITTEN: usize = 1 << 18;

impl Fs {
    /// Returns the digest of a verity file; `None` for any other inode.
    ///
    /// # Errors
    /// [`lanefs_ondisk::Corruption::Verity`].
    pub fn file_digest(&self, inode: &InodeRef) -> Result<Option<FileDigest>, Error> {
        if !self.data(inode).is_verity() {
            return Ok(None);
        }
        self.objects.check_process()?;
        let _shared = inode.op.shared();
        self.data(inode).verity().map(|verity| Some(verity.digest))
    }

    /// Makes a regular file a verity file, and returns its digest. After a crash the file is either
    /// a verity file or unchanged.
    ///
    /// # Errors
    /// The errors of the kernel's ioctl `FS_IOC_ENABLE_VERITY`: [`Error::NotSupported`] without the
    /// feature `verity`, and for a file with a block map; [`Error::Exists`] if the file is a verity
    /// file already; [`Error::NotPermitted`] if it is immutable or append-only;
    /// [`Error::IsDirectory`]; [`Error::InvalidArgument`]; [`Error::NoKey`].
    pub fn enable_verity(
        &self,
        inode: &InodeRef,
        new: &NewVerity,
        by: Privilege,
    ) -> Result<FileDigest, Error> {
        self.objects.check_writable()?;
        inode.check_regular()?;
        if !self.objects.volume.has_verity {
            return Err(Error::NotSupported);
        }
        let method = self.method(new)?;
        let exclusive = inode.op.exclusive();
        let data = self.data(inode);
        if data.is_verity() {
            return Err(Error::Exists);
        }
        flags::check_data_changes(&inode.rights())?;
        if flags::is_append_only(&inode.rights()) {
            return Err(Error::NotPermitted);
        }
        data.leave_inode(u64::MAX)?;
        if data.form() == Form::BlockMap {
            return Err(Error::NotSupported);
        }
        inode.window.give_back();
        let (size, block_size) = (inode.size(), self.objects.volume.block_size() as u64);
        let keep = u32::try_from(size.div_ceil(block_size)).map_err(|_| Error::FileTooLarge)?;
        // Frees blocks after the end, and zeroes the rest of the last block, because only the tree
        // may follow the data.
        data.free_from(keep)?;
        data.prepare_growth(size, size.next_multiple_of(block_size))?;
        let mut handle = self.objects.join(6)?;
        self.objects.orphans.add(&mut handle, inode);
        drop(handle);
        let built = self.write_tree(inode, method, size, by);
        inode.window.give_back();
        let descriptor = match built {
            Ok(descriptor) => descriptor,
            Err(error) => {
                data.free_from(keep)?;
                data.leave_orphans()?;
                return Err(error);
            }
        };
        let now = now();
        let mut handle = self.objects.join(6)?;
        self.objects.orphans.finish(&mut handle, inode);
        inode.change(&mut handle, Concerns::Data, |state| {
            state.disk.flags |= InodeFlags::VERITY;
            state.disk.ctime = now;
        });
        drop(handle);
        drop(exclusive);
        self.obey_sync(inode, SyncMode::Data)?;
        Ok(Verity::new(descriptor).digest)
    }

    fn method(&self, new: &NewVerity) -> Result<Method, Error> {
        let block_size = self.objects.volume.geometry().block_size();
        let largest = u32::try_from(block_size.bytes().min(4096)).unwrap_or(4096);
        let bytes = new.block_bytes.unwrap_or(largest);
        let invalid = Error::InvalidArgument(InvalidArgument::HashTree);
        if !bytes.is_power_of_two() {
            return Err(invalid);
        }
        let bits = bytes.trailing_zeros() as u8;
        Method::new(new.algorithm, bits, &new.salt, block_size).map_err(|_| invalid)
    }

    /// Writes the hash tree and the descriptor after the end of the file.
    fn write_tree(
        &self,
        inode: &Arc<Inode>,
        method: Method,
        size: u64,
        by: Privilege,
    ) -> Result<Descriptor, Error> {
        let tree = Tree::new(size, &method).map_err(|_| Error::FileTooLarge)?;
        let block_size = self.objects.volume.geometry().block_size();
        let hasher = Hasher::new(method.algorithm(), method.salt());
        let start = disk::tree_start(size);
        let descriptor_at = start + tree.bytes().next_multiple_of(block_size.bytes() as u64);
        let end = descriptor_at + block_size.bytes() as u64;
        self.objects.volume.check_size(self.data(inode).form(), end)?;
        let level_start = |level: usize| match level.checked_sub(1) {
            Some(below) => start + tree.child(below, 0).map_or(0, |c| tree.offset_of(c.stored)),
            None => 0,
        };
        for level in 1..=tree.levels() {
            let blocks = tree.blocks_in(level - 1);
            let from = level_start(level - 1)..level_start(level - 1) + tree.offset_of(blocks);
            self.write_level(inode, &tree, &hasher, from, level_start(level), by)?;
        }
        let mut top = vec![0; tree.block_bytes()];
        self.data(inode).read(level_start(tree.levels()), &mut top)?;
        let root = hasher.hash(&top);
        let root_hash: &[u8] = if size == 0 { &[] } else { root.bytes() };
        let descriptor =
            Descriptor::new(method, size, root_hash).map_err(|_| Error::FileTooLarge)?;
        self.write_after(inode, descriptor_at, &disk::encode_tail(&descriptor, block_size), by)?;
        Ok(descriptor)
    }

    /// Writes one level of the tree at offset `to`: the hashes of the blocks in the byte range
    /// `from`, padded with zeros to whole blocks.
    fn write_level(
        &self,
        inode: &Arc<Inode>,
        tree: &Tree,
        hasher: &Hasher,
        from: std::ops::Range<u64>,
        to: u64,
        by: Privilege,
    ) -> Result<(), Error> {
        let (mut at, mut to) = (from.start, to);
        let mut hashes = Vec::new();
        let mut source = vec![0; (from.end - from.start).min(BATCH) as usize];
        while at < from.end {
            source.truncate((from.end - at).min(BATCH) as usize);
            self.data(inode).read(at, &mut source)?;
            for block in source.chunks(tree.block_bytes()) {
                hashes.extend_from_slice(hasher.hash(block).bytes());
            }
            at += source.len() as u64;
            if at == from.end {
                hashes.resize(hashes.len().next_multiple_of(tree.block_bytes()), 0);
            }
            if at == from.end || hashes.len() >= WRITTEN {
                self.write_after(inode, to, &hashes, by)?;
                to += hashes.len() as u64;
                hashes.clear();
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`, which is after the end of the file.
    fn write_after(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: &[u8],
        by: Privilege,
    ) -> Result<(), Error> {
        let write = Write { at: At::Offset(offset), data: bytes, stamp: Stamp::BeyondEnd, by };
        match self.write_chunks(inode, offset, &write)? == bytes.len() {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }
}
