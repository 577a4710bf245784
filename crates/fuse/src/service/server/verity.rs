//! Serves the ioctls of verity files. Since Linux 6.10 FUSE passes these ioctls to the server, with
//! data of variable length.
//!
//! Source: kernel documentation, *fs-verity: read-only file-based authenticity protection*, "User
//! API".

use super::{Done, Server};
use crate::protocol::{Errno, Outbox, Request};
use crate::service::node::Node;
use crate::transport::Channel;
use lanefs_ext4::{InodeRef, NewVerity};
use lanefs_ondisk::verity::{Algorithm, MOST_SALT};
use lanefs_vfs::Want;

/// `FS_IOC_ENABLE_VERITY` and `FS_IOC_MEASURE_VERITY` of `<linux/fsverity.h>`.
pub(super) const ENABLE_VERITY: u32 = 0x4080_6685;
pub(super) const MEASURE_VERITY: u32 = 0xc004_6686;

impl Server {
    /// Replies with a `struct fsverity_digest`: algorithm, length and bytes of the digest.
    ///
    /// # Errors
    /// ENODATA if the file is not a verity file, EOVERFLOW if the caller has no room for the
    /// digest.
    pub(super) fn measure_verity(
        &self,
        inode: &InodeRef,
        request: &mut Request<'_>,
        outbox: &mut Outbox,
    ) -> Done {
        let [_, room] = request.take::<[u16; 2]>()?;
        let digest = self.fs().file_digest(inode)?.ok_or(Errno(libc::ENODATA))?;
        let len = digest.bytes().len() as u16;
        if room < len {
            return Err(Errno::OVERFLOW);
        }
        for word in [u16::from(digest.algorithm().number()), len] {
            outbox.put_bytes(&word.to_ne_bytes());
        }
        outbox.put_bytes(digest.bytes());
        Ok(())
    }

    /// Makes a file a verity file. The request has a `struct fsverity_enable_arg`: version,
    /// algorithm, block size, salt length and signature length, which have 32 bits each, and
    /// reserved words. The salt follows this struct. FUSE does not check permissions for an ioctl,
    /// so the server does.
    ///
    /// # Errors
    /// The same errors as in the kernel's ext4; ETXTBSY for a file that is open for writing;
    /// EOPNOTSUPP for a request with a signature.
    pub(super) fn enable_verity(
        &self,
        inode: &InodeRef,
        request: &mut Request<'_>,
        kernel: &Channel,
    ) -> Done {
        let words = request.take::<[u32; 32]>()?;
        let [version, algorithm, block_bytes, salt_len, _, _, signature_len, reserved, _, _, ..] =
            words;
        if version != 1 || reserved != 0 || words[10..] != [0; 22] {
            return Err(Errno::INVAL);
        }
        if salt_len as usize > MOST_SALT {
            return Err(Errno(libc::EMSGSIZE));
        }
        if signature_len != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let algorithm = u8::try_from(algorithm).ok().and_then(Algorithm::by_number);
        let algorithm = algorithm.ok_or(Errno(libc::ENOPKG))?;
        let salt = request.data(salt_len as usize)?.to_vec();
        let who = self.credentials(&request.header);
        self.vfs.check(&who, inode, Want::WRITE)?;
        // A writer would change pages in the kernel's cache, and readers would see them unverified.
        // The kernel has stored all pages of a file before it releases the last writer's handle.
        let _denied = self.writers.deny(inode.ino())?;
        let new = NewVerity { algorithm, block_bytes: Some(block_bytes), salt };
        self.fs().enable_verity(inode, &new, who.privilege())?;
        kernel.forget_attributes(Node::id(inode.ino(), inode.generation()));
        Ok(())
    }
}
