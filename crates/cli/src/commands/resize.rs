//! The size of an image, and copies of whole images: `resize` and `clone`.

use crate::cli::{
    Failure, ImageArguments, JournalArguments, MadeFile, MountedImage, OutputArguments, Report,
    WholeImage, human, no_file_system, open_image, parse_size, refuse_partition_name,
};
use crate::commands::tune::parse_uuid;
use lanefs::device::{Access, Device, FileDevice, OpenOptions, file_of, is_uri};
use lanefs_device::PartitionGrowth;
use lanefs_offline::{
    Copied, FeatureChange, Image, Settings, copy_device, copy_file, has_journal_elsewhere,
};
use lanefs_ondisk::features::{Features, RoCompat};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

/// Changes the size of the file system in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An image file grows and shrinks with its file system. On a block device, an array or a partition
the file system can grow up to the end. While Lanefs has the image mounted, the file system can
grow, and programs can use it meanwhile. Otherwise the image must not be in use; after a crash it
is recovered first. If the command is interrupted, run it again.

mke2fs reserves room for the descriptors of a thousand times the size, or of 16 TiB. A growth beyond
that needs --meta-bg: descriptors then lie in the new groups, which not every boot loader reads.
Only root and the owner of the mount can enlarge a mounted file system, and only if it has a journal
so long that the changes of one group fit into a quarter of it; otherwise unmount it first.
With --grow-partition a partition grows before its file system (docs/disks.md): no other partition
may be in the way. An image file grows if there is too little room. A logical partition is refused.

File systems with sparse_super2 or bigalloc cannot be resized; those with meta_bg, ea_inode,
inline_data or stable_inodes cannot be made smaller.

Examples:
  lanefs resize disk.img 20G                   # to 20 GiB
  lanefs resize disk.img +5G                   # by 5 GiB
  lanefs resize disk.img auto                  # as small as it can be
  lanefs resize /dev/sdx1                      # to the whole device
  lanefs resize --meta-bg disk.img 1T          # beyond what mke2fs reserved
  lanefs resize mnt +5G                        # a mounted one
  lanefs resize --grow-partition disk.img@2 +10G   # the partition too, and the disk image
  lanefs resize --grow-partition disk.img@2        # over all the room behind the partition")]
pub struct Resize {
    /// The image, or the directory that it is mounted on
    image: PathBuf,
    /// New size in bytes (suffixes K, M, G, T), +SIZE, -SIZE, or auto for the smallest [default:
    /// the size of the file, device or partition]
    #[arg(allow_hyphen_values = true)]
    size: Option<Target>,
    /// Make the partition, and if needed the disk image, large enough first [default size: the room
    /// behind the partition]
    #[arg(long)]
    grow_partition: bool,
    /// Let the descriptors of new groups lie in these groups once no reserved block is left
    #[arg(long)]
    meta_bg: bool,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    journal: JournalArguments,
    #[command(flatten)]
    options: ImageArguments,
}

/// The requested size, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    To(u64),
    By(u64),
    Less(u64),
    Smallest,
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Target, String> {
        match (text, text.strip_prefix('+'), text.strip_prefix('-')) {
            ("auto", ..) => Ok(Target::Smallest),
            (_, Some(more), _) => parse_size(more).map(Target::By),
            (.., Some(less)) => parse_size(less).map(Target::Less),
            (text, ..) => parse_size(text).map(Target::To),
        }
    }
}

/// Runs `lanefs resize`.
pub fn resize(arguments: &Resize) -> ExitCode {
    Report::run("resize", |_| Ok(print_resized(arguments, &resize_image(arguments)?)?))
}

struct Resized {
    before: u64,
    after: u64,
}

