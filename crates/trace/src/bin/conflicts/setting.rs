//! The settings: how much the threads share.

use clap::ValueEnum;
use serde::Serialize;

/// How much the threads share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// Each thread has its own directory.
    Directories,
    /// One directory, in which each thread has its own names. The directory is large and indexed,
    /// and the names of different threads are in different leaves.
    Names,
    /// The same in a directory of one block.
    Small,
    /// One file, with operations that commute.
    File,
}

impl Setting {
    pub const ALL: [Setting; 4] =
        [Setting::Directories, Setting::Names, Setting::Small, Setting::File];

    /// The settings that are traced by default.
    pub const USUAL: &[Setting] = &[Setting::Directories, Setting::Names, Setting::File];

    /// Returns the name used in the checked-in list.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Directories => "directories",
            Setting::Names => "names",
            Setting::Small => "small",
            Setting::File => "file",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Setting::Directories => "different directories",
            Setting::Names => "one directory, different names",
            Setting::Small => "one directory of one block, different names",
            Setting::File => "one file, operations that commute",
        }
    }
}
