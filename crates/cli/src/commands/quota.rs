//! `lanefs quota`

use crate::cli::{
    Failure, ImageArguments, Images, Intent, OutputArguments, Report, Size, human, long_help,
};
use lanefs::FileSystem;
use lanefs_ext4::QuotaReport;
use lanefs_ondisk::quota::{Kind, Limits, Quota};
use serde_json::json;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

/// Shows what users, groups and projects use, and sets their limits
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
The image needs the feature quota, and project for projects (mke2fs -O quota,project). Space is
shown in units of 1 KiB unless -h is given. A limit of 0 means no limit.

Limits are kept in the image. A mount by Lanefs or the kernel obeys them only with the options
usrquota, grpquota and prjquota.

Examples:
  lanefs quota disk.img
  lanefs quota --user 1000 --space 900M:1G --inodes 10000 disk.img
  lanefs quota --json disk.img | jq '.quotas[].owners[] | select(.bytes > 1000000)'")]
pub struct Arguments {
    /// The image
    image: PathBuf,
    /// Show or set only this user
    #[arg(short, long, value_name = "ID", group = "owner")]
    user: Option<u32>,
    /// Show or set only this group
    #[arg(short, long, value_name = "ID", group = "owner")]
    group: Option<u32>,
    /// Show or set only this project
    #[arg(short = 'P', long, value_name = "ID", group = "owner")]
    project: Option<u32>,
    /// Limit the space of this user, group or project: never more than HARD; more than SOFT only
    /// for the grace time
    #[arg(long, value_name = "[SOFT:]HARD", requires = "owner")]
    space: Option<Pair<Size>>,
    /// Limit the number of inodes of this user, group or project
    #[arg(long, value_name = "[SOFT:]HARD", requires = "owner")]
    inodes: Option<Pair<u64>>,
    /// Show sizes with units: K, M, G, T
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print a JSON object
    #[arg(long, conflicts_with = "human_readable")]
    json: bool,
    #[command(flatten)]
    options: ImageArguments,
}

/// A soft and a hard limit.
#[derive(Debug, Clone, Copy)]
struct Pair<T> {
    soft: Option<T>,
    hard: T,
}

impl<T: FromStr<Err: std::fmt::Display>> FromStr for Pair<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Pair<T>, String> {
        let parse = |text: &str| text.parse::<T>().map_err(|error| error.to_string());
        match text.split_once(':') {
            Some((soft, hard)) => Ok(Pair { soft: Some(parse(soft)?), hard: parse(hard)? }),
            None => Ok(Pair { soft: None, hard: parse(text)? }),
        }
    }
}

/// Runs `lanefs quota`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let changes = arguments.space.is_some() || arguments.inodes.is_some();
    let intent = if changes { Intent::Change } else { Intent::Read };
    Report::run("quota", |report| {
        let wanted = [(arguments.image.as_path(), intent)];
        let images = Images::open(&arguments.options.into(), wanted)?;
        let found = report.given(images.get(&arguments.image).and_then(|fs| act(arguments, fs)));
        images.close(report);
        match found.filter(|_| !report.has_failed()) {
            Some(found) => Ok(print(arguments, &found)?),
            None => Ok(()),
        }
    })
}

impl Arguments {
    /// Returns the owner that the arguments name.
    fn owner(&self) -> Option<(Kind, u32)> {
        let named = [(Kind::User, self.user), (Kind::Group, self.group)];
        let named = named.into_iter().chain([(Kind::Project, self.project)]);
        named.into_iter().find_map(|(kind, id)| Some((kind, id?)))
    }
}

