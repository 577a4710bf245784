//! The settings: how much the threads share.

use clap::ValueEnum;
use serde::Serialize;

/// How much the threads share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// Each thread has its own directory.
    Directories,
    /// Each thread has its own directory, and the first thread created all of them.
    Made,
    /// One directory, in which each thread has its own names. The directory is large and indexed,
    /// and the names of different threads are in different leaves.
    Names,
    /// Like `Names`, but the names of different threads may be in the same leaf.
    #[value(name = "any-names")]
    #[serde(rename = "any-names")]
    AnyNames,
    /// Like `Names`, but in a directory of one block.
    Small,
    /// One file, with operations that commute.
    File,
    /// The server of a mount: each client works in its own directory.
    Served,
    /// The server of a mount: two clients and one file, with operations that commute.
    #[value(name = "served-file")]
    ServedFile,
}

impl Setting {
    pub const ALL: [Setting; 8] = [
        Setting::Directories,
        Setting::Made,
        Setting::Names,
        Setting::AnyNames,
        Setting::Small,
        Setting::File,
        Setting::Served,
        Setting::ServedFile,
    ];

    /// The settings that are traced by default.
    pub const USUAL: &[Setting] = &[
        Setting::Directories,
        Setting::Made,
        Setting::Names,
        Setting::File,
        Setting::Served,
        Setting::ServedFile,
    ];

    /// Returns whether the server of a mount is traced, instead of the library.
    pub fn is_served(self) -> bool {
        matches!(self, Setting::Served | Setting::ServedFile)
    }

    /// Returns the name used in the checked-in list.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Directories => "directories",
            Setting::Made => "made",
            Setting::Names => "names",
            Setting::AnyNames => "any-names",
            Setting::Small => "small",
            Setting::File => "file",
            Setting::Served => "served",
            Setting::ServedFile => "served-file",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Setting::Directories => "different directories",
            Setting::Made => "different directories that one thread made",
            Setting::Names => "one directory, different names",
            Setting::AnyNames => "one directory, different names, leaves shared by chance",
            Setting::Small => "one directory of one block, different names",
            Setting::File => "one file, operations that commute",
            Setting::Served => "server: clients in different directories",
            Setting::ServedFile => "server: clients of one file",
        }
    }
}
