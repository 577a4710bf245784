//! What an image is: its superblock (`info`), or its partition table (`disk`).

use super::raid;
use super::tune::DEFAULT_OPTIONS;
use crate::cli::{
    Failure, ImageArguments, OutputArguments, Report, Shown, filled, format_of, human,
    no_file_system, open_source, printable, show_time, tell_notes,
};
use lanefs::device::{Access, Device, FileDevice, OpenError, Pick};
use lanefs::{Source, Time};
use lanefs_device::{Ext4, OpenOptions as DeviceOptions, Partition, PartitionTable, TableCopy};
use lanefs_ext4::{Primary, Wholeness, Witness};
use lanefs_ondisk::Group;
use lanefs_ondisk::features::{Incompat, Support};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::{DefaultMountOptions, JournalPlace, OnError, State, Superblock};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// If `s_jnl_backup_type` has this value (`EXT3_JNL_BACKUP_BLOCKS`), `s_jnl_blocks` holds the
/// journal's block numbers and size.
const JOURNAL_BACKUP_BLOCKS: u8 = 1;

/// Shows the superblock of an image without mounting it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only the superblock is read, so an image that cannot be mounted is shown too. If the image is not
clean, the free counts may be out of date; lanefs df counts anew.

Examples:
  lanefs info disk.img
  lanefs info --json disk.img | jq .free_blocks
  lanefs info --groups disk.img")]
pub struct Arguments {
    /// The image
    image: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show each block group too
    #[arg(short, long)]
    groups: bool,
    #[command(flatten)]
    options: ImageArguments,
}

/// Shows the partition table of a disk, and what each partition holds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
IMAGE@WHICH names a partition in every command. WHICH is its number, name=NAME, partuuid=UUID, the
label=LABEL or uuid=UUID of its ext4 file system, or root: the partition with the type of this
machine's root, or else the only ext4. A file that has the whole name wins over @. Commands beside
the partitions that hold other formats want a block device: losetup -P --find --show IMAGE makes
one for each partition.

Examples:
  lanefs disk disk.img
  lanefs disk --json disk.img | jq '.partitions[] | select(.holds == \"ext4\") | .number'
  lanefs ls disk.img@2:/etc
  lanefs mount disk.img@label=home mnt
  lanefs resize --grow-partition disk.img@2 +10G")]
