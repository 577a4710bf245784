//! Reads and writes the contents of encrypted files, and loads the contexts of encrypted inodes.
//!
//! Each block is encrypted as a whole. So to change a part of a block, a thread reads, decrypts,
//! changes, encrypts and writes the block, while it holds the operation lock exclusively. Holes and
//! unwritten blocks are not encrypted and read as zeros.
//!
//! A truncation inside a block writes a copy of the block, with zeros after the new end, to a newly
//! claimed block (`ops/truncate.rs`). If no block is free, or with `bigalloc`, it instead writes
//! the zeros in place before the file is truncated, as the kernel does. A crash between these two
//! steps leaves the file with its old size and with these zeros.

use crate::crypt::{Contents, InodeCrypt};
use crate::data::FileData;
use crate::data::bytes::in_whole_units;
use crate::flags;
use crate::object::inode::Inode;
use crate::verity::{Hash, Verity};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::encryption::Context;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::verity::Descriptor;
use lanefs_ondisk::xattr::AttributeName;
use lanefs_ondisk::{Corruption, FileType, inode, verity, verity as disk};
use lanefs_plan::extent::{Extent, State};
use lanefs_plan::xattr::Stored;
use lanefs_plan::{Error, xattr};

/// Returns whether inodes of this type are encrypted in an encrypted directory.
pub(crate) fn has_cipher(file_type: FileType) -> bool {
    matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
}

/// Returns random bytes for the context of a new inode.
pub(crate) fn random_nonce() -> Result<[u8; 16], Error> {
    let mut nonce = [0; 16];
    let len = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty());
    // The kernel always fills a buffer of up to 256 bytes completely (getrandom(2)).
    match len {
        Ok(16) => Ok(nonce),
        _ => Err(Error::NoRandomness),
    }
}

