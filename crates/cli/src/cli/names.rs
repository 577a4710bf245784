//! Names of users and groups: from the image's own databases if it has any, else from the host's.

use crate::cli::Failure;
use lanefs::FileSystem;
use std::collections::HashMap;
use std::fmt::Display;
use std::io::Read;
use std::str::FromStr;

/// At most this many bytes of a user database are read.
const MAX_DATABASE: u64 = 4 << 20;

/// The names of the user and group IDs in an image.
pub struct UserNames {
    /// `None` if the image has no database; the C library is asked instead.
    users: Option<Names>,
    groups: Option<Names>,
}

#[derive(Default)]
struct Names {
    by_name: HashMap<String, u32>,
    by_id: HashMap<u32, String>,
    /// In a database of users, the group of each user.
    login_groups: HashMap<String, u32>,
}

/// Parses lines of `name:password:id:...`, the form of passwd(5) and group(5).
fn parse(database: &str) -> Names {
    let mut names = Names::default();
    for line in database.lines() {
        let mut fields = line.split(':');
        let (Some(name), _, Some(id)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if let Some(Ok(group)) = fields.next().map(str::parse) {
            names.login_groups.entry(name.into()).or_insert(group);
        }
        if let Ok(id) = id.parse() {
            // If a name or ID occurs twice, the first entry is used, as in the C library.
            names.by_name.entry(name.into()).or_insert(id);
            names.by_id.entry(id).or_insert_with(|| name.into());
        }
    }
    names
}

fn read(fs: &FileSystem, path: &str) -> Option<Names> {
    let file = fs.open_file(path).ok()?;
    let mut database = Vec::new();
    file.take(MAX_DATABASE).read_to_end(&mut database).ok()?;
    Some(parse(&String::from_utf8_lossy(&database)))
}

/// Reads a database of the host. Returns `None` if the C library is to be asked, which also knows
/// other databases. A static binary must not ask it: glibc would load modules of the host, which
/// fit only the host's own C library.
fn of_host(path: &str) -> Option<Names> {
    let file = cfg!(target_feature = "crt-static").then(|| std::fs::File::open(path))?;
    let mut database = Vec::new();
    let read = file.and_then(|file| file.take(MAX_DATABASE).read_to_end(&mut database));
    Some(read.map_or_else(|_| Names::default(), |_| parse(&String::from_utf8_lossy(&database))))
}

/// Refuses to use the owners of the host's files in a static binary under fakeroot or pseudo. These
/// show other owners by replacing functions of the C library, which a static binary does not call.
pub fn refuse_hidden_owners(of: impl Display) -> Result<(), Failure> {
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let preloaded = preloaded.to_string_lossy();
    let fakes = ["libfakeroot", "libpseudo"].iter().any(|library| preloaded.contains(library));
    if !cfg!(target_feature = "crt-static") || !fakes {
        return Ok(());
    }
    let why = "fakeroot and pseudo cannot show their owners to this static binary: set the owners \
               (--owner, mkfs --table), or use the package lanefs, which is linked dynamically";
    Err(Failure::new(of, why))
}

/// Parses a user or group ID. The largest number is not an ID, because in chown(2) it means
/// "unchanged".
pub fn parse_id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&id| id != u32::MAX)
}

impl UserNames {
    /// Reads the user and group names that are valid in `fs`.
    pub fn of(fs: &FileSystem) -> UserNames {
        let names = |path| read(fs, path).or_else(|| of_host(path));
        UserNames { users: names("/etc/passwd"), groups: names("/etc/group") }
    }

    /// Returns an empty database: all users and groups are shown as numbers.
    pub fn numbers() -> UserNames {
        UserNames { users: Some(Names::default()), groups: Some(Names::default()) }
    }

    /// Returns a user's name, or the number if the user has no name.
    pub fn user(&self, uid: u32) -> String {
        let name = match &self.users {
            Some(users) => users.by_id.get(&uid).cloned(),
            None => {
                uzers::get_user_by_uid(uid).map(|user| user.name().to_string_lossy().into_owned())
            }
        };
        name.unwrap_or_else(|| uid.to_string())
    }

    /// Returns a group's name, or the number if the group has no name.
    pub fn group(&self, gid: u32) -> String {
        let name = match &self.groups {
            Some(groups) => groups.by_id.get(&gid).cloned(),
            None => uzers::get_group_by_gid(gid)
                .map(|group| group.name().to_string_lossy().into_owned()),
        };
        name.unwrap_or_else(|| gid.to_string())
    }

    /// Returns the number of a user, given by name or number.
    pub fn uid(&self, user: &str) -> Result<u32, String> {
        let named = match &self.users {
            Some(users) => users.by_name.get(user).copied(),
            None => uzers::get_user_by_name(user).map(|user| user.uid()),
        };
        named.or_else(|| parse_id(user)).ok_or_else(|| format!("no such user: {user}"))
    }

    /// Returns the group of a user, given by name.
    fn login_group(&self, user: &str) -> Result<u32, String> {
        let group = match &self.users {
            Some(users) => users.login_groups.get(user).copied(),
            None => uzers::get_user_by_name(user).map(|user| user.primary_group_id()),
        };
        group.ok_or_else(|| format!("no user of this name, so no login group: {user}"))
    }

    /// Returns the number of a group, given by name or number.
    pub fn gid(&self, group: &str) -> Result<u32, String> {
        let named = match &self.groups {
            Some(groups) => groups.by_name.get(group).copied(),
            None => uzers::get_group_by_name(group).map(|group| group.gid()),
        };
        named.or_else(|| parse_id(group)).ok_or_else(|| format!("no such group: {group}"))
    }
}

/// Parses `UID:GID` in numbers.
pub fn parse_ids(text: &str) -> Result<(u32, u32), String> {
    let numbers =
        text.split_once(':').and_then(|(uid, gid)| Some((parse_id(uid)?, parse_id(gid)?)));
    numbers.ok_or_else(|| format!("'{text}' is not UID:GID in numbers"))
}

/// The new owner of a file; names are not looked up yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerChange {
    user: Option<String>,
    group: Option<NewGroup>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NewGroup {
    Named(String),
    /// The login group of the new owner.
    OfUser(String),
}

impl FromStr for OwnerChange {
    type Err = String;
    fn from_str(text: &str) -> Result<OwnerChange, String> {
        let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
        let user = (!user.is_empty()).then(|| user.to_owned());
        let group = match (group, &user) {
            (Some(""), Some(user)) => Some(NewGroup::OfUser(user.clone())),
            (Some(""), None) | (None, _) => None,
            (Some(group), _) => Some(NewGroup::Named(group.into())),
        };
        Ok(OwnerChange { user, group })
    }
}

impl OwnerChange {
    /// Returns the user ID and the group ID; `None` means that the owner or the group stays
    /// unchanged.
    pub fn resolve(&self, names: &UserNames) -> Result<(Option<u32>, Option<u32>), String> {
        let uid = self.user.as_deref().map(|user| names.uid(user)).transpose()?;
        let gid = self.group.as_ref().map(|group| match group {
            NewGroup::Named(group) => names.gid(group),
            NewGroup::OfUser(user) => names.login_group(user),
        });
        Ok((uid, gid.transpose()?))
    }
}

#[cfg(test)]
mod tests;