pub struct Disk {
    /// The disk image or block device
    image: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `lanefs disk`.
pub fn disk(arguments: &Disk) -> ExitCode {
    Report::run("disk", |_| {
        let facts = facts_of_disk(&arguments.image)?;
        let output = OutputArguments { json: arguments.json, quiet: false };
        Ok(output.print(&facts, lines_of_disk(&arguments.image, &facts))?)
    })
}

fn facts_of_disk(image: &Path) -> Result<Value, Failure> {
    let open = |part| match FileDevice::open(image, Access::ReadOnly, part) {
        Err(OpenError::InUse { .. }) => FileDevice::peek(image, part),
        opened => opened,
    };
    let whole = open(DeviceOptions::default())?;
    let about = Failure::about(image);
    let table = PartitionTable::of_sectors(&whole, whole.sector()).map_err(&about)?;
    let Some(table) = table else {
        let what = match format_of(&whole) {
            Some((format, _)) => format!("no partition table: it holds {format}"),
            None => "no partition table".into(),
        };
        return Err(Failure::new(image.display(), what));
    };
    let of_partition = |partition: &Partition| {
        let (offset, size) = (partition.bytes.start, partition.bytes.end - partition.bytes.start);
        let len = whole.len().saturating_sub(offset).min(size);
        let part = DeviceOptions { offset, len: Some(len), ..DeviceOptions::default() };
        let device =
            (len > 0 && !partition.is_extended).then(|| FileDevice::peek(image, part).ok());
        let holds = device.flatten().and_then(|device| format_of(&device));
        let ext4 = Ext4::at(&whole, offset);
        json!({
            "number": partition.number,
            "start": offset,
            "bytes": size,
            "type": partition.kind,
            "type_name": type_name(&partition.kind),
            "name": partition.name,
            "partuuid": partition.uuid,
            "overlaps": table.overlapping(partition).map(|other| other.number),
            "holds": holds.as_ref().map(|(format, _)| *format),
            "label": ext4.as_ref().map(|ext4| &ext4.label),
            "uuid": ext4.as_ref().map(|ext4| &ext4.uuid),
            "opened_by": match (&ext4, holds) {
                (Some(_), _) => Some(format!("lanefs ls {}@{}:/", image.display(), partition.number)),
                (None, holds) => holds.map(|(_, opener)| opener),
            },
        })
    };
    Ok(json!({
        "image": image.display().to_string(),
        "table": table.kind.to_string(),
        "backup_used": table.copy == TableCopy::Backup,
        "sector_size": table.sector,
        "bytes": whole.len(),
        "partitions": table.partitions.iter().map(of_partition).collect::<Vec<_>>(),
    }))
}

fn lines_of_disk(image: &Path, facts: &Value) -> Vec<String> {
    let word = |value: &Value| printable(value.as_str().unwrap_or_default()).to_string();
    let quoted = |value: &Value| match &*word(value) {
        "" => String::new(),
        text => format!(" \"{text}\""),
    };
    let size = |value: &Value| human(value.as_u64().unwrap_or(0));
    let (table, sector) = (word(&facts["table"]), &facts["sector_size"]);
    let bytes = size(&facts["bytes"]);
    let name = image.display();
    let mut lines =
        vec![format!("{name}: {table} partition table, {bytes}, sectors of {sector} bytes")];
    if facts["backup_used"] == true {
        lines.push("the primary table is damaged or missing: this is the backup".into());
    }
    for found in facts["partitions"].as_array().into_iter().flatten() {
        let kind = if found["type_name"].is_null() { &found["type"] } else { &found["type_name"] };
        lines.push(format!(
            "{}: {}{}, {} from byte {}, partuuid {}",
            found["number"],
            word(kind),
            quoted(&found["name"]),
            size(&found["bytes"]),
            found["start"],
            word(&found["partuuid"]),
        ));
        if let Some(other) = found["overlaps"].as_u64() {
            lines.push(format!("   overlaps partition {other}"));
        }
        if !found["holds"].is_null() {
            let uuid = match &*word(&found["uuid"]) {
                "" => String::new(),
                uuid => format!(", uuid {uuid}"),
            };
            let (format, label) = (word(&found["holds"]), quoted(&found["label"]));
            lines.push(format!("   {format}{label}{uuid}: {}", word(&found["opened_by"])));
        }
    }
    lines
}

/// Returns the name of a usual type of partitions.
fn type_name(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "0x05" | "0x0f" | "0x85" => "extended",
        "0x06" | "0x0b" | "0x0c" | "0x0e" => "FAT",
        "0x07" => "NTFS or exFAT",
        "0x82" | "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f" => "Linux swap",
        "0x83" | "0fc63daf-8483-4772-8e79-3d69d8477de4" => "Linux",
        "0x8e" | "e6d6d379-f507-44c2-a23c-238f2a3df928" => "Linux LVM",
        "0xef" | "c12a7328-f81f-11d2-ba4b-00a0c93ec93b" => "EFI system",
        "0xfd" | "a19d880f-05fc-4d3b-a006-743f0f84911e" => "Linux RAID",
        "21686148-6449-6e6f-744e-656564454649" => "BIOS boot",
        "4f68bce3-e8cd-4db1-96e7-fbcaf984b709" => "Linux root (x86-64)",
        "b921b045-1df0-41c3-af44-4c6f280d3fae" => "Linux root (ARM 64)",
        "933ac7e1-2eb4-4f13-b844-0e14e2aef915" => "Linux home",
        "bc13c2ff-59e6-4262-a352-b275fd6f7172" => "Linux extended boot",
        "ca7d7ccb-63ed-4c53-861c-1742536059cc" => "Linux LUKS",
        "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7" => "Microsoft data",
        _ => return None,
    })
}

