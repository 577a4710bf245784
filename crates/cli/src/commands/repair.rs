//! `lanefs repair`

use super::check::finding_facts;
use crate::cli::{
    Failure, ImageArguments, JournalArguments, OutputArguments, Report as Failures, WholeImage,
    printable,
};
use lanefs::device::{Access, Device, OpenOptions, Pick, file_of, is_uri};
use lanefs_check::repair::{Action, Plan, Shared, plan, plan_around};
use lanefs_check::{Error, Finding, Harm, Place};
use lanefs_device::OverlayDevice;
use lanefs_ext4::{Exclusive, Fault};
use lanefs_offline::{Repair, Undo, view_without_fast_commits, view_without_log_elsewhere};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The exit code of a repaired image, equal to e2fsck's "errors corrected".
const REPAIRED: u8 = 1;
/// The exit code if faults are left, equal to e2fsck's "errors left uncorrected".
const LEFT: u8 = 4;
/// The exit code of a failed repair, equal to e2fsck's "operational error".
const FAILED: u8 = 8;
/// The most undo files beside an image that this command makes.
const MOST_UNDO: u32 = 99;
const NO_ROOM: &str = "its log cannot take the repair as one transaction: give --undo FILE, so \
                       that a kill loses nothing more, or --no-undo";

/// Repairs an image, as e2fsck -y does
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The whole repair is planned in memory first, and lanefs check judges the plan. Then it is written as
one transaction of the image's own log. A kill at any time causes no further loss, and another run
completes the repair. If the log cannot take the repair, the old and new blocks are saved first in a
new file beside the image, disk.img.undo, and the repair is written in place; so it is with --undo.
A block device or an array then needs --undo or --no-undo. A log on its own device is replayed
first, and fast commits become a transaction first; the undo file does not take that back.

Exit codes, as of e2fsck: 0 it was clean, 1 it was repaired, 4 faults are left (or, with -n, there
is something to repair), 8 the repair failed or the image has parts that the checker does not know,
2 wrong usage.

Examples:
  lanefs repair -n disk.img                    # prints the plan, writes nothing
  lanefs repair disk.img
  lanefs repair --undo disk.undo disk.img
  lanefs repair --undo-apply disk.undo disk.img   # puts the old blocks back")]
pub struct Arguments {
    /// The image
    image: PathBuf,
    /// Only print the plan; write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// First save the old content of all changed blocks in this new file
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    undo: Option<PathBuf>,
    /// If the log cannot take the repair, write it in place without an undo file: a kill may lose
    /// more
    #[arg(long, conflicts_with_all = ["undo", "dry_run"])]
    no_undo: bool,
    /// Put the old blocks of this undo file back, and repair nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["undo", "no_undo", "dry_run", "cut_shared"])]
    undo_apply: Option<PathBuf>,
    /// If several files use a block, the first file keeps it; the others get a hole instead of a
    /// copy
    #[arg(long)]
    cut_shared: bool,
    /// Repair an image that an interrupted e2fsck marked as being checked (feature mmp). Make sure
    /// that no e2fsck uses the image: an e2fsck that waits for the user's answer is not noticed
    #[arg(long, conflicts_with = "dry_run")]
    take_over: bool,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    journal: JournalArguments,
    #[command(flatten)]
    options: ImageArguments,
}

/// Runs `lanefs repair`.
pub fn run(arguments: &Arguments) -> ExitCode {
    ExitCode::from(code(arguments))
}

/// Repairs the image and prints what was done. Returns the exit code.
pub fn code(arguments: &Arguments) -> u8 {
    let failures = Failures::new("repair");
    let ended = match &arguments.undo_apply {
        Some(file) => undo(arguments, file),
        None => repair(arguments, &failures),
    };
    match ended {
        Ok(_) if failures.has_failed() => FAILED,
        Ok(code) => code,
        Err(failure) => {
            failures.fail(failure);
            FAILED
        }
    }
}

/// Returns the part of the image to repair. Which file system of a disk is to be overwritten, only
/// its user says.
fn part_of(arguments: &Arguments) -> OpenOptions {
    arguments.options.part(Pick::Nothing)
}

