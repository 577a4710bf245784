//! The arguments of `lanefs mkfs`.

use super::fill::From;
use crate::cli::{Failure, Size, parse_ids};
use lanefs_build::Spare;
use lanefs_ext4::mkfs::{InodeCount, InodeTables, JournalSize, MkfsOptions};
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::features::Compat;
use std::path::PathBuf;

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
    pub(super) image: PathBuf,
    /// Size of the file system (suffixes K, M, G, T) [default: the size of the existing file or device];
    /// auto with --from: as small as the files allow, and auto+SIZE or auto+N% for free space
    #[arg(short, long)]
    pub(super) size: Option<Wanted>,
    /// The same as --size; mke2fs takes it here, too
    #[arg(value_name = "SIZE", conflicts_with = "size")]
    pub(super) size_operand: Option<Wanted>,
    /// Start of the file system in the image, in bytes (suffixes K, M, G, T)
    #[arg(long, default_value = "0")]
    pub(super) offset: Size,
    /// Block size: 1K, 2K or 4K [default: 1K for sizes under 512M, else 4K]
    #[arg(short, long)]
    pub(super) block_size: Option<Size>,
    /// Number of inodes
    #[arg(short = 'N', long, conflicts_with = "bytes_per_inode")]
    pub(super) inodes: Option<u32>,
    /// Number of bytes of space per inode
    #[arg(short = 'i', long)]
    pub(super) bytes_per_inode: Option<Size>,
    /// Size of an inode in bytes: 128, 256, ...
    #[arg(short = 'I', long, default_value_t = 256)]
    pub(super) inode_size: u16,
    /// Name of the file system, at most 16 bytes
    #[arg(short = 'L', long, default_value = "")]
    pub(super) label: String,
    /// UUID of the file system [default: random]
    #[arg(short = 'U', long)]
    pub(super) uuid: Option<uuid::Uuid>,
    /// Seed of the directory hashes, in the form of a UUID [default: random]
    #[arg(long)]
    pub(super) hash_seed: Option<uuid::Uuid>,
    /// Size of the journal (suffixes K, M, G) [default: by the size of the file system]
    #[arg(short = 'J', long, value_name = "SIZE")]
    pub(super) journal_size: Option<Size>,
    /// Make no journal: a crash can then damage the file system
    #[arg(long, conflicts_with = "journal_size")]
    pub(super) no_journal: bool,
    /// Percentage of the blocks that is reserved for root [default: 5; with --size auto 0]
    #[arg(short = 'm', long)]
    pub(super) reserved: Option<f64>,
    /// Leave out the features that Debian 12's mke2fs does not use: orphan_file, metadata_csum_seed
    #[arg(long)]
    pub(super) debian: bool,
    /// Leave out orphan_file, for kernels before 5.15
    #[arg(long)]
    pub(super) no_orphan_file: bool,
    /// Zero the inode tables now, not lazily after the first mount
    #[arg(long)]
    pub(super) zero_inode_tables: bool,
    /// Chunk size of the RAID array below, in blocks
    #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
    pub(super) stride: u16,
    /// Data blocks in a full stripe of the RAID array below
    #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
    pub(super) stripe_width: u32,
    /// Owner and group of the root directory: yours, for a mount of your own [default: 0:0]
    #[arg(long, value_name = "UID:GID", value_parser = parse_ids)]
    pub(super) root_owner: Option<(u32, u32)>,
    /// Overwrite the file system or other data that the image or device contains already
    #[arg(short = 'F', long)]
    pub(super) force: bool,
    /// Print errors only
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print what was made as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) fill: From,
}

/// The size of a file system.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    Bytes(Size),
    /// The smallest size that holds the files and leaves this much free space.
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
    pub(super) fn wanted(&self) -> Option<Wanted> {
        self.size.or(self.size_operand)
    }

    pub(super) fn size(&self) -> Option<Size> {
        match self.wanted() {
            Some(Wanted::Bytes(size)) => Some(size),
            _ => None,
        }
    }

    pub(super) fn block_size(&self) -> Result<Option<BlockSize>, Failure> {
        let Some(size) = self.block_size else { return Ok(None) };
        let bytes = u32::try_from(size.bytes()).ok().and_then(BlockSize::new);
        let wrong = || Failure::new(self.image.display(), "block size out of range");
        bytes.map(Some).ok_or_else(wrong)
    }
}

pub(super) fn options(arguments: &Arguments) -> Result<MkfsOptions, String> {
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

/// Returns the default block size, in bytes, of a file system of `size` bytes.
pub(super) fn default_block(size: u64) -> u64 {
    if size >= 512 << 20 { 4096 } else { 1024 }
}
