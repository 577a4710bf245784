//! The options after `-o`: options of Lanefs, options of ext4, and options that mount(8) and fstab
//! pass along.

use crate::ids::{Conflict, IdOptions, Ids, OptionValue};
use crate::protocol::{AsyncDirect, Caching, Checks, Opens, Transport, Wishes};
use lanefs_ext4::{Access, Atime, MountOptions, OnError, Policies, Recovery, Synchronous};
use lanefs_ondisk::quota::Kind;
use std::time::Duration;
use thiserror::Error;

/// The longest commit interval that is accepted, in seconds: the maximum of the kernel's counter.
const MAX_COMMIT_SECONDS: u64 = 21_474_836;

/// The mount options, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The file system is mounted read-only.
    pub read_only: bool,
    /// A dirty log is not replayed; the mount is then read-only.
    pub no_recovery: bool,
    /// When access times are updated.
    pub atime: Atime,
    /// The longest time from a change to its commit; `None`: the default.
    pub commit: Option<Duration>,
    /// The reaction to damage that is found while mounted; `None`: the default.
    pub on_error: Option<OnError>,
    /// The offset of the file system in the source, in bytes.
    pub offset: u64,
    /// The length of the file system in bytes; `None`: to the end of the source.
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
    /// The owners whose quota limits are obeyed.
    pub limits: Vec<Kind>,
    /// Which changes are durable when the call returns.
    pub synchronous: Synchronous,
    /// The kernel features that are wanted.
    pub wishes: Wishes,
    /// Whether file data goes past the host's page cache.
    pub direct: DirectIo,
    /// Freed blocks are discarded.
    pub discard: bool,
    /// The blocks to which large allocations are aligned; with 0 the superblock or the array
    /// determines the alignment.
    pub stripe: u32,
    /// The variants of algorithms, for measurements and tests.
    pub policies: Policies,
    /// The name to show for the source, if it differs from the source.
    pub shown_source: Option<String>,
    /// How ids of the host and of the image are mapped.
    pub ids: IdOptions,
}

/// Whether file data goes past the host's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DirectIo {
    /// For block devices, if the host can do it.
    #[default]
    BlockDevices,
    /// Always; a source for which it is not possible is not mounted.
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
    /// The option is known, but its effect is not implemented.
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
            stripe: 0,
            policies: Policies::default(),
            shown_source: None,
            ids: IdOptions::default(),
        }
    }
}

/// The options that are accepted without any effect, grouped by reason.
const IGNORED: &[&str] = &[
    // Used by mount(8) and fstab only.
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "loop",
    "silent",
    "loud",
    "quiet",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "remount_noop",
    // Behaviour that Lanefs always has.
    "acl",
    "user_xattr",
    "barrier",
    "delalloc",
    "nodelalloc",
    "data",
    "journal_checksum",
    "journal_async_commit",
    "auto_da_alloc",
    "noauto_da_alloc",
    "bsddf",
    "default_permissions",
    "block_validity",
    "noblock_validity",
    "init_itable",
    "noinit_itable",
    "nogrpid",
    "sysvgroups",
    "uid32",
    "oldalloc",
    "orlov",
    "data_err",
    // Hints, and options that can be ignored without danger to data.
    "nobarrier",
    "lazytime",
    "nolazytime",
    "inode_readahead_blks",
    "max_batch_time",
    "min_batch_time",
    "journal_ioprio",
    "dioread_lock",
    "dioread_nolock",
    "i_version",
    "prefetch_block_bitmaps",
    "no_prefetch_block_bitmaps",
    "mb_optimize_scan",
    "bh",
    "nobh",
    "mbcache",
    "nombcache",
    "debug",
    // Used by FUSE: the name and type that mount.fuse3 passes.
    "subtype",
    "blkdev",
    "nonempty",
    "big_writes",
    "max_read",
    "atomic_o_trunc",
    "kernel_cache",
    "auto_cache",
    "noauto_cache",
    "fsck",
];

