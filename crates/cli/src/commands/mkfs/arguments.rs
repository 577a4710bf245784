//! The arguments of `lanefs mkfs`.

use crate::cli::{Failure, OutputArguments, Size, from_hex, open_image, parse_ids};
use crate::commands::mkfs::words::{self, Operand, Wanted, parse_kind, parse_usage};
use crate::commands::tune::{JournalWords, parse_journal, parse_on_error, parse_uuid};
use lanefs_build::{IdMap, OnLoss, Spare, Unreadable};
use lanefs_device::{Access, FileDevice, OpenError, OpenOptions, file_of};
use lanefs_mkfs::{InodeCount, InodeTables, JournalSize, Kind, MkfsOptions, Usage};
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::features::{Compat, Features};
use lanefs_ondisk::superblock::OnError;
use std::path::{Path, PathBuf};

/// Makes an ext4 file system in an image file or on a block device
#[derive(Debug, Clone, clap::Args)]
// The usage shows the image first, because an image after an option that takes several values would
// be parsed as one of these values.
#[command(override_usage = "lanefs mkfs <IMAGE> [SIZE] [OPTIONS]")]
#[command(after_help = "\
Examples:
  lanefs mkfs disk.img --size 8G
  lanefs mkfs disk.img --size 64M --label data --block-size 4K --reserved 0
  lanefs mkfs -t ext3 -b 1024 -O ^dir_index -E stride=16,lazy_itable_init=0 -m 1 disk.img 64M
  lanefs mkfs disk.img@2                                      partition 2 of a disk
  lanefs mkfs disk.img --size 64M --root-owner 1000:1000      user 1000 can mount it and write to it
  lanefs mkfs disk.img --size 512M -d rootfs --owner 0:0      filled with the tree rootfs
  lanefs mkfs disk.img --size auto -d rootfs --fakeroot-state saved   owners by fakeroot -s saved
  lanefs mkfs disk.img --size auto --from src.tar.zst --root sysroot/usr
  lanefs mkfs disk.img --size auto -d rootfs --xattrs '*,^user.*'     without attributes user.*
  docker save alpine | lanefs mkfs disk.img --size auto+1G --from docker:-
  lanefs mkfs root.img --size auto --from base.tar.gz overlay/ extra.tar --reproducible
  lanefs mkfs root.img --size 2G --shrink -d rootfs          as small as possible, at most 2 GiB
  lanefs mkfs md:a.img,b.img,c.img         on a RAID-5 array, aligned to its rows
  SOURCE_DATE_EPOCH=0 lanefs mkfs disk.img --size 1G \\
      --uuid 6a2f0c54-8a3e-4a3c-9b6e-0d7f2f4d5c11 --hash-seed 0f0e0d0c-0b0a-4908-8706-050403020100

The layout is that of mke2fs 1.47, whose options are understood; the default is -t ext4. With
SOURCE_DATE_EPOCH, --uuid and --hash-seed given, the same command makes the same bytes.