/// Runs `lanefs info`.
pub fn run(arguments: &Arguments) -> ExitCode {
    run_as("info", arguments)
}

/// Shows the superblock of `image` on behalf of another command.
pub fn show_superblock(
    command: &'static str,
    image: &Path,
    json: bool,
    options: ImageArguments,
) -> ExitCode {
    run_as(command, &Arguments { image: image.into(), json, groups: false, options })
}

fn run_as(command: &'static str, arguments: &Arguments) -> ExitCode {
    Report::run(command, |_| Ok(print(&facts(arguments)?, arguments)?))
}

fn facts(arguments: &Arguments) -> Result<Value, Failure> {
    let image = arguments.image.as_path();
    let part = arguments.options.part(Pick::OnlyExt4);
    let mut left_out = Vec::new();
    let (device, in_use) = match Source::array_name(image) {
        Some(_) if part.offset > 0 => (open_source(image, Access::ReadOnly, part)?.device(), None),
        Some(name) => {
            let looked = raid::look_at(&name).map_err(lanefs::Error::from);
            let (array, in_use) = looked.map_err(|error| Failure::opening_source(image, &error))?;
            left_out.extend(array.left_out().iter().map(|out| out.to_string()));
            (Arc::new(array) as Arc<dyn Device>, in_use)
        }
        None => match FileDevice::open(image, Access::ReadOnly, part) {
            Ok(device) => (shared(device, image), None),
            Err(OpenError::InUse { by, .. }) => {
                (shared(FileDevice::peek(image, part)?, image), Some(by.to_string()))
            }
            Err(error) => return Err(error.into()),
        },
    };
    let primary = match Primary::read(&*device) {
        Ok(primary) if primary.wholeness == Wholeness::Whole => Ok(primary),
        // The program that uses the image may have written the superblock during this read. So the
        // superblock is read again after a pause.
        _ if in_use.is_some() => {
            std::thread::sleep(Duration::from_millis(50));
            Primary::read(&*device)
        }
        read => read,
    };
    let primary = primary.map_err(|error| match no_file_system(&*device) {
        Some(why) => Failure::new(image.display(), why),
        None => Failure::new(image.display(), error),
    })?;
    let Primary { superblock, wholeness } = primary;
    let mut facts = of_superblock(&superblock);
    if let Wholeness::Torn(witness) = wholeness {
        facts["superblock"] = match witness {
            Witness::Backup(group) => {
                json!(format!("torn by a crash; agrees with the backup in {group}"))
            }
            Witness::Log => json!("torn by a crash; agrees with its copy in the log"),
        };
    }
    if let Some(by) = in_use {
        facts["in_use"] = json!(by);
    }
    if !left_out.is_empty() {
        facts["left_out_members"] = json!(left_out);
    }
    if arguments.groups {
        facts["groups"] = of_groups(&*device, &superblock, image)?;
    }
    Ok(facts)
}