/// Options of ext4 in the kernel that change behaviour, and the reason why each is refused here.
const REFUSED: &[(&str, &str)] = &[
    ("remount", "unmount and mount again"),
    ("bind", "mount the image first, then bind its directory"),
    ("rbind", "mount the image first, then bind its directory"),
    ("move", "unmount and mount again"),
    ("grpid", "a directory with set-group-ID gives its group to new files, others do not"),
    ("bsdgroups", "a directory with set-group-ID gives its group to new files, others do not"),
    ("noacl", "access control lists always hold"),
    ("nouser_xattr", "attributes of user.* can always be used"),
    ("resuid", "the reserved blocks are root's"),
    ("resgid", "the reserved blocks are root's"),
    ("sb", "e2fsck -b repairs from a backup superblock"),
    ("minixdf", "statfs counts as ext4 does by default"),
    ("nouid32", "owners have 32 bits"),
    ("abort", "it is for tests of the kernel"),
    ("dax", "there is no direct access to the device's memory"),
    ("max_dir_size_kb", "directories have no limit"),
    ("journal_dev", "a journal on a device of its own is not supported"),
    ("journal_path", "a journal on a device of its own is not supported"),
    ("usrjquota", QUOTA),
    ("grpjquota", QUOTA),
    ("jqfmt", QUOTA),
];
const QUOTA: &str = "only quota files of the feature quota are kept";

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

    fn add_one(&mut self, word: &str) -> Result<(), OptionError> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let bad = |wanted| OptionError::Value {
            name: name.to_owned(),
            value: value.unwrap_or_default().to_owned(),
            wanted,
        };
        let id = |set: Result<(), OptionValue>| set.map_err(|OptionValue(wanted)| bad(wanted));
        let bytes = || value.and_then(parse_bytes).ok_or_else(|| bad("a number of bytes"));
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "norecovery" | "noload" => self.no_recovery = true,
            "relatime" | "atime" | "nostrictatime" => self.atime = Atime::Relatime,
            "noatime" => self.atime = Atime::Noatime,
            "strictatime" | "norelatime" => self.atime = Atime::Strict,
            // Lanefs treats directories like files, so neither option changes anything; both are
            // accepted.
            "diratime" => {}
            "nodiratime" => {}
            "commit" => {
                let seconds: u64 =
                    value.and_then(|v| v.parse().ok()).ok_or_else(|| bad("a number of seconds"))?;
                // As in the kernel, 0 means the default.
                self.commit =
                    (seconds != 0).then(|| Duration::from_secs(seconds.min(MAX_COMMIT_SECONDS)));
            }
            "errors" => {
                self.on_error = Some(match value {
                    Some("remount-ro") => OnError::ReadOnly,
                    Some("continue") => OnError::Continue,
                    Some("panic") => {
                        return Err(OptionError::Refused {
                            name: word.to_owned(),
                            reason: "a server does not stop the machine",
                        });
                    }
                    _ => return Err(bad("continue or remount-ro")),
                });
            }
            "offset" => self.offset = bytes()?,
            "sizelimit" => self.size_limit = Some(bytes()?).filter(|&limit| limit != 0),
            "allow_other" => self.allow_other = true,
            "noallow_other" => self.allow_other = false,
            "dev" => self.no_devices = false,
            "nodev" => self.no_devices = true,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "suid" => self.no_set_user_id = false,
            "nosuid" => self.no_set_user_id = true,
            "exec" => self.no_execute = false,
            "noexec" => self.no_execute = true,
            "symfollow" => self.no_symlinks = false,
            "nosymfollow" => self.no_symlinks = true,
            "quota" | "usrquota" => self.limit(Kind::User),
            "grpquota" => self.limit(Kind::Group),
            "prjquota" => self.limit(Kind::Project),
            "noquota" => self.limits.clear(),
            "sync" => self.synchronous = Synchronous::All,
            // `dirsync` adds nothing to `sync`.
            "dirsync" if self.synchronous == Synchronous::All => {}
            "dirsync" => self.synchronous = Synchronous::Names,
            "async" => self.synchronous = Synchronous::Marked,
            // The name that passthrough_ll of libfuse and virtiofsd use.
            "writeback" => self.wishes.caching = Caching::Writeback,
            "no_writeback" => self.wishes.caching = Caching::Writethrough,
            "open" => self.wishes.opens = Opens::Asked,
            "no_open" => self.wishes.opens = Opens::NotAsked,
            "async_dio" => self.wishes.async_direct = AsyncDirect::InFlight,
            "no_async_dio" => self.wishes.async_direct = AsyncDirect::Waits,
            "transport" => {
                self.wishes.transport = match value {
                    Some("auto") => Transport::Auto,
                    Some("read") => Transport::Read,
                    Some("ring") => Transport::Ring,
                    _ => return Err(bad("auto, read or ring")),
                };
            }
            "direct" => self.direct = DirectIo::Always,
            "no_direct" => self.direct = DirectIo::Never,
            "fsname" => self.shown_source = value.map(str::to_owned),
            "stripe" => {
                self.stripe =
                    value.and_then(|v| v.parse().ok()).ok_or_else(|| bad("a number of blocks"))?;
            }
            "fakeroot" => self.ids.set_fakeroot(),
            "uid" => id(self.ids.set_user(value))?,
            "gid" => id(self.ids.set_group(value))?,
            "idmap" | "X-mount.idmap" => id(self.ids.add_map(value))?,
            "policies" => {
                refuse_other_policies(value.unwrap_or_default())?;
                self.policies = value
                    .and_then(|v| v.parse().ok())
                    .ok_or_else(|| bad("before, after, or some policies with + between them"))?;
            }
            "data" if value == Some("journal") => {
                return Err(OptionError::Refused {
                    name: word.to_owned(),
                    reason: "file data is not journaled (data=ordered is always on)",
                });
            }
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            _ if name == "comment" || IGNORED.contains(&name) => {}
            _ => {
                let name = name.to_owned();
                let refused = REFUSED.iter().find(|(refused, _)| *refused == name);
                return Err(match refused {
                    Some(&(_, reason)) => OptionError::Refused { name, reason },
                    None => OptionError::Unknown { name },
                });
            }
        }
        Ok(())
    }

    /// Decides where permissions are checked on a mount of user `owner`, after all options were
    /// added. Returns how ids are mapped.
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
            // With its writeback cache the kernel changes times on behalf of any user.
            self.wishes.caching = Caching::Writethrough;
        }
        Ok(ids)
    }

    fn limit(&mut self, kind: Kind) {
        if !self.limits.contains(&kind) {
            self.limits.push(kind);
        }
    }

    /// Returns the options that the ext4 library needs.
    pub fn for_ext4(&self) -> MountOptions {
        let mut options = MountOptions {
            atime: self.atime,
            discard: self.discard,
            stripe: self.stripe,
            synchronous: self.synchronous,
            limits: self.limits.clone(),
            policies: self.policies,
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

/// Parses a number of bytes, with K, M, G or T for powers of 1024.
fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        b't' | b'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Policies that a mount does not have, with the reason.
const NOT_MOUNTED: [(&str, &str); 2] = [
    ("name_cache", "the kernel caches the names of a mount"),
    ("stripe_wake", "a mounted array always wakes one writer; 'lanefs bench' compares both"),
];

/// Refuses a list that contains a policy without effect on a mount. The list `before` is accepted:
/// it selects the older policies that have an effect.
fn refuse_other_policies(list: &str) -> Result<(), OptionError> {
    let names = || list.split('+').map(|word| word.split_once('=').map_or(word, |(name, _)| name));
    match NOT_MOUNTED.iter().find(|(refused, _)| names().any(|name| name == *refused)) {
        Some((name, reason)) => {
            Err(OptionError::Refused { name: format!("policies={name}"), reason })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