Differences from mke2fs:
- Signatures of other formats are wiped from image files too.
- A size of 60 KiB or less is refused before anything is written.
- -E stride without flex_bg is recorded in the superblock, but does not shift the bitmaps.
- Nothing is discarded without -E discard. -E lazy_journal_init has no effect.
- -T knows the types of mke2fs.conf, but no configuration file is read.
- -O refuses quota, inline_data and every feature that Lanefs does not write. The message names it.
- With bigalloc no files can be given (-d, --from), and no size that follows from them.
- The PATH of -J device=PATH may be an image file.")]
pub struct Arguments {
    /// Image file (made if it does not exist), block device, partition (DISK@WHICH), or array
    /// (md:...)
    #[arg(value_name = "IMAGE")]
    pub(super) image: PathBuf,
    /// Size of the file system (suffixes K, M, G, T) [default: the size of the existing file or
    /// device]. With --from, auto means as small as the files allow; auto+SIZE and auto+N% add free
    /// space
    #[arg(short, long)]
    pub(super) size: Option<Wanted>,
    /// The same as --size, except that a number without a suffix counts KiB, or blocks with -b, as
    /// in mke2fs
    #[arg(value_name = "SIZE", conflicts_with = "size")]
    pub(super) size_operand: Option<Operand>,
    /// Start of the file system in the image, in bytes (suffixes K, M, G, T)
    #[arg(long, default_value = "0")]
    offset: Size,
    /// The start of the partition that the image names.
    #[arg(skip)]
    partition_start: u64,
    /// Block size: 1K to 64K, a power of two. The kernel mounts blocks up to its page size (often
    /// 4K) [default: 1K for sizes under 512M, else 4K]
    #[arg(short, long)]
    pub(super) block_size: Option<Size>,
    /// Number of inodes
    #[arg(short = 'N', long, conflicts_with = "bytes_per_inode")]
    pub(super) inodes: Option<u32>,
    /// Number of bytes of space per inode
    #[arg(short = 'i', long)]
    pub(super) bytes_per_inode: Option<Size>,
    /// Size of an inode in bytes: 128, 256, ...
    #[arg(short = 'I', long, default_value_t = MkfsOptions::default().inode_size)]
    pub(super) inode_size: u16,
    /// Name of the file system, at most 16 bytes
    #[arg(short = 'L', long, default_value = "")]
    pub(super) label: String,
    /// UUID of the file system: a UUID, random, or clear [default: random]
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    pub(super) uuid: Option<[u8; 16]>,
    /// Seed of the directory hashes, in the form of a UUID [default: random]
    #[arg(long, value_parser = parse_uuid)]
    hash_seed: Option<[u8; 16]>,
    /// Size of the journal: SIZE (suffixes K, M, G), or size=MIB [default: depends on the size of
    /// the file system]. With -O fast_commit also fast_commit_size=KIB, the size of its area for
    /// fast commits. Or device=PATH: the journal is on that device (made by -O journal_dev)
    #[arg(short = 'J', long, value_name = "SIZE", value_parser = parse_journal)]
    journal_size: Option<JournalWords>,
    /// Make no journal: a crash can then damage the file system
    #[arg(long, conflicts_with = "journal_size")]
    pub(super) no_journal: bool,
    /// Percentage of the blocks that is reserved for root [default: 5, or 0 with --size auto]
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
    /// Chunk size of the underlying RAID array, in blocks
    #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
    pub(super) stride: u16,
    /// Data blocks in a full stripe of the underlying RAID array
    #[arg(long, default_value_t = 0, value_name = "BLOCKS")]
    pub(super) stripe_width: u32,
    /// Owner and group of the root directory. With your own IDs, you can write to a mount without
    /// root [default: 0:0]
    #[arg(long, value_name = "UID:GID", value_parser = parse_ids)]
    pub(super) root_owner: Option<(u32, u32)>,
    /// Overwrite the file system or other data that the image or device contains already
    #[arg(short = 'F', long)]
    pub(super) force: bool,
    /// Print errors only
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print the features, too
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// Print what would be made, and write nothing
    #[arg(short = 'n', long, conflicts_with_all = ["from", "directory"])]
    pub(super) dry_run: bool,
    /// Print what was made as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    words: Mke2fs,
    #[command(flatten)]
    pub(super) fill: From,
}

/// Options of mke2fs, in its spelling.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "As in mke2fs")]
struct Mke2fs {
    /// Kind: ext2, ext3 or ext4
    #[arg(short = 't', value_name = "KIND", default_value = "ext4", value_parser = parse_kind)]
    kind: Kind,
    /// Features to add, or to leave out if ^ precedes them; the word 'none' leaves out all
    #[arg(short = 'O', value_name = "FEATURES", value_delimiter = ',')]
    features: Vec<String>,
    /// Intended use: default, floppy, small, big, huge, news, largefile or largefile4
    #[arg(short = 'T', value_name = "TYPE", value_parser = parse_usage)]
    usage: Option<Usage>,
    /// stride=, stripe_width=, hash_seed=, root_owner[=UID:GID], lazy_itable_init=0|1,
    /// lazy_journal_init, resize=BLOCKS, packed_meta_blocks, encoding=utf8,
    /// encoding_flags=[no]strict, offset=, [no]discard, test_fs, mmp_update_interval=SECONDS
    #[arg(short = 'E', value_name = "SETTINGS", value_delimiter = ',')]
    extended: Vec<String>,
    /// Add a journal to -t ext2
    #[arg(short = 'j', conflicts_with = "no_journal")]
    journal: bool,
    /// Blocks per group
    #[arg(short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Number of groups whose bitmaps and inode tables lie together
    #[arg(short = 'G', value_name = "GROUPS", default_value_t = MkfsOptions::default().groups_per_flex)]
    groups_per_flex: u32,
    /// Size of a cluster, with the feature bigalloc: 16 blocks by default
    #[arg(short = 'C', value_name = "BYTES")]
    cluster_size: Option<Size>,
    /// Reaction of the kernel to an error: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "ACTION", value_parser = parse_on_error)]
    on_error: Option<OnError>,
    /// Directory of the last mount
    #[arg(short = 'M', value_name = "DIRECTORY", default_value = "")]
    last_mounted: String,
    /// Revision of the format: only 1
    #[arg(short = 'r', value_name = "REVISION", value_parser = clap::value_parser!(u32).range(1..=1))]
    revision: Option<u32>,
}

