//! Parses the values of tune2fs's options: mount options, features, journals, times.

use crate::cli::parse_size;
use lanefs_offline::{FeatureChange, OptionChange, Settings};
use lanefs_ondisk::Time;
use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat};
use lanefs_ondisk::superblock::{DefaultMountOptions as Options, OnError, SuperFlags};
use std::path::PathBuf;

pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    match text {
        "random" | "time" => Ok(lanefs_mkfs::random_uuid()),
        "clear" | "null" => Ok([0; 16]),
        text => match text.parse::<uuid::Uuid>() {
            Ok(uuid) => Ok(*uuid.as_bytes()),
            Err(_) => Err(format!("'{text}' is not a UUID, random or clear")),
        },
    }
}

pub fn parse_on_error(text: &str) -> Result<OnError, String> {
    match text {
        "continue" => Ok(OnError::Continue),
        "remount-ro" => Ok(OnError::ReadOnly),
        "panic" => Ok(OnError::Panic),
        text => Err(format!("'{text}' is not continue, remount-ro or panic")),
    }
}

/// The value of `-J`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JournalWords {
    /// In bytes.
    pub size: Option<u64>,
    /// In bytes.
    pub fast_commit_size: Option<u64>,
    /// The journal is on this device.
    pub device: Option<PathBuf>,
}

/// Parses the value of `-J`: either `SIZE`, or `size=MIB`, `fast_commit_size=KIB` and
/// `device=PATH`, separated by commas. A number without a suffix counts bytes in `SIZE`, MiB after
/// `size=`, and KiB after `fast_commit_size=`. The latter two are as in mke2fs.
pub fn parse_journal(text: &str) -> Result<JournalWords, String> {
    let mut words = JournalWords::default();
    let in_units = |number: &str, unit: &str| {
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
        parse_size(&if is_plain { format!("{number}{unit}") } else { number.to_owned() })
    };
    for word in text.split(',') {
        match word.split_once('=') {
            None => words.size = Some(parse_size(word)?),
            Some(("size", size)) => words.size = Some(in_units(size, "M")?),
            Some(("fast_commit_size", size)) => words.fast_commit_size = Some(in_units(size, "K")?),
            Some(("device", path)) if !path.is_empty() => words.device = Some(path.into()),
            Some((word, _)) => {
                return Err(format!("'{word}': not size=, fast_commit_size= or device="));
            }
        }
    }
    match words.device.is_some() && (words.size.is_some() || words.fast_commit_size.is_some()) {
        true => Err("device= excludes a size: the journal is there already".into()),
        false => Ok(words),
    }
}

/// Parses an interval in days, weeks, or months of 30 days. Returns it in seconds.
pub fn parse_interval(text: &str) -> Result<u32, String> {
    const DAY: u32 = 86_400;
    let bad = || format!("'{text}' is not an interval (examples: 0, 30, 2w, 6m)");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" | "d" => DAY,
        "w" => 7 * DAY,
        "m" => 30 * DAY,
        _ => return Err(bad()),
    };
    let number: u32 = number.parse().map_err(|_| bad())?;
    number.checked_mul(unit).ok_or_else(bad)
}

pub fn parse_checked(text: &str) -> Result<u64, String> {
    if text == "now" {
        return Ok(Time::now().secs as u64);
    }
    let seconds = text.strip_prefix('@').unwrap_or(text);
    // The field of the superblock has 40 bits. A time is refused if the 34 bits of an inode's time
    // could not hold it.
    let seconds = seconds.parse::<u64>().ok().filter(|seconds| *seconds < 1 << 34);
    seconds.ok_or_else(|| format!("'{text}' is not now, or @ and seconds since 1970"))
}

const DATA: Options = Options::DATA_JOURNAL.union(Options::DATA_ORDERED);