fn shared(device: FileDevice, image: &Path) -> Arc<dyn Device> {
    tell_notes(image, device.notes());
    Arc::new(device)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// Converts a time of the superblock, which consists of a low word and of a high byte that ext4
/// added. Returns `null` if the time was never set.
fn time(low: u32, high: u8) -> Value {
    let secs = i64::from(low) | i64::from(high) << 32;
    if secs == 0 { Value::Null } else { json!(secs) }
}

fn of_superblock(superblock: &Superblock) -> Value {
    let facts =
        [identity(superblock), sizes(superblock), structures(superblock), history(superblock)];
    let named = facts.into_iter().flatten().map(|(name, value)| (name.to_owned(), value));
    Value::Object(named.collect())
}

type Facts = Vec<(&'static str, Value)>;

/// Returns the label and the UUID of the file system, its features, whether Lanefs mounts it, and
/// its state.
fn identity(superblock: &Superblock) -> Facts {
    let state = superblock.state();
    let features = superblock.features().names();
    // A journal on another device counts as present, since the line "Journal" of the output shows
    // that it is on another device.
    let (support, reasons) = match superblock.support_with_journal() {
        Support::ReadWrite => ("read-write", Vec::new()),
        Support::ReadOnly(reasons) => ("read-only", reasons),
        Support::Refused(reasons) => ("none", reasons),
    };
    let on_error = match superblock.on_error() {
        OnError::Continue => "continue",
        OnError::ReadOnly => "remount-ro",
        OnError::Panic => "panic",
    };
    vec![
        ("label", json!(text(superblock.label()))),
        ("uuid", json!(uuid::Uuid::from_bytes(superblock.uuid()).to_string())),
        ("last_mounted_on", json!(text(superblock.last_mounted()))),
        ("features", json!(features)),
        ("lanefs_mounts", json!(support)),
        ("because_of", json!(reasons)),
        ("state", json!(if state.contains(State::VALID) { "clean" } else { "not clean" })),
        ("errors_found", json!(state.contains(State::ERROR))),
        ("needs_recovery", json!(features.iter().any(|name| name == "needs_recovery"))),
        ("on_error", json!(on_error)),
        ("error_count", json!(superblock.error_count())),
    ]
}

/// Returns the sizes and counts of blocks, inodes and groups.
fn sizes(superblock: &Superblock) -> Facts {
    let geometry = superblock.geometry();
    vec![
        ("block_size", json!(geometry.block_size().bytes())),
        ("cluster_size", json!(geometry.block_size().bytes() << geometry.cluster_bits())),
        ("blocks", json!(geometry.block_count())),
        ("free_blocks", json!(superblock.free_blocks())),
        ("reserved_blocks", json!(superblock.reserved_blocks())),
        ("reserved_for_uid", json!(superblock.reserved_uid())),
        ("reserved_for_gid", json!(superblock.reserved_gid())),
        ("first_block", json!(geometry.first_data_block().0)),
        ("overhead_clusters", json!(superblock.raw().s_overhead_clusters.get())),
        ("inodes", json!(geometry.inode_count())),
        ("free_inodes", json!(superblock.free_inodes())),
        ("first_inode", json!(geometry.first_ino().0)),
        ("inode_size", json!(geometry.inode_size())),
        ("inode_extra_size", json!(superblock.extra_isize())),
        ("block_groups", json!(geometry.group_count())),
        ("blocks_per_group", json!(geometry.blocks_per_group())),
        ("inodes_per_group", json!(geometry.inodes_per_group())),
        ("flex_bg_size", json!(geometry.flex_size())),
        ("descriptor_size", json!(geometry.desc_size())),
        ("reserved_gdt_blocks", json!(geometry.reserved_gdt_blocks())),
        ("raid_stride", json!(superblock.raid_stride())),
        ("raid_stripe_width", json!(superblock.raid_stripe_width())),
    ]
}

/// Returns facts about the journal, the orphans and the directory hash.
fn structures(superblock: &Superblock) -> Facts {
    let raw = superblock.raw();
    let journal = superblock.journal().map(|place| match place {
        JournalPlace::Inode(ino) => {
            let [.., high, low] = raw.s_jnl_blocks;
            let size = u64::from(high.get()) << 32 | u64::from(low.get());
            let known = raw.s_jnl_backup_type == JOURNAL_BACKUP_BLOCKS;
            json!({ "inode": ino.0, "bytes": known.then_some(size) })
        }
        JournalPlace::Device(uuid) => json!({ "uuid": uuid::Uuid::from_bytes(uuid).to_string() }),
    });
    let seed: Vec<u8> = superblock.hash_seed().iter().flat_map(|word| word.to_le_bytes()).collect();
    let seed = uuid::Uuid::from_slice(&seed).map(|seed| seed.to_string()).ok();
    let hash = match superblock.hash_version() {
        0 => "legacy",
        1 => "half_md4",
        2 => "tea",
        6 => "siphash",
        _ => "unknown",
    };
    vec![
        ("journal", json!(journal)),
        ("orphan_file_inode", json!(superblock.orphan_file().map(|ino| ino.0))),
        ("first_orphan_inode", json!(superblock.last_orphan().map(|ino| ino.0))),
        ("directory_hash", json!(hash)),
        ("directory_hash_seed", json!(seed)),
    ]
}

/// Returns the times, the mount counts and the mount settings.
fn history(superblock: &Superblock) -> Facts {
    let raw = superblock.raw();
    vec![
        ("created", json!(time(raw.s_mkfs_time.get(), raw.s_mkfs_time_hi))),
        ("last_mounted", json!(time(raw.s_mtime.get(), raw.s_mtime_hi))),
        ("last_written", json!(time(raw.s_wtime.get(), raw.s_wtime_hi))),
        ("last_checked", json!(time(raw.s_lastcheck.get(), raw.s_lastcheck_hi))),
        ("mount_count", json!(superblock.mount_count())),
        ("max_mount_count", json!(Some(raw.s_max_mnt_count.get()).filter(|n| *n != u16::MAX))),
        ("check_interval", json!(raw.s_checkinterval.get())),
        ("default_mount_options", json!(option_names(superblock.default_mount_options()))),
        ("mount_options", json!(text(&raw.s_mount_opts))),
        ("lifetime_writes_kib", json!(superblock.kbytes_written())),
    ]
}

/// Returns the names that tune2fs -o uses for the options.
fn option_names(options: DefaultMountOptions) -> Vec<&'static str> {
    let set = DEFAULT_OPTIONS.iter().filter(|(_, bits, mask)| options & *mask == *bits);
    set.map(|(name, ..)| *name).collect()
}

fn of_groups(device: &dyn Device, superblock: &Superblock, image: &Path) -> Result<Value, Failure> {
    let geometry = superblock.geometry();
    let mut groups = Vec::new();
    let mut loaded = (u32::MAX, vec![0; geometry.block_size().bytes()]);
    for number in 0..geometry.group_count() {
        let group = Group(number);
        let outside = || Failure::new(image.display(), format_args!("{group} has no descriptor"));
        let (index, range) = geometry.desc_place(group).ok_or_else(outside)?;
        if loaded.0 != index {
            let block = geometry.desc_block(index).ok_or_else(outside)?;
            let offset = block.0 << geometry.block_size().bits();
            device.read_at(offset, &mut loaded.1).map_err(Failure::about(image))?;
            loaded.0 = index;
        }
        let bytes = loaded.1.get(range).ok_or_else(outside)?;
        // Until the log is replayed, descriptors and superblock may be of different moments.
        let desc = match superblock.features().incompat.contains(Incompat::RECOVER) {
            true => GroupDesc::decode_unchecked(bytes, &geometry).map_err(Failure::about(image)),
            false => GroupDesc::decode(bytes, group, &geometry, superblock.checksums())
                .map_err(Failure::about(image)),
        }?;
        let flags = [
            (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
            (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
            (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
        ];
        let set = flags.iter().filter(|(flag, _)| desc.flags.contains(*flag));
        groups.push(json!({
            "group": number,
            "first_block": geometry.group_first_block(group).map(|block| block.0),
            "last_block": geometry.group_last_block(group).map(|block| block.0),
            "has_superblock": geometry.group_has_super(group),
            "block_bitmap": desc.block_bitmap.0,
            "inode_bitmap": desc.inode_bitmap.0,
            "inode_table": desc.inode_table.0,
            "free_blocks": desc.free_blocks,
            "free_inodes": desc.free_inodes,
            "directories": desc.used_dirs,
            "unused_inodes": desc.itable_unused,
            "flags": set.map(|(_, name)| *name).collect::<Vec<_>>(),
        }));
    }
    Ok(Value::Array(groups))
}

/// The line about a group. The names are those of its facts.
const GROUP: &str = "Group {group}: blocks {first_block}-{last_block}, {free_blocks} free; inodes \
    {free_inodes} free, {unused_inodes} unused; {directories} directories; bitmaps {block_bitmap} \
    {inode_bitmap}, table {inode_table} {flags}";

fn print(facts: &Value, arguments: &Arguments) -> io::Result<()> {
    let fields = facts.as_object().into_iter().flatten().filter(|(name, _)| *name != "groups");
    let lines = fields.filter_map(|(name, value)| {
        let shown = printable(&show(name, value, facts)?);
        Some(format!("{:22} {shown}", format!("{}:", title(name))))
    });
    let groups = facts["groups"].as_array().into_iter().flatten().map(|group| {
        filled(GROUP, |name| {
            let field = &group[name];
            plain_list(field, " ").unwrap_or_else(|| field.to_string())
        })
    });
    let output = OutputArguments { json: arguments.json, quiet: false };
    output.print(facts, lines.chain(groups))
}

/// Formats a name such as `free_blocks` as a heading.
fn title(name: &str) -> String {
    match name {
        "uuid" => return "UUID".into(),
        "lanefs_mounts" => return "Lanefs mounts it".into(),
        _ => {}
    }
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).map(|c| if c == '_' { ' ' } else { c }).collect()
}

fn plain_list(value: &Value, between: &str) -> Option<String> {
    let words = value.as_array()?.iter().filter_map(Value::as_str);
    Some(words.collect::<Vec<_>>().join(between))
}

/// Formats a value as text; `None` if the output has no line for it.
fn show(name: &str, value: &Value, facts: &Value) -> Option<String> {
    let number = |name: &str| facts.get(name).and_then(Value::as_u64).unwrap_or(0);
    match (name, value) {
        (_, Value::Null | Value::Bool(false)) => None,
        (_, Value::Bool(true)) => Some("yes".into()),
        (_, Value::Array(list)) if list.is_empty() => None,
        ("left_out_members", Value::Array(_)) => plain_list(value, "; "),
        (_, Value::Array(_)) => plain_list(value, " "),
        (_, Value::String(text)) if text.is_empty() => None,
        (_, Value::String(text)) => Some(text.clone()),
        ("journal", Value::Object(journal)) => {
            let part = |(name, value): (&String, &Value)| match (name.as_str(), value.as_u64()) {
                ("bytes", Some(bytes)) => Some(human(bytes)),
                (_, Some(number)) => Some(format!("{name} {number}")),
                (_, None) => value.as_str().map(|text| format!("{name} {text}")),
            };
            Some(journal.iter().filter_map(part).collect::<Vec<_>>().join(", "))
        }
        ("created" | "last_mounted" | "last_written" | "last_checked", value) => {
            let time = Time { secs: value.as_i64()?, nanos: 0 };
            Some(show_time(time, Shown::Seconds))
        }
        ("blocks" | "free_blocks" | "reserved_blocks", value) => {
            let blocks = value.as_u64()?;
            Some(format!("{blocks} ({})", human(blocks.saturating_mul(number("block_size")))))
        }
        (
            "error_count" | "check_interval" | "raid_stride" | "raid_stripe_width"
            | "overhead_clusters",
            value,
        ) if value.as_u64() == Some(0) => None,
        (_, value) => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_headings() {
        assert_eq!(title("free_blocks"), "Free blocks");
        assert_eq!(title("uuid"), "UUID");
    }

    #[test]
    fn empty_fields_are_not_shown() {
        let facts = json!({ "block_size": 1024 });
        assert_eq!(show("label", &json!(""), &facts), None);
        assert_eq!(show("error_count", &json!(0), &facts), None);
        assert_eq!(show("free_blocks", &json!(2048), &facts), Some("2048 (2.0M)".into()));
        let journal = json!({ "inode": 8, "bytes": 4_194_304 });
        assert_eq!(show("journal", &journal, &facts), Some("inode 8, 4.0M".into()));
    }
}
