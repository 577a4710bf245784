//! Recognises what an image or a device contains in place of an ext4 file system, or what a command
//! would overwrite on it.

use crate::cli::{Failure, ImageArguments};
use lanefs::Source;
use lanefs_check::{Backup, Base};
use lanefs_device::{Device, Ext4, PartitionTable, read_unaligned};
use lanefs_fuse::MountEntry;
use lanefs_mkfs::existing_signature;
use lanefs_ondisk::md::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Offset of the ext4 magic number in the image, in bytes; the superblock is at offset 1024.
const MAGIC_AT: u64 = 1024 + 0x38;
const MAGIC: [u8; 2] = [0x53, 0xef];
/// How many bytes at the start of the image are examined.
const HEAD: u64 = 64 << 10;
/// The largest number of partitions listed.
const LISTED: usize = 8;

/// File formats, and the offset and the bytes by which they are recognised.
const FILES: [(usize, &[u8], &str); 15] = [
    (0, b"\x1f\x8b", "gzip data: unpack it first"),
    (0, b"\xfd7zXZ\0", "xz data: unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data: unpack it first"),
    (0, b"BZh", "bzip2 data: unpack it first"),
    (0, b"PK\x03\x04", "a zip archive: unpack it first"),
    (0, b"\x3a\xff\x26\xed", "an Android sparse image: convert it to a raw image with simg2img"),
    (0, b"QFI\xfb", "a qcow2 image: convert it with qemu-img convert -O raw"),
    (0, b"KDMV", "a VMDK image: convert it with qemu-img convert -O raw"),
    (0, b"vhdxfile", "a VHDX image: convert it with qemu-img convert -O raw"),
    (0, b"conectix", "a VHD image: convert it with qemu-img convert -O raw"),
    (64, b"\x7f\x10\xda\xbe", "a VDI image: convert it with qemu-img convert -O raw"),
    (0, b"\x10\xb7\x2b\x7f", "metadata saved by e2image, without the files' data"),
    (257, b"ustar", "a tar archive: lanefs cp copies files into an image"),
    (0, b"\x7fELF", "a program (ELF)"),
    (0, b"%PDF-", "a PDF document"),
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
    let what = match (other_contents(device), Backup::find(device)) {
        (Some(what), _) => what,
        (None, None) => unknown_contents(device)?.into(),
        (None, Some(backup)) => {
            let (block, size) = backup.place();
            return Some(format!(
                "the superblock is missing, but block {block} has a copy: e2fsck -b {block} -B \
                 {size} restores it"
            ));
        }
    };
    Some(format!("no ext4 file system: {what}"))
}

/// Returns whether `start` are the first bytes of an ext4 file system, by its magic number.
pub fn has_magic(start: &[u8]) -> bool {
    start.get(MAGIC_AT as usize..).is_some_and(|rest| rest.starts_with(&MAGIC))
}