impl Arguments {
    /// Returns the free space to leave in a file system whose size is computed from its files;
    /// `None` if the size is not computed from the files.
    pub(super) fn spare(&self) -> Option<Spare> {
        match self.wanted() {
            Some(Wanted::Auto(spare)) => Some(spare),
            _ => self.fill.shrink.then(Spare::default),
        }
    }

    pub(super) fn wanted(&self) -> Option<Wanted> {
        self.size.or_else(|| self.size_operand.map(|operand| operand.wanted(self.block_size)))
    }

    /// Returns the size in bytes, if one is given.
    pub(super) fn size(&self) -> Option<u64> {
        match self.wanted() {
            Some(Wanted::Bytes(size)) => Some(size),
            _ => None,
        }
    }

    pub(super) fn output(&self) -> OutputArguments {
        OutputArguments { json: self.json, quiet: self.quiet }
    }

    /// Returns the size in bytes of an image that does not exist.
    pub(super) fn size_of_new(&self) -> Result<u64, Failure> {
        let missing = || Failure::new(self.image.display(), "does not exist: give a --size");
        self.size().ok_or_else(missing)
    }

    /// Returns the offset in the image, in bytes, at which the file system or journal begins.
    pub(super) fn offset(&self) -> u64 {
        // An offset that cannot be parsed is ignored here, because `options` has reported the error
        // before the image is used.
        let given = words::offset(&self.words.extended).ok().flatten().unwrap_or(self.offset);
        given.bytes().saturating_add(self.partition_start)
    }

    /// Returns the arguments for the disk of the image if the image is a partition, `DISK@WHICH`:
    /// then the file system begins where the partition does.
    pub(super) fn on_disk(&self) -> Result<Arguments, Failure> {
        let disk = file_of(&self.image);
        if disk == self.image {
            // A new file is not given a name that was meant as one of a partition.
            let found = FileDevice::peek(disk, OpenOptions::default());
            return match found {
                Err(error @ OpenError::Partition { .. }) => Err(error.into()),
                _ => Ok(self.clone()),
            };
        }
        // The device is dropped: the disk is opened again for the file system.
        let access = if self.dry_run { Access::ReadOnly } else { Access::ReadWrite };
        let options = OpenOptions { offset: self.offset(), ..OpenOptions::default() };
        let opened = open_image(&self.image, access, options)?;
        let partition_start = opened.start().saturating_sub(self.offset());
        Ok(Arguments { image: disk.into(), partition_start, ..self.clone() })
    }

    /// Returns whether a journal device is to be made, rather than a file system.
    pub(super) fn makes_journal_device(&self) -> bool {
        self.words.features.iter().any(|word| word == "journal_dev")
    }

    /// Returns the device of the journal, if the journal is not inside the image.
    pub(super) fn journal_device(&self) -> Option<&Path> {
        self.journal_size.as_ref().and_then(|words| words.device.as_deref())
    }

    /// Returns whether an option gives the owner of the root directory.
    pub(super) fn gives_root_owner(&self) -> bool {
        self.root_owner.is_some() || words::gives_root_owner(&self.words.extended)
    }

    /// Returns whether all blocks are to be discarded before the file system is made.
    pub(super) fn discards(&self) -> bool {
        words::discards(&self.words.extended)
    }

    pub(super) fn block_size(&self) -> Result<Option<BlockSize>, String> {
        let Some(size) = self.block_size else { return Ok(None) };
        let bytes = u32::try_from(size.bytes()).ok().and_then(BlockSize::new);
        bytes.map(Some).ok_or_else(|| "block size out of range".into())
    }

    fn inode_count(&self) -> Result<InodeCount, String> {
        Ok(match (self.inodes, self.bytes_per_inode) {
            (Some(count), _) => InodeCount::Count(count),
            (None, Some(bytes)) => {
                let bytes = bytes.bytes().try_into().map_err(|_| "bytes per inode out of range")?;
                InodeCount::PerBytes(bytes)
            }
            (None, None) => InodeCount::BySize,
        })
    }