fn resize_image(arguments: &Resize) -> Result<Resized, Failure> {
    if let Some(mounted) = MountedImage::of(&arguments.image, arguments.options) {
        if arguments.grow_partition || arguments.meta_bg {
            let why = "it is mounted: --grow-partition and --meta-bg work after lanefs umount";
            return Err(Failure::new(arguments.image.display(), why));
        }
        return grow_mounted(arguments, &mounted);
    }
    if arguments.grow_partition {
        grow_partition(arguments)?;
    }
    let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadWrite)?;
    let journal = arguments.journal.open(Access::ReadWrite)?;
    let opened = whole.file_system(journal.as_ref())?;
    let before = bytes_of(&opened);
    let wanted = match arguments.size {
        None => whole.device().len(),
        Some(Target::To(bytes)) => bytes,
        Some(Target::By(bytes)) => before.saturating_add(bytes),
        Some(Target::Less(bytes)) => before.saturating_sub(bytes),
        Some(Target::Smallest) => 0,
    };
    whole.refuse_beyond_partition(wanted)?;
    let is_whole_file = whole.is_whole_file();
    let length = whole.device().len();
    let lengthened = is_whole_file && wanted > length;
    let (whole, mut opened) = match lengthened {
        true => {
            drop(opened);
            set_len(arguments, wanted)?;
            whole.close()?;
            let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadWrite)?;
            let opened = whole.file_system(journal.as_ref())?;
            (whole, opened)
        }
        false => (whole, opened),
    };
    let block_size = opened.geometry().block_size();
    let blocks = wanted >> block_size.bits();
    let now = opened.geometry().block_count();
    let resized = match arguments.size {
        Some(Target::Smallest) => opened.shrink_to_smallest(),
        _ if blocks < now => opened.shrink(blocks),
        _ if arguments.meta_bg => opened.grow_by_meta_bg(blocks),
        _ => opened.grow(blocks),
    };
    if let Err(error) = resized {
        drop(opened);
        // A refused growth has changed nothing: the file becomes as long as it was.
        let unchanged = |image: Image| bytes_of(&image) == before;
        if lengthened && whole.file_system(journal.as_ref()).is_ok_and(unchanged) {
            set_len(arguments, length)?;
        }
        return Err(whole.failure(error));
    }
    let after = bytes_of(&opened);
    drop(opened);
    if is_whole_file && after < before {
        // The file is still locked while it is shortened. Only bytes after the end of the file
        // system are cut off.
        set_len(arguments, after)?;
    }
    whole.close()?;
    Ok(Resized { before, after })
}

/// Makes the partition as large as its file system is to become, unless it is that large. First
/// checks that the file system can become so large.
fn grow_partition(arguments: &Resize) -> Result<(), Failure> {
    let path = arguments.image.as_path();
    let refused = |why: &str| Failure::new(path.display(), why);
    let whole = WholeImage::open(path, arguments.options, Access::ReadWrite)?;
    let (number, start) = whole.partition().ok_or_else(|| refused("it is not in a partition"))?;
    let journal = arguments.journal.open(Access::ReadWrite)?;
    let opened = whole.file_system(journal.as_ref())?;
    let wanted = match arguments.size {
        None => None,
        Some(Target::To(bytes)) => Some(bytes),
        Some(Target::By(bytes)) => Some(bytes_of(&opened).saturating_add(bytes)),
        Some(Target::Less(_) | Target::Smallest) => {
            return Err(refused("--grow-partition makes larger, not smaller"));
        }
    };
    let end = wanted.map(|bytes| start.saturating_add(bytes));
    let plan = |disk: &FileDevice| {
        let planned = PartitionGrowth::plan(disk, disk.sector(), number, end);
        planned.map_err(Failure::about(path))
    };
    let disk = file_of(path);
    let size = plan(&FileDevice::peek(disk, OpenOptions::default())?)?.size();
    let blocks = wanted.unwrap_or(size) >> opened.geometry().block_size().bits();
    let now = opened.geometry().block_count();
    if wanted.is_some() && blocks < now {
        return Err(refused("--grow-partition makes larger, not smaller"));
    }
    if blocks > now {
        opened.check_growth(blocks, arguments.meta_bg).map_err(Failure::about(path))?;
    }
    drop(opened);
    whole.close()?;
    let disk = open_image(disk, Access::ReadWrite, OpenOptions::default())?;
    let planned = plan(&disk)?;
    if planned.start() != start {
        return Err(refused("its partition table has changed meanwhile"));
    }
    planned.apply(&disk).map_err(Failure::about(path))
}

