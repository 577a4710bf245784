//! The arguments of `lanefs mkfs` about the contents of the new file system.

use crate::cli::parse_ids;
use lanefs_build::IdMap;
use std::path::PathBuf;

/// What the file system is filled with.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Filling")]
pub struct From {
    /// Fill with these; a later one replaces entries of earlier ones: directories, tars (plain,
    /// gzip, zstd, xz; - is standard input), container images (OCI layout, docker save). A prefix
    /// dir:, tar:, oci: or docker: says which; oci:PATH:NAME chooses an image
    #[arg(long, value_name = "SOURCE", num_args = 1..)]
    pub(super) from: Vec<String>,
    /// Fill with the contents of this directory; as --from dir:DIR
    #[arg(short = 'd', long, value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,
    /// Owner and group of all files
    #[arg(long, value_name = "UID:GID", value_parser = parse_ids, conflicts_with_all = ["root_owner", "map_users", "map_groups"])]
    pub(super) owner: Option<(u32, u32)>,
    /// Map COUNT users from FROM on in the sources to TO on in the image; others are an error
    #[arg(long, value_name = "FROM:TO:COUNT")]
    pub(super) map_users: Vec<IdMap>,
    /// Map groups, like --map-users
    #[arg(long, value_name = "FROM:TO:COUNT")]
    pub(super) map_groups: Vec<IdMap>,
    /// Apply a table of modes, owners and devices (the format of genext2fs -D) after all sources
    #[arg(long, value_name = "FILE")]
    pub(super) table: Vec<PathBuf>,
    /// Names .wh.NAME in tars remove NAME, as in the layers of a container image
    #[arg(long)]
    pub(super) whiteouts: bool,
    /// The same sources give the same bytes: UUID, hash seed and times follow from them. Implied by
    /// SOURCE_DATE_EPOCH, which also bounds the times
    #[arg(long)]
    pub(super) reproducible: bool,
    /// Number of threads that move data; it does not change the result
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
}
