//! `lanefs tune`

mod words;

use super::info;
use crate::cli::{Failure, ImageArguments, JournalArguments, Report, WholeImage};
use lanefs::device::Access;
use lanefs_offline::{JournalChange, JournalSize, Settings};
use std::path::PathBuf;
use std::process::ExitCode;
pub use words::{DEFAULT_OPTIONS, JournalWords, parse_journal, parse_on_error, parse_uuid};
use words::{default_option, extend, features, parse_checked, parse_interval};

/// Shows or changes the settings of an image: label, UUID, reserved blocks, features, journal
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a setting the command shows the superblock, as tune2fs -l does. The image must not be in
use; after a crash it is recovered first. All settings of one call are changed, or none; only a
change of the journal is a separate step, after the others. If the command is interrupted, run it
again.

Features that can be set and cleared: fast_commit, has_journal, metadata_csum_seed, mmp,
stable_inodes.
Features that can only be set: dir_index, dir_nlink, encrypt, ext_attr, huge_file, large_file,
verity. Others are refused by name.

Clearing has_journal removes the orphan file too. -O fast_commit leaves a present journal as it is;
-J size=,fast_commit_size= replaces it. -O mmp takes a block, which -O ^mmp gives back.
metadata_csum_seed needs metadata_csum, and can be cleared only while the seed follows from the
UUID. Without this feature checksums depend on the UUID, so -U then needs -O metadata_csum_seed.

Examples:
  lanefs tune disk.img                         # shows the settings
  lanefs tune -L data -m 1 disk.img
  lanefs tune -U random -O metadata_csum_seed disk.img
  lanefs tune -o discard,^acl -e remount-ro disk.img
  lanefs tune -J size=64 disk.img              # adds a journal of 64 MiB, or resizes it
  lanefs tune -O ^has_journal disk.img")]
pub struct Arguments {
    /// The image
    image: PathBuf,
    /// Show the settings (the default without any other option)
    #[arg(short = 'l', long)]
    list: bool,
    /// Print the settings as JSON, after the change
    #[arg(long)]
    json: bool,
    /// Label, at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL")]
    label: Option<String>,
    /// UUID: a UUID, random, or clear
    #[arg(short = 'U', long, value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Blocks that only the reserved user and group may use, in percent
    #[arg(short = 'm', long, value_name = "PERCENT", conflicts_with = "reserved_blocks")]
    reserved_percent: Option<f64>,
    /// Blocks that only the reserved user and group may use
    #[arg(short = 'r', long, value_name = "BLOCKS")]
    reserved_blocks: Option<u64>,
    /// User that may use reserved blocks, as a number
    #[arg(short = 'u', long, value_name = "UID")]
    reserved_uid: Option<u16>,
    /// Group that may use reserved blocks, as a number
    #[arg(short = 'g', long, value_name = "GID")]
    reserved_gid: Option<u16>,
    /// Reaction to an error: continue, remount-ro or panic
    #[arg(short = 'e', long, value_name = "ACTION", value_parser = parse_on_error)]
    errors: Option<lanefs_ondisk::superblock::OnError>,
    /// Default mount options (a ^ before an option clears it): acl, block_validity, bsdgroups,
    /// debug, discard, journal_data, journal_data_ordered, journal_data_writeback, nobarrier,
    /// nodelalloc, uid16, user_xattr
    #[arg(short = 'o', long, value_name = "OPTIONS", value_delimiter = ',')]
    mount_options: Vec<String>,
    /// Features; a ^ before a feature clears it
    #[arg(short = 'O', long, value_name = "FEATURES", value_delimiter = ',')]
    features: Vec<String>,
    /// Further settings: hash_alg=legacy|half_md4|tea, mount_opts=WORDS, stride=BLOCKS,
    /// stripe_width=BLOCKS, mmp_update_interval=SECONDS, test_fs, ^test_fs, force_fsck
    #[arg(short = 'E', long, value_name = "SETTINGS", value_delimiter = ',')]
    extended: Vec<String>,
    /// Journal: size=MIB adds a journal, or changes the size of the existing one. With the feature
    /// fast_commit, fast_commit_size=KIB sets the size of the journal's area for fast commits.
    /// Sizes may have suffixes such as G
    #[arg(short = 'J', long, value_name = "size=SIZE", value_parser = parse_journal)]
    journal_size: Option<JournalWords>,
    /// Add a journal of the default size
    #[arg(short = 'j', long)]
    add_journal: bool,
    /// Number of mounts after which e2fsck checks; 0 or -1: never
    #[arg(short = 'c', long, value_name = "MOUNTS", allow_hyphen_values = true)]
    max_mount_count: Option<i32>,
    /// Number of mounts since the last check
    #[arg(short = 'C', long, value_name = "MOUNTS")]
    mount_count: Option<u16>,
    /// Time after which e2fsck checks: days, or a number with suffix d, w or m; 0: never
    #[arg(short = 'i', long, value_name = "TIME", value_parser = parse_interval)]
    interval: Option<u32>,
    /// Time of the last check: now, or seconds since 1970 with @
    #[arg(short = 'T', long, value_name = "TIME", value_parser = parse_checked)]
    last_checked: Option<u64>,
    /// Directory of the last mount
    #[arg(short = 'M', long, value_name = "DIRECTORY")]
    last_mounted: Option<String>,
    #[command(flatten)]
    journal: JournalArguments,
    #[command(flatten)]
    options: ImageArguments,
}