/// Makes a mounted file system larger.
fn grow_mounted(arguments: &Resize, mounted: &MountedImage) -> Result<Resized, Failure> {
    let place = arguments.image.display();
    let (blocks, block_bytes) = mounted.size()?;
    let before = blocks * block_bytes;
    let wanted = match arguments.size {
        None => FileDevice::peek(&mounted.source, OpenOptions::default())?.len(),
        Some(Target::To(bytes)) => bytes,
        Some(Target::By(bytes)) => before.saturating_add(bytes),
        Some(Target::Less(_) | Target::Smallest) => 0,
    };
    if wanted / block_bytes < blocks {
        let what = "it is mounted: it can become larger now, and smaller after lanefs umount";
        return Err(Failure::new(place, what));
    }
    lanefs_fuse::grow_mounted(&mounted.mount_point, wanted / block_bytes).map_err(|error| {
        match error.kind() {
            std::io::ErrorKind::Unsupported => Failure::new(
                place,
                "it cannot become that large while it is mounted: the journal is too small or \
                 absent, or the device too short; resize it after lanefs umount",
            ),
            _ => Failure::host(place, &error),
        }
    })?;
    let (blocks, _) = mounted.size()?;
    Ok(Resized { before, after: blocks * block_bytes })
}

fn bytes_of(image: &Image) -> u64 {
    image.geometry().block_count() << image.geometry().block_size().bits()
}

/// Sets the length of the image file. A longer file gets a hole at its end. The caller must have
/// locked the file.
fn set_len(arguments: &Resize, bytes: u64) -> Result<(), Failure> {
    let file = File::options().write(true).open(&arguments.image);
    let changed = file.and_then(|file| {
        file.set_len(bytes)?;
        file.sync_all()
    });
    changed.map_err(Failure::on_host(&arguments.image))
}

fn print_resized(arguments: &Resize, done: &Resized) -> std::io::Result<()> {
    let image = arguments.image.display().to_string();
    let Resized { before, after } = *done;
    let facts = json!({ "image": image, "bytes_before": before, "bytes": after });
    let line = match before == after {
        true => format!("{image}: the file system has {} already", human(after)),
        false => format!("{image}: {}, before {}", human(after), human(before)),
    };
    arguments.output.print(&facts, [line])
}

/// Copies an image with its holes, shares blocks if the host can, and gives the copy a new UUID
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The source must not be in use, and is only read. If a crash left it with a log to replay, the log is
replayed in the copy. Until the copy is complete it has a temporary name, which begins with a dot;
an interrupted clone may leave that file. On btrfs, xfs and other file systems that share blocks, a
copy takes no time, and no space until one side is written.

If all checksums of the image depend on its UUID, the copy gets the feature metadata_csum_seed.

Examples:
  lanefs clone base.img vm1.img
  lanefs clone --label vm2 --used base.img vm2.img     # blocks in use only
  lanefs clone --uuid keep base.img backup.img")]
pub struct Clone {
    /// The image to copy
    source: PathBuf,
    /// The copy: a new file
    destination: PathBuf,
    /// UUID of the copy: random, keep, or a UUID
    #[arg(short = 'U', long, value_name = "UUID", default_value = "random")]
    uuid: String,
    /// Label of the copy, at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL")]
    label: Option<String>,
    /// Copy only the blocks in use; free blocks become holes
    #[arg(long)]
    used: bool,
    /// Overwrite the destination
    #[arg(short = 'F', long)]
    force: bool,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    options: ImageArguments,
}

/// Runs `lanefs clone`.
pub fn clone(arguments: &Clone) -> ExitCode {
    let uuid = match arguments.uuid.as_str() {
        "keep" => Ok(None),
        text => parse_uuid(text).map(Some),
    };
    let uuid = Report::new("clone").given(uuid.map_err(|why| format!("{why}, or keep")));
    let Some(uuid) = uuid else { return ExitCode::from(2) };
    Report::run("clone", |_| Ok(print_cloned(arguments, &clone_image(arguments, uuid)?)?))
}

struct Cloned {
    copied: Copied,
    uuid: [u8; 16],
}

