//! Serves ioctl(2): the flags of chattr and lsattr, the project, and the generation. Root and the
//! owner of the mount may also change the whole file system by ioctl(2): they may make it larger,
//! discard its free blocks, and make it read-only or writable. `verity.rs` serves the ioctls of
//! verity files.

use super::verity::{ENABLE_VERITY, MEASURE_VERITY};
use super::{Done, Server, is_owner};
use crate::protocol::{Errno, Outbox, Request, abi};
use crate::service::node::Node;
use crate::transport::Channel;
use lanefs_ext4::flags::{IMMUTABLE, VISIBLE_FLAGS};
use lanefs_ext4::{InodeRef, Privilege, SetAttr};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_vfs::rules;

/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`, `FS_IOC_GETVERSION`, `FS_IOC_FSGETXATTR` and
/// `FS_IOC_FSSETXATTR` of `<linux/fs.h>` on 64-bit machines.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_VERSION: u32 = 0x8008_7601;
const FS_GET_XATTR: u32 = 0x801c_581f;
const FS_SET_XATTR: u32 = 0x401c_5820;
/// `RESIZE` is `EXT4_IOC_RESIZE_FS` of the kernel's ext4, with the new number of blocks. `TRIM` is
/// `FITRIM` of `<linux/fs.h>`, with a `struct fstrim_range`.
pub const RESIZE: u32 = 0x4008_6610;
pub const TRIM: u32 = 0xc018_5879;
/// An ioctl of Lanefs. The argument 1 makes the file system read-only and its image clean; the
/// argument 0 makes the file system writable.
const SET_READ_ONLY: u32 = 0x4004_4cc1;
/// The flag of a file with an extent tree.
const EXTENTS: u32 = InodeFlags::EXTENTS.bits();
/// The size of `struct fsxattr` in bytes.
const FSXATTR: usize = 28;
/// The offset of `fsx_projid` in `struct fsxattr`.
const PROJECT: usize = 12;

/// The flags that `struct fsxattr` and ext4 share, as pairs: (fsxattr, ext4).
const SHARED_FLAGS: [(u32, u32); 6] = [
    (0x08, 0x10),         // immutable
    (0x10, 0x20),         // append only
    (0x20, 0x08),         // synchronous
    (0x40, 0x80),         // no atime
    (0x80, 0x40),         // no dump
    (0x200, 0x2000_0000), // new files get the project
];

fn fsxattr_flags(flags: u32) -> u32 {
    SHARED_FLAGS.iter().filter(|(_, ours)| flags & ours != 0).map(|(theirs, _)| theirs).sum()
}

/// Returns `flags` with the shared flags replaced by those of `xflags`; `None` if `xflags` has a
/// flag that ext4 lacks.
fn with_fsxattr_flags(flags: u32, xflags: u32) -> Option<u32> {
    let known: u32 = SHARED_FLAGS.iter().map(|(theirs, _)| theirs).sum();
    if xflags & !known != 0 {
        return None;
    }
    Some(SHARED_FLAGS.iter().fold(flags, |flags, &(theirs, ours)| {
        if xflags & theirs != 0 { flags | ours } else { flags & !ours }
    }))
}

impl Server {
    pub(super) fn ioctl(
        &self,
        request: &mut Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Done {
        let input: abi::IoctlIn = request.take()?;
        let inode = self.inode(request.header.nodeid)?;
        let attr = inode.attr();
        let by = self.privilege(&request.header);
        outbox.put(&abi::IoctlOut { result: 0, flags: 0, in_iovs: 0, out_iovs: 0 });
        match input.cmd {
            GET_FLAGS => put_word(attr.flags & VISIBLE_FLAGS, &input, outbox),
            GET_VERSION => put_word(attr.generation, &input, outbox),
            SET_FLAGS => {
                let flags = word(request.data(input.in_size as usize)?)?;
                // The kernel's ext4 returns the same error, except for files of a few blocks, which
                // it converts to a block map.
                if attr.flags & !flags & EXTENTS != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
                self.set_flags(&inode, flags, None, by, kernel)?;
            }
            FS_GET_XATTR => {
                let mut record = [0; FSXATTR];
                record[..4].copy_from_slice(&fsxattr_flags(attr.flags).to_ne_bytes());
                record[PROJECT..PROJECT + 4].copy_from_slice(&inode.project().to_ne_bytes());
                outbox.put_bytes(&record[..FSXATTR.min(input.out_size as usize)]);
            }
            FS_SET_XATTR => {
                let record = request.data(input.in_size as usize)?;
                let project = word(record.get(PROJECT..).unwrap_or_default())?;
                let flags = with_fsxattr_flags(attr.flags, word(record)?);
                let flags = flags.ok_or(Errno::OPNOTSUPP)?;
                let project = (project != inode.project()).then_some(project);
                self.set_flags(&inode, flags, project, by, kernel)?;
            }
            MEASURE_VERITY => self.measure_verity(&inode, request, outbox)?,
            ENABLE_VERITY => self.enable_verity(&inode, request, kernel)?,
            RESIZE | TRIM | SET_READ_ONLY if !is_owner(&request.header) => {
                return Err(Errno::PERM);
            }
            RESIZE => {
                let [blocks] = words(request.data(input.in_size as usize)?)?;
                self.fs().grow(blocks)?;
            }
            TRIM => {
                let [start, len, least] = words(request.data(input.in_size as usize)?)?;
                let trimmed = self.fs().trim(start..start.saturating_add(len), least)?;
                [start, trimmed, least]
                    .iter()
                    .for_each(|word| outbox.put_bytes(&word.to_ne_bytes()));
            }
            SET_READ_ONLY => match word(request.data(input.in_size as usize)?)? {
                0 => self.vfs.mount().make_writable()?,
                1 => self.vfs.mount().make_read_only()?,
                _ => return Err(Errno::INVAL),
            },
            _ => return Err(Errno::NOTTY),
        }
        Ok(())
    }

    /// Sets flags, and the project if one is given, and drops the kernel's cached attributes, since
    /// the change time is new. The kernel has already checked that the caller may make this change.
    fn set_flags(
        &self,
        inode: &InodeRef,
        flags: u32,
        project: Option<u32>,
        by: Privilege,
        kernel: &Channel,
    ) -> Done {
        let id = Node::id(inode.ino(), inode.generation());
        let marks = flags & IMMUTABLE != 0 && !rules::is_immutable(&inode.rights());
        // Data that programs have written must be stored before the change, because afterwards the
        // server would refuse the kernel's writes of this data.
        if marks && !self.flush_pages(inode, id, kernel) {
            return Err(Errno::BUSY);
        }
        self.fs().set_attr_as(inode, by, |now| {
            let flags = flags | now.flags & !VISIBLE_FLAGS;
            rules::check_flags(now.file_type, now.flags, flags)?;
            let casefold = Some(flags & InodeFlags::CASEFOLD.bits() != 0);
            Ok(Some(SetAttr { flags: Some(flags), casefold, project, ..SetAttr::default() }))
        })?;
        kernel.forget_attributes(id);
        Ok(())
    }
}

/// Parses `N` 64-bit numbers in the byte order of the host.
fn words<const N: usize>(data: &[u8]) -> Result<[u64; N], Errno> {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(data.chunks(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().map_err(|_| Errno::INVAL)?);
    }
    if data.len() < 8 * N { Err(Errno::INVAL) } else { Ok(words) }
}

fn word(data: &[u8]) -> Result<u32, Errno> {
    data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Errno::INVAL)
}

/// Appends a 32-bit number, and zeros after it if the caller has room for 64 bits.
fn put_word(value: u32, input: &abi::IoctlIn, outbox: &mut Outbox) {
    let mut wide = [0; 8];
    wide[..4].copy_from_slice(&value.to_ne_bytes());
    outbox.put_bytes(&wide[..wide.len().min(input.out_size as usize)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_translate_both_ways() {
        assert_eq!(fsxattr_flags(0x10 | 0x80000), 0x08);
        assert_eq!(with_fsxattr_flags(0x80010, 0x40), Some(0x80080));
        assert_eq!(with_fsxattr_flags(0, 0x8000_0000), None);
    }
}
