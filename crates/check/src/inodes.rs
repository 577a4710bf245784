//! Checks one inode: its fields, its blocks and its attributes.

pub mod symlink;

use crate::attributes;
use crate::blocks::{self, Claimed};
use crate::bytes::{le16, le32};
use crate::encryption::Policy;
use crate::fault::Fault;
use crate::mapping::Runs;
use crate::place::Place;
use crate::quota;
use crate::record::Record;
use crate::run::{Run, Taken};
use crate::superblock::{GROUP_QUOTAS, USER_QUOTAS};
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::inode::{self, Cause, InodeFlags};
use lanefs_ondisk::{FileBlock, FileType, Ino};

/// The inode of bad blocks.
pub const BAD_BLOCKS: Ino = Ino(1);
/// The inode of a boot loader. It may be a file of any type except a directory.
const BOOT_LOADER: Ino = Ino(5);
/// The smallest file size in bytes that needs the feature `large_file`.
const LARGE_FILE: u64 = 1 << 31;
const GOOD_OLD_SIZE: usize = 128;
/// The smallest valid extra size except 0. An extra size of 4 covers the size field itself and half
/// of the checksum.
const LEAST_EXTRA: u16 = 4;

/// Checks an inode and claims its blocks. Returns whether it is a directory in use.
pub fn check(run: &Run<'_>, ino: Ino, bytes: &[u8]) -> bool {
    run.states.set_scanned(ino);
    let record = Record::decode(bytes);
    let is_hidden = run.volume.is_hidden(ino);
    let is_orphan = run.orphans.contains(&ino);
    if !is_orphan {
        check_low_deletion_time(run, ino, &record);
    }
    if record.links == 0 && !is_hidden && !(is_orphan && record.mode != 0) {
        check_free(run, ino, &record, bytes);
        return false;
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return false;
    }
    if let Err(cause) = inode::verify(bytes, ino, run.volume.checksums) {
        run.add(Place::Inode { ino }, Fault::Inode(cause));
    }
    if is_hidden {
        check_hidden(run, ino, &record, bytes);
        return false;
    }
    if record.links == 0 {
        // Until a mount deletes the orphan, it has its blocks.
        run.states.set_used(ino, record.file_type(), 0);
        let attributes = check_blocks(run, ino, &record, bytes);
        quota::add(run, ino, &record, attributes.values);
        return false;
    }
    check_used(run, ino, &record, bytes);
    run.first && record.is_directory()
}

/// Checks a free inode. If the inode was deleted, it must have a deletion time and a valid
/// checksum. As in e2fsck, an inode whose first 128 bytes are zero was not deleted.
fn check_free(run: &Run<'_>, ino: Ino, record: &Record, bytes: &[u8]) {
    if record.mode != 0 && record.dtime == 0 {
        run.add(Place::Inode { ino }, Fault::NoDeletionTime);
    }
    let verified = inode::verify(bytes, ino, run.volume.checksums);
    if let Err(cause @ Cause::Checksum { .. }) = verified
        && bytes.iter().take(GOOD_OLD_SIZE).any(|byte| *byte != 0)
    {
        run.add(Place::Inode { ino }, Fault::Deleted(cause));
    }
}

/// Reports a deletion time that is small enough to be an inode number. In an orphan list, this
/// field holds the number of the next orphan, so the inode may belong to an orphan list that the
/// superblock does not refer to. If a time in the superblock is equally small, small times are
/// normal in this image, and nothing is reported.
fn check_low_deletion_time(run: &Run<'_>, ino: Ino, record: &Record) {
    let (raw, inodes) = (run.volume.raw(), run.volume.geometry.inode_count());
    let times = [raw.s_wtime.get(), raw.s_mtime.get(), raw.s_mkfs_time.get()];
    let is_number = |time: u32| time != 0 && time < inodes;
    if is_number(record.dtime) && !times.into_iter().any(is_number) {
        run.add(Place::Inode { ino }, Fault::Orphan { ino: ino.0 });
    }
}