/// Runs `lanefs tune`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("tune");
    let Some(wanted) = report.given(arguments.settings()) else { return ExitCode::from(2) };
    let changes = wanted != Wanted::default();
    if changes {
        report.check(change(arguments, wanted));
    }
    if !report.has_failed() && (!changes || arguments.list || arguments.json) {
        return info::show_superblock("tune", &arguments.image, arguments.json, arguments.options);
    }
    report.exit()
}

/// The requested settings, and the size of the journal.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    settings: Settings,
    journal: JournalWords,
}

impl Arguments {
    fn settings(&self) -> Result<Wanted, String> {
        use lanefs_offline::Reserved;
        let percent = self.reserved_percent.map(Reserved::Percent);
        let mut settings = Settings {
            label: self.label.as_ref().map(|label| label.as_bytes().to_vec()),
            uuid: self.uuid,
            reserved: self.reserved_blocks.map(Reserved::Blocks).or(percent),
            reserved_uid: self.reserved_uid,
            reserved_gid: self.reserved_gid,
            on_error: self.errors,
            mount_count: self.mount_count,
            check_interval: self.interval,
            last_checked: self.last_checked,
            last_mounted: self.last_mounted.as_ref().map(|path| path.as_bytes().to_vec()),
            features: features(&self.features)?,
            ..Settings::default()
        };
        settings.max_mount_count = match self.max_mount_count {
            None => None,
            Some(-1 | 0) => Some(None),
            Some(count) => {
                let count = u16::try_from(count).ok().filter(|count| *count <= 16_000);
                let count = count.ok_or("the number of mounts must be at most 16000")?;
                Some(Some(count))
            }
        };
        for word in &self.mount_options {
            settings.default_options.push(default_option(word)?);
        }
        for word in &self.extended {
            extend(&mut settings, word)?;
        }
        if self.add_journal {
            settings.journal = Some(JournalChange::Add(JournalSize::default()));
        }
        let journal = self.journal_size.clone().unwrap_or_default();
        if journal.device.is_some() {
            return Err("-J device=: lanefs tune does not make such journals".into());
        }
        Ok(Wanted { settings, journal })
    }
}

fn change(arguments: &Arguments, wanted: Wanted) -> Result<(), Failure> {
    let whole = WholeImage::open(&arguments.image, arguments.options, Access::ReadWrite)?;
    let Wanted { mut settings, journal: size } = wanted;
    let journal = arguments.journal.open(Access::ReadWrite)?;
    let mut opened = whole.file_system(journal.as_ref())?;
    if size != JournalWords::default() {
        let bits = opened.geometry().block_size().bits();
        let blocks = |bytes: u64| u32::try_from(bytes >> bits).unwrap_or(u32::MAX);
        settings.journal = Some(JournalChange::Add(JournalSize {
            blocks: size.size.map(blocks),
            // As in tune2fs, a size of 0 means the default size.
            fast_commit_blocks: size.fast_commit_size.filter(|bytes| *bytes > 0).map(blocks),
        }));
    }
    let tuned = opened.tune(&settings);
    drop(opened);
    whole.end(tuned)
}