impl<'m> FileData<'m> {
    /// Returns whether the inode's contents, names or target are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.fs.volume.encrypts && flags::is_encrypted(&self.inode.rights())
    }

    /// Returns the context of an encrypted inode, and its cipher if the key is known. `None` if the
    /// inode is not encrypted. The caller holds the operation lock.
    pub(crate) fn crypt(&self) -> Result<Option<&'m InodeCrypt>, Error> {
        if !self.is_encrypted() {
            return Ok(None);
        }
        let inode = self.inode;
        if let Some(crypt) = inode.crypt.get() {
            return Ok(Some(crypt));
        }
        let damaged = |cause| Error::from(Corruption::Inode { ino: inode.ino, cause });
        let (in_inode, block) = self.read_xattrs()?;
        let name = AttributeName::encryption_context();
        let context = match xattr::get(&self.xattr_state(&in_inode, &block), name) {
            Ok(Stored::Here(value)) => Context::decode(value).map_err(damaged)?,
            // A context that is stored in another inode is refused, because that inode could be
            // encrypted too, and have its own context in a third inode.
            Ok(Stored::Inode(_)) | Err(Error::NoAttribute) => {
                return Err(damaged(inode::Cause::NoEncryptionContext));
            }
            Err(error) => return Err(error),
        };
        let new = || Box::new(InodeCrypt::new(context, inode.file_type, &self.fs.volume.keys));
        Ok(Some(inode.crypt.get_or_init(new)))
    }

    /// Returns the cipher of the contents; `None` if the file is not encrypted. The caller holds
    /// the operation lock.
    ///
    /// # Errors
    /// [`Error::NoKey`].
    pub(crate) fn contents(&self) -> Result<Option<&'m Contents>, Error> {
        Ok(match self.crypt()? {
            Some(crypt) if self.inode.file_type == FileType::Regular => Some(crypt.contents()?),
            _ => None,
        })
    }

    /// Fails if this is an encrypted directory whose key is missing. The caller holds the operation
    /// lock.
    ///
    /// # Errors
    /// [`Error::NoKey`].
    pub(crate) fn check_names_key(&self) -> Result<(), Error> {
        match self.crypt()? {
            Some(crypt) => Ok(crypt.names().map(drop)?),
            None => Ok(()),
        }
    }

    /// Fails if this directory must not contain a name of `inode`, because the directory is
    /// encrypted and the inode has another policy or none. The caller holds the operation locks of
    /// both inodes.
    ///
    /// # Errors
    /// [`Error::OtherPolicy`], [`Error::NoKey`].
    pub(crate) fn check_policy(&self, inode: &Arc<Inode>) -> Result<(), Error> {
        let Some(crypt) = self.crypt()? else { return Ok(()) };
        crypt.names()?;
        let other = FileData { fs: self.fs, inode }.crypt()?;
        match other.map(|other| other.context.policy == crypt.context.policy) {
            Some(true) => Ok(()),
            None if !has_cipher(inode.file_type) => Ok(()),
            Some(false) | None => Err(Error::OtherPolicy),
        }
    }

    /// Returns the context of a new inode in this directory, with a new nonce; `None` if the inode
    /// is not encrypted. The caller holds the operation lock.
    ///
    /// # Errors
    /// [`Error::NoKey`].
    pub(crate) fn crypt_for_new(&self, file_type: FileType) -> Result<Option<InodeCrypt>, Error> {
        let Some(parent) = self.crypt()? else { return Ok(None) };
        parent.names()?;
        if !has_cipher(file_type) {
            return Ok(None);
        }
        let context = Context { nonce: random_nonce()?, ..parent.context };
        Ok(Some(InodeCrypt::new(context, file_type, &self.fs.volume.keys)))
    }

    /// Does the same as [`FileData::read`] for an encrypted file.
    pub(crate) fn read_encrypted(
        &self,
        cipher: &Contents,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), Error> {
        let unit = self.block_size() as usize;
        in_whole_units(unit, offset, buf, |at, part| self.read_whole(cipher, at, part))
    }

    /// Reads and decrypts whole blocks.
    fn read_whole(&self, cipher: &Contents, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let size = self.block_size();
        for piece in self.pieces(offset, buf.len())? {
            let from = (piece.offset - offset) as usize;
            let part = &mut buf[from..from + piece.len];
            match piece.device {
                Some(at) => {
                    self.device().read_data_at(at, part)?;
                    cipher.decrypt(piece.offset / size, size as usize, part);
                }
                None => part.fill(0),
            }
        }
        Ok(())
    }

    /// Zeroes `len` bytes at the file offset `offset`. These bytes are stored at the device offset
    /// `device`.
    pub(crate) fn zero_encrypted(
        &self,
        cipher: &Contents,
        offset: u64,
        device: u64,
        len: u64,
    ) -> Result<(), Error> {
        let size = self.block_size();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let (first, stop) = (at / size * size, end.min(at / size * size + size));
            // The device offset of the start of the block that contains file byte `at`. (`device`
            // need not be the start of a block.)
            let place = (device + (at - offset)) - (at - first);
            let mut block = vec![0; size as usize];
            if stop - at < size {
                self.device().read_data_at(place, &mut block)?;
                cipher.decrypt(first / size, size as usize, &mut block);
                block[(at - first) as usize..(stop - first) as usize].fill(0);
            }
            cipher.encrypt(first / size, size as usize, &mut block);
            self.device().write_data_at(place, &block)?;
            at = stop;
        }
        Ok(())
    }

    /// Writes to the blocks of `extent` the part of `data` that the extent covers. `data` begins at
    /// the file offset `offset`.
    ///
    /// # Locking
    /// If `data` covers only a part of a block, the caller holds the operation lock exclusively.
    pub(crate) fn write_encrypted(
        &self,
        cipher: &Contents,
        offset: u64,
        data: &[u8],
        extent: &Extent,
    ) -> Result<(), Error> {
        let size = self.block_size();
        let (from, to) = (u64::from(extent.start.0) * size, u64::from(extent.end()) * size);
        let (start, stop) = (from.max(offset), to.min(offset + data.len() as u64));
        if start >= stop {
            return Ok(());
        }
        let (first, end) = (start / size * size, stop.next_multiple_of(size));
        let device = extent.block.0 * size + (first - from);
        let mut blocks = vec![0; (end - first) as usize];
        let last = blocks.len() - size as usize;
        let mut load = |at: usize| -> Result<(), Error> {
            let block = &mut blocks[at..at + size as usize];
            self.device().read_data_at(device + at as u64, block)?;
            cipher.decrypt((first + at as u64) / size, size as usize, block);
            Ok(())
        };
        if extent.state == State::Written {
            if start > first {
                load(0)?;
            }
            if stop < end && (last > 0 || start == first) {
                load(last)?;
            }
        }
        let part = &data[(start - offset) as usize..(stop - offset) as usize];
        blocks[(start - first) as usize..(stop - first) as usize].copy_from_slice(part);
        cipher.encrypt(first / size, size as usize, &mut blocks);
        Ok(self.device().write_data_at(device, &blocks)?)
    }
}

// Reads verity files: every block of data is compared with the hash tree before a caller sees it.
//
// The hash of a block is in a block of the level above, which is verified itself before it is
// used, and so on up to the root hash in the descriptor. The tree and the descriptor are read like
// data, so the tree and the descriptor of an encrypted file are decrypted.

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
            return Err(damaged(verity::Cause::NoExtents));
        }
        let block_size = self.fs.volume.geometry().block_size();
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
        let kept = &self.fs.verified;
        if let Some(hash) = kept.hash(digest, child.stored, child.offset) {
            return Ok(hash);
        }
        let mut block = vec![0; tree.block_bytes()];
        let start = disk::tree_start(self.inode.size());
        self.read(start + tree.offset_of(child.stored), &mut block)?;
        self.verify(verity, level + 1, child.parent, &block)?;
        kept.keep(digest, child.stored, &block, self.fs.volume.block_size());
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
