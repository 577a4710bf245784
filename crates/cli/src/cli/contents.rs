//! Recognises what an image or a device contains in place of an ext4 file system, or what a command
//! would overwrite on it.

use super::Failure;
use lanefs_device::Device;
use lanefs_ext4::mkfs::existing_signature;
use lanefs_ondisk::md::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::fmt::Display;

/// Offset of the ext4 magic number in the image, in bytes; the superblock is at offset 1024.
const MAGIC_AT: u64 = 1024 + MAGIC_IN_SUPERBLOCK;
const MAGIC_IN_SUPERBLOCK: u64 = 0x38;
const MAGIC: [u8; 2] = [0x53, 0xef];
/// Offset of the group number in a superblock, in bytes.
const GROUP_IN_SUPERBLOCK: u64 = 0x5a;
/// For each block size, the block in which mke2fs puts the superblock copy of group 1. Each pair is
/// a block number and a block size.
const BACKUPS: [(u64, u64); 7] = [
    (8193, 1024),
    (16384, 2048),
    (32768, 4096),
    (65528, 8192),
    (65528, 16384),
    (65528, 32768),
    (65528, 65536),
];
/// How many bytes at the start of the image are examined.
const HEAD: u64 = 64 << 10;
/// The largest number of partitions listed.
const LISTED: usize = 8;

/// File formats and the first bytes by which they are recognised.
const FILES: [(&[u8], &str); 12] = [
    (b"\x1f\x8b", "gzip data: unpack it first"),
    (b"\xfd7zXZ\0", "xz data: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd data: unpack it first"),
    (b"BZh", "bzip2 data: unpack it first"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x3a\xff\x26\xed", "an Android sparse image: convert it to a raw image with simg2img"),
    (b"QFI\xfb", "a qcow2 image: convert it with qemu-img convert -O raw"),
    (b"KDMV", "a VMDK image: convert it with qemu-img convert -O raw"),
    (b"vhdxfile", "a VHDX image: convert it with qemu-img convert -O raw"),
    (b"conectix", "a VHD image: convert it with qemu-img convert -O raw"),
    (b"\x7fELF", "a program (ELF)"),
    (b"%PDF-", "a PDF document"),
];

/// Explains why there is no ext4 file system on `device`. `None` if the device has the magic
/// number, or cannot be read.
pub fn no_file_system(device: &dyn Device) -> Option<String> {
    let len = device.len();
    if len < MAGIC_AT + MAGIC.len() as u64 {
        return Some(match len {
            0 => "no ext4 file system: the image is empty".into(),
            _ => format!("no ext4 file system: {len} bytes are too few for one"),
        });
    }
    if read::<2>(device, MAGIC_AT)? == MAGIC {
        return None;
    }
    match backup(device) {
        Some((block, size)) => Some(format!(
            "the superblock is missing, but block {block} has a copy: e2fsck -b {block} -B {size} \
             restores it"
        )),
        None => Some(format!("no ext4 file system: {}", looks_like(device)?)),
    }
}

/// Refuses to overwrite a device that seems to contain something.
///
/// # Errors
/// A failure that names the contents, or why the device cannot be read.
pub fn refuse_contents(name: impl Display, device: &dyn Device) -> Result<(), Failure> {
    match existing_signature(device) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => {
            let array = array_name(device).filter(|_| what == "md superblock");
            let of = array.map(|array| format!(" of array {array}")).unwrap_or_default();
            let what = with_article(what);
            Err(Failure::new(name, format_args!("it contains {what}{of}: --force overwrites it")))
        }
        Err(error) => Err(Failure::new(name, error)),
    }
}

/// Puts an article before the name of a format, if the name needs one.
fn with_article(what: &str) -> String {
    match what {
        "md superblock"
        | "external ext4 journal"
        | "LVM2 physical volume"
        | "MBR partition table" => format!("an {what}"),
        "GPT partition table" => format!("a {what}"),
        _ => what.into(),
    }
}

/// Returns the name of the array of which the device is a member.
fn array_name(device: &dyn Device) -> Option<String> {
    let bytes = read::<SUPERBLOCK_SIZE>(device, SUPERBLOCK_OFFSET)?;
    Some(Superblock::decode(&bytes, device.len()).ok()?.name())
}

fn backup(device: &dyn Device) -> Option<(u64, u64)> {
    BACKUPS.into_iter().find(|(block, size)| {
        let start = block * size;
        read(device, start + MAGIC_IN_SUPERBLOCK) == Some(MAGIC)
            && read(device, start + GROUP_IN_SUPERBLOCK) == Some([1, 0])
    })
}

