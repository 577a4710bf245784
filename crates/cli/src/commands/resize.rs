//! The size of an image, and copies of whole images: `resize` and `clone`.

use crate::cli::{
    Failure, ImageArguments, JournalArguments, MountedImage, OutputArguments, OutputFile, Report,
    WholeImage, has_magic, human, no_file_system, open_image, parse_size, read_keys,
    refuse_partition_name,
};
use crate::commands::edit::{
    Line, Outputs, finish_outputs, read_script, refuse_outputs, run_lines,
};
use crate::commands::tune::parse_uuid;
use lanefs::device::{Access, Device, FileDevice, OpenOptions, file_of, is_uri};
use lanefs_build::{is_packed, unpacked};
use lanefs_device::{DeviceError, PartitionGrowth, WriteKind, forward};
use lanefs_offline::{
    FeatureChange, Image, Settings, copy_used, has_journal_elsewhere, share_file, write_data,
};
use lanefs_ondisk::features::{Features, RoCompat};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
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

impl Target {
    /// Returns the requested size of a file system of `before` bytes.
    fn bytes(self, before: u64) -> u64 {
        match self {
            Target::To(bytes) => bytes,
            Target::By(bytes) => before.saturating_add(bytes),
            Target::Less(bytes) => before.saturating_sub(bytes),
            Target::Smallest => 0,
        }
    }
}

/// Changes the size of the file system to what `target` asks for: `wanted` bytes.
fn change_size(
    image: &mut Image,
    target: Option<Target>,
    wanted: u64,
    meta_bg: bool,
) -> Result<u64, lanefs_offline::Error> {
    let blocks = wanted >> image.geometry().block_size().bits();
    match target {
        Some(Target::Smallest) => image.shrink_to_smallest(),
        _ if blocks < image.geometry().block_count() => image.shrink(blocks),
        _ if meta_bg => image.grow_by_meta_bg(blocks),
        _ => image.grow(blocks),
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
    let wanted = arguments.size.map_or(whole.device().len(), |size| size.bytes(before));
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
    if let Err(error) = change_size(&mut opened, arguments.size, wanted, arguments.meta_bg) {
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

/// Copies an image, changes the copy's size and files, and gives it a new UUID
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The source must not be in use, and is only read. If a crash left it with a log to replay, the log is
replayed in the copy. On btrfs, xfs and other file systems that share blocks, a copy takes no time,
and no space until one side is written. Elsewhere only the blocks in use are copied, and the others
become holes. A source that is compressed by gzip, zstd or xz is unpacked, also from a pipe.

The copy appears when it is complete, and on disk: with its size, its UUID and the changes of the
script, all or nothing. Until then it has no name, or on a host that has no such files a temporary
one (.lanefs-...), which an interrupted clone leaves. An earlier file stays until then, too.

The UUID is new unless --keep-uuid is given. If all checksums of the image depend on it, the copy
gets the feature metadata_csum_seed. The hash seed of the directories stays: a new one would need
each directory's index to be sorted again.

Examples:
  lanefs clone base.img vm1.img
  lanefs clone base.img vm1.img --size 20G -c 'write /etc/hostname \"vm1\\n\"'
  lanefs clone base.img vm2.img --size +5G --edit script     # a script of lanefs edit
  lanefs clone base.img.zst vm3.img
  curl -s https://example.org/base.img.xz | lanefs clone - vm4.img
  lanefs clone --keep-uuid base.img backup.img")]
pub struct Clone {
    /// The image to copy, which may be compressed; - is standard input
    source: PathBuf,
    /// The copy: a new file
    destination: PathBuf,
    /// Size of the copy's file system and file in bytes (suffixes K, M, G, T), +SIZE, -SIZE, or
    /// auto for the smallest [default: as the source]
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Option<Target>,
    /// Script of `lanefs edit` with changes of the copy; - is standard input
    #[arg(short, long, value_name = "SCRIPT")]
    edit: Option<PathBuf>,
    /// A command of the script, in place of a file
    #[arg(short, long, value_name = "COMMAND", conflicts_with = "edit")]
    command: Vec<String>,
    /// File with a master key of encrypted directories, for the script; may be given more than once
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// UUID of the copy: random, keep, or a UUID
    #[arg(short = 'U', long, value_name = "UUID", default_value = "random")]
    uuid: String,
    /// Keep the UUID; the same as --uuid keep
    #[arg(long, conflicts_with = "uuid")]
    keep_uuid: bool,
    /// Label of the copy, at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL")]
    label: Option<String>,
    /// Copy only the blocks in use, even where the host could share blocks
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
        _ if arguments.keep_uuid => Ok(None),
        text => parse_uuid(text).map(Some),
    };
    let uuid = Report::new("clone").given(uuid.map_err(|why| format!("{why}, or keep")));
    let Some(uuid) = uuid else { return ExitCode::from(2) };
    Report::run("clone", |_| Ok(print_cloned(arguments, &clone_image(arguments, uuid)?)?))
}

/// How an image was copied.
enum Copied {
    /// The host's file system shares the blocks until one side writes.
    Shared,
    /// So many bytes, of the blocks in use, were copied.
    Used(u64),
    /// So many bytes were unpacked.
    Unpacked(u64),
}

struct Cloned {
    copied: Copied,
    uuid: [u8; 16],
    bytes: u64,
}

fn clone_image(arguments: &Clone, uuid: Option<[u8; 16]>) -> Result<Cloned, Failure> {
    let (from, to) = (arguments.source.as_path(), arguments.destination.as_path());
    let refused = |why: &str| Err(Failure::new(to.display(), why));
    if is_uri(file_of(to)) {
        return refused("a clone is a new image file: qemu-img or nbdcopy fill an export");
    }
    if to.exists() && !arguments.force {
        return refused("file exists (--force overwrites it)");
    }
    if to.exists() && !to.is_file() {
        return refused("not a file: a clone is a new image file");
    }
    if from == Path::new("-") && arguments.edit.as_deref() == Some(from) {
        return refused("standard input cannot be both the image and the script");
    }
    if to.is_file() {
        // Opening fails if another program has locked the file that is to be overwritten. Without
        // this check, that program would continue to use a file that no longer has a name.
        FileDevice::open(to, Access::ReadWrite, OpenOptions::default())?;
    }
    refuse_partition_name(to)?;
    let lines = match (&arguments.edit, arguments.command.is_empty()) {
        (None, true) => Vec::new(),
        (script, _) => read_script(script.as_deref(), &arguments.command)?,
    };
    let copy = OutputFile::whole(to, arguments.force).map_err(Failure::on_host(to))?;
    let copied = fill(arguments, &copy.file, &lines)?;
    let place = copy.now().into_owned();
    let settled = settle(arguments, &place, &copy.file, (uuid, &lines));
    let (uuid, outputs) =
        settled.map_err(|failure| failure.renamed(&place.to_string_lossy(), to.display()))?;
    let bytes = copy.file.sync_all().and_then(|()| Ok(copy.file.metadata()?.len()));
    let bytes = bytes.map_err(Failure::on_host(to))?;
    copy.finish().map_err(Failure::on_host(to))?;
    // The file may be elsewhere, if a link led to it.
    let file = to.canonicalize().map_err(Failure::on_host(to))?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))
        .and_then(|folder| folder.sync_all())
        .map_err(Failure::on_host(to))?;
    finish_outputs(outputs)?;
    Ok(Cloned { copied, uuid, bytes })
}

