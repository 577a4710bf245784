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
//! - Without the key, an encrypted name is shown as a text (`no_key.rs`), and a look-up of this
//!   text finds the name. So trees can be listed and removed without the key.
//!
//! Only policies of version 2 with AES-256-XTS and AES-256-CTS-CBC are supported, with every
//! padding. For any other policy the key counts as missing, and the error names the reason: version
//! 1, AES-128, SM4, Adiantum, HCTR2, `DIRECT_KEY`, `IV_INO_LBLK_*`, units smaller than a block.
//!
//! Source: kernel documentation, *Filesystem-level encryption (fscrypt)*.

mod contents;
mod keys;
mod names;
mod no_key;

pub(crate) use crate::crypt::contents::Contents;
pub use crate::crypt::keys::{BadKey, MasterKey};
pub(crate) use crate::crypt::names::Names;
pub(crate) use crate::crypt::no_key::NoKeyName;

use crate::crypt::keys::Purpose;
use lanefs_ondisk::FileType;
use lanefs_ondisk::encryption::{Context, KeyName, Policy};
use lanefs_plan::MissingKey;

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

#[cfg(test)]
mod tests;