/// Checks an inode to which no name refers: a reserved inode, or one that is recorded in the
/// superblock.
fn check_hidden(run: &Run<'_>, ino: Ino, record: &Record, bytes: &[u8]) {
    let place = Place::Inode { ino };
    let volume = run.volume;
    run.states.set_used(ino, record.file_type(), record.links);
    let is_journal =
        volume.compat(Compat::HAS_JOURNAL) && volume.raw().s_journal_inum.get() == ino.0;
    let is_orphans = volume.superblock().orphan_file() == Some(ino);
    let is_named = is_journal || is_orphans || volume.is_quota_file(ino);
    let kind = record.file_type();
    let is_right = match ino {
        _ if is_named => kind == Some(FileType::Regular),
        BAD_BLOCKS => true,
        BOOT_LOADER => kind != Some(FileType::Directory),
        Ino::RESIZE => record.mode == 0 || kind == Some(FileType::Regular),
        _ => record.mode == 0,
    };
    if !is_right {
        run.add(place, Fault::WrongType { mode: record.mode, expected: "a hidden file" });
    }
    if is_orphans && record.links == 0 && record.dtime == 0 {
        run.add(place, Fault::NoDeletionTime);
    }
    if is_orphans && !volume.compat(Compat::HAS_JOURNAL) {
        run.add(place, Fault::Special { ino: ino.0, what: "an orphan file without a journal" });
    }
    let is_own = matches!(ino, BAD_BLOCKS | BOOT_LOADER | Ino::RESIZE);
    if !is_named && !is_own && record.is_in_use() && matches!(ino, Ino::JOURNAL | Ino(3) | Ino(4)) {
        run.add(place, Fault::Special { ino: ino.0, what: "in use, though nothing refers to it" });
    }
    check_flags(run, ino, record);
    if ino == BAD_BLOCKS {
        // e2fsck looks only at the lower 16 bits of the user id and the group id.
        let owners = (record.uid | record.gid) & 0xffff;
        let fields = [record.mode.into(), record.links.into(), owners, record.acl_lo];
        if fields != [0; 4] {
            let what = "not a list of bad blocks, which has no mode, owner, links or attributes";
            run.add(place, Fault::Special { ino: ino.0, what });
        }
        // The inode of bad blocks has no file type. It maps the blocks that cannot be used, in the
        // same form as the blocks of a regular file.
        let maps = Record { mode: FileType::Regular.mode_bits(), ..record.clone() };
        check_blocks(run, ino, &maps, bytes);
        return;
    }
    // As in e2fsck, the attribute block of a reserved inode is checked and counted, except in a
    // quota inode that is not in use. Attributes inside a reserved inode without a purpose are not
    // checked.
    let mut record = record.clone();
    if !is_named && !is_own {
        record.extra_isize = 0;
        if matches!(ino, Ino(USER_QUOTAS) | Ino(GROUP_QUOTAS)) {
            (record.acl_lo, record.acl_hi, record.blocks_hi) = (0, 0, 0);
        }
    }
    check_blocks(run, ino, &record, bytes);
}

