//! The options after `-o`: options of Lanefs, options of ext4, and options that mount(8) and fstab
//! pass along.

mod words;

use crate::ids::{Conflict, IdOptions, Ids};
use crate::protocol::{Caching, Checks, Opens, Wishes};
use lanefs_ext4::{Access, Atime, FastCommitting, MountOptions, OnError, Recovery, Synchronous};
use lanefs_ondisk::quota::Kind;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// The option that changes an existing mount.
const REMOUNT: &str = "remount";

/// Options of a FUSE mount that the kernel shows in the mount table.
const IN_MOUNT_TABLE: [&str; 6] =
    ["user_id", "group_id", "default_permissions", "allow_other", "max_read", "blksize"];

/// The mount options, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The file system is mounted read-only.
    pub read_only: bool,
    /// A dirty log is not replayed; the mount is then read-only.
    pub no_recovery: bool,
    /// The device of the journal, if the journal is not on the device of the file system.
    pub journal: Option<PathBuf>,
    /// The files with master keys of encrypted directories.
    pub keys: Vec<PathBuf>,
    /// When access times are updated.
    pub atime: Atime,
    /// The longest time from a change to its commit; `None` means the default.
    pub commit: Option<Duration>,
    /// The reaction to damage that is found while mounted; `None` means the default.
    pub on_error: Option<OnError>,
    /// The offset of the file system in the source, in bytes.
    pub offset: u64,
    /// The length of the file system in bytes; `None` means up to the end of the source.
    pub size_limit: Option<u64>,
    /// Other users may use the mount too; permissions restrict them.
    pub allow_other: bool,
    /// Device files do not work.
    pub no_devices: bool,
    /// Set-user-ID does not work.
    pub no_set_user_id: bool,
    /// Programs cannot be executed.
    pub no_execute: bool,
    /// Symbolic links are not followed.
    pub no_symlinks: bool,
    /// The kinds of owners (users, groups, projects) whose quota limits are obeyed.
    pub limits: Vec<Kind>,
    /// Which changes are durable when the system call returns.
    pub synchronous: Synchronous,
    /// The kernel features that the options ask for.
    pub wishes: Wishes,
    /// Whether file data and the log bypass the host's page cache.
    pub direct: DirectIo,
    /// Freed blocks are discarded.
    pub discard: bool,
    /// Whether an fsync may write a fast commit.
    pub fast_commits: FastCommitting,
    /// Large allocations are aligned to multiples of this number of blocks. If it is 0, the
    /// superblock or the array determines the alignment.
    pub stripe: u32,
    /// The number of rows of an array that may be written at once; `None` means the default.
    pub rows: Option<usize>,
    /// The name to show for the source, if it differs from the source.
    pub shown_source: Option<String>,
    /// How ids of the host and of the image are mapped.
    pub ids: IdOptions,
    /// The given options that ask for less safety than Lanefs always provides. Each text names the
    /// option and the behaviour that Lanefs keeps.
    pub kept_safer: Vec<&'static str>,
}

/// Whether file data and the log bypass the host's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DirectIo {
    /// For block devices, if the host supports direct I/O.
    #[default]
    BlockDevices,
    /// Always. A source that does not support direct I/O is not mounted.
    Always,
    /// Never.
    Never,
}

/// An option that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OptionError {
    /// The option is unknown.
    #[error("unknown mount option {name:?}")]
    Unknown {
        /// The option, without a value.
        name: String,
    },
    /// The value is invalid.
    #[error("mount option {name}: {value:?} is not {wanted}")]
    Value {
        /// The option.
        name: String,
        /// The given value.
        value: String,
        /// The values that the option accepts.
        wanted: &'static str,
    },
    /// The option is known, but is refused for the given reason.
    #[error("mount option {name:?} is not supported: {reason}")]
    Refused {
        /// The option.
        name: String,
        /// The reason.
        reason: &'static str,
    },
    /// Two options exclude each other.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            no_recovery: false,
            journal: None,
            keys: Vec::new(),
            atime: Atime::Relatime,
            commit: None,
            on_error: None,
            offset: 0,
            size_limit: None,
            allow_other: false,
            no_devices: false,
            no_set_user_id: false,
            no_execute: false,
            no_symlinks: false,
            limits: Vec::new(),
            synchronous: Synchronous::default(),
            wishes: Wishes::default(),
            direct: DirectIo::default(),
            discard: false,
            fast_commits: FastCommitting::default(),
            stripe: 0,
            rows: None,
            shown_source: None,
            ids: IdOptions::default(),
            kept_safer: Vec::new(),
        }
    }
}

