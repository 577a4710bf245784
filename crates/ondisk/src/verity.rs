//! The metadata of a verity file: where it is, its descriptor, and the shape of its hash tree.
//!
//! The metadata lies after the end of the file, in the file's own blocks. The hash tree starts at
//! the next multiple of 65,536 bytes. The descriptor follows the tree, at the start of a block. The
//! last four bytes of the file's last block contain the descriptor's size. Sources: kernel
//! documentation, *fs-verity: read-only file-based authenticity protection*, "Merkle tree" and
//! "fs-verity descriptor"; ext4 disk layout documentation, "Verity files".

pub use crate::cause::VerityCause as Cause;

use crate::types::BlockSize;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The hash tree begins at a multiple of this many bytes.
const TREE_ALIGNMENT: u64 = 65536;
/// The longest descriptor in bytes, its signature included, as in the kernel.
const MOST_DESCRIPTOR: u32 = 16384;
/// Bytes of the field that contains the descriptor's size.
const SIZE_BYTES: u64 = 4;

/// `struct fsverity_descriptor`.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // the kernel's names
struct RawDescriptor {
    version: u8,
    hash_algorithm: u8,
    log_blocksize: u8,
    salt_size: u8,
    sig_size: U32,
    data_size: U64,
    root_hash: [u8; 64],
    salt: [u8; MOST_SALT],
    reserved: [u8; 144],
}

const _: () = assert!(size_of::<RawDescriptor>() == Descriptor::BYTES);

/// The checked descriptor of a verity file.
#[derive(Debug, Clone)]
pub struct Descriptor {
    raw: RawDescriptor,
    method: Method,
    tree: Tree,
}

impl Descriptor {
    /// Bytes of a descriptor without signature.
    pub const BYTES: usize = 256;

    /// Creates the descriptor of a file of `size` bytes.
    ///
    /// # Errors
    /// [`Cause::Levels`].
    pub fn new(method: Method, size: u64, root_hash: &[u8]) -> Result<Descriptor, Cause> {
        let tree = Tree::new(size, &method)?;
        let mut raw = RawDescriptor::new_zeroed();
        raw.version = 1;
        raw.hash_algorithm = method.algorithm().number();
        raw.log_blocksize = method.block_bits();
        raw.salt_size = method.salt().len() as u8;
        raw.data_size.set(size);
        raw.root_hash.iter_mut().zip(root_hash).for_each(|(place, byte)| *place = *byte);
        raw.salt.iter_mut().zip(method.salt()).for_each(|(place, byte)| *place = *byte);
        Ok(Descriptor { raw, method, tree })
    }

    /// Decodes the descriptor of a file of `size` bytes. `bytes` are all bytes of the descriptor,
    /// its signature included. The signature is not verified.
    ///
    /// # Errors
    /// A [`Cause`]. The kernel refuses every descriptor that is refused here.
    pub fn decode(bytes: &[u8], size: u64, block_size: BlockSize) -> Result<Descriptor, Cause> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let wrong = Cause::DescriptorSize { size: len };
        let (mut raw, signature) = RawDescriptor::read_from_prefix(bytes).map_err(|_| wrong)?;
        if raw.version != 1 {
            return Err(Cause::Version { version: raw.version });
        }
        if raw.reserved != [0; 144] {
            return Err(Cause::Reserved);
        }
        let number = raw.hash_algorithm;
        let algorithm = Algorithm::by_number(number).ok_or(Cause::Algorithm { number })?;
        let wrong = Cause::SaltSize { size: raw.salt_size };
        let salt = raw.salt.get(..usize::from(raw.salt_size)).ok_or(wrong)?;
        let method = Method::new(algorithm, raw.log_blocksize, salt, block_size)?;
        if raw.data_size.get() != size {
            return Err(Cause::DataSize { described: raw.data_size.get(), size });
        }
        if raw.sig_size.get() as usize > signature.len() {
            return Err(Cause::SignatureSize { size: raw.sig_size.get() });
        }
        // The signature size is set to 0 because the file's digest is the hash of the descriptor
        // with a signature size of 0.
        raw.sig_size.set(0);
        let tree = Tree::new(size, &method)?;
        Ok(Descriptor { raw, method, tree })
    }

    /// Returns the bytes of the descriptor without signature, whose hash is the file's digest.
    pub fn encode(&self) -> &[u8] {
        self.raw.as_bytes()
    }

    /// Returns how the hash tree is computed.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the shape of the hash tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the hash of the block at the top of the tree. For a file of one block it is the hash
    /// of that data block, and for an empty file it is zeros.
    pub fn root_hash(&self) -> &[u8] {
        self.raw.root_hash.get(..self.method.algorithm().hash_bytes()).unwrap_or_default()
    }
}

