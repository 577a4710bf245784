//! Overwrites file data as older kernels do, for comparison (`docs/seeds.md`).

use super::write::{At, Write};
use crate::error::Error;
use crate::flags;
use crate::fs::Fs;
use crate::object::inode::Inode;
use lanefs_lanes::sync::Arc;

impl Fs {
    /// Writes with the operation lock held exclusively from the start. The times are set under the
    /// lock.
    pub(super) fn write_exclusively(
        &self,
        inode: &Arc<Inode>,
        write: &Write<'_>,
    ) -> Result<(u64, usize), Error> {
        let _exclusive = inode.op.exclusive();
        flags::check_data_changes(&inode.rights())?;
        if let At::Offset(offset) = write.at
            && self.overwrite_locked(inode, offset, write.data)?
        {
            self.stamp_overwrite(inode, write.stamp)?;
            return Ok((offset, write.data.len()));
        }
        self.write_locked(inode, write)
    }
}
