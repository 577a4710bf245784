//! Reads symbolic links.

use crate::attr::Attr;
use crate::crypt::NoKeyName;
use crate::flags;
use crate::fs::Fs;
use crate::object::inode::InodeRef;
use lanefs_lanes::Lines;
use lanefs_ondisk::hash::NameHash;
use lanefs_ondisk::inode::Cause;
use lanefs_ondisk::{Corruption, FileType};
use lanefs_plan::{Error, InvalidArgument};

impl Fs {
    /// Returns the target of a symbolic link. Without the key of an encrypted link, returns the
    /// text that is shown for the encrypted target.
    pub fn read_link(&self, inode: &InodeRef) -> Result<Vec<u8>, Error> {
        if inode.file_type != FileType::Symlink {
            return Err(InvalidArgument::NotSymlink.into());
        }
        if let Some(target) = inode.target.get() {
            return Ok(target.to_vec());
        }
        let target = self.load_target(inode)?;
        // The target never changes. So if two threads have loaded it, either copy may be kept.
        Ok(inode.target.get_or_init(|| Lines::from(&*target)).to_vec())
    }

    /// Returns the attributes of an inode for stat(2). The size of an encrypted symbolic link is
    /// the length of what [`Fs::read_link`] returns, as on the kernel's ext4 since 5.15. If
    /// [`Fs::read_link`] fails, the size on disk is returned.
    pub fn stat(&self, inode: &InodeRef) -> Attr {
        let mut attr = inode.attr();
        if attr.file_type == FileType::Symlink
            && flags::is_encrypted(&attr.rights())
            && let Ok(target) = self.read_link(inode)
        {
            attr.size = target.len() as u64;
        }
        attr
    }

    fn load_target(&self, inode: &InodeRef) -> Result<Vec<u8>, Error> {
        self.objects.check_process()?;
        let _shared = inode.op.shared();
        let stored = self.stored_target(inode)?;
        let Some(crypt) = self.data(inode).crypt()? else { return Ok(stored) };
        let damaged = || {
            let cause = Cause::EncryptedText { len: stored.len() };
            Error::from(Corruption::Inode { ino: inode.ino, cause })
        };
        // A target begins with its length (kernel documentation, fscrypt: "Symlinks").
        let (len, rest) = stored.split_first_chunk().ok_or_else(damaged)?;
        let len = usize::from(u16::from_le_bytes(*len));
        let encrypted = rest.get(..len).filter(|_| len > 0).ok_or_else(damaged)?;
        match crypt.names() {
            Ok(names) => names.decrypt(encrypted).filter(|t| !t.is_empty()).ok_or_else(damaged),
            Err(_) => Ok(NoKeyName::encode(NameHash { major: 0, minor: 0 }, encrypted)),
        }
    }

    /// Returns the bytes of the target on disk. The caller holds the operation lock.
    fn stored_target(&self, inode: &InodeRef) -> Result<Vec<u8>, Error> {
        let (inside, size) = {
            let state = inode.state.lock();
            (
                state.disk.fast_symlink(self.objects.volume.geometry()).map(<[u8]>::to_vec),
                state.disk.size,
            )
        };
        if let Some(target) = inside {
            return Ok(target);
        }
        // No target is longer than a block. A larger size would be damage, and would have been
        // found when the inode was decoded.
        let most = self.objects.volume.block_size() as u64;
        let mut target = vec![0; size.min(most) as usize];
        self.data(inode).read(0, &mut target)?;
        Ok(target)
    }
}