/// Checks an inode that has links.
fn check_used(run: &Run<'_>, ino: Ino, record: &Record, bytes: &[u8]) {
    let place = Place::Inode { ino };
    run.states.set_used(ino, record.file_type(), record.links);
    if record.dtime != 0 && !run.orphans.contains(&ino) {
        run.add(place, Fault::DeletedInUse { dtime: record.dtime });
    }
    if ino == Ino::ROOT && !record.is_directory() {
        add_wrong_type(run, ino, record);
    }
    check_fields(run, ino, record);
    check_flags(run, ino, record);
    check_extra(run, ino, record, bytes);
    match Policy::of(run, record, bytes) {
        Policy::Missing => run.add(place, Fault::Flags { flags: InodeFlags::ENCRYPT.bits() }),
        Policy::Damaged(cause) => run.add(place, Fault::Inode(cause)),
        Policy::None | Policy::Unknown | Policy::Known(_) => {}
    }
    let Some(kind) = record.file_type() else {
        run.add(place, Fault::Inode(Cause::Mode { mode: record.mode }));
        return quota::add(run, ino, record, 0);
    };
    match kind {
        FileType::Regular => {
            if record.flags.contains(InodeFlags::INLINE_DATA) {
                // Any size is valid: beyond the room for inline data, such a file reads as zeros.
                if attributes::lacks_inline_data(run, record, bytes) {
                    run.add(place, Fault::Inode(Cause::NoInlineData));
                }
            }
        }
        FileType::Directory => {}
        FileType::Symlink => {
            if let Err(fault) = symlink::check(run, ino, record, bytes) {
                match looks_like_directory(run, ino, record) {
                    true => add_wrong_type(run, ino, record),
                    false => run.add(place, fault),
                }
            }
        }
        FileType::CharDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket => {
            check_device(run, ino, record);
        }
    }
    let attributes = check_blocks(run, ino, record, bytes);
    quota::add(run, ino, record, attributes.values);
}

fn add_wrong_type(run: &Run<'_>, ino: Ino, record: &Record) {
    let fault = Fault::WrongType { mode: record.mode, expected: "a directory" };
    run.add(Place::Inode { ino }, fault);
}

/// Returns whether an inode of another type, or without one, maps the blocks of a directory: the
/// first one begins with an entry "." that refers to the inode itself.
pub fn looks_like_directory(run: &Run<'_>, ino: Ino, record: &Record) -> bool {
    let mapped = Record { mode: FileType::Directory.mode_bits(), ..record.clone() };
    let first = Runs::of(run.volume, ino, &mapped).block(FileBlock(0));
    let first = first.and_then(|block| run.volume.read_block(block).ok());
    let is_own = |block: Vec<u8>| le32(&block, 0) == ino.0 && le16(&block, 8) == u16::from(b'.');
    first.is_some_and(is_own)
}

/// Checks fields that must be zero: always, or if the file system lacks the feature that gives them
/// a meaning. The repair zeroes the same ones (`zero_fields` in `repair/inodes.rs`).
fn check_fields(run: &Run<'_>, ino: Ino, record: &Record) {
    let place = Place::Inode { ino };
    let volume = run.volume;
    let zero = |what, found: u64, due: bool| {
        if due && found != 0 {
            run.add(place, Fault::NotZero { what, found });
        }
    };
    zero("the address of a fragment", record.fragment.into(), true);
    let narrow = !volume.incompat(Incompat::BIT64);
    zero("the upper half of the attribute block", record.acl_hi.into(), narrow);
    let small = !volume.ro_compat(RoCompat::HUGE_FILE);
    zero("the upper half of i_blocks", record.blocks_hi.into(), small);
    let short = record.is_directory() && !volume.incompat(Incompat::LARGE_DIR);
    zero("the upper half of the size", record.size_hi.into(), short);
}

