//! The encryption context of an inode: its policy, and the nonce from which its key is derived.
//!
//! The context is the value of an extended attribute that programs cannot name
//! ([`AttributeName::encryption_context`](crate::xattr::AttributeName::encryption_context)). An
//! inode has a context if and only if its flag `ENCRYPT` is set. Source: kernel documentation,
//! *Filesystem-level encryption (fscrypt)*, "Encryption context" and "Setting an encryption
//! policy".

use crate::cause::InodeCause as Cause;
use std::fmt;

/// Bytes of a context of version 1 and of version 2.
const LENGTHS: [(u8, usize); 2] = [(1, 28), (2, 40)];

/// The modes that mke2fs and tune2fs store in `s_encrypt_algos` when they set the feature
/// `encrypt`. No known program reads the field.
pub const ALGORITHMS: [u8; 4] = [Policy::AES_256_XTS, Policy::AES_256_CTS, 0, 0];

/// The identifier by which a policy refers to its master key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyName {
    /// Version 1: an arbitrary identifier of the key.
    Descriptor([u8; 8]),
    /// Version 2: an identifier derived from the key itself.
    Identifier([u8; 16]),
}

/// What a directory and all files below it have in common: the key and how it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// `FSCRYPT_MODE_*` of the contents of files.
    pub contents_mode: u8,
    /// `FSCRYPT_MODE_*` of names and of targets of symbolic links.
    pub names_mode: u8,
    /// `FSCRYPT_POLICY_FLAG_*`.
    pub flags: u8,
    /// The binary logarithm of the number of bytes that are encrypted as one unit; 0 if the unit is
    /// a block.
    pub log2_data_unit: u8,
    /// The master key.
    pub key: KeyName,
}

impl Policy {
    /// AES-256-XTS, for contents.
    pub const AES_256_XTS: u8 = 1;
    /// AES-256-CBC with ciphertext stealing, for names.
    pub const AES_256_CTS: u8 = 4;
    /// The flags that select the padding of names.
    pub const PADDING: u8 = 3;

    /// Returns the policy that encrypts contents with AES-256-XTS and names with AES-256-CTS. Names
    /// are padded to a multiple of 32 bytes, which hides their lengths best.
    pub fn aes_256(key: [u8; 16]) -> Policy {
        Policy {
            contents_mode: Policy::AES_256_XTS,
            names_mode: Policy::AES_256_CTS,
            flags: Policy::PADDING,
            log2_data_unit: 0,
            key: KeyName::Identifier(key),
        }
    }

    /// Returns 4, 8, 16 or 32. Names are padded to a multiple of this number of bytes.
    pub fn padding(&self) -> usize {
        4 << (self.flags & Policy::PADDING)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, key) = match &self.key {
            KeyName::Descriptor(key) => (1, &key[..]),
            KeyName::Identifier(key) => (2, &key[..]),
        };
        let (contents, names) = (ModeName(self.contents_mode), ModeName(self.names_mode));
        write!(f, "version {version}, contents {contents}, names {names}, ")?;
        write!(f, "padding {}, flags {:#x}, key ", self.padding(), self.flags)?;
        key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Prints the name of a mode (`FSCRYPT_MODE_*` of `linux/fscrypt.h`).
struct ModeName(u8);

impl fmt::Display for ModeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Policy::AES_256_XTS => "AES-256-XTS",
            Policy::AES_256_CTS => "AES-256-CTS",
            5 => "AES-128-CBC-ESSIV",
            6 => "AES-128-CTS",
            7 => "SM4-XTS",
            8 => "SM4-CTS",
            9 => "Adiantum",
            10 => "AES-256-HCTR2",
            other => return write!(f, "mode {other}"),
        })
    }
}

/// The encryption context of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The policy, which is that of the parent directory.
    pub policy: Policy,
    /// Random bytes that no other inode has.
    pub nonce: [u8; 16],
}

impl Context {
    /// Decodes the value of the attribute.
    ///
    /// # Errors
    /// [`Cause::EncryptionContext`] for an unknown version or a wrong length;
    /// [`Cause::ReservedEncryption`] for reserved bytes that are not zero.
    pub fn decode(bytes: &[u8]) -> Result<Context, Cause> {
        let version = bytes.first().copied().unwrap_or(0);
        let wrong = Cause::EncryptionContext { version, len: bytes.len() };
        if !LENGTHS.contains(&(version, bytes.len())) {
            return Err(wrong);
        }
        if let (2, &[_, _, _, _, _, a, b, c, ..]) = (version, bytes)
            && [a, b, c] != [0; 3]
        {
            return Err(Cause::ReservedEncryption { bytes: [a, b, c] });
        }
        let decode = || {
            let (&[_, contents_mode, names_mode, flags], rest) = bytes.split_first_chunk()?;
            let (rest, nonce) = rest.split_last_chunk()?;
            let (log2_data_unit, key) = match version {
                1 => (0, KeyName::Descriptor(rest.try_into().ok()?)),
                _ => {
                    let (&[unit, _, _, _], key) = rest.split_first_chunk()?;
                    (unit, KeyName::Identifier(key.try_into().ok()?))
                }
            };
            let policy = Policy { contents_mode, names_mode, flags, log2_data_unit, key };
            Some(Context { policy, nonce: *nonce })
        };
        decode().ok_or(wrong)
    }

    /// Encodes the value of the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let Policy { contents_mode, names_mode, flags, log2_data_unit, key } = &self.policy;
        let mut bytes = match key {
            KeyName::Descriptor(_) => vec![1, *contents_mode, *names_mode, *flags],
            KeyName::Identifier(_) => {
                vec![2, *contents_mode, *names_mode, *flags, *log2_data_unit, 0, 0, 0]
            }
        };
        match key {
            KeyName::Descriptor(key) => bytes.extend_from_slice(key),
            KeyName::Identifier(key) => bytes.extend_from_slice(key),
        }
        bytes.extend_from_slice(&self.nonce);
        bytes
    }
}
