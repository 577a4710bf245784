//! Sets the encryption policies of empty directories, and checks policies.

use crate::alloc::Privilege;
use crate::attr::{SyncMode, now};
use crate::crypt::InodeCrypt;
use crate::data::protected::{has_cipher, random_nonce};
use crate::data::values::Put;
use crate::flags;
use crate::name::directory::Directory;
use crate::object::dirty::Credits;
use crate::object::fs::Fs;
use crate::object::inode::{Inode, InodeRef};
use crate::object::orphan::Orphans;
use crate::object::state::Concerns;
use crate::ops::write::{At, Stamp, Write};
use crate::verity::{FileDigest, Hasher, NewVerity, Verity};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::encryption::{Context, Policy};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::verity::{Descriptor, Method, Tree};
use lanefs_ondisk::xattr::AttributeName;
use lanefs_ondisk::{FileType, Ino, verity as disk};
use lanefs_plan::mapping::Form;
use lanefs_plan::xattr::SetXattr;
use lanefs_plan::{Error, InvalidArgument};

impl Inode {
    /// Fails if the file was found in an encrypted directory of another policy. As in the kernel,
    /// the error for a missing key takes precedence.
    pub(crate) fn check_not_foreign(&self) -> Result<(), Error> {
        if !self.has_foreign_policy.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(crypt) = self.crypt.get() {
            crypt.contents()?;
        }
        Err(Error::ForeignPolicy)
    }
}

impl Fs {
    /// Returns the encryption policy of an inode; `None` if it is not encrypted.
    pub fn encryption_policy(&self, inode: &InodeRef) -> Result<Option<Policy>, Error> {
        if let Some(known) = inode.crypt.get() {
            return Ok(Some(known.context.policy));
        }
        self.check_process()?;
        let _shared = inode.op.shared();
        Ok(self.data(inode).crypt()?.map(|crypt| crypt.context.policy))
    }

    /// Checks that `child`, found in `dir`, has the policy of `dir` if `dir` is encrypted. A
    /// regular file with another policy is only marked (`has_foreign_policy`); this is not an
    /// error. As in the kernel, such a file can be removed, but can be neither opened
    /// ([`Fs::check_contents`]) nor written. If it could be written, an attacker who can change the
    /// image could make a program write new data in plain text.
    ///
    /// # Errors
    /// [`Error::ForeignPolicy`] for a directory or symbolic link with another policy or none.
    pub fn check_child(&self, dir: &InodeRef, child: &InodeRef) -> Result<(), Error> {
        if !InodeFlags::from_bits_retain(dir.rights().flags).contains(InodeFlags::ENCRYPT) {
            return Ok(());
        }
        let Some(of_dir) = self.encryption_policy(dir)? else { return Ok(()) };
        let is_same = || Ok::<_, Error>(self.encryption_policy(child)? == Some(of_dir));
        if !has_cipher(child.file_type) || is_same()? {
            return Ok(());
        }
        if child.file_type != FileType::Regular {
            return Err(Error::ForeignPolicy);
        }
        child.has_foreign_policy.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes `policy` the encryption policy of an empty directory. All new files in the directory
    /// inherit the policy. Does nothing if the directory has that policy.
    ///
    /// # Errors
    /// The errors of the kernel's ioctl `FS_IOC_SET_ENCRYPTION_POLICY`: [`Error::NotSupported`]
    /// without the feature `encrypt`, or if the directory ignores case; [`Error::NotDirectory`],
    /// [`Error::NotEmpty`]; [`Error::Exists`] if the directory has another policy;
    /// [`Error::NotPermitted`] for the root directory, since `lost+found` is not encrypted;
    /// [`Error::NoKey`].
    pub fn set_encryption_policy(&self, dir: &InodeRef, policy: &Policy) -> Result<(), Error> {
        self.check_writable()?;
        if dir.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        if !self.volume.encrypts {
            return Err(Error::NotSupported);
        }
        let context = Context { policy: *policy, nonce: random_nonce()? };
        let crypt = InodeCrypt::new(context, FileType::Directory, &self.volume.keys);
        let exclusive = dir.op.exclusive();
        if flags::folds_names(&dir.rights()) {
            return Err(Error::NotSupported);
        }
        if let Some(present) = self.data(dir).crypt()? {
            return if present.context.policy == *policy { Ok(()) } else { Err(Error::Exists) };
        }
        crypt.names()?;
        flags::check_not_immutable(&dir.rights())?;
        if dir.ino == Ino::ROOT {
            return Err(Error::NotPermitted);
        }
        if dir.links() == 0 {
            return Err(Error::NotFound);
        }
        let view = Directory::of(self, dir)?;
        if !view.is_empty()? {
            return Err(Error::NotEmpty);
        }
        view.leave_inode()?;
        let (name, value) = (AttributeName::encryption_context(), context.encode());
        let put = Some(Put::Here(&value));
        let change = self.data(dir).plan_xattr(name, put, SetXattr::Any)?;
        let now = now();
        let mut handle = self.join(change.credits)?;
        let released = self.data(dir).apply_xattrs(&mut handle, change);
        dir.crypt.get_or_init(|| Box::new(crypt));
        dir.change(&mut handle, Concerns::Data, |state| {
            state.disk.flags |= InodeFlags::ENCRYPT;
            state.disk.ctime = now;
        });
        drop(handle);
        drop(exclusive);
        // Attribute values in inodes of their own are deleted after the lock is released.
        drop(released);
        self.obey_dirsync(&[dir])
    }
}

// Makes verity files, and returns their digests.
//
// While the hash tree is written after the end of the file, the inode is recorded as an orphan:
// after a crash the next mount frees the tree's blocks, as it does after an unfinished truncation.
// One handle then sets the flag `VERITY` and, if the file has a name, removes the orphan record.
// The commit of that handle flushes the device first, so the tree is durable before the flag.

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
        self.check_process()?;
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
        self.check_writable()?;
        inode.check_regular()?;
        if !self.volume.has_verity {
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
        let (size, block_size) = (inode.size(), self.volume.block_size() as u64);
        let keep = u32::try_from(size.div_ceil(block_size)).map_err(|_| Error::FileTooLarge)?;
        // Frees blocks after the end, and zeroes the rest of the last block, because only the tree
        // may follow the data.
        data.free_from(keep)?;
        data.prepare_growth(size, size.next_multiple_of(block_size))?;
        let mut handle = self.join(Credits::INODE.and(Orphans::RECORD))?;
        self.orphans.add(&mut handle, inode);
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
        let mut handle = self.join(Credits::INODE.and(Orphans::RECORD))?;
        self.orphans.finish(&mut handle, inode);
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
        let block_size = self.volume.geometry().block_size();
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
        let block_size = self.volume.geometry().block_size();
        let hasher = Hasher::new(method.algorithm(), method.salt());
        let start = disk::tree_start(size);
        let descriptor_at = start + tree.bytes().next_multiple_of(block_size.bytes() as u64);
        let end = descriptor_at + block_size.bytes() as u64;
        self.volume.check_size(self.data(inode).form(), end)?;
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
