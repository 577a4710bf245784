//! The option words of mke2fs: `-E`, `-O`, `-T`, and sizes in its units.

use crate::cli::{Size, parse_ids, parse_size};
use crate::commands::tune::parse_uuid;
use lanefs_build::Spare;
use lanefs_mkfs::{InodeTables, Kind, MkfsOptions, TablePlaces, Usage};
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::features::{Features, Incompat};

/// The size of a file system.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    Bytes(u64),
    /// The smallest size that holds the files and leaves this much free space.
    Auto(Spare),
}

impl std::str::FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        let Some(rest) = text.strip_prefix("auto") else {
            return parse_size(text).map(Wanted::Bytes);
        };
        let wrong = || format!("'{text}' is not a size (examples: 2G, auto, auto+512M, auto+10%)");
        let mut spare = Spare::default();
        match (rest.strip_prefix('+'), rest) {
            (_, "") => {}
            (Some(more), _) => match more.strip_suffix('%') {
                Some(percent) => spare.percent = percent.parse().map_err(|_| wrong())?,
                None => spare.bytes = more.parse::<Size>().map_err(|_| wrong())?.bytes(),
            },
            (None, _) => return Err(wrong()),
        }
        match spare.percent <= 1000 {
            true => Ok(Wanted::Auto(spare)),
            false => Err(wrong()),
        }
    }
}

/// Returns the value with this name.
fn named<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("not one of {}", names()))
}

/// Parses `-t`.
pub(super) fn parse_kind(text: &str) -> Result<Kind, String> {
    named(text, &[("ext2", Kind::Ext2), ("ext3", Kind::Ext3), ("ext4", Kind::Ext4)])
}

/// Parses `-T`: one type, not a list.
pub(super) fn parse_usage(text: &str) -> Result<Usage, String> {
    const ALL: [(&str, Usage); 8] = [
        ("default", Usage::Default),
        ("floppy", Usage::Floppy),
        ("small", Usage::Small),
        ("big", Usage::Big),
        ("huge", Usage::Huge),
        ("news", Usage::News),
        ("largefile", Usage::Largefile),
        ("largefile4", Usage::Largefile4),
    ];
    named(text, &ALL)
}

/// The size operand of mke2fs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operand {
    /// A number without a suffix. It counts blocks, or KiB if `-b` is not given.
    Count(u64),
    Wanted(Wanted),
}

impl std::str::FromStr for Operand {
    type Err = String;

    fn from_str(text: &str) -> Result<Operand, String> {
        // The suffix `s` means sectors of 512 bytes.
        let (number, is_sectors) = match text.strip_suffix('s') {
            Some(number) => (number, true),
            None => (text, false),
        };
        match number.parse::<u64>() {
            Ok(sectors) if is_sectors => {
                Ok(Operand::Wanted(Wanted::Bytes(sectors.saturating_mul(512))))
            }
            Ok(count) => Ok(Operand::Count(count)),
            Err(_) => text.parse().map(Operand::Wanted),
        }
    }
}

impl Operand {
    /// Returns the size; `block` is the argument of `-b`.
    pub(super) fn wanted(self, block: Option<Size>) -> Wanted {
        match self {
            Operand::Count(count) => {
                Wanted::Bytes(count.saturating_mul(block.map_or(1024, Size::bytes)))
            }
            Operand::Wanted(wanted) => wanted,
        }
    }
}

/// Applies the words of `-O` from left to right: `WORD` adds a feature, `^WORD` removes it, `none`
/// removes all.
pub(super) fn edit_features(features: &mut Features, words: &[String]) -> Result<(), String> {
    for word in words {
        let (is_added, name) = match word.strip_prefix('^') {
            Some(name) => (false, name),
            None => (true, word.as_str()),
        };
        if is_added && name == "none" {
            *features = Features::default();
            continue;
        }
        let named = Features::by_name(name).ok_or_else(|| format!("-O: no feature '{name}'"))?;
        features.compat.set(named.compat, is_added);
        features.incompat.set(named.incompat, is_added);
        features.ro_compat.set(named.ro_compat, is_added);
    }
    Ok(())
}

