//! The cryptography of encrypted directories (fscrypt), as pure functions.
//!
//! A master key encrypts nothing itself. Each encrypted inode has a key of its own, derived from
//! the master key and the nonce in the inode's context ([`lanefs_ondisk::encryption`]):
//!
//! - The blocks of a file are encrypted in place (`contents.rs`). The number of the block in the
//!   file is the tweak, so a block can be read and written without its neighbours. But it cannot be
//!   decrypted at another position in the file.
//! - Names, and targets of symbolic links, are padded and encrypted (`names.rs`). Directories
//!   contain, compare and hash the encrypted names.
//! - Without the key, an encrypted name is shown as a text (`names.rs`), and a look-up of this
//!   text finds the name. So trees can be listed and removed without the key.
//!
//! Only policies of version 2 with AES-256-XTS and AES-256-CTS-CBC are supported, with every
//! padding. For any other policy the key counts as missing, and the error names the reason: version
//! 1, AES-128, SM4, Adiantum, HCTR2, `DIRECT_KEY`, `IV_INO_LBLK_*`, units smaller than a block.
//!
//! Source: kernel documentation, *Filesystem-level encryption (fscrypt)*.

mod names;

pub(crate) use crate::crypt::names::{Names, NoKeyName};

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use hkdf::Hkdf;
use lanefs_ondisk::FileType;
use lanefs_ondisk::encryption::{Context, KeyName, Policy};
use lanefs_plan::MissingKey;
use sha2::Sha512;
use std::io::Read;
use std::{fmt, io};
use thiserror::Error;
use zeroize::Zeroizing;

/// The context of an encrypted inode, with the inode's cipher if the key is known.
pub(crate) struct InodeCrypt {
    pub(crate) context: Context,
    cipher: Result<Cipher, MissingKey>,
}

enum Cipher {
    Contents(Box<Contents>),
    Names(Box<Names>),
}

impl InodeCrypt {
    /// Derives the cipher of an inode of the type `file_type`. The master key is the one in `keys`
    /// that the context's policy names.
    pub(crate) fn new(context: Context, file_type: FileType, keys: &[MasterKey]) -> InodeCrypt {
        let cipher = find_key(&context.policy, keys).map(|key| match file_type {
            FileType::Regular => {
                let derived = key.derive(Purpose::Inode, &context.nonce);
                Cipher::Contents(Box::new(Contents::new(&derived)))
            }
            _ => {
                let derived = key.derive(Purpose::Inode, &context.nonce);
                Cipher::Names(Box::new(Names::new(&derived, context.policy.padding())))
            }
        });
        InodeCrypt { context, cipher }
    }

    /// Returns the cipher of the contents of a file.
    pub(crate) fn contents(&self) -> Result<&Contents, MissingKey> {
        match &self.cipher {
            Ok(Cipher::Contents(cipher)) => Ok(cipher),
            Ok(Cipher::Names(_)) => Err(MissingKey::Policy { what: "is not that of a file" }),
            Err(missing) => Err(*missing),
        }
    }

    /// Returns the cipher of the names in a directory, or of the target of a symbolic link.
    pub(crate) fn names(&self) -> Result<&Names, MissingKey> {
        match &self.cipher {
            Ok(Cipher::Names(cipher)) => Ok(cipher),
            Ok(Cipher::Contents(_)) => Err(MissingKey::Policy { what: "is that of a file" }),
            Err(missing) => Err(*missing),
        }
    }
}

/// Returns the key of a policy.
fn find_key<'k>(policy: &Policy, keys: &'k [MasterKey]) -> Result<&'k MasterKey, MissingKey> {
    if let Some(what) = unsupported(policy) {
        return Err(MissingKey::Policy { what });
    }
    let KeyName::Identifier(identifier) = policy.key else {
        return Err(MissingKey::Policy { what: "has version 1" });
    };
    let found = keys.iter().find(|key| *key.identifier() == identifier);
    found.ok_or(MissingKey::NotGiven { identifier })
}

