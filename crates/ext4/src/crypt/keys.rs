//! Master keys, and the keys derived from them by HKDF-SHA512.

use hkdf::Hkdf;
use sha2::Sha512;
use std::fmt;
use std::io::{self, Read};
use thiserror::Error;
use zeroize::Zeroizing;

/// The prefix of HKDF's `info` argument in each key derivation. The purpose follows it.
const PREFIX: &[u8; 8] = b"fscrypt\0";

/// The largest length of a master key in bytes.
const MOST: usize = 64;

/// A derived key. It is overwritten when it is dropped.
pub(super) type Derived<const N: usize> = Zeroizing<[u8; N]>;

/// What a derived key is for (`HKDF_CONTEXT_*`).
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
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
    pub(super) fn derive<const N: usize>(&self, purpose: Purpose, info: &[u8]) -> Derived<N> {
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
