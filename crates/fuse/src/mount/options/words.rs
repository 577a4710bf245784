//! The words after `-o`, each with its effect.

use super::{DirectIo, OptionError, Options};
use crate::ids::OptionValue;
use crate::protocol::{AsyncDirect, Caching, Opens, Transport};
use lanefs_ext4::{Atime, FastCommitting, OnError, Synchronous};
use lanefs_ondisk::quota::Kind;
use std::time::Duration;

/// The longest commit interval, in seconds; a longer one is shortened to it. It is the longest one
/// that a signed 32-bit count of the kernel's clock ticks can hold, with 100 ticks per second.
const MAX_COMMIT_SECONDS: u64 = 21_474_836;

/// The largest value of the option `rows`, which limits how many rows of an array are written at
/// once. The value is limited because each of these writes may need memory for a whole row.
const MAX_ROWS: usize = 65_536;

/// The options that are accepted but have no effect, grouped by reason.
const IGNORED: [&str; 5] = [
    // Lanefs updates the access times of directories like those of files, so neither option changes
    // anything.
    "diratime nodiratime",
    // Used only by mount(8) and fstab.
    "defaults auto noauto nofail user nouser users owner group _netdev loop silent loud \
     quiet iversion noiversion mand nomand remount_noop",
    // Lanefs behaves in the same way with and without each of these options.
    "acl user_xattr barrier delalloc nodelalloc journal_checksum journal_async_commit \
     auto_da_alloc noauto_da_alloc bsddf default_permissions block_validity noblock_validity \
     init_itable noinit_itable nogrpid sysvgroups uid32 oldalloc orlov data_err",
    // Hints, and options that can be ignored without danger to data.
    "nobarrier nolazytime inode_readahead_blks max_batch_time min_batch_time journal_ioprio \
     dioread_lock dioread_nolock i_version prefetch_block_bitmaps no_prefetch_block_bitmaps \
     mb_optimize_scan bh nobh mbcache nombcache debug",
    // Options of FUSE. mount.fuse3 passes `subtype`.
    "subtype blkdev nonempty big_writes max_read atomic_o_trunc kernel_cache auto_cache \
     noauto_cache fsck",
];

pub(super) fn is_ignored(name: &str) -> bool {
    IGNORED.iter().flat_map(|names| names.split(' ')).any(|ignored| ignored == name)
}

/// Options of ext4 in the kernel that change behaviour, and the reason why each is refused here.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("remount", "it stands alone, for a mount that exists"),
    ("bind", "mount the image first, then bind its directory"),
    ("rbind", "mount the image first, then bind its directory"),
    ("move", "unmount and mount again"),
    ("grpid", "a directory with set-group-ID gives its group to new files, others do not"),
    ("bsdgroups", "a directory with set-group-ID gives its group to new files, others do not"),
    ("noacl", "access control lists always hold"),
    ("nouser_xattr", "attributes of user.* can always be used"),
    ("resuid", "the reserved blocks are root's"),
    ("resgid", "the reserved blocks are root's"),
    ("sb", "'lanefs repair' restores the superblock from a backup"),
    ("minixdf", "statfs counts as ext4 does by default"),
    ("nouid32", "owners have 32 bits"),
    ("abort", "it is for tests of the kernel"),
    ("dax", "there is no direct access to the device's memory"),
    ("max_dir_size_kb", "directories have no limit"),
    ("journal_dev", "give the path of the journal's device: journal_path=PATH"),
    ("usrjquota", QUOTA),
    ("grpjquota", QUOTA),
    ("jqfmt", QUOTA),
];
const QUOTA: &str = "only quota files of the feature quota are kept";

/// One word: `NAME` or `NAME=VALUE`.
struct Word<'w> {
    text: &'w str,
    name: &'w str,
    value: Option<&'w str>,
}

impl<'w> Word<'w> {
    fn new(text: &'w str) -> Word<'w> {
        match text.split_once('=') {
            Some((name, value)) => Word { text, name, value: Some(value) },
            None => Word { text, name: text, value: None },
        }
    }

    fn wrong(&self, wanted: &'static str) -> OptionError {
        OptionError::Value {
            name: self.name.to_owned(),
            value: self.value.unwrap_or_default().to_owned(),
            wanted,
        }
    }

    fn refused(&self, reason: &'static str) -> OptionError {
        OptionError::Refused { name: self.text.to_owned(), reason }
    }

    fn bytes(&self) -> Result<u64, OptionError> {
        self.value.and_then(parse_bytes).ok_or_else(|| self.wrong("a number of bytes"))
    }

    fn number<N: std::str::FromStr>(&self, wanted: &'static str) -> Result<N, OptionError> {
        self.value.and_then(|value| value.parse().ok()).ok_or_else(|| self.wrong(wanted))
    }
}

impl Options {
    pub(super) fn add_one(&mut self, text: &str) -> Result<(), OptionError> {
        let word = Word::new(text);
        let is_known = self.set_access(&word)?
            || self.set_file_system(&word)?
            || self.set_server(&word)?
            || self.set_ids(&word)?;
        let name = word.name;
        if is_known || is_for_others(name) || is_ignored(name) {
            return Ok(());
        }
        Err(match REFUSED.iter().find(|(refused, _)| *refused == name) {
            Some(&(_, reason)) => OptionError::Refused { name: name.to_owned(), reason },
            None => OptionError::Unknown { name: name.to_owned() },
        })
    }