/// Returns the offset in the file at which the hash tree of a file of `size` bytes begins.
pub fn tree_start(size: u64) -> u64 {
    size.checked_next_multiple_of(TREE_ALIGNMENT).unwrap_or(u64::MAX)
}

/// Returns the offset of the field that states the descriptor's size. The file has `size` bytes,
/// and its mapped blocks end at byte `end`.
///
/// # Errors
/// [`Cause::NoBlocks`].
pub fn size_place(size: u64, end: u64) -> Result<u64, Cause> {
    let at = end.checked_sub(SIZE_BYTES).ok_or(Cause::NoBlocks)?;
    if at < tree_start(size) { Err(Cause::NoBlocks) } else { Ok(at) }
}

/// Returns the byte range that the descriptor takes in a file of `size` bytes. The descriptor has
/// `len` bytes, and the field with its size is at `size_at`.
///
/// # Errors
/// [`Cause::DescriptorSize`], [`Cause::DescriptorPlace`].
pub fn descriptor_place(
    size: u64,
    size_at: u64,
    len: u32,
    block_size: BlockSize,
) -> Result<Range<u64>, Cause> {
    let wrong = Cause::DescriptorSize { size: len };
    if !(Descriptor::BYTES as u32..=MOST_DESCRIPTOR).contains(&len) {
        return Err(wrong);
    }
    let at = size_at.checked_sub(len.into()).ok_or(wrong)? >> block_size.bits();
    let (at, tree) = (at << block_size.bits(), tree_start(size));
    if at < tree {
        return Err(Cause::DescriptorPlace { at, tree });
    }
    Ok(at..at + u64::from(len))
}

/// Returns the bytes that follow the hash tree, which are whole blocks: the descriptor, padding,
/// and the descriptor's size.
pub fn encode_tail(descriptor: &Descriptor, block_size: BlockSize) -> Vec<u8> {
    let len = (Descriptor::BYTES + SIZE_BYTES as usize).next_multiple_of(block_size.bytes());
    let mut bytes = descriptor.encode().to_vec();
    bytes.resize(len - SIZE_BYTES as usize, 0);
    bytes.extend_from_slice(&(Descriptor::BYTES as u32).to_le_bytes());
    bytes
}

/// The limits of the tree's block size, as binary logarithms. The tree's blocks must also not be
/// larger than the blocks of the file system.
const LEAST_BLOCK_BITS: u8 = 10;
const MOST_BLOCK_BITS: u8 = 16;
/// The longest salt in bytes.
pub const MOST_SALT: usize = 32;

/// A hash algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// Returns the algorithm with this number in a descriptor.
    pub fn by_number(number: u8) -> Option<Algorithm> {
        [Algorithm::Sha256, Algorithm::Sha512].into_iter().find(|one| one.number() == number)
    }

    /// Returns the number in a descriptor: `FS_VERITY_HASH_ALG_*`.
    pub fn number(self) -> u8 {
        match self {
            Algorithm::Sha256 => 1,
            Algorithm::Sha512 => 2,
        }
    }

    /// Returns the size of a hash in bytes.
    pub fn hash_bytes(self) -> usize {
        match self {
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }

    /// Returns the block size of the hash algorithm in bytes. A salt is padded to a multiple of
    /// this size.
    pub fn unit_bytes(self) -> usize {
        match self {
            Algorithm::Sha256 => 64,
            Algorithm::Sha512 => 128,
        }
    }

    /// Returns the name, as `fsverity digest` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }
}

/// How a hash tree is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    algorithm: Algorithm,
    block_bits: u8,
    salt: Vec<u8>,
}

