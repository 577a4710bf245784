//! Converts names in encrypted directories between the form that callers know and the stored form.

use crate::crypt::{InodeCrypt, NoKeyName};
use crate::name::directory::Directory;
use lanefs_ondisk::dirent::{Name, NameForm};
use lanefs_ondisk::hash::{NameHash, NameHasher};
use lanefs_ondisk::inode::Cause;
use lanefs_ondisk::{Corruption, dirent};
use lanefs_plan::Error;
use lanefs_plan::dir;
use lanefs_plan::dir::{DirEntry, Indexing};
use std::ops::ControlFlow;

/// A name as a directory stores it.
pub(crate) enum StoredName<'n> {
    Given(Name<'n>),
    /// A valid encrypted name.
    Encrypted(Vec<u8>),
}

impl StoredName<'_> {
    fn encrypted(bytes: Vec<u8>) -> Option<StoredName<'static>> {
        Name::of(NameForm::Encrypted, &bytes).is_ok().then_some(StoredName::Encrypted(bytes))
    }

    pub(crate) fn name(&self) -> Name<'_> {
        match self {
            StoredName::Given(name) => *name,
            StoredName::Encrypted(bytes) => {
                Name::of(NameForm::Encrypted, bytes).expect("checked by the constructor")
            }
        }
    }
}

/// Turns stored names into the names that callers see.
struct Shown<'d> {
    crypt: &'d InodeCrypt,
    /// Without the key, a text is shown for each name, and this hasher computes the hash in that
    /// text. Without a hasher, the text has zeros in place of the hash.
    hasher: Option<NameHasher>,
}

impl Directory<'_> {
    /// Returns the stored form of `name`; `None` if the directory cannot have that name, because
    /// the key is missing and no encrypted name is shown as `name`.
    pub(crate) fn stored<'n>(&self, name: Name<'n>) -> Result<Option<StoredName<'n>>, Error> {
        let Some(crypt) = self.crypt.filter(|_| !matches!(name.bytes(), b"." | b"..")) else {
            return Ok(Some(StoredName::Given(name)));
        };
        let bytes = match (crypt.names(), NoKeyName::decode(name.bytes())) {
            (Ok(names), _) => names.encrypt(name.bytes(), dirent::MAX_NAME),
            (Err(_), Some(NoKeyName::Whole(bytes))) => Some(bytes),
            (Err(_), Some(NoKeyName::Long { major, .. })) => {
                let text = NoKeyName::decode(name.bytes());
                text.map(|text| self.find_long(&text, major)).transpose()?.flatten()
            }
            (Err(_), None) => None,
        };
        Ok(bytes.and_then(StoredName::encrypted))
    }

    /// Returns the stored name for which `text` is shown. Reads only the entries whose hash is the
    /// one in the text, or all entries if the text has no hash.
    fn find_long(&self, text: &NoKeyName, major: u32) -> Result<Option<Vec<u8>>, Error> {
        let mut found = None;
        let mut look = |entry: &DirEntry<'_>| {
            if text.is_of(entry.name) {
                found = Some(entry.name.to_vec());
            }
            let is_past = major != 0 && dir::hash_at(entry.next).is_none_or(|hash| hash > major);
            match found.is_some() || is_past {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        dir::read_from(&self.context, self, dir::cookie_of(major), &mut look)?;
        Ok(found)
    }

    /// Does the same as [`Directory::read_from`] for an encrypted directory.
    pub(super) fn read_encrypted(
        &self,
        crypt: &InodeCrypt,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let shown = Shown { crypt, hasher: self.shown_hasher()? };
        let mut damage = Ok(());
        dir::read_from(&self.context, self, cookie, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return each(entry);
            }
            match shown.name(entry.name) {
                Ok(name) => each(&DirEntry { name: &name, ..*entry }),
                Err(cause) => {
                    damage = Err(Corruption::Inode { ino: self.dir.ino, cause });
                    ControlFlow::Break(())
                }
            }
        })?;
        Ok(damage?)
    }

    /// Returns the hasher for the texts that are shown for names while the key is missing. Returns
    /// `None` for a linear directory of several blocks, and on a file system without `dir_index`.
    /// In these cases the texts contain no hash, as in the kernel (6.18).
    fn shown_hasher(&self) -> Result<Option<NameHasher>, Error> {
        Ok(match self.context.indexing {
            Indexing::Indexed => Some(dir::hasher_of(&self.context, self)?),
            Indexing::Possible if dir::DirBlocks::count(self) == 1 => Some(self.context.hasher),
            Indexing::Possible | Indexing::Never => None,
        })
    }
}

impl Shown<'_> {
    fn name(&self, stored: &[u8]) -> Result<Vec<u8>, Cause> {
        let damaged = Cause::EncryptedText { len: stored.len() };
        let Ok(names) = self.crypt.names() else {
            let none = NameHash { major: 0, minor: 0 };
            let hash = self.hasher.map_or(none, |hasher| hasher.hash(stored));
            return Ok(NoKeyName::encode(hash, stored));
        };
        let name = names.decrypt(stored).ok_or(damaged.clone())?;
        match Name::new(&name) {
            Ok(valid) if !matches!(valid.bytes(), b"." | b"..") => Ok(name),
            _ => Err(damaged),
        }
    }
}