    /// Sets an option about the rights of programs on the mount; returns false for other options.
    fn set_access(&mut self, word: &Word<'_>) -> Result<bool, OptionError> {
        match word.name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "noallow_other" => self.allow_other = false,
            "dev" => self.no_devices = false,
            "nodev" => self.no_devices = true,
            "suid" => self.no_set_user_id = false,
            "nosuid" => self.no_set_user_id = true,
            "exec" => self.no_execute = false,
            "noexec" => self.no_execute = true,
            "symfollow" => self.no_symlinks = false,
            "nosymfollow" => self.no_symlinks = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets an option of the file system; returns false for other options.
    fn set_file_system(&mut self, word: &Word<'_>) -> Result<bool, OptionError> {
        match word.name {
            "norecovery" | "noload" => self.no_recovery = true,
            "relatime" | "atime" | "nostrictatime" => self.atime = Atime::Relatime,
            "noatime" => self.atime = Atime::Noatime,
            "strictatime" | "norelatime" => self.atime = Atime::Strict,
            "commit" => {
                let seconds: u64 = word.number("a number of seconds")?;
                // As in the kernel, 0 means the default.
                self.commit =
                    (seconds != 0).then(|| Duration::from_secs(seconds.min(MAX_COMMIT_SECONDS)));
            }
            "errors" => {
                self.on_error = Some(match word.value {
                    Some("remount-ro") => OnError::ReadOnly,
                    Some("continue") => OnError::Continue,
                    Some("panic") => return Err(word.refused("a server does not stop the machine")),
                    _ => return Err(word.wrong("continue or remount-ro")),
                });
            }
            "journal_path" => {
                let path = word.value.filter(|path| !path.is_empty());
                self.journal = Some(path.ok_or_else(|| word.wrong("a path"))?.into());
            }
            "key" => {
                let path = word.value.filter(|path| !path.is_empty());
                self.keys.push(path.ok_or_else(|| word.wrong("a path"))?.into());
            }
            "offset" => self.offset = word.bytes()?,
            "sizelimit" => self.size_limit = Some(word.bytes()?).filter(|&limit| limit != 0),
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "fast_commit" => self.fast_commits = FastCommitting::IfPossible,
            "no_fast_commit" => self.fast_commits = FastCommitting::Never,
            "quota" | "usrquota" => self.limit(Kind::User),
            "grpquota" => self.limit(Kind::Group),
            "prjquota" => self.limit(Kind::Project),
            "noquota" => self.limits.clear(),
            "sync" => self.synchronous = Synchronous::All,
            // `dirsync` adds nothing to `sync`.
            "dirsync" if self.synchronous == Synchronous::All => {}
            "dirsync" => self.synchronous = Synchronous::Names,
            "async" => self.synchronous = Synchronous::Marked,
            "stripe" => self.stripe = word.number("a number of blocks")?,
            "rows" => {
                let wanted = "a number of rows from 1 to 65536";
                let rows = Some(word.number(wanted)?).filter(|rows| (1..=MAX_ROWS).contains(rows));
                self.rows = Some(rows.ok_or_else(|| word.wrong(wanted))?);
            }
            "data" => match word.value {
                Some("ordered") => {}
                Some("writeback") => {
                    self.kept_safer.push("data=writeback: data is written before its metadata");
                }
                Some("journal") => {
                    let why = "file data is not journaled (data=ordered is always on)";
                    return Err(word.refused(why));
                }
                _ => return Err(word.wrong("ordered or writeback")),
            },
            "lazytime" => self.kept_safer.push("lazytime: times are stored by the next commit"),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets an option about the requests between kernel and server; returns false for other
    /// options.
    fn set_server(&mut self, word: &Word<'_>) -> Result<bool, OptionError> {
        match word.name {
            // libfuse's passthrough_ll and virtiofsd use the name `writeback` too.
            "writeback" => self.wishes.caching = Caching::Writeback,
            "no_writeback" => self.wishes.caching = Caching::Writethrough,
            "open" => self.wishes.opens = Opens::Asked,
            "no_open" => self.wishes.opens = Opens::NotAsked,
            "async_dio" => self.wishes.async_direct = AsyncDirect::InFlight,
            "no_async_dio" => self.wishes.async_direct = AsyncDirect::Waits,
            "transport" => {
                self.wishes.transport = match word.value {
                    Some("auto") => Transport::Auto,
                    Some("read") => Transport::Read,
                    Some("ring") => Transport::Ring,
                    _ => return Err(word.wrong("auto, read or ring")),
                };
            }
            "direct" => self.direct = DirectIo::Always,
            "no_direct" => self.direct = DirectIo::Never,
            "fsname" => self.shown_source = word.value.map(str::to_owned),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets an option about the map of ids; returns false for other options.
    fn set_ids(&mut self, word: &Word<'_>) -> Result<bool, OptionError> {
        let set = match word.name {
            "fakeroot" => {
                self.ids.set_fakeroot();
                Ok(())
            }
            "uid" => self.ids.set_user(word.value),
            "gid" => self.ids.set_group(word.value),
            "idmap" | "X-mount.idmap" => self.ids.add_map(word.value),
            _ => return Ok(false),
        };
        set.map(|()| true).map_err(|OptionValue(wanted)| word.wrong(wanted))
    }

    fn limit(&mut self, kind: Kind) {
        if !self.limits.contains(&kind) {
            self.limits.push(kind);
        }
    }
}

/// Returns whether an option is a comment, or is only for other programs.
fn is_for_others(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-") || name == "comment"
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