fn looks_like(device: &dyn Device) -> Option<String> {
    let mut head = vec![0; HEAD.min(device.len() / 512 * 512) as usize];
    device.read_at(0, &mut head).ok()?;
    if let Some((_, what)) = FILES.iter().find(|(mark, _)| head.starts_with(mark)) {
        return Some(format!("it looks like {what}"));
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some("it looks like a tar archive: lanefs cp copies files into an image".into());
    }
    Some(match existing_signature(device).ok()? {
        Some("md superblock") => {
            "it is a member of an md array: use md:MEMBER,MEMBER,... for the array; \
             lanefs raid examine shows its metadata"
                .into()
        }
        Some(table) if table.ends_with("partition table") => partitioned(device, table),
        Some(other) => format!("it looks like {}", with_article(other)),
        None if head.iter().all(|byte| *byte == 0) => {
            "it begins with zeros: lanefs mkfs makes a file system".into()
        }
        None if is_text(&head) => "it looks like text".into(),
        None => "its contents are not recognised".into(),
    })
}

/// Returns whether `head` is UTF-8 text; `head` may end in the middle of a character.
fn is_text(head: &[u8]) -> bool {
    let zeros = head.iter().rev().take_while(|byte| **byte == 0).count();
    let head = head.get(..head.len() - zeros).unwrap_or_default();
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            let valid = head.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(valid).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && !text.chars().any(|c| c.is_control() && !c.is_whitespace())
}

fn partitioned(device: &dyn Device, table: &str) -> String {
    let starts = match table.starts_with("GPT") {
        true => [512, 4096].into_iter().find_map(|sector| gpt_starts(device, sector)),
        false => Some(mbr_starts(device)),
    };
    let mut partitions = starts.unwrap_or_default();
    // Partitions with an ext4 file system come first.
    let is_ext =
        |start: &u64| start.checked_add(MAGIC_AT).and_then(|at| read(device, at)) == Some(MAGIC);
    partitions.sort_by_key(|(_, start)| !is_ext(start));
    let listed: Vec<String> = partitions
        .iter()
        .take(LISTED)
        .map(|(number, start)| {
            let holds = if is_ext(start) { " (ext4)" } else { "" };
            format!("--offset {start} for partition {number}{holds}")
        })
        .collect();
    let table = with_article(table);
    match listed.is_empty() {
        true => format!("it is a disk with {table}, without partitions"),
        false => format!("it is a disk with {table}: use {}", listed.join(", ")),
    }
}

/// Returns the number of each primary partition, and the offset in bytes at which it begins.
fn mbr_starts(device: &dyn Device) -> Vec<(u32, u64)> {
    let Some(entries) = read::<64>(device, 446) else { return Vec::new() };
    let (entries, _) = entries.as_chunks::<16>();
    let start = |entry: &[u8; 16]| {
        let [.., a, b, c, d, _, _, _, _] = *entry;
        u64::from(u32::from_le_bytes([a, b, c, d])) * 512
    };
    let numbered = (1..).zip(entries).filter(|(_, entry)| entry.get(4) != Some(&0));
    numbered.map(|(number, entry)| (number, start(entry))).collect()
}

/// Returns the number of each partition of a GPT, and the offset in bytes at which it begins (UEFI
/// specification, 5.3). Sectors have `sector` bytes. Returns `None` without a GPT.
fn gpt_starts(device: &dyn Device, sector: u64) -> Option<Vec<(u32, u64)>> {
    let header = read::<92>(device, sector)?;
    let word = |at: usize| header.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
    let long = |at: usize| header.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
    if !header.starts_with(b"EFI PART") {
        return None;
    }
    let (table, count, size) = (long(72)?, word(80)?.min(128), u64::from(word(84)?));
    let entry = |index: u32| {
        let at = table.checked_mul(sector)?.checked_add(u64::from(index).checked_mul(size)?)?;
        let entry = read::<40>(device, at)?;
        let start = u64::from_le_bytes(*entry.get(32..)?.first_chunk()?);
        let is_used = entry.iter().take(16).any(|byte| *byte != 0);
        is_used.then_some((index + 1, start.checked_mul(sector)?))
    };
    Some((0..count).filter_map(entry).collect())
}

fn read<const N: usize>(device: &dyn Device, at: u64) -> Option<[u8; N]> {
    let alignment = u64::from(device.alignment()).max(1);
    let start = at / alignment * alignment;
    let end = at.checked_add(N as u64)?.checked_next_multiple_of(alignment)?;
    if end > device.len() {
        return None;
    }
    let mut whole = vec![0; usize::try_from(end - start).ok()?];
    device.read_at(start, &mut whole).ok()?;
    whole.get((at - start) as usize..)?.first_chunk().copied()
}
