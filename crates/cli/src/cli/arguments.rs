//! Options that several commands have.

use super::Size;

/// Options of every command that opens an image.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ImageArguments {
    /// Start of the file system in the image, in bytes (suffixes K, M, G, T), for a partition in a
    /// disk image
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub offset: Size,
}

/// Options for the form of a result.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct OutputArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}