/// Returns the value of the last `-E offset=`.
pub(super) fn offset(words: &[String]) -> Result<Option<Size>, String> {
    let mut offsets = words.iter().filter_map(|word| word.strip_prefix("offset="));
    offsets.next_back().map(str::parse).transpose()
}

/// Returns whether `-E` has `discard`, without a later `nodiscard`.
pub(super) fn discards(words: &[String]) -> bool {
    let last = words.iter().rfind(|word| word.ends_with("discard"));
    last.is_some_and(|word| word == "discard")
}

/// Returns whether `-E` has `root_owner`.
pub(super) fn gives_root_owner(words: &[String]) -> bool {
    words.iter().any(|word| word.split('=').next() == Some("root_owner"))
}

/// Applies the words of `-E`, except for [`offset`] and [`discards`].
pub(super) fn extend(options: &mut MkfsOptions, words: &[String]) -> Result<(), String> {
    for word in words {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        one(options, name, value).map_err(|why| format!("-E {word}: {why}"))?;
    }
    Ok(())
}

fn one(options: &mut MkfsOptions, name: &str, value: Option<&str>) -> Result<(), String> {
    let given = || value.ok_or("a value is missing");
    match name {
        "stride" => options.stride = number(given()?)?,
        "stripe_width" | "stripe-width" => options.stripe_width = number(given()?)?,
        "hash_seed" => options.hash_seed = Some(parse_uuid(given()?)?),
        "root_owner" => {
            options.root_owner = match value {
                Some(ids) => parse_ids(ids)?,
                None => {
                    use rustix::process::{getegid, geteuid};
                    (geteuid().as_raw(), getegid().as_raw())
                }
            }
        }
        "lazy_itable_init" => {
            options.inode_tables =
                if switch(value)? { InodeTables::Lazy } else { InodeTables::Zeroed }
        }
        // This word has no effect, because Lanefs always zeroes the journal.
        "lazy_journal_init" => drop(switch(value)?),
        "resize" => options.most_blocks = Some(blocks(options, given()?)?),
        "packed_meta_blocks" => {
            options.tables =
                if switch(value)? { TablePlaces::AtStart } else { TablePlaces::ByGroup }
        }
        "encoding" => match given()? {
            "utf8" | "utf8-12.1" => options.features.incompat |= Incompat::CASEFOLD,
            _ => return Err("the only encoding is utf8-12.1".into()),
        },
        "encoding_flags" => {
            options.folding = match given()? {
                "strict" => Folding::Strict,
                "nostrict" => Folding::Lenient,
                _ => return Err("neither strict nor nostrict".into()),
            }
        }
        "offset" => drop(given()?.parse::<Size>()?),
        "discard" | "nodiscard" => {}
        "test_fs" => options.is_test = true,
        "revision" => match given()? {
            "1" => {}
            _ => return Err("only revision 1 is made".into()),
        },
        "num_backup_sb" => match given()? {
            "2" => {}
            _ => return Err("sparse_super2 has two backups here".into()),
        },
        "mmp_update_interval" => {
            options.mmp_update_interval = match number(given()?)? {
                0 => MkfsOptions::default().mmp_update_interval,
                seconds @ 1..=300 => seconds,
                _ => return Err("more than 300 seconds".into()),
            }
        }
        "quotatype" => return Err("Lanefs does not make quota files".into()),
        "orphan_file_size" => {
            return Err("the size of the orphan file follows from the size".into());
        }
        _ => return Err("not a word that mke2fs or Lanefs knows".into()),
    }
    Ok(())
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number in range"))
}

/// A word without a value means 1, as in mke2fs.
fn switch(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => Err("neither 0 nor 1".into()),
    }
}

/// Parses a number of blocks, or a size with a suffix.
fn blocks(options: &MkfsOptions, text: &str) -> Result<u64, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text);
    }
    let bits = options.block_size.ok_or("a size with a suffix needs -b")?.bits();
    Ok(parse_size(text)? >> bits)
}
