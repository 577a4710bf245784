//! The hash tree of dm-verity, as `veritysetup format` makes it: SHA-256, format 1, blocks of 4096
//! bytes.
//!
//! Source: the kernel's admin-guide/device-mapper/verity.rst, and cryptsetup's wiki page DMVerity
//! ("Verity superblock format").

use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::unscheduled::{Mutex, PoisonError};
use sha2::{Digest, Sha256};

/// The block size in bytes. It is the same for data blocks and hash blocks.
const BLOCK: u64 = 4096;
/// The binary logarithm of the number of hashes in a block.
const HASH_BITS: u32 = 7;
/// How many hash blocks a thread computes at a time.
const BATCH: u64 = 16;
/// The longest salt that the superblock holds.
const MOST_SALT: usize = 256;

/// The salt of a hash tree, and the UUID in the superblock of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verity {
    salt: Vec<u8>,
    uuid: [u8; 16],
}

/// A hash tree that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sealed {
    /// The root hash, which has to be passed to the kernel at boot.
    pub root_hash: [u8; 32],
    /// How many data blocks of 4096 bytes the tree covers.
    pub data_blocks: u64,
    /// How many bytes superblock and hash tree take together.
    pub hash_bytes: u64,
}

/// Blocks on a device.
#[derive(Clone, Copy)]
struct Blocks<'d> {
    device: &'d dyn Device,
    offset: u64,
    count: u64,
}

impl Verity {
    /// Returns `None` if the salt is longer than 256 bytes.
    pub fn new(salt: Vec<u8>, uuid: [u8; 16]) -> Option<Verity> {
        (salt.len() <= MOST_SALT).then_some(Verity { salt, uuid })
    }

    /// Computes a salt and a UUID from the UUID of a file system.
    pub fn derived(file_system: [u8; 16]) -> Verity {
        let digest = |what: &str| {
            let hash = Sha256::new().chain_update(what).chain_update(file_system);
            <[u8; 32]>::from(hash.finalize())
        };
        let bytes = digest("lanefs verity uuid").first_chunk().copied().unwrap_or_default();
        // Marks the UUID as version 4 (random), in the variant of RFC 9562.
        let uuid = uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes();
        Verity { salt: digest("lanefs verity salt").to_vec(), uuid }
    }

    /// Returns the salt.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Returns the UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Returns how many bytes the superblock and the hash tree take for `len` bytes of data; `None`
    /// if `len` is 0 or not a whole number of blocks.
    pub fn hash_bytes(len: u64) -> Option<u64> {
        (len > 0 && len.is_multiple_of(BLOCK)).then(|| {
            let levels = levels(len / BLOCK);
            (1 + levels.iter().sum::<u64>()) * BLOCK
        })
    }

    /// Writes superblock and hash tree for the first `len` bytes of `data` to `out`, from byte
    /// `offset` on. `offset` must be a multiple of 4096. `len` should also be a multiple of 4096,
    /// because an incomplete block at the end is not hashed. Uses `threads` threads for hashing.
    ///
    /// # Errors
    /// If a device fails to read or write.
    pub fn write(
        &self,
        data: &dyn Device,
        len: u64,
        out: &dyn Device,
        offset: u64,
        threads: usize,
    ) -> Result<Sealed, DeviceError> {
        let mut source = Blocks { device: data, offset: 0, count: len / BLOCK };
        let data_blocks = source.count;
        let levels = levels(data_blocks);
        // On the device, the level with the fewest blocks comes first, and the level with the
        // hashes of the data comes last. The hashes of the data are computed first, so the levels
        // are written from the end of the area backwards.
        let mut end = offset + (1 + levels.iter().sum::<u64>()) * BLOCK;
        let hash_bytes = end - offset;
        for count in levels {
            end -= count * BLOCK;
            let level = Blocks { device: out, offset: end, count };
            self.level(source, level, threads)?;
            source = level;
        }
        let mut top = vec![0; BLOCK as usize];
        source.device.read_at(source.offset, &mut top)?;
        let mut superblock = vec![0; BLOCK as usize];
        self.encode_superblock(&mut superblock, data_blocks);
        out.write_at(offset, &superblock)?;
        Ok(Sealed { root_hash: self.hash(&top), data_blocks, hash_bytes })
    }

    fn hash(&self, block: &[u8]) -> [u8; 32] {
        Sha256::new().chain_update(&self.salt).chain_update(block).finalize().into()
    }

    /// Writes one level: the hashes of all blocks of `source`.
    fn level(
        &self,
        source: Blocks<'_>,
        level: Blocks<'_>,
        threads: usize,
    ) -> Result<(), DeviceError> {
        let of_zeros = self.hash(&[0; BLOCK as usize]);
        let next = Mutex::new(0u64);
        let take = || {
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            let from = *next;
            *next = (from + BATCH).min(level.count);
            from..*next
        };
        let work = || loop {
            let blocks = take();
            if blocks.is_empty() {
                return Ok(());
            }
            self.batch(source, level, blocks, &of_zeros)?;
        };
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            let theirs = helpers.into_iter().map(|helper| match helper.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            theirs.fold(own, |all, one| all.and(one))
        })
    }

    /// Computes and writes the hash blocks `blocks` of a level.
    fn batch(
        &self,
        source: Blocks<'_>,
        level: Blocks<'_>,
        blocks: std::ops::Range<u64>,
        of_zeros: &[u8; 32],
    ) -> Result<(), DeviceError> {
        let from = blocks.start << HASH_BITS;
        let count = (blocks.end << HASH_BITS).min(source.count) - from;
        let mut bytes = vec![0; (count * BLOCK) as usize];
        source.device.read_at(source.offset + from * BLOCK, &mut bytes)?;
        let mut hashes = vec![0; ((blocks.end - blocks.start) * BLOCK) as usize];
        let places = hashes.as_chunks_mut::<32>().0;
        for (block, place) in bytes.chunks_exact(BLOCK as usize).zip(places) {
            let is_zero = block.iter().all(|&byte| byte == 0);
            *place = if is_zero { *of_zeros } else { self.hash(block) };
        }
        level.device.write_at(level.offset + blocks.start * BLOCK, &hashes)
    }

    fn encode_superblock(&self, block: &mut [u8], data_blocks: u64) {
        let fields: [(usize, &[u8]); 10] = [
            (0, b"verity\0\0"),
            (8, &1u32.to_le_bytes()),
            // Format 1, which hashes the salt before the data.
            (12, &1u32.to_le_bytes()),
            (16, &self.uuid),
            (32, b"sha256"),
            (64, &(BLOCK as u32).to_le_bytes()),
            (68, &(BLOCK as u32).to_le_bytes()),
            (72, &data_blocks.to_le_bytes()),
            (80, &(self.salt.len() as u16).to_le_bytes()),
            (88, &self.salt),
        ];
        for (at, bytes) in fields {
            if let Some(place) = block.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
    }
}

/// Returns the number of hash blocks of each level. The first level holds the hashes of the data
/// blocks.
fn levels(data_blocks: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    let mut count = data_blocks;
    while count > 1 {
        count = count.div_ceil(1 << HASH_BITS);
        levels.push(count);
    }
    levels
}