    fn features(&self) -> Result<Features, String> {
        let words = &self.words;
        let mut features = match words.kind {
            Kind::Ext4 if self.debian => MkfsOptions::debian_12(),
            kind => kind.features(),
        };
        words::edit_features(&mut features, &words.features)?;
        if self.no_orphan_file {
            features.compat -= Compat::ORPHAN_FILE;
        }
        if words.journal || self.journal_size.as_ref().is_some_and(|words| words.size.is_some()) {
            features.compat |= Compat::HAS_JOURNAL;
        }
        Ok(features)
    }
}

pub(super) fn options(arguments: &Arguments) -> Result<MkfsOptions, String> {
    let words = &arguments.words;
    let cluster_size = words.cluster_size.map(|size| u32::try_from(size.bytes()));
    let journal = arguments.journal_size.clone().unwrap_or_default();
    let is_fitted = arguments.spare().is_some();
    let defaults = MkfsOptions::default();
    let default_reserve = if is_fitted { 0.0 } else { defaults.reserved_percent };
    let mut options = MkfsOptions {
        size: arguments.size(),
        block_size: arguments.block_size()?,
        cluster_size: cluster_size.transpose().map_err(|_| "-C: too large")?,
        inodes: arguments.inode_count()?,
        inode_size: arguments.inode_size,
        label: arguments.label.clone().into_bytes(),
        uuid: arguments.uuid,
        hash_seed: arguments.hash_seed,
        journal: match journal.size {
            _ if arguments.no_journal || journal.device.is_some() => JournalSize::None,
            Some(size) => JournalSize::Bytes(size),
            None => JournalSize::default(),
        },
        fast_commit_bytes: journal.fast_commit_size,
        reserved_percent: arguments.reserved.unwrap_or(default_reserve),
        time: source_date_epoch()?,
        features: arguments.features()?,
        usage: words.usage.unwrap_or_default(),
        blocks_per_group: words.blocks_per_group,
        groups_per_flex: words.groups_per_flex,
        last_mounted: words.last_mounted.clone().into_bytes(),
        on_error: words.on_error.unwrap_or(defaults.on_error),
        inode_tables: match arguments.zero_inode_tables {
            true => InodeTables::Zeroed,
            false => defaults.inode_tables,
        },
        stride: arguments.stride,
        stripe_width: arguments.stripe_width,
        root_owner: arguments.root_owner.unwrap_or(defaults.root_owner),
        ..defaults
    };
    words::extend(&mut options, &words.extended)?;
    if let Some(owner) = arguments.fill.owner {
        options.root_owner = owner;
    }
    Ok(options)
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

/// The options for the contents of the new file system.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Filling")]
pub struct From {
    /// Fill the file system with the files of these sources: directories, tars (plain, gzip, zstd,
    /// xz; - is standard input) and container images (OCI layout, docker save, skopeo's dir:). They
    /// are unpacked in order, so a file of a later source replaces a file of the same name from an earlier
    /// source. The kind of a source is recognised, or given by a prefix: dir: tar: oci: docker:.
    /// oci:PATH:NAME chooses one of several images, oci:PATH:NAME@linux/amd64/v3 a platform
    #[arg(long, value_name = "SOURCE", num_args = 1..)]
    pub(super) from: Vec<String>,
    /// Fill with the contents of this directory; the same as --from dir:DIR
    #[arg(short = 'd', long, value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,
    /// Make the image as small as the files allow, like --size auto; --size is then its largest
    /// size
    #[arg(long)]
    pub(super) shrink: bool,
    /// Owner and group of all files
    #[arg(long, value_name = "UID:GID", value_parser = parse_ids, conflicts_with_all = ["root_owner", "map_users", "map_groups"])]
    pub(super) owner: Option<(u32, u32)>,
    /// Map COUNT users of the sources, from FROM on, to users of the image, from TO on; files of
    /// other users are an error
    #[arg(long, value_name = "FROM:TO:COUNT")]
    pub(super) map_users: Vec<IdMap>,
    /// Map groups, like --map-users
    #[arg(long, value_name = "FROM:TO:COUNT")]
    pub(super) map_groups: Vec<IdMap>,
    /// Use only this directory of the tars, as the root: SUBDIR/etc becomes /etc
    #[arg(long, value_name = "SUBDIR")]
    pub(super) root: Option<String>,
    /// Remove N leading parts from the names in tars, like tar --strip-components
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) strip: usize,
    /// Take owners, modes and device numbers of a directory's files from the attributes of rootless
    /// containers: user.containers.override_stat, user.fuseoverlayfs.override_stat,
    /// user.rootlesscontainers
    #[arg(long)]
    pub(super) override_stat: bool,
    /// Take owners, modes and device numbers of a directory's files from what `fakeroot -s FILE`
    /// saved
    #[arg(long, value_name = "FILE")]
    pub(super) fakeroot_state: Option<PathBuf>,
    /// What to do with a directory's files that cannot be read: fail and name them, or leave them
    /// out with warnings
    #[arg(long, value_name = "error|skip", default_value = "error", value_parser = parse_unreadable)]
    pub(super) unreadable: Unreadable,
    /// Extended attributes to keep, or to leave out if ^ precedes them, by patterns of full names.
    /// The last that fits decides [default: all, without security.selinux, security.ima and
    /// security.evm of directories, the host's labels]
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',', allow_hyphen_values = true)]
    pub(super) xattrs: Vec<String>,
    /// Apply a table of modes, owners and devices (the format of genext2fs -D) after all sources
    #[arg(long, value_name = "FILE")]
    pub(super) table: Vec<PathBuf>,
    /// Apply an mtree(5) specification: types, modes, owners, times, links, devices, contents
    #[arg(long, value_name = "FILE")]
    pub(super) mtree: Vec<PathBuf>,
    /// Apply an fs_config file of Android: PATH UID GID MODE [capabilities=MASK]
    #[arg(long, value_name = "FILE")]
    pub(super) fs_config: Vec<PathBuf>,
    /// Apply a file_contexts file of SELinux: REGEX [TYPE] CONTEXT
    #[arg(long, value_name = "FILE")]
    pub(super) file_contexts: Vec<PathBuf>,
    /// Directory where the image will be mounted: the paths of --fs-config and --file-contexts
    /// begin with it
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(super) mountpoint: String,
    /// What to do with attributes and times that ext4 cannot store: fail, or leave them out with a
    /// warning
    #[arg(long, value_name = "error|warn", default_value = "error", value_parser = parse_on_loss)]
    pub(super) on_loss: OnLoss,
    /// In tars, let an entry .wh.NAME remove NAME, as in the layers of a container image
    #[arg(long)]
    pub(super) whiteouts: bool,
    /// The same sources give the same bytes: UUID, hash seed and times are computed from the
    /// sources. Implied by SOURCE_DATE_EPOCH, which also bounds the times
    #[arg(long)]
    pub(super) reproducible: bool,
    /// Make a dm-verity hash tree as the command veritysetup format does, write it to FILE or
    /// append it to the image, and print the root hash. The image must not be changed afterwards
    #[arg(long, value_name = "FILE|append")]
    pub(super) verity: Option<HashTree>,
    /// Salt of the hash tree in hexadecimal digits, or - for none [default: follows from the UUID]
    #[arg(long, value_name = "HEX", requires = "verity", value_parser = parse_salt)]
    pub(super) verity_salt: Option<Salt>,
    /// Number of threads that move data; it does not change the result
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
}

