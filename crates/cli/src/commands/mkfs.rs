//! `lanefs mkfs`

mod from;

use crate::cli::{Failure, Report, Size, complain, human, open_image, open_source};
use lanefs::Source;
use lanefs_build::Spare;
use lanefs_device::{Access, Device, FileDevice, OpenOptions};
use lanefs_ext4::mkfs::{
    InodeCount, InodeTables, JournalSize, MkfsOptions, Report as Made, existing_signature, mkfs,
};
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::features::Compat;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes an ext4 file system in an image file or on a block device
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs mkfs disk.img --size 8G
  lanefs mkfs disk.img --size 64M --label data --block-size 4K --reserved 0
  lanefs mkfs disk.img --size 64M --root-owner 1000:1000      user 1000 can mount it and write to it
  lanefs mkfs disk.img --size 512M -d rootfs --owner 0:0      filled with the tree rootfs
  docker save alpine | lanefs mkfs disk.img --size auto+1G --from docker:-
  lanefs mkfs root.img --size auto --from base.tar.gz overlay/ extra.tar --reproducible
  lanefs mkfs md:a.img,b.img,c.img         on a RAID-5 array, aligned to its rows
  SOURCE_DATE_EPOCH=0 lanefs mkfs disk.img --size 1G \\
      --uuid 6a2f0c54-8a3e-4a3c-9b6e-0d7f2f4d5c11 --hash-seed 0f0e0d0c-0b0a-4908-8706-050403020100

The layout is the default of `mke2fs -t ext4` 1.47. With SOURCE_DATE_EPOCH, --uuid
and --hash-seed given, the same command makes the same bytes.")]
pub struct Arguments {
    /// Image file (made if it does not exist), block device, or array (md:...)
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Size of the file system (suffixes K, M, G, T) [default: the size of the existing file or device];
    /// auto with --from: as small as the files allow, and auto+SIZE or auto+N% for free space
    #[arg(short, long)]
    size: Option<Wanted>,
    /// The same as --size; mke2fs takes it here, too
    #[arg(value_name = "SIZE", conflicts_with = "size")]
    size_operand: Option<Wanted>,
    /// Start of the file system in the image, in bytes (suffixes K, M, G, T)
    #[arg(long, default_value = "0")]
    offset: Size,
    /// Block size: 1K, 2K or 4K [default: 1K for sizes under 512M, else 4K]
    #[arg(short, long)]
    block_size: Option<Size>,
    /// Number of inodes
    #[arg(short = 'N', long, conflicts_with = "bytes_per_inode")]
    inodes: Option<u32>,
    /// Number of bytes of space per inode
    #[arg(short = 'i', long)]
    bytes_per_inode: Option<Size>,
    /// Size of an inode in bytes: 128, 256, ...
    #[arg(short = 'I', long, default_value_t = 256)]
    inode_size: u16,
    /// Name of the file system, at most 16 bytes
    #[arg(short = 'L', long, default_value = "")]
    label: String,
    /// UUID of the file system [default: random]
    #[arg(short = 'U', long)]
    uuid: Option<uuid::Uuid>,
    /// Seed of the directory hashes, in the form of a UUID [default: random]
    #[arg(long)]
    hash_seed: Option<uuid::Uuid>,
    /// Size of the journal (suffixes K, M, G) [default: by the size of the file system]
    #[arg(short = 'J', long, value_name = "SIZE")]
    journal_size: Option<Size>,
    /// Make no journal: a crash can then damage the file system
    #[arg(long, conflicts_with = "journal_size")]
    no_journal: bool,
    /// Percentage of the blocks that is reserved for root [default: 5; with --size auto 0]
    #[arg(short = 'm', long)]
    reserved: Option<f64>,
    /// Leave out the features that Debian 12's mke2fs does not use: orphan_file, metadata_csum_seed
    #[arg(long)]
    debian: bool,
    /// Leave out orphan_file, for kernels before 5.15
    #[arg(long)]
    no_orphan_file: bool,
    /// Zero the inode tables now, not lazily after the first mount
    #[arg(long)]
    zero_inode_tables: bool,
    /// Chunk size of the RAID array below, in blocks
    #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
    stride: u16,
    /// Data blocks in a full stripe of the RAID array below
    #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
    stripe_width: u32,
    /// Owner and group of the root directory: yours, for a mount of your own [default: 0:0]
    #[arg(long, value_name = "UID:GID", value_parser = super::parse_ids)]
    root_owner: Option<(u32, u32)>,
    /// Overwrite an image or device that seems to hold data
    #[arg(short = 'F', long)]
    force: bool,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    /// Print what was made with --from as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fill: from::From,
}

/// The size of a file system.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Bytes(Size),
    /// As small as the files allow, with this space left.
    Auto(Spare),
}