fn undo(arguments: &Arguments, file: &Path) -> Result<u8, Failure> {
    let bytes = std::fs::read(file).map_err(Failure::on_host(file))?;
    let undo = Undo::decode(&bytes).map_err(Failure::about(file))?;
    let whole = WholeImage::open_part(&arguments.image, part_of(arguments), Access::ReadWrite)?;
    let exclusive = take(&whole, arguments)?;
    let device = exclusive.as_ref().map_or_else(|| whole.device(), Exclusive::device);
    let applied = undo.apply(&*device);
    drop((device, exclusive));
    whole.end(applied)?;
    if !arguments.output.quiet && !arguments.output.json {
        let line =
            format_args!("{}: {} old blocks are back", arguments.image.display(), undo.blocks());
        // The blocks are back, whether or not somebody reads this.
        let _ = writeln!(io::stdout(), "{line}");
    }
    Ok(0)
}

fn repair(arguments: &Arguments, failures: &Failures) -> Result<u8, Failure> {
    let access = if arguments.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let whole = WholeImage::open_part(&arguments.image, part_of(arguments), access)?;
    whole.refuse_other_contents()?;
    let shared = if arguments.cut_shared { Shared::Cut } else { Shared::Clone };
    let exclusive = if arguments.dry_run { None } else { take(&whole, arguments)? };
    let device = exclusive.as_ref().map_or_else(|| whole.device(), Exclusive::device);
    let journal = arguments.journal.open(access)?;
    let completed = complete(device, undo_base(&whole, arguments).as_deref(), arguments);
    let (device, mut undo) = completed.map_err(|error| whole.failure(error))?;
    let replayed = replay_elsewhere(device, journal.as_ref(), arguments);
    let (device, is_replayed) = replayed.map_err(|error| whole.failure(error))?;
    let device = replace_fast_commits(device, arguments);
    let mut plan = match plan(device.clone(), shared) {
        // What leads to the log may be damaged, or what the fast commits change.
        Err(Error::FastCommits) => {
            let mut unfit = None;
            let replace = |view: &Arc<dyn Device>| {
                let replaced = lanefs_ext4::log::replace_fast_commits(view, None);
                // Nothing is lost for what this version, or the device, cannot do.
                let is_unfit = |why: &&lanefs_ext4::Error| {
                    matches!(why.fault(), Fault::Unsupported | Fault::Device)
                };
                unfit = replaced.as_ref().err().filter(is_unfit).cloned();
                replaced.unwrap_or(false)
            };
            let plan = plan_around(device.clone(), shared, replace);
            match unfit {
                Some(why) => return Err(whole.failure(why)),
                None => plan,
            }
        }
        plan => plan,
    }
    .map_err(|error| whole.failure(error))?;
    let is_completed = undo.is_some();
    if is_completed {
        let what = "an interrupted repair is completed".into();
        plan.actions.insert(0, Action { place: Place::Superblock, what });
    }
    if is_replayed {
        let what = "replayed from its own device".into();
        plan.actions.insert(0, Action { place: Place::Journal, what });
    }
    let mends_mmp = exclusive.as_ref().is_some_and(Exclusive::mends);
    if mends_mmp {
        let what = "the block of mmp is written anew".into();
        plan.actions.insert(0, Action { place: Place::Superblock, what });
    }
    let repair = blocks(&plan).map_err(|error| whole.failure(error))?;
    let writes = !repair.recovery.is_empty() || !repair.blocks.is_empty();
    if writes && !arguments.dry_run {
        undo = write(arguments, &whole, &device, &plan, &repair)?.or(undo);
    }
    failures.printed(print(&plan, &repair, undo.as_deref(), arguments));
    let changes = writes || is_completed || is_replayed || mends_mmp;
    let code = match (plan.leaves_faults(), changes) {
        _ if !plan.after.unchecked.is_empty() => FAILED,
        (true, _) => LEFT,
        (false, true) if arguments.dry_run => LEFT,
        (false, true) => REPAIRED,
        (false, false) => 0,
    };
    drop((plan, repair, device, exclusive));
    whole.close()?;
    Ok(code)
}

/// Completes an earlier repair in place that was interrupted: writes the new blocks of its undo
/// file. With `--dry-run`, changes only a view of the image in memory. Returns the device to
/// repair, and that undo file.
fn complete(
    device: Arc<dyn Device>,
    base: Option<&Path>,
    arguments: &Arguments,
) -> Result<(Arc<dyn Device>, Option<PathBuf>), lanefs_offline::Error> {
    let beside = base.into_iter().flat_map(|base| (1..=MOST_UNDO).map(|n| undo_name(base, n)));
    for file in beside.chain(arguments.undo.clone()).filter(|file| file.is_file()) {
        let undo = File::open(&file).ok().and_then(|mut file| Undo::load(&mut file));
        let is_interrupted = |undo: &Undo| undo.is_interrupted(&*device).unwrap_or(false);
        let Some(undo) = undo.filter(is_interrupted) else { continue };
        let device = match arguments.dry_run {
            true => Arc::new(OverlayDevice::new(device, u64::MAX)),
            false => device,
        };
        undo.redo(&*device)?;
        let target = std::fs::read_link(&file);
        if target.is_ok() && !arguments.dry_run {
            let _ = std::fs::remove_file(&file);
        }
        return Ok((device, Some(target.unwrap_or(file))));
    }
    Ok((device, None))
}