/// Fills the new file `to` with the bytes of the source.
fn fill(arguments: &Clone, to: &File, lines: &[Line]) -> Result<Copied, Failure> {
    let from = arguments.source.as_path();
    if let Some(packed) = open_packed(from).map_err(Failure::on_host(from))? {
        if arguments.used || arguments.options.offset.bytes() > 0 {
            let why = "--used and --offset need an image that is not compressed and no pipe";
            return Err(Failure::new(from.display(), why));
        }
        refuse_outputs(lines, &[from.into(), arguments.destination.clone()])?;
        let failed = |error: lanefs_build::Error| Failure::new(error.place, error.cause);
        return unpack(packed, (from, &arguments.destination), to).map_err(failed);
    }
    let whole = WholeImage::open(from, arguments.options, Access::ReadOnly)?;
    refuse_outputs(lines, &[whole.files(), vec![arguments.destination.clone()]].concat())?;
    let device = whole.device();
    refuse_source(from, &*device)?;
    let file = match whole.is_whole_file() {
        true => Some(File::open(from).map_err(Failure::on_host(from))?),
        false => None,
    };
    if let Some(file) = &file
        && !arguments.used
        && share_file(file, to)
    {
        return Ok(Copied::Shared);
    }
    copy_used(&device, file.as_ref(), to).map(Copied::Used).map_err(Failure::about(from))
}

/// Opens the source if it is to be read as a stream: it is compressed, a pipe or standard input.
fn open_packed(from: &Path) -> std::io::Result<Option<Box<dyn Read + Send>>> {
    if from == Path::new("-") {
        return Ok(Some(Box::new(std::io::stdin())));
    }
    let Ok(found) = from.metadata() else { return Ok(None) };
    if !found.is_file() && !found.file_type().is_fifo() {
        return Ok(None);
    }
    let file = File::open(from)?;
    let is_stream = found.file_type().is_fifo() || is_packed(&file)?;
    Ok(is_stream.then(|| Box::new(file) as Box<dyn Read + Send>))
}

/// The number of bytes that are unpacked at once.
const PIECE: u64 = 1 << 20;

