//! Sets the encryption policies of empty directories, and checks policies.

use crate::clock::now;
use crate::crypt::InodeCrypt;
use crate::data::encryption::{has_cipher, random_nonce};
use crate::data::values::Put;
use crate::flags;
use crate::fs::Fs;
use crate::name::directory::Directory;
use crate::object::inode::{Inode, InodeRef};
use crate::object::state::Concerns;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::encryption::{Context, Policy};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::xattr::AttributeName;
use lanefs_ondisk::{FileType, Ino};
use lanefs_plan::Error;
use lanefs_plan::xattr::SetXattr;

impl Inode {
    /// Fails if the file was found in an encrypted directory of another policy. As in the kernel,
    /// the error for a missing key takes precedence.
    pub(super) fn check_not_foreign(&self) -> Result<(), Error> {
        if !self.has_foreign_policy.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(crypt) = self.crypt.get() {
            crypt.contents()?;
        }
        Err(Error::ForeignPolicy)
    }
}

impl Fs {
    /// Returns the encryption policy of an inode; `None` if it is not encrypted.
    pub fn encryption_policy(&self, inode: &InodeRef) -> Result<Option<Policy>, Error> {
        if let Some(known) = inode.crypt.get() {
            return Ok(Some(known.context.policy));
        }
        self.objects.check_process()?;
        let _shared = inode.op.shared();
        Ok(self.data(inode).crypt()?.map(|crypt| crypt.context.policy))
    }

    /// Checks that `child`, found in `dir`, has the policy of `dir` if `dir` is encrypted. A
    /// regular file with another policy is only marked (`has_foreign_policy`); this is not an
    /// error. As in the kernel, such a file can be removed, but can be neither opened
    /// ([`Fs::check_contents`]) nor written. If it could be written, an attacker who can change the
    /// image could make a program write new data in plain text.
    ///
    /// # Errors
    /// [`Error::ForeignPolicy`] for a directory or symbolic link with another policy or none.
    pub fn check_child(&self, dir: &InodeRef, child: &InodeRef) -> Result<(), Error> {
        let Some(of_dir) = self.encryption_policy(dir)? else { return Ok(()) };
        let is_same = || Ok::<_, Error>(self.encryption_policy(child)? == Some(of_dir));
        if !has_cipher(child.file_type) || is_same()? {
            return Ok(());
        }
        if child.file_type != FileType::Regular {
            return Err(Error::ForeignPolicy);
        }
        child.has_foreign_policy.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes `policy` the encryption policy of an empty directory. All new files in the directory
    /// inherit the policy. Does nothing if the directory has that policy.
    ///
    /// # Errors
    /// The errors of the kernel's ioctl `FS_IOC_SET_ENCRYPTION_POLICY`: [`Error::NotSupported`]
    /// without the feature `encrypt`, or if the directory ignores case; [`Error::NotDirectory`],
    /// [`Error::NotEmpty`]; [`Error::Exists`] if the directory has another policy;
    /// [`Error::NotPermitted`] for the root directory, since `lost+found` is not encrypted;
    /// [`Error::NoKey`].
    pub fn set_encryption_policy(&self, dir: &InodeRef, policy: &Policy) -> Result<(), Error> {
        self.objects.check_writable()?;
        if dir.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        if !self.objects.volume.encrypts {
            return Err(Error::NotSupported);
        }
        let context = Context { policy: *policy, nonce: random_nonce()? };
        let crypt = InodeCrypt::new(context, FileType::Directory, &self.objects.volume.keys);
        let exclusive = dir.op.exclusive();
        if flags::folds_names(&dir.rights()) {
            return Err(Error::NotSupported);
        }
        if let Some(present) = self.data(dir).crypt()? {
            return if present.context.policy == *policy { Ok(()) } else { Err(Error::Exists) };
        }
        crypt.names()?;
        flags::check_not_immutable(&dir.rights())?;
        if dir.ino == Ino::ROOT {
            return Err(Error::NotPermitted);
        }
        if dir.links() == 0 {
            return Err(Error::NotFound);
        }
        let view = Directory::of(&self.objects, dir)?;
        if !view.is_empty()? {
            return Err(Error::NotEmpty);
        }
        view.leave_inode()?;
        let (name, value) = (AttributeName::encryption_context(), context.encode());
        let put = Some(Put::Here(&value));
        let change = self.data(dir).plan_xattr(name, put, SetXattr::Any)?;
        let now = now();
        let mut handle = self.objects.join(change.credits + 2)?;
        let released = self.data(dir).apply_xattrs(&mut handle, change);
        dir.crypt.get_or_init(|| Box::new(crypt));
        dir.change(&mut handle, Concerns::Data, |state| {
            state.disk.flags |= InodeFlags::ENCRYPT;
            state.disk.ctime = now;
        });
        drop(handle);
        drop(exclusive);
        // Attribute values in inodes of their own are deleted after the lock is released.
        drop(released);
        self.obey_dirsync(&[dir])
    }
}
