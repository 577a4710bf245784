//! Tables that change modes, owners, attributes and times of files after all sources were read.
//! They select the files by name or by pattern.
//!
//! The kinds of tables are applied in a fixed order, which does not depend on the order in which
//! the tables are given. mtree specifications come first, then tables of devices; both of these can
//! make files. fs_config follows, and file_contexts comes last. If several tables set the same
//! property of a file, the table that is applied last wins, even among tables of one kind.

mod contexts;
mod devices;
mod fs_config;
mod lines;
mod mtree;

use crate::error::{Cause, Error, Result};
use crate::pipeline::Feeder;
use crate::tree::Tree;
use contexts::Contexts;
use devices::Devices;
use fs_config::FsConfig;
use lines::Wrong;
use mtree::Mtree;

/// A parsed table.
#[derive(Debug, Clone)]
pub struct Table {
    name: String,
    rules: Rules,
}

/// The kinds of tables, in the order in which they are applied.
#[derive(Debug, Clone)]
enum Rules {
    Mtree(Mtree),
    Devices(Devices),
    FsConfig(FsConfig),
    Contexts(Contexts),
}

impl Table {
    /// Parses a table of devices in the format of `genext2fs -D`; `name` is for messages.
    ///
    /// # Errors
    /// The error names the first wrong line. The functions for the other kinds of tables return the
    /// same error.
    pub fn parse(name: &str, text: &str) -> Result<Table> {
        Table::of(name, Devices::parse(text).map(Rules::Devices))
    }

    /// Parses an fs_config file of Android: path, user, group, mode, capabilities. The paths in the
    /// file begin with `mountpoint`, the directory on which the image will be mounted.
    pub fn fs_config(name: &str, text: &str, mountpoint: &str) -> Result<Table> {
        Table::of(name, FsConfig::parse(text, mountpoint).map(Rules::FsConfig))
    }

    /// Parses a file_contexts file of SELinux: a regular expression for the path, a type, and a
    /// context.
    pub fn file_contexts(name: &str, text: &str, mountpoint: &str) -> Result<Table> {
        Table::of(name, Contexts::parse(text, mountpoint).map(Rules::Contexts))
    }

    /// Parses an mtree(5) specification.
    pub fn mtree(name: &str, text: &str) -> Result<Table> {
        Table::of(name, Mtree::parse(text).map(Rules::Mtree))
    }

    fn of(name: &str, rules: std::result::Result<Rules, Wrong>) -> Result<Table> {
        match rules {
            Ok(rules) => Ok(Table { name: name.into(), rules }),
            Err((line, detail)) => Err(Error::new(name, Cause::Table { line, detail })),
        }
    }

    /// Returns the table's position in the order in which tables are applied.
    pub(crate) fn rank(&self) -> u8 {
        match self.rules {
            Rules::Mtree(_) => 0,
            Rules::Devices(_) => 1,
            Rules::FsConfig(_) => 2,
            Rules::Contexts(_) => 3,
        }
    }

    pub(crate) fn apply(&self, tree: &mut Tree, feeder: &mut Feeder<'_, '_>) -> Result<()> {
        let applied = match &self.rules {
            Rules::Mtree(mtree) => mtree.apply(tree, feeder),
            Rules::Devices(devices) => devices.apply(tree),
            Rules::FsConfig(config) => {
                config.apply(tree);
                Ok(())
            }
            Rules::Contexts(contexts) => {
                contexts.apply(tree);
                Ok(())
            }
        };
        applied.map_err(|(line, detail)| Error::new(&self.name, Cause::Table { line, detail }))
    }
}
