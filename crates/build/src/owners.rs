//! Rules that change owners.

use crate::error::{Cause, Error, Result};

/// A range of ids in the source, and the first id of the range in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdMap {
    /// First id in the source.
    pub from: u32,
    /// First id in the image.
    pub to: u32,
    /// Number of ids.
    pub count: u32,
}

/// Which owners the files get.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    /// The owner and group of all files. If they are given, the maps are not used.
    pub all: Option<(u32, u32)>,
    /// Maps of users. If there are no maps, ids are not changed. Otherwise an id outside of all
    /// ranges is an error.
    pub users: Vec<IdMap>,
    /// Maps of groups.
    pub groups: Vec<IdMap>,
}

impl std::str::FromStr for IdMap {
    type Err = String;

    /// Parses "FROM:TO:COUNT".
    fn from_str(text: &str) -> std::result::Result<IdMap, String> {
        let wrong = || format!("'{text}' is not FROM:TO:COUNT in numbers");
        let numbers: std::result::Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
        match numbers.map_err(|_| wrong())?.as_slice() {
            &[from, to, count] if count > 0 => {
                let fits = from.checked_add(count - 1).and(to.checked_add(count - 1));
                fits.map(|_| IdMap { from, to, count }).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl Owners {
    /// Returns the owner and group that a file with these ids in its source gets in the image.
    ///
    /// # Errors
    /// If no map has an id, or it is the largest number, which chown(2) takes for "unchanged".
    pub(crate) fn of(&self, uid: u32, gid: u32) -> Result<(u32, u32)> {
        let (uid, gid) = match self.all {
            Some(all) => all,
            None => (map(&self.users, uid, "user")?, map(&self.groups, gid, "group")?),
        };
        match uid.max(gid) {
            u32::MAX => Err(Error::new("", Cause::NoOwner)),
            _ => Ok((uid, gid)),
        }
    }
}

fn map(maps: &[IdMap], id: u32, kind: &'static str) -> Result<u32> {
    if maps.is_empty() {
        return Ok(id);
    }
    let mapped = maps.iter().find_map(|map| {
        let distance = id.checked_sub(map.from).filter(|distance| *distance < map.count)?;
        map.to.checked_add(distance)
    });
    mapped.ok_or_else(|| Error::new("", Cause::Unmapped { kind, id }))
}