fn clone_image(arguments: &Clone, uuid: Option<[u8; 16]>) -> Result<Cloned, Failure> {
    let (from, to) = (arguments.source.as_path(), arguments.destination.as_path());
    if is_uri(file_of(to)) {
        let why = "a clone is a new image file: qemu-img or nbdcopy fill an export";
        return Err(Failure::new(to.display(), why));
    }
    if to.exists() && !arguments.force {
        return Err(Failure::new(to.display(), "file exists (--force overwrites it)"));
    }
    if to.exists() && !to.is_file() {
        return Err(Failure::new(to.display(), "not a file: a clone is a new image file"));
    }
    if to.is_file() {
        // Opening fails if another program has locked the file that is to be overwritten. Without
        // this check, that program would continue to use a file that no longer has a name.
        FileDevice::open(to, Access::ReadWrite, OpenOptions::default())?;
    }
    refuse_partition_name(to)?;
    let whole = WholeImage::open(from, arguments.options, Access::ReadOnly)?;
    let part_of = unfinished_name(to);
    let unfinished = MadeFile::create(&part_of, 0).map_err(Failure::on_host(to))?;
    let file = File::options().read(true).write(true).open(&part_of);
    let file = file.map_err(Failure::on_host(to))?;
    let copied = copy(arguments, &whole, &file)?;
    drop(file);
    let uuid = settle(arguments, &part_of, uuid)?;
    std::fs::rename(&part_of, to).map_err(Failure::on_host(to))?;
    unfinished.keep();
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))
        .and_then(|folder| folder.sync_all())
        .map_err(Failure::on_host(to))?;
    Ok(Cloned { copied, uuid })
}

fn unfinished_name(to: &Path) -> PathBuf {
    let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
    to.with_file_name(format!(".{name}.lanefs-{}", std::process::id()))
}

fn copy(arguments: &Clone, whole: &WholeImage<'_>, to: &File) -> Result<Copied, Failure> {
    let from = arguments.source.as_path();
    let device = whole.device();
    if let Some(why) = no_file_system(&*device) {
        return Err(Failure::new(from.display(), why));
    }
    if has_journal_elsewhere(&*device) {
        let why = "its journal is on another device, which can serve only one file system";
        return Err(Failure::new(from.display(), why));
    }
    if whole.is_whole_file() && !arguments.used {
        let file = File::open(from).map_err(Failure::on_host(from))?;
        return copy_file(&file, to).map_err(Failure::on_host(&arguments.destination));
    }
    copy_device(&device, to, arguments.used).map_err(Failure::about(from))
}

/// Recovers the copy, gives it a UUID and a label, and returns the UUID.
fn settle(arguments: &Clone, copy: &Path, uuid: Option<[u8; 16]>) -> Result<[u8; 16], Failure> {
    let failed = Failure::about(&arguments.destination);
    let device = FileDevice::open(copy, Access::ReadWrite, OpenOptions::default())?;
    let mut image = Image::open(Arc::new(device)).map_err(&failed)?;
    let features = image.superblock().features();
    let mut settings = Settings { uuid, ..Settings::default() };
    settings.label = arguments.label.as_ref().map(|label| label.as_bytes().to_vec());
    if uuid.is_some() && features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        let seed = Features::by_name("metadata_csum_seed").unwrap_or_default();
        settings.features = FeatureChange { set: seed, ..FeatureChange::default() };
    }
    image.tune(&settings).map_err(failed)?;
    Ok(image.superblock().uuid())
}

fn print_cloned(arguments: &Clone, done: &Cloned) -> std::io::Result<()> {
    let uuid = uuid::Uuid::from_bytes(done.uuid).to_string();
    let (how, bytes) = match done.copied {
        Copied::Shared => ("shared", 0),
        Copied::Data { bytes } => ("data", bytes),
        Copied::Used { bytes } => ("used", bytes),
    };
    let to = arguments.destination.display().to_string();
    let facts = json!({ "image": to, "uuid": uuid, "copied": how, "bytes": bytes });
    let line = match done.copied {
        Copied::Shared => format!("{to}: shares its blocks with the source; UUID {uuid}"),
        _ => format!("{to}: {} copied; UUID {uuid}", human(bytes)),
    };
    arguments.output.print(&facts, [line])
}