/// Replays a log that is on another device. With `--dry-run`, changes only a view of the image in
/// memory. Returns the device to repair, and whether the log held anything to replay.
fn replay_elsewhere(
    device: Arc<dyn Device>,
    journal: Option<&Arc<dyn Device>>,
    arguments: &Arguments,
) -> Result<(Arc<dyn Device>, bool), lanefs_offline::Error> {
    if !arguments.dry_run {
        let is_replayed = lanefs_offline::replay_elsewhere(&device, journal)?;
        return Ok((device, is_replayed));
    }
    let view = view_without_log_elsewhere(&device, journal)?;
    let is_replayed = !Arc::ptr_eq(&view, &device);
    Ok((view, is_replayed))
}

/// Replaces the fast commits in the log by a transaction, which the repair then replays. With
/// `--dry-run`, changes only a view of the image in memory. If the log has no fast commits, or if
/// they cannot be replaced yet, nothing is written.
fn replace_fast_commits(device: Arc<dyn Device>, arguments: &Arguments) -> Arc<dyn Device> {
    if arguments.dry_run {
        return view_without_fast_commits(&device).unwrap_or(device);
    }
    drop(lanefs_ext4::log::replace_fast_commits(&device, None));
    device
}

fn blocks(plan: &Plan) -> Result<Repair, lanefs::device::DeviceError> {
    let (recovery, blocks) = (plan.recovery()?, plan.repair()?);
    Ok(Repair { recovery, blocks, block_size: plan.block_size() })
}

/// Takes the exclusive right to write to a file system that has the feature `mmp`. Returns `None`
/// if the file system does not have this feature. Also returns `None` if the superblock or the MMP
/// block is damaged, because the repair handles this damage.
fn take(whole: &WholeImage<'_>, arguments: &Arguments) -> Result<Option<Exclusive>, Failure> {
    let taken = match arguments.take_over {
        true => Exclusive::take_over(&whole.device()),
        false => Exclusive::take(&whole.device()),
    };
    match taken {
        Err(error) if matches!(error.fault(), Fault::Image { .. }) => Ok(None),
        taken => taken.map_err(|error| whole.failure(error)),
    }
}

/// Writes the repair. Returns the undo file, if one was made.
fn write(
    arguments: &Arguments,
    whole: &WholeImage<'_>,
    device: &Arc<dyn Device>,
    plan: &Plan,
    repair: &Repair,
) -> Result<Option<PathBuf>, Failure> {
    let in_log = arguments.undo.is_none() && plan.has_log && repair.fits_log(device);
    if in_log || arguments.no_undo {
        let written = match in_log {
            true => repair.write_to_log(device),
            false => repair.write_in_place(&**device),
        };
        written.map_err(|error| whole.failure(error))?;
        return Ok(None);
    }
    let undo = repair.undo(&**device).map_err(|error| whole.failure(error))?;
    let (bytes, base) = (undo.encode(), undo_base(whole, arguments));
    let (file, link) = match (&arguments.undo, base) {
        (Some(file), base) => {
            save(file, &bytes).map_err(Failure::on_host(file))?;
            // The next run finds the undo file by this link, if this run is killed.
            let link = |name: &Path| link(file, name);
            (file.clone(), base.and_then(|base| beside(&base, link).ok()))
        }
        (None, None) => return Err(whole.failure(NO_ROOM)),
        (None, Some(base)) => {
            let saved = beside(&base, |name| save(name, &bytes));
            (saved.map_err(|why| whole.failure(format_args!("{NO_ROOM} ({why})")))?, None)
        }
    };
    let old = |error| whole.failure(format_args!("{error}; old blocks are in {}", file.display()));
    undo.redo(&**device).map_err(old)?;
    link.map(std::fs::remove_file);
    Ok(Some(file))
}

/// Makes a new file beside the image, with a name for an undo file. Returns the name.
fn beside(base: &Path, make: impl Fn(&Path) -> io::Result<()>) -> Result<PathBuf, String> {
    for n in 1..=MOST_UNDO {
        let name = undo_name(base, n);
        match make(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("{}: {error}", name.display())),
            Ok(()) => return Ok(name),
        }
    }
    Err(format!("it has {MOST_UNDO} undo files already"))
}