impl Options {
    /// Adds the options of a list in the form of `-o`; later options override earlier ones.
    ///
    /// # Errors
    /// See [`OptionError`]; it names the option.
    pub fn add(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',').filter(|word| !word.is_empty()).try_for_each(|word| self.add_one(word))
    }

    /// Does the same as [`Options::add`], but ignores unknown options (`mount -s`). Known options
    /// that are not supported are still refused.
    ///
    /// # Errors
    /// The same as for [`Options::add`], except [`OptionError::Unknown`].
    pub fn add_known(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',').filter(|word| !word.is_empty()).try_for_each(|word| {
            match self.add_one(word) {
                Err(OptionError::Unknown { .. }) => Ok(()),
                done => done,
            }
        })
    }

    /// Returns whether a list of options asks to change an existing mount.
    pub fn is_remount(list: &str) -> bool {
        list.split(',').any(|word| word == REMOUNT)
    }

    /// Returns the options of a remount, parsed from the option lists in `lists`. A remount can
    /// change `read_only`, and the options that only the kernel obeys (`nodev`, `nosuid`, `noexec`,
    /// `nosymfollow`). Options that mount(8) copies from the mount table are ignored.
    ///
    /// # Errors
    /// [`OptionError::Refused`] for an option that only a new mount can change; the errors of
    /// [`Options::add`].
    pub fn for_remount(lists: &[String]) -> Result<Options, OptionError> {
        let mut options = Options::default();
        let words = lists.iter().flat_map(|list| list.split(','));
        for word in words.filter(|word| !word.is_empty() && *word != REMOUNT) {
            let name = word.split('=').next().unwrap_or_default();
            if IN_MOUNT_TABLE.contains(&name) {
                continue;
            }
            let mut alone = Options::default();
            alone.add_one(word)?;
            let changeable = Options {
                read_only: alone.read_only,
                no_devices: alone.no_devices,
                no_set_user_id: alone.no_set_user_id,
                no_execute: alone.no_execute,
                no_symlinks: alone.no_symlinks,
                ..Options::default()
            };
            if alone != changeable {
                let reason = "a remount cannot change it; unmount and mount again";
                return Err(OptionError::Refused { name: word.to_owned(), reason });
            }
            options.add_one(word)?;
        }
        Ok(options)
    }

    /// Decides where permissions are checked on a mount of user `owner`, and returns how ids are
    /// mapped. Call this after all options were added.
    ///
    /// # Errors
    /// [`OptionError::Conflict`].
    pub fn settle(&mut self, owner: u32) -> Result<Ids, OptionError> {
        let ids = self.ids.ids(owner)?;
        self.wishes.checks = match (ids.has_fakeroot(), self.allow_other) {
            (false, _) => Checks::ByKernel,
            (true, false) => Checks::ByServer,
            (true, true) => Checks::ByServerEachName,
        };
        if self.wishes.checks == Checks::ByServerEachName {
            if self.wishes.opens == Opens::NotAsked {
                let why = "each open of another user has to be checked";
                return Err(Conflict("no_open", "fakeroot with allow_other", why).into());
            }
            // With a writeback cache the kernel would send changes of times on behalf of any user,
            // so the server could not check the caller.
            self.wishes.caching = Caching::Writethrough;
        }
        Ok(ids)
    }

    /// Returns the options that the ext4 library needs.
    pub fn for_ext4(&self) -> MountOptions {
        let mut options = MountOptions {
            atime: self.atime,
            discard: self.discard,
            fast_commits: self.fast_commits,
            stripe: self.stripe,
            synchronous: self.synchronous,
            limits: self.limits.clone(),
            ..MountOptions::default()
        };
        if self.read_only || self.no_recovery {
            options.access = Access::ReadOnly;
        }
        if self.no_recovery {
            options.recovery = Recovery::Skip;
        }
        if let Some(interval) = self.commit {
            options.commit_interval = interval;
        }
        if let Some(on_error) = self.on_error {
            options.on_error = on_error;
        }
        options
    }
}

#[cfg(test)]
mod tests;
