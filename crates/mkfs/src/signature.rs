//! Recognises the present contents of a device by the marks that formats have at fixed offsets.

use lanefs_device::{Device, DeviceError, read_unaligned as read};

/// A mark at an offset.
struct Mark {
    name: &'static str,
    offset: u64,
    magic: &'static [u8],
}

const fn mark(name: &'static str, offset: u64, magic: &'static [u8]) -> Mark {
    Mark { name, offset, magic }
}

const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
const EXT_MAGIC: [u8; 2] = 0xef53_u16.to_le_bytes();

/// The marks in the order of the search: the most specific first, partition tables last, since boot
/// sectors of FAT and NTFS end like a partition table.
const MARKS: [Mark; 26] = [
    mark("LUKS", 0, b"LUKS\xba\xbe"),
    mark("xfs", 0, b"XFSB"),
    mark("squashfs", 0, b"hsqs"),
    mark("cramfs", 0, b"\x45\x3d\xcd\x28"),
    mark("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    mark("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    mark("hfsplus", 1024, b"H+\0\x04"),
    mark("btrfs", 0x10040, b"_BHRfS_M"),
    mark(
        "bcachefs",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    mark("reiserfs", 0x10034, b"ReIsEr"),
    mark("jfs", 0x8000, b"JFS1"),
    mark("iso9660", 0x8001, b"CD001"),
    mark("swap", 4096 - 10, b"SWAPSPACE2"),
    mark("swap", 4096 - 10, b"SWAP-SPACE"),
    mark("swap", 65536 - 10, b"SWAPSPACE2"),
    mark("LVM2 physical volume", 512, b"LABELONE"),
    mark("bcache", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    mark("md superblock", 0, &MD_MAGIC),
    mark("md superblock", 4096, &MD_MAGIC),
    mark("ntfs", 3, b"NTFS    "),
    mark("exfat", 3, b"EXFAT   "),
    mark("vfat", 0x52, b"FAT32   "),
    mark("vfat", 0x36, b"FAT16   "),
    mark("vfat", 0x36, b"FAT12   "),
    mark("GPT partition table", 512, b"EFI PART"),
    mark("GPT partition table", 4096, b"EFI PART"),
];

/// Returns the name of the format that `device` seems to contain: a file system, a member of an
/// array, an encrypted volume, a partition table. `None` if no known mark is found; the device may
/// still contain data.
///
/// # Errors
/// If the device cannot be read.
pub fn existing_signature(device: &dyn Device) -> Result<Option<&'static str>, DeviceError> {
    if let Some(name) = ext(device)? {
        return Ok(Some(name));
    }
    for mark in &MARKS {
        if has(device, mark.offset, mark.magic)? {
            return Ok(Some(mark.name));
        }
    }
    let len = device.len();
    // zfs keeps several rings of uberblocks, which begin with its mark. Only the first uberblock of
    // the first ring is checked.
    if has(device, 128 << 10, &0x00ba_b10c_u64.to_le_bytes())? {
        return Ok(Some("zfs"));
    }
    for at in md_at_end(len) {
        if has(device, at, &MD_MAGIC)? {
            return Ok(Some("md superblock"));
        }
    }
    if len >= 512 && has(device, (len / 512 - 1) * 512, b"EFI PART")? {
        return Ok(Some("GPT partition table"));
    }
    if has(device, 510, b"\x55\xaa")? && has_partition(device)? {
        return Ok(Some("MBR partition table"));
    }
    Ok(None)
}

/// Returns where md may keep a superblock at the end of a device. For format 0.90, the device's
/// length is rounded down to a multiple of 64 KiB, and the superblock starts 64 KiB before that
/// offset. For format 1.0, the superblock is 8 KiB before the end, rounded down to a multiple of 4
/// KiB.
fn md_at_end(len: u64) -> impl Iterator<Item = u64> {
    let old = (len & !0xffff).checked_sub(0x10000);
    let new = len.checked_sub(0x2000).map(|at| at & !0xfff);
    old.into_iter().chain(new)
}

/// Distinguishes ext2, ext3 and ext4 by their features: a feature that ext3 lacks, such as extents,
/// means ext4; otherwise a journal means ext3.
fn ext(device: &dyn Device) -> Result<Option<&'static str>, DeviceError> {
    if !has(device, 1024 + 0x38, &EXT_MAGIC)? {
        return Ok(None);
    }
    let mut words = [0; 12];
    read(device, 1024 + 0x5c, &mut words)?;
    let word =
        |at: usize| u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
    let (compat, incompat, ro_compat) = (word(0), word(4), word(8));
    Ok(Some(if incompat & 0x8 != 0 {
        "external ext4 journal"
    } else if incompat & !0x16 != 0 || ro_compat & !0x7 != 0 {
        "ext4"
    } else if compat & 0x4 != 0 {
        "ext3"
    } else {
        "ext2"
    }))
}

/// Returns whether the boot sector has a partition table: at least one of its four entries has a
/// type, and each entry is marked as active or inactive.
fn has_partition(device: &dyn Device) -> Result<bool, DeviceError> {
    let mut entries = [0; 64];
    if !read(device, 446, &mut entries)? {
        return Ok(false);
    }
    let entries = entries.as_chunks::<16>().0;
    let possible = entries.iter().all(|entry| entry[0] & 0x7f == 0);
    Ok(possible && entries.iter().any(|entry| entry[4] != 0))
}

fn has(device: &dyn Device, offset: u64, magic: &[u8]) -> Result<bool, DeviceError> {
    let mut found = [0; 16];
    let Some(found) = found.get_mut(..magic.len()) else { return Ok(false) };
    Ok(read(device, offset, found)? && found == magic)
}