fn check_flags(run: &Run<'_>, ino: Ino, record: &Record) {
    let place = Place::Inode { ino };
    let volume = run.volume;
    let flags = record.flags;
    let mut wrong = InodeFlags::empty();
    let mut without = |flag: InodeFlags, has: bool| {
        if !has {
            wrong |= flags & flag;
        }
    };
    without(InodeFlags::EXTENTS, volume.incompat(Incompat::EXTENTS));
    without(InodeFlags::INLINE_DATA, volume.incompat(Incompat::INLINE_DATA));
    without(InodeFlags::IMAGIC, volume.compat(Compat::IMAGIC_INODES));
    let indexed = volume.compat(Compat::DIR_INDEX) && record.is_directory();
    without(InodeFlags::INDEX, indexed);
    let folds = volume.incompat(Incompat::CASEFOLD) && record.is_directory();
    without(InodeFlags::CASEFOLD, folds);
    if flags.contains(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
        wrong |= InodeFlags::INLINE_DATA;
    }
    if flags.contains(InodeFlags::INDEX | InodeFlags::INLINE_DATA) {
        wrong |= InodeFlags::INDEX;
    }
    let is_own = matches!(ino, BAD_BLOCKS | Ino::RESIZE);
    let is_unused = volume.is_hidden(ino) && !is_own && record.mode == 0;
    if is_unused {
        // Nothing reads a reserved inode without a purpose. e2fsck complains of these flags only.
        let has_any = volume.incompat(Incompat::EXTENTS) || volume.incompat(Incompat::INLINE_DATA);
        let is_both = has_any && flags.contains(InodeFlags::EXTENTS);
        let inline = if is_both { InodeFlags::INLINE_DATA } else { InodeFlags::empty() };
        wrong &= InodeFlags::INDEX | InodeFlags::CASEFOLD | inline;
    }
    if !wrong.is_empty() {
        run.add(place, Fault::Flags { flags: wrong.bits() });
    }
    if flags.contains(InodeFlags::EA_INODE) && !is_unused {
        run.states.set_values(ino);
        if volume.incompat(Incompat::EA_INODE) {
            return;
        }
        run.add(place, Fault::Flags { flags: InodeFlags::EA_INODE.bits() });
    }
}

/// Checks the fields after the first 128 bytes.
fn check_extra(run: &Run<'_>, ino: Ino, record: &Record, bytes: &[u8]) {
    let place = Place::Inode { ino };
    let Some(room) = bytes.len().checked_sub(GOOD_OLD_SIZE).filter(|room| *room > 0) else {
        return;
    };
    let size = record.extra_isize;
    if size != 0 && (size < LEAST_EXTRA || usize::from(size) > room || !size.is_multiple_of(4)) {
        run.add(place, Fault::Inode(Cause::ExtraSize { size }));
        return;
    }
    if has_early_time(record, bytes) {
        run.add(place, Fault::TimeRange);
    }
}

/// Returns whether one of the times has both negative seconds and the extra bits of a year after
/// 2310. A kernel with a bug stored times before 1970 in this form.
fn has_early_time(record: &Record, bytes: &[u8]) -> bool {
    const TIMES: [(usize, usize); 4] = [(0x0c, 0x84), (0x10, 0x88), (0x08, 0x8c), (0x90, 0x94)];
    TIMES.iter().any(|&(seconds, extra)| {
        let fits = GOOD_OLD_SIZE + usize::from(record.extra_isize) >= extra + 4;
        fits && le32(bytes, extra) & 3 == 3 && le32(bytes, seconds) >> 31 == 1
    })
}

/// Checks an inode that cannot have data: a device, a named pipe or a socket.
fn check_device(run: &Run<'_>, ino: Ino, record: &Record) {
    let place = Place::Inode { ino };
    if record.size() != 0 && looks_like_directory(run, ino, record) {
        return add_wrong_type(run, ino, record);
    }
    if record.size() != 0 {
        run.add(place, Fault::NotZero { what: "the size", found: record.size() });
    }
    let data = InodeFlags::INDEX | InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
    let wrong = record.flags & (data | InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    if !wrong.is_empty() {
        run.add(place, Fault::Flags { flags: wrong.bits() });
    }
}

/// Checks attributes and blocks, and the counts that depend on them. Returns how much space the
/// attributes take.
fn check_blocks(run: &Run<'_>, ino: Ino, record: &Record, bytes: &[u8]) -> Taken {
    if record.file_type() == Some(FileType::Regular) && record.size() >= LARGE_FILE {
        run.has_large_file.store(true, Ordering::Relaxed);
    }
    let attributes = attributes::check(run, ino, record, bytes);
    let claimed = match record.maps_blocks() {
        true => blocks::claim(run, ino, record),
        false => Claimed::default(),
    };
    if ino != BAD_BLOCKS {
        blocks::check_counts(run, ino, record, &claimed, attributes.clusters);
    }
    attributes
}