/// Unpacks a stream into the new file `file`. Zeros become holes. Ends early if the first bytes are
/// not those of an image: these suffice to tell what they are.
fn unpack(
    input: Box<dyn Read + Send>,
    (from, to): (&Path, &Path),
    file: &File,
) -> lanefs_build::Result<Copied> {
    let at = |place: &Path, error: std::io::Error| lanefs_build::Error {
        place: place.display().to_string(),
        cause: error.into(),
    };
    unpacked(input, |input| {
        let (mut piece, mut end) = (Vec::new(), 0);
        loop {
            piece.clear();
            input.take(PIECE).read_to_end(&mut piece).map_err(|error| at(from, error))?;
            write_data(file, end, &piece).map_err(|error| at(to, error))?;
            let is_image = end > 0 || has_magic(&piece);
            end += piece.len() as u64;
            if piece.is_empty() || !is_image {
                break;
            }
        }
        file.set_len(end).map_err(|error| at(to, error))?;
        Ok(Copied::Unpacked(end))
    })
}

fn refuse_source(from: &Path, device: &dyn Device) -> Result<(), Failure> {
    let elsewhere = "its journal is on another device, which can serve only one file system";
    let why = no_file_system(device)
        .or_else(|| has_journal_elsewhere(device).then(|| elsewhere.to_owned()));
    why.map_or(Ok(()), |why| Err(Failure::new(from.display(), why)))
}

/// A copy that no other program sees yet. Nothing in it is durable until the whole file is.
struct Unseen(Arc<FileDevice>);

impl Device for Unseen {
    forward!(0: len, alignment, is_read_only, read, write_zeros, discard);
    fn lengthen(&self, len: u64) -> Result<(), DeviceError> {
        self.0.lengthen(len)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let kind = match kind {
            WriteKind::Durable | WriteKind::DurableLog => WriteKind::Cached,
            kind => kind,
        };
        self.0.write(offset, bufs, kind)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Recovers the copy, which `place` opens, gives it a UUID, a label and a size, and runs the script
/// in it. Returns the UUID and the files that the script writes.
fn settle(
    arguments: &Clone,
    place: &Path,
    file: &File,
    (uuid, lines): (Option<[u8; 16]>, &[Line]),
) -> Result<([u8; 16], Outputs), Failure> {
    let to = arguments.destination.as_path();
    let failed = Failure::about(to);
    let keys = read_keys(&arguments.keys)?;
    let opened = FileDevice::open(place, Access::ReadWrite, OpenOptions::default())?;
    let device: Arc<dyn Device> = Arc::new(Unseen(Arc::new(opened)));
    refuse_source(&arguments.source, &*device)?;
    let mut image = Image::open(device.clone()).map_err(&failed)?;
    let (before, len) = (bytes_of(&image), device.len());
    if before > len {
        let why = format!("incomplete: {len} bytes of a file system of {before} bytes");
        return Err(Failure::new(arguments.source.display(), &why));
    }
    let features = image.superblock().features();
    let mut settings = Settings { uuid, ..Settings::default() };
    settings.label = arguments.label.as_ref().map(|label| label.as_bytes().to_vec());
    if uuid.is_some() && features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        let seed = Features::by_name("metadata_csum_seed").unwrap_or_default();
        settings.features = FeatureChange { set: seed, ..FeatureChange::default() };
    }
    image.tune(&settings).map_err(failed)?;
    if let Some(target) = arguments.size {
        let wanted = target.bytes(before);
        if wanted > device.len() {
            device.lengthen(wanted).map_err(Failure::about(to))?;
        }
        change_size(&mut image, Some(target), wanted, false).map_err(Failure::about(to))?;
    }
    let (uuid, after) = (image.superblock().uuid(), bytes_of(&image));
    drop(image);
    let outputs = match lines {
        [] => Outputs::default(),
        lines => run_lines(lines, device.clone(), &keys, to)?,
    };
    if after < before {
        file.set_len(after).map_err(Failure::on_host(to))?;
    }
    Ok((uuid, outputs))
}

fn print_cloned(arguments: &Clone, done: &Cloned) -> std::io::Result<()> {
    let uuid = uuid::Uuid::from_bytes(done.uuid).to_string();
    let (how, bytes) = match done.copied {
        Copied::Shared => ("shared", 0),
        Copied::Used(bytes) => ("used", bytes),
        Copied::Unpacked(bytes) => ("unpacked", bytes),
    };
    let to = arguments.destination.display().to_string();
    let facts = json!({
        "image": to,
        "uuid": uuid,
        "copied": how,
        "bytes": bytes,
        "image_bytes": done.bytes,
    });
    let line = match done.copied {
        Copied::Shared => format!("{to}: shares its blocks with the source; UUID {uuid}"),
        Copied::Used(_) => format!("{to}: {} copied; UUID {uuid}", human(bytes)),
        Copied::Unpacked(_) => format!("{to}: {} unpacked; UUID {uuid}", human(bytes)),
    };
    arguments.output.print(&facts, [line])
}