/// Returns the first part of the names of undo files beside the image: its file, and the number of
/// its partition. The name is the same for each name of the image. `None` if it has no file alone.
fn undo_base(whole: &WholeImage<'_>, arguments: &Arguments) -> Option<PathBuf> {
    let image = file_of(&arguments.image);
    let is_alone = image.is_file() && !is_uri(image) && whole.files() == [image];
    let real = Some(image).filter(|image| image.is_symlink()).map(std::fs::canonicalize);
    let mut base = real.and_then(Result::ok).unwrap_or_else(|| image.to_owned()).into_os_string();
    if let Some((number, _)) = whole.partition() {
        base.push(format!("@{number}"));
    }
    is_alone.then(|| base.into())
}

fn undo_name(base: &Path, n: u32) -> PathBuf {
    let number = if n == 1 { String::new() } else { format!("-{n}") };
    let mut name = base.as_os_str().to_owned();
    name.push(format!(".undo{number}"));
    name.into()
}

/// Makes a link to an undo file, durably.
fn link(file: &Path, name: &Path) -> io::Result<()> {
    let file = std::fs::canonicalize(file)?;
    if std::fs::read_link(name).is_ok_and(|target| target == file) {
        return Ok(());
    }
    std::os::unix::fs::symlink(file, name)?;
    sync_folder(name)
}

/// Writes a new file, durably. If that fails, there is no such file. A file with the same bytes, or
/// with the first of them, is that of an earlier run, which was killed before it wrote a block.
fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let is_begun = || {
        let is_short = |it: std::fs::Metadata| it.is_file() && it.len() <= bytes.len() as u64;
        std::fs::metadata(path).is_ok_and(is_short)
            && std::fs::read(path).is_ok_and(|begun| bytes.starts_with(&begun))
    };
    let (file, is_new) = match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_begun() => {
            (File::options().write(true).open(path), false)
        }
        created => (created, true),
    };
    let mut file = file?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.and_then(|()| sync_folder(path)).inspect_err(|_| {
        if is_new {
            drop(std::fs::remove_file(path));
        }
    })
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn print(
    plan: &Plan,
    repair: &Repair,
    undo: Option<&Path>,
    arguments: &Arguments,
) -> io::Result<()> {
    let image = arguments.image.display();
    let count = repair.recovery.len() + repair.blocks.len();
    let verdict = match (count, arguments.dry_run) {
        (0, _) if plan.leaves_faults() => format!("{image}: nothing can be repaired"),
        (0, _) if plan.actions.is_empty() => format!("{image}: already clean"),
        (0, false) => format!("{image}: repaired"),
        (_, true) => format!("{image}: to be repaired: {count} blocks"),
        (_, false) => format!("{image}: repaired: {count} blocks written"),
    };
    let actions = plan.actions.iter().map(|action| printable(&action.to_string()));
    let left = left(plan).map(|finding| format!("left: {}", printable(&finding.to_string())));
    let unchecked = plan.after.unchecked.iter().map(|what| format!("not checked: {what}"));
    let saved = undo.map(|file| {
        let file = file.display();
        printable(&format!(
            "the old blocks are in {file}: lanefs repair --undo-apply {file} {image}"
        ))
    });
    let lines = actions.chain(left).chain(unchecked).chain(saved).chain([verdict]);
    arguments.output.print(&as_json(plan, repair, undo, arguments), lines)
}

fn left(plan: &Plan) -> impl Iterator<Item = &Finding> {
    plan.after.findings.iter().filter(|finding| finding.harm() != Harm::Note)
}

fn as_json(plan: &Plan, repair: &Repair, undo: Option<&Path>, arguments: &Arguments) -> Value {
    let before = plan.before.findings.iter().filter(|finding| finding.harm() != Harm::Note);
    let actions = plan.actions.iter().map(|action| {
        json!({
            "place": action.place.to_string(),
            "inode": action.place.ino().map(|ino| ino.0),
            "action": action.what,
        })
    });
    json!({
        "image": arguments.image.display().to_string(),
        "dry_run": arguments.dry_run,
        "found": before.map(finding_facts).collect::<Vec<_>>(),
        "actions": actions.collect::<Vec<_>>(),
        "left": left(plan).map(finding_facts).collect::<Vec<_>>(),
        "not_checked": plan.after.unchecked,
        "blocks": repair.recovery.len() + repair.blocks.len(),
        "undo": undo.map(|file| file.display().to_string()),
    })
}