impl std::str::FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        let Some(rest) = text.strip_prefix("auto") else { return text.parse().map(Wanted::Bytes) };
        let wrong = || format!("'{text}' is not a size (examples: 2G, auto, auto+512M, auto+10%)");
        let mut spare = Spare::default();
        match (rest.strip_prefix('+'), rest) {
            (_, "") => {}
            (Some(more), _) => match more.strip_suffix('%') {
                Some(percent) => spare.percent = percent.parse().map_err(|_| wrong())?,
                None => spare.bytes = more.parse::<Size>().map_err(|_| wrong())?.bytes(),
            },
            (None, _) => return Err(wrong()),
        }
        match spare.percent <= 1000 {
            true => Ok(Wanted::Auto(spare)),
            false => Err(wrong()),
        }
    }
}

impl Arguments {
    fn wanted(&self) -> Option<Wanted> {
        self.size.or(self.size_operand)
    }

    fn size(&self) -> Option<Size> {
        match self.wanted() {
            Some(Wanted::Bytes(size)) => Some(size),
            _ => None,
        }
    }

    fn block_size(&self) -> Result<Option<BlockSize>, Failure> {
        let Some(size) = self.block_size else { return Ok(None) };
        let bytes = u32::try_from(size.bytes()).ok().and_then(BlockSize::new);
        let wrong = || Failure::new(self.image.display(), "block size out of range");
        bytes.map(Some).ok_or_else(wrong)
    }
}

/// Runs `lanefs mkfs`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("mkfs");
    if arguments.fill.is_given() {
        report.check(from::run(arguments, &report));
        return report.exit();
    }
    if let Some(Wanted::Auto(_)) = arguments.wanted() {
        let why = "--size auto follows from the files: give them by --from";
        report.fail(Failure::new(arguments.image.display(), why));
        return report.exit();
    }
    let is_new = !arguments.image.exists() && Source::array_name(&arguments.image).is_none();
    match make(arguments) {
        Ok(made) => {
            if !arguments.quiet {
                report.printed(tell(&arguments.image, &made));
                tell_of_owner(arguments);
            }
        }
        Err(failure) => {
            if is_new {
                // An incomplete file system is useless; the message has the name of the file.
                let _ = std::fs::remove_file(&arguments.image);
            }
            report.fail(failure);
        }
    }
    report.exit()
}

fn make(arguments: &Arguments) -> Result<Made, Failure> {
    let path = &arguments.image;
    let failed = |cause: &dyn std::fmt::Display| Failure::new(path.display(), cause);
    let mut options = options(arguments).map_err(|cause| failed(&cause))?;
    if Source::array_name(path).is_some() {
        let source = open_source(path, Access::ReadWrite, whole_of(arguments))?;
        for note in source.notes() {
            complain(format_args!("lanefs: {}: {note}", path.display()));
        }
        fit_to_rows(&mut options, &source);
        let device = source.device();
        refuse_overwriting(arguments, &*device)?;
        return mkfs(&*device, &options).map_err(|error| failed(&error));
    }
    if !path.exists() {
        let size = arguments.size().ok_or_else(|| failed(&"does not exist: give a --size"))?;
        let file = File::create_new(path).map_err(|error| Failure::host(path.display(), &error))?;
        file.set_len(arguments.offset.bytes().saturating_add(size.bytes()))
            .map_err(|error| Failure::host(path.display(), &error))?;
    }
    let whole = open(arguments, None)?;
    let (len, size) = (whole.len(), arguments.size().map(Size::bytes));
    drop(whole);
    if let Some(size) = size
        && len < size
    {
        grow(path, arguments.offset.bytes().saturating_add(size))?;
    }
    // Bytes beyond the size may belong to another partition.
    let device = open(arguments, size)?;
    refuse_overwriting(arguments, &device)?;
    mkfs(&device, &options).map_err(|error| failed(&error))
}

fn refuse_overwriting(arguments: &Arguments, device: &dyn Device) -> Result<(), Failure> {
    if arguments.force {
        return Ok(());
    }
    let failed = |cause: &dyn std::fmt::Display| Failure::new(arguments.image.display(), cause);
    match existing_signature(device).map_err(|error| failed(&error))? {
        None => Ok(()),
        Some(what) => Err(failed(&format_args!("it seems to hold {what}; --force overwrites it"))),
    }
}

fn whole_of(arguments: &Arguments) -> OpenOptions {
    OpenOptions { offset: arguments.offset.bytes(), len: None }
}

