//! The bytes of an inode.

use super::raw::{self, RawExtra, RawInode, fits};
use crate::checksum::Checksums;
use crate::features::{Incompat, RoCompat};
use crate::inode::{Cause, Inode, InodeFlags, TooLarge, extra_word, low_word, time_of};
use crate::superblock::Geometry;
use crate::types::{Block, FileType, Ino};
use zerocopy::FromBytes;

/// The contents of `i_blocks`.
pub(super) struct Space {
    count: u64,
    in_blocks: bool,
}

impl Inode {
    #[inline]
    pub(super) fn decode_checked(
        bytes: &[u8],
        ino: Ino,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<Inode, Cause> {
        if !geometry.has_inode(ino) {
            return Err(Cause::NoSuchInode);
        }
        let length = Cause::Length { len: bytes.len() };
        if bytes.len() != geometry.inode_size() {
            return Err(length);
        }
        let (base, rest) = RawInode::ref_from_prefix(bytes).map_err(|_| length)?;
        let extra = RawExtra::from_front(rest);
        let extra_isize = if rest.is_empty() { 0 } else { extra.i_extra_isize.get() };
        if usize::from(extra_isize) > rest.len() || !extra_isize.is_multiple_of(4) {
            return Err(Cause::ExtraSize { size: extra_isize });
        }
        if bytes.iter().all(|&b| b == 0) {
            return Ok(Inode::zeroed(0));
        }
        raw::check_checksum(bytes, ino, base.i_generation.get(), extra_isize, checksums)?;
        let inode = Self::decode_fields(base, &extra, extra_isize, geometry);
        inode.check(geometry).map(|()| inode)
    }

    /// Returns whether the inode stores an upper half of the size. Regular files always store it,
    /// all other types only with `large_dir`. In directories, old programs stored the block of the
    /// default access control list in this field.
    fn has_size_high(mode: u16, geometry: &Geometry) -> bool {
        FileType::from_mode(mode) == Some(FileType::Regular)
            || geometry.features().incompat.contains(Incompat::LARGE_DIR)
    }

    #[inline]
    pub(super) fn decode_fields(
        base: &RawInode,
        extra: &RawExtra,
        size: u16,
        geometry: &Geometry,
    ) -> Inode {
        let features = geometry.features();
        let flags = InodeFlags::from_bits_retain(base.i_flags.get());
        let mode = base.i_mode.get();
        let size_high =
            if Self::has_size_high(mode, geometry) { base.i_size_high.get() } else { 0 };
        let acl_high = match features.incompat.contains(Incompat::BIT64) {
            true => base.l_i_file_acl_high.get(),
            false => 0,
        };
        let acl = u64::from(acl_high) << 32 | u64::from(base.i_file_acl_lo.get());
        let time =
            |secs: u32, word: u32, end| time_of(secs, if fits(size, end) { word } else { 0 });
        Inode {
            mode,
            uid: u32::from(base.l_i_uid_high.get()) << 16 | u32::from(base.i_uid.get()),
            gid: u32::from(base.l_i_gid_high.get()) << 16 | u32::from(base.i_gid.get()),
            size: u64::from(size_high) << 32 | u64::from(base.i_size_lo.get()),
            atime: time(base.i_atime.get(), extra.i_atime_extra.get(), RawExtra::ATIME_END),
            ctime: time(base.i_ctime.get(), extra.i_ctime_extra.get(), RawExtra::CTIME_END),
            mtime: time(base.i_mtime.get(), extra.i_mtime_extra.get(), RawExtra::MTIME_END),
            crtime: fits(size, RawExtra::CRTIME_END)
                .then(|| time_of(extra.i_crtime.get(), extra.i_crtime_extra.get())),
            dtime: base.i_dtime.get(),
            links: base.i_links_count.get(),
            sectors: Self::decode_space(base, flags, geometry),
            flags,
            block: base.i_block,
            generation: base.i_generation.get(),
            file_acl: (acl != 0).then_some(Block(acl)),
            version: {
                let high =
                    if fits(size, RawExtra::VERSION_END) { extra.i_version_hi.get() } else { 0 };
                u64::from(high) << 32 | u64::from(base.l_i_version.get())
            },
            extra_isize: size,
            projid: if fits(size, RawExtra::PROJID_END) { extra.i_projid.get() } else { 0 },
        }
    }

    #[inline]
    fn decode_space(base: &RawInode, flags: InodeFlags, geometry: &Geometry) -> u64 {
        let low = u64::from(base.i_blocks_lo.get());
        if !geometry.features().ro_compat.contains(RoCompat::HUGE_FILE) {
            return low;
        }
        let count = u64::from(base.l_i_blocks_high.get()) << 32 | low;
        let unit = if flags.contains(InodeFlags::HUGE_FILE) {
            geometry.block_size().bytes() as u64 / 512
        } else {
            1
        };
        // The product of a 48-bit number and a number of at most 128 fits into 64 bits.
        count * unit
    }

    /// Encodes the allocated space. Without `huge_file` the only form is a number of sectors in 32
    /// bits. With `huge_file` it is a number of sectors in 48 bits, or a number of blocks in 48
    /// bits if the number of sectors is too large. If the decoded inode stored its space as a
    /// number of blocks, the unit stays the block where possible, so that the bytes of an unchanged
    /// inode stay the same.
    pub(super) fn encode_space(&self, geometry: &Geometry) -> Result<Space, TooLarge> {
        let huge_file = geometry.features().ro_compat.contains(RoCompat::HUGE_FILE);
        let too_large = TooLarge::Blocks { sectors: self.sectors };
        let per_block = (geometry.block_size().bytes() / 512) as u64;
        if !huge_file {
            let fits = self.sectors <= u32::MAX.into();
            return fits
                .then_some(Space { count: self.sectors, in_blocks: false })
                .ok_or(too_large);
        }
        let was_in_blocks = self.flags.contains(InodeFlags::HUGE_FILE);
        let whole = self.sectors.is_multiple_of(per_block);
        if (was_in_blocks && whole) || self.sectors >= 1 << 48 {
            let count = self.sectors / per_block;
            return (count < 1 << 48).then_some(Space { count, in_blocks: true }).ok_or(too_large);
        }
        Ok(Space { count: self.sectors, in_blocks: false })
    }

    pub(super) fn encode_base(&self, base: &mut RawInode, space: Space, geometry: &Geometry) {
        base.i_mode.set(self.mode);
        base.i_uid.set(self.uid as u16);
        base.l_i_uid_high.set((self.uid >> 16) as u16);
        base.i_gid.set(self.gid as u16);
        base.l_i_gid_high.set((self.gid >> 16) as u16);
        base.i_size_lo.set(self.size as u32);
        if self.file_type() != Some(FileType::Directory) || Self::has_size_high(self.mode, geometry)
        {
            base.i_size_high.set((self.size >> 32) as u32);
        }
        let extended = self.extra_isize;
        let seconds = |time, end| low_word(time, fits(extended, end));
        base.i_atime.set(seconds(self.atime, RawExtra::ATIME_END));
        base.i_ctime.set(seconds(self.ctime, RawExtra::CTIME_END));
        base.i_mtime.set(seconds(self.mtime, RawExtra::MTIME_END));
        base.i_dtime.set(self.dtime);
        base.i_links_count.set(self.links);
        base.i_blocks_lo.set(space.count as u32);
        if geometry.features().ro_compat.contains(RoCompat::HUGE_FILE) {
            base.l_i_blocks_high.set((space.count >> 32) as u16);
        }
        let mut flags = self.flags;
        if geometry.features().ro_compat.contains(RoCompat::HUGE_FILE) {
            flags.set(InodeFlags::HUGE_FILE, space.in_blocks);
        }
        base.i_flags.set(flags.bits());
        base.l_i_version.set(self.version as u32);
        base.i_block = self.block;
        base.i_generation.set(self.generation);
        let acl = self.file_acl.map_or(0, |block| block.0);
        base.i_file_acl_lo.set(acl as u32);
        if geometry.features().incompat.contains(Incompat::BIT64) {
            base.l_i_file_acl_high.set((acl >> 32) as u16);
        }
    }

    pub(super) fn encode_extra(&self, bytes: &mut [u8]) {
        let size = self.extra_isize;
        let mut extra = RawExtra::from_front(bytes);
        extra.i_extra_isize.set(size);
        if fits(size, RawExtra::CTIME_END) {
            extra.i_ctime_extra.set(extra_word(self.ctime));
        }
        if fits(size, RawExtra::MTIME_END) {
            extra.i_mtime_extra.set(extra_word(self.mtime));
        }
        if fits(size, RawExtra::ATIME_END) {
            extra.i_atime_extra.set(extra_word(self.atime));
        }
        if let Some(crtime) = self.crtime.filter(|_| fits(size, RawExtra::CRTIME_END)) {
            extra.i_crtime.set(low_word(crtime, true));
            extra.i_crtime_extra.set(extra_word(crtime));
        }
        if fits(size, RawExtra::VERSION_END) {
            extra.i_version_hi.set((self.version >> 32) as u32);
        }
        if fits(size, RawExtra::PROJID_END) {
            extra.i_projid.set(self.projid);
        }
        extra.put_front(bytes, size);
    }
}