fn parse_on_loss(text: &str) -> Result<OnLoss, String> {
    match text {
        "error" => Ok(OnLoss::Fail),
        "warn" => Ok(OnLoss::Report),
        _ => Err("neither error nor warn".into()),
    }
}

fn parse_unreadable(text: &str) -> Result<Unreadable, String> {
    match text {
        "error" => Ok(Unreadable::Fail),
        "skip" => Ok(Unreadable::Skip),
        _ => Err("neither error nor skip".into()),
    }
}

/// Where the hash tree is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HashTree {
    /// After the file system, in the same file.
    Append,
    File(PathBuf),
}

impl std::str::FromStr for HashTree {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<HashTree, Self::Err> {
        Ok(match text {
            "append" => HashTree::Append,
            path => HashTree::File(path.into()),
        })
    }
}

/// The bytes that are hashed before the bytes of each block.
#[derive(Debug, Clone)]
pub(super) struct Salt(pub(super) Vec<u8>);

/// Parses a salt: pairs of hexadecimal digits, or `-` for none.
pub(super) fn parse_salt(text: &str) -> Result<Salt, String> {
    let wrong = || format!("'{text}' is not 2 to 512 hexadecimal digits, or - for none");
    let text = if text == "-" { "" } else { text };
    let is_salt = |bytes: &Vec<u8>| bytes.len() <= 256 && text.len() == 2 * bytes.len();
    from_hex(text).filter(is_salt).map(Salt).ok_or_else(wrong)
}
