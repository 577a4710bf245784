//! The arguments of `lanefs mkfs` for the contents of the new file system.

use super::verity;
use crate::cli::parse_ids;
use lanefs_build::{IdMap, OnLoss};
use std::path::PathBuf;

/// The options for the contents of the new file system.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Filling")]
pub struct From {
    /// Fill the file system with the files of these sources: directories, tars (plain, gzip, zstd,
    /// xz; - is standard input) and container images (OCI layout, docker save). They are unpacked
    /// in order, so a file of a later source replaces a file of the same name from an earlier
    /// source. The kind of a source is recognised, or given by a prefix: dir: tar: oci: docker:.
    /// oci:PATH:NAME chooses one of several images
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
    pub(super) verity: Option<verity::Place>,
    /// Salt of the hash tree in hexadecimal digits, or - for none [default: follows from the UUID]
    #[arg(long, value_name = "HEX", requires = "verity", value_parser = verity::parse_salt)]
    pub(super) verity_salt: Option<verity::Salt>,
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
