//! The mount options that concern ids: `fakeroot`, `uid=`, `gid=` and `idmap=`.

use super::map::Map;
use super::maps::Ids;
use super::ranges::{Range, RangeError, Ranges};
use thiserror::Error;

/// The options of a mount that concern ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdOptions {
    fakeroot: bool,
    uid: Option<u32>,
    gid: Option<u32>,
    users: Ranges,
    groups: Ranges,
}

/// The error of an option with an invalid value. The text names the accepted values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionValue(pub &'static str);

/// Two options that exclude each other, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("mount options {0} and {1} exclude each other: {2}")]
pub struct Conflict(pub &'static str, pub &'static str, pub &'static str);

impl IdOptions {
    /// Lets the owner of the mount act as root of the image.
    pub fn set_fakeroot(&mut self) {
        self.fakeroot = true;
    }

    /// Shows all files as owned by the user `text`.
    ///
    /// # Errors
    /// If `text` is not an id.
    pub fn set_user(&mut self, text: Option<&str>) -> Result<(), OptionValue> {
        self.uid = Some(id(text).ok_or(OptionValue("the number of a user"))?);
        Ok(())
    }

    /// Shows all files as belonging to the group `text`.
    ///
    /// # Errors
    /// If `text` is not an id.
    pub fn set_group(&mut self, text: Option<&str>) -> Result<(), OptionValue> {
        self.gid = Some(id(text).ok_or(OptionValue("the number of a group"))?);
        Ok(())
    }

    /// Adds maps in the form of mount(8)'s X-mount.idmap: `[u:|g:|b:]SHOWN:STORED:COUNT`, with
    /// spaces between maps. A map without a letter, or with `b`, is for users and groups.
    ///
    /// # Errors
    /// If `text` has another form, or ranges overlap.
    pub fn add_map(&mut self, text: Option<&str>) -> Result<(), OptionValue> {
        let mut maps = text.unwrap_or_default().split_whitespace().peekable();
        if maps.peek().is_none() {
            return Err(wrong(RangeError::Syntax));
        }
        maps.try_for_each(|map| self.add_range(map)).map_err(wrong)
    }

    fn add_range(&mut self, text: &str) -> Result<(), RangeError> {
        let (kind, numbers) = match text.split_once(':') {
            Some((kind @ ("u" | "g" | "b"), numbers)) => (kind, numbers),
            _ => ("b", text),
        };
        let range: Range = numbers.parse()?;
        if kind != "g" {
            self.users.add(range)?;
        }
        if kind != "u" {
            self.groups.add(range)?;
        }
        Ok(())
    }

    /// Returns the map for a mount of user `owner`. If that user is root, `fakeroot` maps nothing.
    ///
    /// # Errors
    /// If options exclude each other.
    pub fn ids(&self, owner: u32) -> Result<Ids, Conflict> {
        let has_ranges = !self.users.is_empty() || !self.groups.is_empty();
        if has_ranges && (self.uid.is_some() || self.gid.is_some()) {
            return Err(Conflict("idmap", "uid, gid", "each sets the owners that are shown"));
        }
        if has_ranges && self.fakeroot {
            return Err(Conflict(
                "idmap",
                "fakeroot",
                "each sets the user that is root of the image",
            ));
        }
        let map = |shown: Option<u32>, ranges: &Ranges| match shown {
            Some(id) => Map::ShownAs(id),
            None if ranges.is_empty() => Map::Same,
            None => Map::Ranges(ranges.clone()),
        };
        Ok(Ids {
            users: map(self.uid, &self.users),
            groups: map(self.gid, &self.groups),
            fakeroot: (self.fakeroot && owner != 0).then_some(owner),
        })
    }
}

fn id(text: Option<&str>) -> Option<u32> {
    text?.parse().ok().filter(|&id| id != u32::MAX)
}

fn wrong(error: RangeError) -> OptionValue {
    OptionValue(match error {
        RangeError::Syntax => "[u:|g:|b:]SHOWN:STORED:COUNT in numbers",
        RangeError::Extent => "a range of at least one id, and none above 4294967293",
        RangeError::Overlap => "a range beside the others: it overlaps one",
    })
}