/// Names what `device` holds in place of an ext4 file system, which a repair must not write over.
/// `None` if the device has the magic number of ext4, or nothing is recognised, or there is a copy
/// of the superblock that leads to the root directory of a damaged file system.
pub fn other_contents(device: &dyn Device) -> Option<String> {
    if read::<2>(device, MAGIC_AT) == Some(MAGIC) {
        return None;
    }
    let base = Backup::find(device).map(|backup| backup.base());
    if base == Some(Base::Start) {
        return None;
    }
    let found = recognised(device);
    match base {
        Some(Base::Elsewhere(start)) if found.is_none() => {
            Some(format!("one begins at byte {start}: use --offset {start}"))
        }
        _ => found,
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

/// Names the format of the contents of a device, and the command that opens it.
pub fn format_of(device: &dyn Device) -> Option<(&'static str, String)> {
    let format = existing_signature(device).ok()??;
    Some((format, opener(format)))
}

/// Returns the command that opens such contents, on a block device.
fn opener(format: &str) -> String {
    match format {
        "LUKS" => "cryptsetup open".into(),
        "LVM2 physical volume" => "vgchange -ay".into(),
        "md superblock" => "mdadm --assemble".into(),
        "swap" => "swapon".into(),
        "zfs" => "zpool import".into(),
        "bcache" => "bcache-super-show".into(),
        "external ext4 journal" => "lanefs mount -o journal_path=".into(),
        table if table.ends_with("partition table") => "lanefs disk".into(),
        other => format!("mount -t {other}"),
    }
}

/// Names the format of the contents. `None` if no format is recognised.
fn recognised(device: &dyn Device) -> Option<String> {
    let head = head(device)?;
    let is_at = |at: usize, mark| head.get(at..).is_some_and(|bytes| bytes.starts_with(mark));
    if let Some((.., what)) = FILES.iter().find(|(at, mark, _)| is_at(*at, mark)) {
        return Some(format!("it looks like {what}"));
    }
    Some(match existing_signature(device).ok()?? {
        "md superblock" => {
            "it is a member of an md array: use md:MEMBER,MEMBER,... for the array; \
                            lanefs raid examine shows its metadata"
                .into()
        }
        table if table.ends_with("partition table") => partitioned(device, table),
        other => {
            format!("it looks like {}, which {} opens", with_article(other), opener(other))
        }
    })
}

/// Describes contents whose format is not recognised.
fn unknown_contents(device: &dyn Device) -> Option<&'static str> {
    let head = head(device)?;
    Some(match head.iter().all(|byte| *byte == 0) {
        true => "it begins with zeros: lanefs mkfs makes a file system",
        false if is_text(&head) => "it looks like text",
        false => "its contents are not recognised",
    })
}

/// Reads the start of the image.
fn head(device: &dyn Device) -> Option<Vec<u8>> {
    let mut head = vec![0; HEAD.min(device.len() / 512 * 512) as usize];
    device.read_at(0, &mut head).ok()?;
    Some(head)
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

fn partitioned(device: &dyn Device, name: &str) -> String {
    let (name, partitions) = match PartitionTable::of(device) {
        Ok(Some(table)) => (format!("{} partition table", table.kind), table.partitions),
        Ok(None) => (name.to_owned(), Vec::new()),
        Err(bad) => return format!("it is a disk, but {bad}"),
    };
    let name = with_article(&name);
    let is_ext = |start: u64| Ext4::at(device, start).is_some();
    let mut partitions: Vec<_> = partitions.iter().filter(|found| !found.is_extended).collect();
    // Partitions with an ext4 file system come first.
    partitions.sort_by_key(|partition| !is_ext(partition.bytes.start));
    let listed = partitions.iter().take(LISTED).map(|partition| {
        let (number, start) = (partition.number, partition.bytes.start);
        let holds = if is_ext(start) { " (ext4)" } else { "" };
        format!("@{number} or --offset {start} for partition {number}{holds}")
    });
    match partitions.is_empty() {
        true => format!("it is a disk with {name}, without partitions"),
        false => {
            format!("it is a disk with {name}: use {}", listed.collect::<Vec<_>>().join(", "))
        }
    }
}

fn read<const N: usize>(device: &dyn Device, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    read_unaligned(device, at, &mut bytes).ok()?.then_some(bytes)
}

/// The extended attribute whose value lists the server's counters (`lanefs_fuse::Control`).
const ATTRIBUTE: &str = "system.lanefs_statistics";
/// The largest size of an attribute's value in bytes.
const ROOM: usize = 64 << 10;

/// A mount of Lanefs.
pub struct MountedImage {
    /// The directory on which the file system is mounted.
    pub mount_point: PathBuf,
    /// The mounted image or block device.
    pub source: PathBuf,
}

impl MountedImage {
    /// Returns the mount whose directory or image is `path`. Returns `None` if there is no such
    /// mount, or if `arguments` select a part of the image.
    pub fn of(path: &Path, arguments: ImageArguments) -> Option<MountedImage> {
        if arguments.offset.bytes() != 0 || Source::array_name(path).is_some() {
            return None;
        }
        let MountEntry { mount_point, source } = MountEntry::of(path).ok()??;
        Some(MountedImage { mount_point, source })
    }

    /// Returns the size of the file system in blocks, and the size of a block in bytes.
    pub fn size(&self) -> Result<(u64, u64), Failure> {
        let counters = counters(&self.mount_point)?;
        let level = |name| counters.get(name).copied().unwrap_or(0);
        Ok((level("size.blocks"), level("size.block_bytes").max(1)))
    }
}

/// Reads an attribute of the mount on this directory, which its server answers.
pub fn attribute_of_mount(mount_point: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; ROOM];
    let len = rustix::fs::getxattr(mount_point, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// Reads the counters of the mount on this directory.
pub fn counters(mount_point: &Path) -> Result<BTreeMap<String, u64>, Failure> {
    match attribute_of_mount(mount_point, ATTRIBUTE) {
        Ok(value) => Ok(parse_counters(&String::from_utf8_lossy(&value))),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NODATA) => Err(Failure::new(
            mount_point.display(),
            "not the mount point of a Lanefs mount of this user",
        )),
        Err(error) => Err(Failure::on_host(mount_point)(error)),
    }
}

/// Parses lines that each hold a name and a number.
pub fn parse_counters(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}
