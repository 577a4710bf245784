//! `lanefs raid create`

use super::array::{close_whole, refused};
use super::progress::Bar;
use super::recover::bring_in_step;
use crate::cli::{
    Failure, MadeFile, OutputArguments, Report, Size, complain, human, open_image, refuse_contents,
};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lanefs::device::{Access, Device, DeviceError, OpenOptions, file_of, is_uri};
use lanefs_raid5::{
    ArrayOptions, AssembleError, Candidate, CreateOptions, GeometryError, InitialParity,
    InvalidRequest, Layout, MISSING, MemberFault, NewConsistency, OpenArray, Standing, Upkeep,
    Uuid, create,
};
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Makes a RAID-5 array of image files or block devices
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Parity is computed before the command ends, unless all members are new files.

Exit codes: 0 success, 1 failure, 2 wrong usage.

Examples:
  lanefs raid create a.img b.img c.img --size 1G
  lanefs raid create /dev/sdb /dev/sdc /dev/sdd --consistency bitmap --name data
  lanefs raid create a b c --assume-clean        present parity is right, or does not matter
  lanefs raid create a missing c --size 1G       degraded; the missing member is added later

The layout is that of mdadm, and Linux can assemble the array.")]
pub struct Arguments {
    /// The members in the order of their slots; `missing` stands for a member that is added later.
    /// Image files that do not exist are made
    #[arg(value_name = "MEMBER", required = true, num_args = 3..=32)]
    members: Vec<PathBuf>,
    /// Size of new image files; if all members exist, space to use on each (suffixes K, M, G, T)
    #[arg(short = 'z', long)]
    size: Option<Size>,
    /// Chunk size, a power of two
    #[arg(short, long, default_value = "512K")]
    chunk: Size,
    /// Layout of the parity
    #[arg(short, long, default_value = "left-symmetric", value_parser = layouts())]
    layout: Layout,
    /// How parity is restored after a crash: partial parity log (ppl), write-intent bitmap, or full
    /// resync
    #[arg(short = 'k', long, value_enum, default_value = "ppl")]
    consistency: ConsistencyName,
    /// Bytes of a member that each bit of the bitmap covers (with --consistency bitmap)
    #[arg(long, value_name = "SIZE")]
    bitmap_chunk: Option<Size>,
    /// Name of the array
    #[arg(short = 'N', long, default_value = "lanefs")]
    name: String,
    /// UUID of the array [default: random]
    #[arg(long, value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// Assume that parity is right, and do not compute it
    #[arg(long)]
    assume_clean: bool,
    /// Return at once; the first use of the array computes parity
    #[arg(long)]
    no_wait: bool,
    /// Overwrite the file systems or other data that the devices contain
    #[arg(short = 'F', long)]
    force: bool,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ConsistencyName {
    Ppl,
    Bitmap,
    Resync,
}

fn layouts() -> impl TypedValueParser<Value = Layout> {
    let names = PossibleValuesParser::new(Layout::ALL.map(Layout::name));
    names.map(|name| Layout::from_name(&name).unwrap_or(Layout::LeftSymmetric))
}

fn parse_uuid(text: &str) -> Result<Uuid, String> {
    Uuid::parse(text).ok_or_else(|| format!("'{text}' is not a UUID"))
}

fn random_uuid() -> Uuid {
    Uuid(lanefs_mkfs::random_uuid())
}

impl Arguments {
    /// Returns the members that exist or are to be created.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.members.iter().map(PathBuf::as_path).filter(|path| path.as_os_str() != MISSING)
    }

    /// Returns the slot of the member that is given as `missing`, if there is one. Fails if there
    /// are several.
    fn missing(&self) -> Result<Option<usize>, Failure> {
        let is_missing = |path: &PathBuf| path.as_os_str() == MISSING;
        match self.members.len() - self.paths().count() {
            0 | 1 => Ok(self.members.iter().position(is_missing)),
            _ => Err(Failure::new(MISSING, "a RAID-5 array can do without one member, not more")),
        }
    }

    fn consistency(&self) -> Result<NewConsistency, Failure> {
        let chunk = self.bitmap_chunk.map(Size::bytes);
        match (self.consistency, chunk) {
            (ConsistencyName::Bitmap, chunk) => Ok(NewConsistency::Bitmap(chunk)),
            (_, Some(_)) => {
                Err(Failure::new("--bitmap-chunk", "only --consistency bitmap has a bitmap"))
            }
            (ConsistencyName::Ppl, None) => Ok(NewConsistency::PartialParity),
            (ConsistencyName::Resync, None) => Ok(NewConsistency::Resync),
        }
    }
}

type Opened = (PathBuf, Arc<dyn Device>);

/// Runs `lanefs raid create`.
pub fn run(arguments: &Arguments) -> ExitCode {
    Report::run("raid create", |_| {
        let line = make(arguments)?;
        Ok(OutputArguments { json: false, quiet: arguments.quiet }.print(&Value::Null, [line])?)
    })
}

