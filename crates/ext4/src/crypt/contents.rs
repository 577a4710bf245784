//! AES-256-XTS on the blocks of a file.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

/// AES block size in bytes.
const UNIT: usize = 16;
/// The number of AES blocks that are passed to the cipher at once.
const BATCH: usize = 64;

type Unit = Array<u8, aes::cipher::consts::U16>;

/// The cipher of one file's contents. The keys are overwritten when it is dropped.
pub(crate) struct Contents {
    data: Aes256,
    tweak: Aes256,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

impl Contents {
    pub(super) fn new(key: &[u8; 64]) -> Contents {
        let (data, tweak) = key.split_at(32);
        let cipher = |half: &[u8]| Aes256::new(&Array::from_fn(|n| half[n]));
        Contents { data: cipher(data), tweak: cipher(tweak) }
    }

    /// Encrypts whole blocks of `size` bytes. The first of them is block `first` of the file.
    pub(crate) fn encrypt(&self, first: u64, size: usize, blocks: &mut [u8]) {
        self.apply(Direction::Encrypt, first, size, blocks);
    }

    /// Decrypts whole blocks of `size` bytes. The first of them is block `first` of the file.
    pub(crate) fn decrypt(&self, first: u64, size: usize, blocks: &mut [u8]) {
        self.apply(Direction::Decrypt, first, size, blocks);
    }

    fn apply(&self, direction: Direction, first: u64, size: usize, blocks: &mut [u8]) {
        for (n, block) in blocks.chunks_exact_mut(size).enumerate() {
            let mut tweak = Unit::default();
            let number = (first + n as u64).to_le_bytes();
            for (byte, of_number) in tweak.iter_mut().zip(number) {
                *byte = of_number;
            }
            self.tweak.encrypt_block(&mut tweak);
            self.apply_to_block(direction, u128::from_le_bytes(tweak.into()), block);
        }
    }

    fn apply_to_block(&self, direction: Direction, mut tweak: u128, block: &mut [u8]) {
        let (units, _) = Unit::slice_as_chunks_mut(block);
        let mut tweaks = [0; BATCH];
        for batch in units.chunks_mut(BATCH) {
            for place in tweaks.iter_mut().take(batch.len()) {
                *place = tweak;
                tweak = doubled(tweak);
            }
            mask(batch, &tweaks);
            match direction {
                Direction::Encrypt => self.data.encrypt_blocks(batch),
                Direction::Decrypt => self.data.decrypt_blocks(batch),
            }
            mask(batch, &tweaks);
        }
    }
}

fn mask(units: &mut [Unit], tweaks: &[u128]) {
    for (unit, tweak) in units.iter_mut().zip(tweaks) {
        let masked = u128::from_le_bytes((*unit).into()) ^ tweak;
        *unit = masked.to_le_bytes().into();
    }
}

/// Multiplies by the primitive element of GF(2^128) (IEEE 1619).
fn doubled(tweak: u128) -> u128 {
    let carry = tweak >> 127;
    (tweak << 1) ^ (carry * 0x87)
}

const _: () = assert!(UNIT == size_of::<Unit>());