impl Method {
    /// Creates the method for a file of a file system with blocks of `block_size`, after a check of
    /// the parameters.
    ///
    /// # Errors
    /// [`Cause::BlockSize`] if the tree's blocks are smaller than 1024 bytes or larger than the
    /// blocks of the file system; [`Cause::SaltSize`] if the salt is longer than [`MOST_SALT`].
    pub fn new(
        algorithm: Algorithm,
        block_bits: u8,
        salt: &[u8],
        block_size: BlockSize,
    ) -> Result<Method, Cause> {
        let most = MOST_BLOCK_BITS.min(u8::try_from(block_size.bits()).unwrap_or(u8::MAX));
        if !(LEAST_BLOCK_BITS..=most).contains(&block_bits) {
            return Err(Cause::BlockSize { bits: block_bits });
        }
        if salt.len() > MOST_SALT {
            return Err(Cause::SaltSize { size: u8::try_from(salt.len()).unwrap_or(u8::MAX) });
        }
        Ok(Method { algorithm, block_bits, salt: salt.to_vec() })
    }

    /// Returns the hash algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the binary logarithm of the block size, which is the same for the data and the tree.
    /// Each block is hashed as a whole.
    pub fn block_bits(&self) -> u8 {
        self.block_bits
    }

    /// Returns the salt, which precedes each block that is hashed.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }
}

// The shape of a hash tree: its levels, and where each block is.
//
// Level 0 is the data. Each block of a higher level has the hashes of blocks of the level below,
// and the highest level has one block. A file of one block, or an empty file, has no tree. The
// blocks of the tree are stored level by level, the highest first.

/// The largest number of levels above the data, as in the kernel.
const MOST_LEVELS: usize = 8;

/// The shape of a hash tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    block_bits: u8,
    hash_bits: u8,
    data_blocks: u64,
    /// The first block of each level, from level 1 on, counted in the stored tree.
    starts: Vec<u64>,
    blocks: u64,
}

/// The position of a block's hash in the level above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Child {
    /// The number of the block that has the hash, counted within its level.
    pub parent: u64,
    /// The number of the block that has the hash, counted in the stored tree.
    pub stored: u64,
    /// The offset of the hash in bytes, within the block that has the hash.
    pub offset: usize,
}

impl Tree {
    /// Returns the shape of the tree for `size` bytes.
    ///
    /// # Errors
    /// [`Cause::Levels`].
    pub fn new(size: u64, method: &Method) -> Result<Tree, Cause> {
        let hash_bits = method.algorithm().hash_bytes().trailing_zeros() as u8;
        let (block_bits, fan_bits) = (method.block_bits(), method.block_bits() - hash_bits);
        let data_blocks = size.div_ceil(1 << block_bits);
        let mut counts = Vec::new();
        let mut below = data_blocks;
        while below > 1 {
            if counts.len() == MOST_LEVELS {
                return Err(Cause::Levels);
            }
            below = below.div_ceil(1 << fan_bits);
            counts.push(below);
        }
        let blocks = counts.iter().sum();
        let mut end = blocks;
        let starts = counts.iter().map(|count| {
            end -= count;
            end
        });
        Ok(Tree { block_bits, hash_bits, data_blocks, starts: starts.collect(), blocks })
    }

    /// Returns the size of a block in bytes. The blocks of the data and of the tree have the same
    /// size.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_bits
    }

    /// Returns the number of the data block that has byte `offset` of the file.
    pub fn block_at(&self, offset: u64) -> u64 {
        offset >> self.block_bits
    }

    /// Returns the number of levels above the data.
    pub fn levels(&self) -> usize {
        self.starts.len()
    }

    /// Returns the number of blocks in a level.
    pub fn blocks_in(&self, level: usize) -> u64 {
        let Some(above) = level.checked_sub(1) else { return self.data_blocks };
        let Some(start) = self.starts.get(above) else { return 0 };
        // In the stored tree, the blocks of the level below follow those of this level.
        let next = above.checked_sub(1).and_then(|below| self.starts.get(below));
        next.unwrap_or(&self.blocks) - start
    }

    /// Returns the size of the stored tree in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_bits
    }

    /// Returns where the hash of block `index` of `level` is; `None` for the highest block, whose
    /// hash is in the descriptor.
    pub fn child(&self, level: usize, index: u64) -> Option<Child> {
        let start = self.starts.get(level)?;
        let fan_bits = self.block_bits - self.hash_bits;
        let parent = index >> fan_bits;
        let within = index & ((1 << fan_bits) - 1);
        let offset = (within << self.hash_bits) as usize;
        Some(Child { parent, stored: start + parent, offset })
    }

    /// Returns the offset of a block of the stored tree from the start of the tree, in bytes.
    pub fn offset_of(&self, stored: u64) -> u64 {
        stored << self.block_bits
    }
}

#[cfg(test)]
mod tests;
