//! `lanefs clone`

use super::tune::parse_uuid;
use crate::cli::{
    Failure, ImageArguments, MadeFile, OutputArguments, Report, WholeImage, complain, human,
    no_file_system,
};
use lanefs::device::{Access, FileDevice, OpenOptions};
use lanefs_offline::{
    Copied, FeatureChange, Image, Settings, copy_device, copy_file, has_journal_elsewhere,
};
use lanefs_ondisk::features::{Features, RoCompat};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

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
pub struct Arguments {
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
pub fn run(arguments: &Arguments) -> ExitCode {
    let uuid = match arguments.uuid.as_str() {
        "keep" => Ok(None),
        text => parse_uuid(text).map(Some),
    };
    match uuid {
        Ok(uuid) => Report::run("clone", |_| Ok(print(arguments, &clone(arguments, uuid)?)?)),
        Err(why) => {
            complain(format_args!("lanefs clone: {why}, or keep"));
            ExitCode::from(2)
        }
    }
}

struct Cloned {
    copied: Copied,
    uuid: [u8; 16],
}

fn clone(arguments: &Arguments, uuid: Option<[u8; 16]>) -> Result<Cloned, Failure> {
    let (from, to) = (arguments.source.as_path(), arguments.destination.as_path());
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

fn copy(arguments: &Arguments, whole: &WholeImage<'_>, to: &File) -> Result<Copied, Failure> {
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
fn settle(arguments: &Arguments, copy: &Path, uuid: Option<[u8; 16]>) -> Result<[u8; 16], Failure> {
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

fn print(arguments: &Arguments, done: &Cloned) -> std::io::Result<()> {
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