/// Takes stride and stripe width from the array below, unless they are given.
fn fit_to_rows(options: &mut MkfsOptions, source: &Source) {
    let Some(array) = source.array() else { return };
    let size = options.size.unwrap_or(array.len());
    let block = options.block_size.map_or(default_block(size), |size| size.bytes() as u64);
    let shape = array.array().geometry();
    if options.stride == 0 {
        options.stride = u16::try_from(shape.chunk() / block).unwrap_or(0);
    }
    if options.stripe_width == 0 {
        options.stripe_width = u32::try_from(shape.row_len() / block).unwrap_or(0);
    }
}

/// Returns the default block size, in bytes, of a file system of `size` bytes.
fn default_block(size: u64) -> u64 {
    if size >= 512 << 20 { 4096 } else { 1024 }
}

fn open(arguments: &Arguments, len: Option<u64>) -> Result<FileDevice, Failure> {
    let part = OpenOptions { len, ..whole_of(arguments) };
    open_image(&arguments.image, Access::ReadWrite, part)
        .map_err(|error| Failure::opening(&arguments.image, &error))
}

/// Extends an image file.
fn grow(path: &Path, len: u64) -> Result<(), Failure> {
    let file = File::options().write(true).open(path);
    file.and_then(|file| file.set_len(len)).map_err(|error| Failure::host(path.display(), &error))
}

fn options(arguments: &Arguments) -> Result<MkfsOptions, String> {
    let block_size = arguments.block_size().map_err(|_| "block size out of range")?;
    let inodes = match (arguments.inodes, arguments.bytes_per_inode) {
        (Some(count), _) => InodeCount::Count(count),
        (None, Some(bytes)) => {
            let bytes = bytes.bytes().try_into().map_err(|_| "bytes per inode out of range")?;
            InodeCount::PerBytes(bytes)
        }
        (None, None) => InodeCount::BySize,
    };
    let journal = match arguments.journal_size {
        _ if arguments.no_journal => JournalSize::None,
        None => JournalSize::BySize,
        Some(size) => {
            let default = match arguments.wanted() {
                Some(Wanted::Auto(_)) => 4096,
                _ => default_block(arguments.size().map_or(0, Size::bytes)),
            };
            let block = block_size.map_or(default, |size| size.bytes() as u64);
            JournalSize::Blocks((size.bytes() / block).try_into().map_err(|_| "journal too large")?)
        }
    };
    let is_fitted = matches!(arguments.wanted(), Some(Wanted::Auto(_)));
    let default_reserve = if is_fitted { 0.0 } else { 5.0 };
    let mut without = match arguments.debian {
        true => MkfsOptions::debian_12(),
        false => Default::default(),
    };
    if arguments.no_orphan_file {
        without.compat |= Compat::ORPHAN_FILE;
    }
    Ok(MkfsOptions {
        size: arguments.size().map(Size::bytes),
        block_size,
        inodes,
        inode_size: arguments.inode_size,
        label: arguments.label.clone().into_bytes(),
        uuid: arguments.uuid.map(uuid::Uuid::into_bytes),
        hash_seed: arguments.hash_seed.map(uuid::Uuid::into_bytes),
        journal,
        reserved_percent: arguments.reserved.unwrap_or(default_reserve),
        time: source_date_epoch()?,
        without,
        inode_tables: match arguments.zero_inode_tables {
            true => InodeTables::Zeroed,
            false => InodeTables::Lazy,
        },
        stride: arguments.stride,
        stripe_width: arguments.stripe_width,
        root_owner: arguments.fill.owner.or(arguments.root_owner).unwrap_or((0, 0)),
        ..MkfsOptions::default()
    })
}

/// Returns the time in `SOURCE_DATE_EPOCH`, in seconds since 1970, for reproducible builds.
fn source_date_epoch() -> Result<Option<u64>, String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Err(_) => Ok(None),
        Ok(text) => {
            let wrong = format!("SOURCE_DATE_EPOCH is '{text}', not seconds since 1970");
            text.parse().map(Some).map_err(|_| wrong)
        }
    }
}

fn tell(image: &Path, made: &Made) -> std::io::Result<()> {
    use std::io::Write;
    writeln!(
        std::io::stdout(),
        "{}: {} in {} blocks of {} bytes, {} groups, {} inodes, journal of {} blocks, UUID {}",
        image.display(),
        human(made.blocks * u64::from(made.block_size)),
        made.blocks,
        made.block_size,
        made.groups,
        made.inodes,
        made.journal_blocks,
        uuid::Uuid::from_bytes(made.uuid),
    )
}

/// Tells a user who is not root that the root directory belongs to root.
fn tell_of_owner(arguments: &Arguments) {
    use rustix::process::{getegid, geteuid};
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    if uid != 0 && arguments.root_owner.is_none() {
        complain(format_args!(
            "{}: its root directory belongs to 0:0; for a mount of your own make it with \
             --root-owner {uid}:{gid}, or mount it with -o fakeroot",
            arguments.image.display()
        ));
    }
}
