//! Options that several commands have.

use super::{Failure, Size};
use lanefs::MasterKey;
use lanefs::device::{Access, Device, FileDevice, OpenOptions};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of every command that opens an image.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ImageArguments {
    /// Start of the file system in the image, in bytes (suffixes K, M, G, T), for a partition in a
    /// disk image
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub offset: Size,
}

/// Options of every command that works on files in an image.
#[derive(Debug, Clone, clap::Args)]
pub struct FileArguments {
    #[command(flatten)]
    pub image: ImageArguments,
    /// File with a master key of encrypted directories (32 to 64 bytes); may be given more than
    /// once
    #[arg(long = "key", value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    #[command(flatten)]
    pub journal: JournalArguments,
}

impl From<ImageArguments> for FileArguments {
    fn from(image: ImageArguments) -> FileArguments {
        FileArguments { image, keys: Vec::new(), journal: JournalArguments::default() }
    }
}

/// Reads the master keys in these files.
pub fn read_keys(paths: &[PathBuf]) -> Result<Vec<MasterKey>, Failure> {
    let read = |path: &PathBuf| {
        File::open(path).and_then(MasterKey::read_from).map_err(Failure::on_host(path))
    };
    paths.iter().map(read).collect()
}

/// Option of the commands that also accept an image whose journal is on another device.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct JournalArguments {
    /// The image or device of the journal, if the journal is not in the image (mke2fs -J device=)
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
}

impl JournalArguments {
    /// Returns whether the option is given.
    pub fn is_given(&self) -> bool {
        self.journal.is_some()
    }

    /// Returns the path of the journal, if it is given.
    pub fn path(&self) -> Option<&Path> {
        self.journal.as_deref()
    }

    /// Opens the device of the journal, if it is given.
    pub fn open(&self, access: Access) -> Result<Option<Arc<dyn Device>>, Failure> {
        let open = |path| FileDevice::open(path, access, OpenOptions::default());
        // The error already names the path, so the failure adds only the name of the option.
        let opened = self.journal.as_ref().map(open).transpose();
        let device = opened.map_err(|error| Failure::new("--journal", error))?;
        Ok(device.map(|device| Arc::new(device) as Arc<dyn Device>))
    }
}

/// Options for how a command prints its result.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct OutputArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}

impl OutputArguments {
    /// Prints the result of a command: `facts` as JSON, or `lines`, or nothing.
    pub fn print(self, facts: &Value, lines: impl IntoIterator<Item = String>) -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        match self {
            OutputArguments { json: true, .. } => writeln!(out, "{facts:#}")?,
            OutputArguments { quiet: true, .. } => {}
            _ => lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))?,
        }
        out.flush()
    }
}