/// Sets the limits that were given. Returns the usage and limits of the owner that the arguments
/// name, or of all owners if they name none.
fn act(arguments: &Arguments, fs: &FileSystem) -> Result<Vec<QuotaReport>, Failure> {
    let failed = |error: lanefs_ext4::Error| Failure::new(arguments.image.display(), error);
    let missing = |what: &str| Failure::new(arguments.image.display(), what);
    let fs = fs.vfs().fs();
    let quotas = fs.quotas().map_err(failed)?;
    if quotas.is_empty() {
        let what = "the file system keeps no quotas: it lacks the feature quota (tune2fs -O quota)";
        return Err(missing(what));
    }
    let Some((kind, id)) = arguments.owner() else { return Ok(quotas) };
    let Some(file) = quotas.iter().find(|file| file.kind == kind) else {
        let what = format!("the file system keeps no quotas of {}s (see tune2fs -Q)", kind.name());
        return Err(missing(&what));
    };
    let before = file.entries.iter().find(|(known, _)| *known == id);
    let before = before.map(|(_, quota)| quota.limits).unwrap_or_default();
    let after = limits(arguments, before);
    if after != before {
        fs.set_quota(kind, id, after).map_err(failed)?;
    }
    let mut quotas = fs.quotas().map_err(failed)?;
    quotas.retain(|file| file.kind == kind);
    for file in &mut quotas {
        file.entries.retain(|(known, _)| *known == id);
        if file.entries.is_empty() {
            file.entries.push((id, Quota::default()));
        }
    }
    Ok(quotas)
}

/// Returns the limits after the change that the arguments describe.
fn limits(arguments: &Arguments, mut limits: Limits) -> Limits {
    if let Some(Pair { soft, hard }) = arguments.space {
        limits.kib_hard = hard.bytes().div_ceil(1024);
        limits.kib_soft = soft.map_or(limits.kib_soft, |soft| soft.bytes().div_ceil(1024));
    }
    if let Some(Pair { soft, hard }) = arguments.inodes {
        limits.inodes_hard = hard;
        limits.inodes_soft = soft.unwrap_or(limits.inodes_soft);
    }
    limits
}

fn print(arguments: &Arguments, quotas: &[QuotaReport]) -> io::Result<()> {
    let facts: Vec<_> = quotas.iter().map(as_json).collect();
    let facts = json!({ "image": arguments.image.display().to_string(), "quotas": facts });
    let mut lines = Vec::new();
    let heads = ["Used", "Soft", "Hard", "Inodes", "Soft", "Hard"];
    for file in quotas {
        let [a, b, c, d, e, f] = heads;
        let kind = file.kind.name();
        lines.push(format!("{kind:>10} {a:>12} {b:>12} {c:>12} {d:>10} {e:>10} {f:>10}"));
        for (id, Quota { usage, limits, .. }) in &file.entries {
            let show = |bytes: u64| match arguments.human_readable {
                true => human(bytes),
                false => bytes.div_ceil(1024).to_string(),
            };
            let limit = |kib: u64| show(kib.saturating_mul(1024));
            let (used, soft, hard) =
                (show(usage.bytes), limit(limits.kib_soft), limit(limits.kib_hard));
            let Limits { inodes_soft, inodes_hard, .. } = limits;
            lines.push(format!(
                "{id:>10} {used:>12} {soft:>12} {hard:>12} {:>10} {inodes_soft:>10} {inodes_hard:>10}",
                usage.inodes
            ));
        }
    }
    OutputArguments { json: arguments.json, quiet: false }.print(&facts, lines)
}

fn as_json(file: &QuotaReport) -> serde_json::Value {
    let owner = |(id, quota): &(u32, Quota)| {
        let Quota { usage, limits, bytes_until, inodes_until } = quota;
        json!({
            "id": id,
            "bytes": usage.bytes,
            "inodes": usage.inodes,
            "soft_kib": limits.kib_soft,
            "hard_kib": limits.kib_hard,
            "soft_inodes": limits.inodes_soft,
            "hard_inodes": limits.inodes_hard,
            "space_grace_ends": bytes_until,
            "inodes_grace_ends": inodes_until,
        })
    };
    json!({
        "kind": file.kind.name(),
        "space_grace_seconds": file.bytes_grace,
        "inodes_grace_seconds": file.inodes_grace,
        "owners": file.entries.iter().map(owner).collect::<Vec<_>>(),
    })
}
