//! Counts the references that a FUSE kernel has to inodes, and deletes inodes without names.

use crate::data::xattrs::release_xattr_block;
use crate::fs::Fs;
use crate::name::links::end_inode;
use crate::object::inode::{Inode, InodeRef};
use crate::object::mount_ref::LastReference;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{FileType, Ino};
use lanefs_plan::Error;

impl LastReference<Inode> for Fs {
    fn last_reference_dropped(&self, inode: &Arc<Inode>) {
        self.delete_inode(inode);
    }
}

impl Fs {
    /// Adds `n` references without an [`InodeRef`], for look-ups that a FUSE kernel counts.
    pub fn hold(&self, inode: &InodeRef, n: u64) {
        let held = inode.holds.add(n);
        debug_assert!(held, "a held inode is not dead");
    }

    /// Removes `n` references that [`Fs::hold`] added. If the last reference is removed, an inode
    /// without names is deleted.
    pub fn forget(&self, ino: Ino, n: u64) {
        let Some(inode) = self.objects.inodes.get(ino) else { return };
        if inode.holds.subtract(n) {
            self.delete_inode(&inode);
        }
    }

    /// Called when the FUSE connection has ended, because the kernel does not remove all references
    /// of [`Fs::hold`] at an unmount. Deletes the inodes without names that still have such
    /// references. No other operation may run in this file system meanwhile.
    pub fn forget_all(&self) {
        let mut ended = Vec::new();
        self.objects.inodes.for_each(|inode| {
            if inode.holds.end_nameless() {
                ended.push(inode.clone());
            }
        });
        ended.iter().for_each(|inode| self.delete_inode(inode));
    }

    /// Deletes an inode that has no names and no holds: frees its blocks, its attributes and its
    /// number. Called by the thread that dropped the last hold, with no lock held. After an error
    /// the inode stays on the orphan list for the next mount.
    fn delete_inode(&self, inode: &Arc<Inode>) {
        if let Err(error) = self.try_delete(inode) {
            self.objects.note_error(&error);
        }
    }

    fn try_delete(&self, inode: &Arc<Inode>) -> Result<(), Error> {
        if self.is_read_only() {
            return Ok(());
        }
        // Declared before the lock so that the values are dropped after its release, because
        // dropping them may delete inodes of attribute values.
        let _values;
        let _exclusive = inode.op.exclusive();
        inode.window.give_back();
        let has_mappings = inode.state.lock().has_mappings(self.objects.volume.geometry());
        if has_mappings {
            self.data(inode).free_from(0)?;
        }
        _values = self.data(inode).remove_values()?;
        let xattrs = self.data(inode).prepare_xattr_release()?;
        let group = self.objects.volume.inode_place(inode.ino)?.group;
        let _hold = self.objects.groups.bitmaps.load(&self.objects, group)?;
        let mut handle = self.objects.join(16)?;
        if let Some((block, _hold)) = xattrs {
            release_xattr_block(&self.objects, &mut handle, block);
        }
        self.objects.orphans.remove(&mut handle, inode);
        end_inode(&self.objects, &mut handle, inode);
        drop(handle);
        if inode.file_type == FileType::Directory {
            self.objects.names.forget(inode.dir_id());
        }
        Ok(())
    }
}
