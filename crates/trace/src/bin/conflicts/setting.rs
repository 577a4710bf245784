//! How far apart the threads work.

use clap::ValueEnum;
use serde::Serialize;

/// How far apart the threads work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// Each in a directory of its own.
    Directories,
    /// In one directory, each with names of its own.
    Names,
    /// On one file, by operations that commute.
    File,
}

impl Setting {
    pub const ALL: [Setting; 3] = [Setting::Directories, Setting::Names, Setting::File];

    /// As in the checked-in list.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Directories => "directories",
            Setting::Names => "names",
            Setting::File => "file",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Setting::Directories => "different directories",
            Setting::Names => "one directory, different names",
            Setting::File => "one file, operations that commute",
        }
    }
}
