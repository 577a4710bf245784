//! Names of users and groups: from the image's own databases if it has any, else from the host's.

use super::Failure;
use lanefs::FileSystem;
use std::collections::HashMap;
use std::fmt::Display;
use std::io::Read;

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
}

/// Parses lines of `name:password:id:...`, the form of passwd(5) and group(5).
fn parse(database: &str) -> Names {
    let mut names = Names::default();
    for line in database.lines() {
        let mut fields = line.split(':');
        let (Some(name), _, Some(id)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
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
               (--owner, mkfs --table), or use cp -a of the package lanefs, linked dynamically";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_means_no_change_names_no_user() {
        assert_eq!(parse_id("4294967294"), Some(u32::MAX - 1));
        for text in ["4294967295", "4294967296", "-1", "ann", ""] {
            assert_eq!(parse_id(text), None, "{text}");
        }
    }

    fn sample() -> UserNames {
        let passwd = "root:x:0:0::/root:/bin/sh\nbad line\nann:x:1000:100::/:\nroot2:x:0:0\n";
        let users = Some(parse(passwd));
        UserNames { users, groups: Some(parse("wheel:x:10:ann\n")) }
    }

    #[test]
    fn the_images_own_names_are_used() {
        let names = sample();
        assert_eq!(names.user(0), "root");
        assert_eq!(names.uid("ann"), Ok(1000));
        assert_eq!(names.group(10), "wheel");
        assert_eq!(names.gid("wheel"), Ok(10));
    }

    #[test]
    fn numbers_stand_for_themselves() {
        let names = sample();
        assert_eq!(names.user(77), "77");
        assert_eq!(names.uid("77"), Ok(77));
        assert!(names.uid("bob").is_err());
        assert!(names.uid("-1").is_err());
    }
}