/// Returns why a policy is not supported; `None` if it is supported.
///
/// The numbers are those of `linux/fscrypt.h`.
fn unsupported(policy: &Policy) -> Option<&'static str> {
    const DIRECT_KEY: u8 = 4;
    const IV_INO_LBLK_64: u8 = 8;
    const IV_INO_LBLK_32: u8 = 16;
    Some(match policy {
        Policy { key: KeyName::Descriptor(_), .. } => "has version 1",
        Policy { contents_mode: 5, .. } => "encrypts contents by AES-128-CBC-ESSIV",
        Policy { contents_mode: 7, .. } => "encrypts contents by SM4-XTS",
        Policy { contents_mode: 9, .. } => "encrypts contents by Adiantum",
        Policy { contents_mode, .. } if *contents_mode != Policy::AES_256_XTS => {
            "encrypts contents by an unknown mode"
        }
        Policy { names_mode: 6, .. } => "encrypts names by AES-128-CBC-CTS",
        Policy { names_mode: 8, .. } => "encrypts names by SM4-CBC-CTS",
        Policy { names_mode: 9, .. } => "encrypts names by Adiantum",
        Policy { names_mode: 10, .. } => "encrypts names by AES-256-HCTR2",
        Policy { names_mode, .. } if *names_mode != Policy::AES_256_CTS => {
            "encrypts names by an unknown mode"
        }
        Policy { flags, .. } if flags & DIRECT_KEY != 0 => "has the flag DIRECT_KEY",
        Policy { flags, .. } if flags & IV_INO_LBLK_64 != 0 => "has the flag IV_INO_LBLK_64",
        Policy { flags, .. } if flags & IV_INO_LBLK_32 != 0 => "has the flag IV_INO_LBLK_32",
        Policy { flags, .. } if flags & !Policy::PADDING != 0 => "has an unknown flag",
        Policy { log2_data_unit: 1.., .. } => "encrypts parts of blocks",
        _ => return None,
    })
}

// AES-256-XTS on the blocks of a file.

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
    pub(crate) fn new(key: &[u8; 64]) -> Contents {
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

// Master keys, and the keys derived from them by HKDF-SHA512.

/// The prefix of HKDF's `info` argument in each key derivation. The purpose follows it.
const PREFIX: &[u8; 8] = b"fscrypt\0";

/// The largest length of a master key in bytes.
const MOST: usize = 64;

/// A derived key. It is overwritten when it is dropped.
pub(crate) type Derived<const N: usize> = Zeroizing<[u8; N]>;

/// What a derived key is for (`HKDF_CONTEXT_*`).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Identifier = 1,
    Inode = 2,
}

/// The key of a policy. Its bytes are never printed, and are overwritten when the key is dropped.
#[derive(Clone)]
pub struct MasterKey {
    bytes: Zeroizing<Vec<u8>>,
    identifier: [u8; 16],
}

/// The reason why bytes are not a master key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadKey {
    /// The key does not have 32 to 64 bytes.
    #[error("a master key has 32 to 64 bytes, not {len}")]
    Length {
        /// The number of bytes.
        len: usize,
    },
}

impl MasterKey {
    /// Creates the key from its 32 to 64 bytes. (AES-256 requires at least 32, and fscrypt allows
    /// at most 64.)
    ///
    /// # Errors
    /// [`BadKey`] for another length.
    pub fn new(bytes: &[u8]) -> Result<MasterKey, BadKey> {
        if !(32..=MOST).contains(&bytes.len()) {
            return Err(BadKey::Length { len: bytes.len() });
        }
        let mut key = MasterKey { bytes: Zeroizing::new(bytes.to_vec()), identifier: [0; 16] };
        key.identifier = *key.derive(Purpose::Identifier, &[]);
        Ok(key)
    }

    /// Reads a key up to the end of `source`.
    ///
    /// # Errors
    /// The errors of `source`. A [`BadKey`] is returned as an error of the kind `InvalidData`.
    pub fn read_from(source: impl Read) -> io::Result<MasterKey> {
        // The vector has room for one byte more than the longest key, so it never grows. Growth
        // would leave copies of the key in memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MOST + 1));
        source.take(MOST as u64 + 1).read_to_end(&mut bytes)?;
        MasterKey::new(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Returns the identifier that policies use to name the key. It is not secret.
    pub fn identifier(&self) -> &[u8; 16] {
        &self.identifier
    }

    /// Derives a key of `N` bytes; `N` is at most 64.
    pub(crate) fn derive<const N: usize>(&self, purpose: Purpose, info: &[u8]) -> Derived<N> {
        let info = [PREFIX, &[purpose as u8][..], info].concat();
        let mut key = Zeroizing::new([0; N]);
        let derived = Hkdf::<Sha512>::new(None, &self.bytes).expand(&info, &mut *key);
        assert!(derived.is_ok(), "the output is at most one hash long");
        key
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
