//! References that a FUSE kernel counts, and the end of an inode without names.

use crate::data::xattrs::release_xattr_block;
use crate::error::Error;
use crate::fs::Fs;
use crate::name::links::end_inode;
use crate::object::inode::{Inode, InodeRef};
use crate::object::mount_ref::LastReference;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{FileType, Ino};

impl LastReference<Inode> for Fs {
    fn last_reference_dropped(&self, inode: &Arc<Inode>) {
        self.delete_inode(inode);
    }
}

impl Fs {
    /// Adds `n` references without an [`InodeRef`]: look-ups that a FUSE kernel counts.
    pub fn hold(&self, inode: &InodeRef, n: u64) {
        let held = inode.holds.add(n);
        debug_assert!(held, "a held inode is not dead");
    }

    /// Takes `n` such references away; the last one frees an inode without names.
    pub fn forget(&self, ino: Ino, n: u64) {
        let Some(inode) = self.objects.inodes.get(ino) else { return };
        if inode.holds.subtract(n) {
            self.delete_inode(&inode);
        }
    }

    /// Frees the inodes without names that [`Fs::hold`] still counts: the kernel that held them is gone
    /// and will not forget them. Nothing else may be under way in this file system.
    pub fn forget_all(&self) {
        let mut ended = Vec::new();
        self.objects.inodes.for_each(|inode| {
            if inode.holds.end_nameless() {
                ended.push(inode.clone());
            }
        });
        ended.iter().for_each(|inode| self.delete_inode(inode));
    }

    /// Ends an inode that has no names and that nobody holds: its blocks, its attributes, its
    /// number. Called by whoever dropped the last hold, with no lock held. An error leaves it on
    /// the orphan list for the next mount.
    fn delete_inode(&self, inode: &Arc<Inode>) {
        if let Err(error) = self.try_delete(inode) {
            self.objects.note_error(&error);
        }
    }

    fn try_delete(&self, inode: &Arc<Inode>) -> Result<(), Error> {
        if self.is_read_only() {
            return Ok(());
        }
        let _exclusive = inode.op.exclusive();
        inode.window.give_back();
        // An orphan of another system's that maps blocks in a way that is not ours to free.
        self.data(inode).check_mapped_by_extents()?;
        let has_tree = inode.state.lock().has_tree();
        if has_tree {
            self.data(inode).free_from(0)?;
        }
        let xattrs = self.data(inode).prepare_xattr_release()?;
        let group = self.objects.volume.inode_place(inode.ino)?.group;
        let _hold = self.objects.groups.load(&self.objects, group)?;
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
