//! The arguments of `lanefs diff`.

use crate::cli::ImageArguments;
use std::ffi::OsString;

/// Compares trees: two images, or an image and a directory of the host
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Types, contents, link targets, device numbers, modes, owners, extended attributes with access control
lists, and hard links are compared; times with --times. An empty /lost+found of an image is ignored.
Each line of the output has a sign and a path:

  - PATH           is only in A
  + PATH           is only in B
  ! PATH: WHAT     differs: what, with the values of A and B

Exit codes: 0 the trees are equal, 1 they differ, 2 something could not be compared, or wrong usage.

Examples:
  lanefs diff base.img vm.img
  lanefs diff --ignore owner,xattrs disk.img:/etc ./etc
  lanefs diff --times --json a.img b.img | jq -r .path")]
pub struct Arguments {
    /// The first tree: IMAGE[:/PATH], or a directory of the host
    #[arg(value_name = "A")]
    pub(super) a: OsString,
    /// The second tree
    #[arg(value_name = "B")]
    pub(super) b: OsString,
    /// Compare the times of the last change too
    #[arg(long)]
    pub(super) times: bool,
    /// Do not compare these
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    pub(super) ignore: Vec<Aspect>,
    /// Print nothing: the exit code says it
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print a JSON object for each difference on a line
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) image: ImageArguments,
}

/// A property that files are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Aspect {
    Content,
    Mode,
    Owner,
    Xattrs,
    Links,
}

impl Arguments {
    pub(super) fn compares(&self, aspect: Aspect) -> bool {
        !self.ignore.contains(&aspect)
    }
}
