//! How far apart the threads work.

use clap::ValueEnum;
use serde::Serialize;

/// How far apart the threads work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// Each in its own directory.
    Directories,
    /// In one directory, each with its own names. It is a large one, indexed, and the names of
    /// different threads lie in different leaves.
    Names,
    /// As that, in a directory of one block.
    Small,
    /// On one file, by operations that commute.
    File,
}

impl Setting {
    pub const ALL: [Setting; 4] =
        [Setting::Directories, Setting::Names, Setting::Small, Setting::File];

    /// The settings that are traced by default.
    pub const USUAL: &[Setting] = &[Setting::Directories, Setting::Names, Setting::File];

    /// As in the checked-in list.
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