fn make(arguments: &Arguments) -> Result<String, Failure> {
    let mut names: Vec<&Path> = arguments.paths().collect();
    names.sort();
    if let Some(pair) = names.windows(2).find(|pair| pair.first() == pair.last()) {
        let name = pair.first().map(|name| name.display().to_string());
        return Err(Failure::new(name.unwrap_or_default(), "given twice"));
    }
    let (missing, consistency) = (arguments.missing()?, arguments.consistency()?);
    let (members, made) = open_members(arguments)?;
    let all_new = made.len() == members.len();
    let options = CreateOptions {
        set: arguments.uuid.unwrap_or_else(random_uuid),
        devices: members.iter().map(|_| random_uuid()).collect(),
        name: full_name(&arguments.name),
        layout: arguments.layout,
        chunk: arguments.chunk.bytes(),
        consistency,
        size: arguments.size.filter(|_| made.is_empty()).map(Size::bytes),
        // New files hold zeros, and the parity of zeros is zero.
        parity: match arguments.assume_clean || all_new {
            true => InitialParity::Right,
            false => InitialParity::Unknown,
        },
        missing,
    };
    let first = arguments.paths().next().unwrap_or(Path::new("array"));
    // The failure names the option or the member that caused it. If neither is known, it names the
    // first member.
    let about = |error: AssembleError| match error {
        AssembleError::Member {
            fault: MemberFault::Geometry(error @ GeometryError::Chunk { .. }),
            ..
        } => Failure::new("--chunk", error),
        AssembleError::Invalid(InvalidRequest::BitmapChunk(bad)) => {
            Failure::new("--bitmap-chunk", bad)
        }
        AssembleError::Member { ref name, .. } => refused(&name.clone(), error),
        error @ AssembleError::Unsettled(_) => Failure::new(
            "array",
            format_args!(
                "{error}: lanefs raid examine shows which members have a superblock; nothing is \
                 removed, and --force makes the array anew"
            ),
        ),
        error => refused(first, error),
    };
    let created = create(&members, &options);
    if matches!(created, Ok(()) | Err(AssembleError::Unsettled(_))) {
        // From here on nothing is removed: the superblocks may describe an array.
        made.into_iter().for_each(MadeFile::keep);
    }
    created.map_err(about)?;
    let read = |(name, device): &Opened| Candidate::read(name, device.clone());
    let candidates: Result<Vec<_>, _> = members.iter().map(read).collect();
    let candidates = candidates.map_err(|error| refused(first, error))?;
    let how = ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(Access::ReadWrite) };
    let array = OpenArray::assemble(candidates, missing.iter().count(), how)
        .map_err(|error| refused(first, error))?;
    let without = missing.map(|slot| format!(", slot {slot} to be added"));
    let line = format!(
        "{} in {} members{}, chunks of {}, UUID {}",
        human(array.len()),
        members.len(),
        without.unwrap_or_default(),
        human(options.chunk),
        options.set
    );
    compute_parity(arguments, &array).map_err(|error| {
        Failure::new(
            "array",
            format_args!("it is made, but not all parity: {error}; lanefs raid recover goes on"),
        )
    })?;
    close_whole(array)?;
    Ok(line)
}

/// Computes the parity of a new array, unless the first use is to do so.
fn compute_parity(arguments: &Arguments, array: &OpenArray) -> Result<(), DeviceError> {
    let bar = if arguments.quiet { Bar::hidden } else { Bar::new };
    if !arguments.no_wait {
        let status = array.array().status();
        let is_partial = |standing: &Standing| matches!(standing, Standing::Rebuilding { .. });
        let is_work = status.unsynced_rows > 0 || status.members.iter().any(is_partial);
        if is_work && !arguments.quiet {
            complain("lanefs raid create: computing parity; --no-wait leaves it to the first use");
        }
        bring_in_step(array, bar)?;
    }
    Ok(())
}

/// Opens the members, and creates those that do not exist.
fn open_members(arguments: &Arguments) -> Result<(Vec<Opened>, Vec<MadeFile>), Failure> {
    let mut made = Vec::new();
    let mut open = |path: &Path| {
        // A link that leads nowhere is not a member that does not exist.
        let is_missing = |error: io::Error| error.kind() == ErrorKind::NotFound;
        if is_uri(file_of(path)) {
            let why = "a member is a file or a block device, not an export of a server";
            return Err(Failure::new(path.display(), why));
        }
        if file_of(path) == path && path.symlink_metadata().is_err_and(is_missing) {
            let size = arguments.size.map(Size::bytes);
            let size =
                size.ok_or_else(|| Failure::new(path.display(), "does not exist: give a --size"))?;
            made.push(MadeFile::create(path, size).map_err(Failure::on_host(path))?);
        }
        let device = open_image(path, Access::ReadWrite, OpenOptions::default())?;
        if !arguments.force {
            refuse_contents(path.display(), &device)?;
        }
        Ok((path.to_path_buf(), Arc::new(device) as Arc<dyn Device>))
    };
    let members = arguments.paths().map(&mut open).collect::<Result<_, Failure>>()?;
    Ok((members, made))
}

/// Returns the array's full name, as in mdadm: HOST:NAME. Returns `name` alone if it has a colon
/// already, if the host has no name, or if the full name would be longer than 32 bytes.
fn full_name(name: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        host if name.contains(':') || host.is_empty() || host.len() + name.len() > 31 => {
            name.into()
        }
        host => format!("{host}:{name}"),
    }
}
