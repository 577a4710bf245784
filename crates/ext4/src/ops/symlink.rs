//! Reads symbolic links.

use crate::error::Error;
use crate::fs::Fs;
use crate::object::inode::InodeRef;
use lanefs_lanes::Lines;
use lanefs_ondisk::FileType;

impl Fs {
    /// Returns the target of a symbolic link.
    pub fn read_link(&self, inode: &InodeRef) -> Result<Vec<u8>, Error> {
        if inode.file_type != FileType::Symlink {
            return Err(Error::InvalidArgument { what: "not a symbolic link" });
        }
        if let Some(target) = inode.target.get() {
            return Ok(target.to_vec());
        }
        let target = self.load_target(inode)?;
        // The target never changes; if two threads loaded it, one copy is kept.
        Ok(inode.target.get_or_init(|| Lines::from(&*target)).to_vec())
    }

    fn load_target(&self, inode: &InodeRef) -> Result<Vec<u8>, Error> {
        let _shared = inode.op.shared();
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
        // No target is longer than a block: a larger size is damage, found when the inode was
        // decoded.
        let most = self.objects.volume.block_size() as u64;
        let mut target = vec![0; size.min(most) as usize];
        self.data(inode).read(0, &mut target)?;
        Ok(target)
    }
}
