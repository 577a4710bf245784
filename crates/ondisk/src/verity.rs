//! The metadata of a verity file: where it is, its descriptor, and the shape of its hash tree.
//!
//! The metadata lies after the end of the file, in the file's own blocks. The hash tree starts at
//! the next multiple of 65,536 bytes. The descriptor follows the tree, at the start of a block. The
//! last four bytes of the file's last block contain the descriptor's size. Sources: kernel
//! documentation, *fs-verity: read-only file-based authenticity protection*, "Merkle tree" and
//! "fs-verity descriptor"; ext4 disk layout documentation, "Verity files".

mod method;
mod tree;

pub use crate::cause::verity::Cause;
pub use method::{Algorithm, MOST_SALT, Method};
pub use tree::{Child, Tree};

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

#[cfg(test)]
mod tests;