/// The default mount options: name, bits and the mask of the bits that the option decides.
pub const DEFAULT_OPTIONS: [(&str, Options, Options); 12] = [
    ("debug", Options::DEBUG, Options::DEBUG),
    ("bsdgroups", Options::BSD_GROUPS, Options::BSD_GROUPS),
    ("user_xattr", Options::USER_XATTR, Options::USER_XATTR),
    ("acl", Options::ACL, Options::ACL),
    ("uid16", Options::UID16, Options::UID16),
    ("nobarrier", Options::NO_BARRIER, Options::NO_BARRIER),
    ("block_validity", Options::BLOCK_VALIDITY, Options::BLOCK_VALIDITY),
    ("discard", Options::DISCARD, Options::DISCARD),
    ("nodelalloc", Options::NO_DELALLOC, Options::NO_DELALLOC),
    ("journal_data", Options::DATA_JOURNAL, DATA),
    ("journal_data_ordered", Options::DATA_ORDERED, DATA),
    ("journal_data_writeback", DATA, DATA),
];

/// Parses one mount option of `-o`.
pub fn default_option(word: &str) -> Result<OptionChange, String> {
    let (name, clear) = split(word);
    let known = DEFAULT_OPTIONS.into_iter().find(|(known, ..)| *known == name);
    let unknown = || format!("-o: unknown mount option '{name}'");
    let (_, options, mask) = known.ok_or_else(unknown)?;
    let options = if clear { Options::empty() } else { options };
    Ok(OptionChange { options, mask })
}

/// Parses the features of `-O`.
pub fn features(words: &[String]) -> Result<FeatureChange, String> {
    let mut change = FeatureChange::default();
    for word in words {
        let (name, clear) = split(word);
        let feature =
            Features::by_name(name).ok_or_else(|| format!("-O: unknown feature '{name}'"))?;
        let words = if clear { &mut change.clear } else { &mut change.set };
        let Features { compat, incompat, ro_compat } = words;
        *compat |= feature.compat & Compat::all();
        *incompat |= feature.incompat & Incompat::all();
        *ro_compat |= feature.ro_compat & RoCompat::all();
    }
    Ok(change)
}

/// Applies one setting of `-E`.
pub fn extend(settings: &mut Settings, word: &str) -> Result<(), String> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let number = || value.parse::<u32>().map_err(|_| format!("-E {word}: not a number"));
    let short = || u16::try_from(number()?).map_err(|_| format!("-E {word}: too large"));
    match name {
        "hash_alg" => {
            settings.hash = Some(match value {
                "legacy" => 0,
                "half_md4" => 1,
                "tea" => 2,
                _ => return Err(format!("-E {word}: not legacy, half_md4 or tea")),
            });
        }
        "mount_opts" => settings.mount_options = Some(value.as_bytes().to_vec()),
        "stride" => settings.stride = Some(short()?),
        "stripe_width" | "stripe-width" => settings.stripe_width = Some(number()?),
        "mmp_update_interval" => settings.mmp_interval = Some(short()?),
        "test_fs" => settings.test = Some(SuperFlags::TEST_FILESYS),
        "^test_fs" => settings.test = Some(SuperFlags::empty()),
        "force_fsck" => settings.force_check = true,
        _ => return Err(format!("-E: '{name}' is not a setting of lanefs tune (see --help)")),
    }
    Ok(())
}

/// Returns the name in a word, and whether a `^` or `-` before the name asks to clear this feature
/// or option.
fn split(word: &str) -> (&str, bool) {
    match word.strip_prefix('^').or_else(|| word.strip_prefix('-')) {
        Some(name) => (name, true),
        None => (word.strip_prefix('+').unwrap_or(word), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_tune2fs() {
        assert_eq!(parse_interval("6m"), Ok(6 * 30 * 86_400));
        assert_eq!(parse_interval("3"), Ok(3 * 86_400));
        assert!(parse_interval("3y").is_err() && parse_interval("").is_err());
        assert_eq!(parse_checked("@77"), Ok(77));
        assert!(parse_uuid("x").is_err());
        let ordered = default_option("journal_data_ordered").unwrap();
        assert_eq!(ordered.mask, Options::DATA_JOURNAL | Options::DATA_ORDERED);
        assert_eq!(default_option("^acl").unwrap().options, Options::empty());
        let words = ["^has_journal".into(), "large_file".into()];
        let change = features(&words).unwrap();
        assert_eq!(change.clear.compat, Compat::HAS_JOURNAL);
        assert_eq!(change.set.ro_compat, RoCompat::LARGE_FILE);
        assert!(features(&["nonsense".into()]).is_err());
    }
}
