//! Which commands confine themselves before they open an image, and what each may still do
//! (`docs/jail.md`).

use crate::cli::{ImagePath, complain};
use clap::{Arg, ArgAction, ArgMatches};
use lanefs::Source;
use lanefs::device::{file_of, is_uri};
use lanefs_jail::{Capability, Jail};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// What a command does with its images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Change,
}

/// Whether a command may ask the host for the names of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Asked,
    No,
}

/// The commands with a jail. What they do with files of the host beside images is in [`jail`].
const JAILED: [(&str, Use, Names); 30] = [
    ("ls", Use::Read, Names::Asked),
    ("tree", Use::Read, Names::No),
    ("cat", Use::Read, Names::No),
    ("stat", Use::Read, Names::Asked),
    ("find", Use::Read, Names::Asked),
    ("getfattr", Use::Read, Names::No),
    ("getfacl", Use::Read, Names::Asked),
    ("df", Use::Read, Names::No),
    ("du", Use::Read, Names::No),
    ("filefrag", Use::Read, Names::No),
    ("info", Use::Read, Names::No),
    ("disk", Use::Read, Names::No),
    ("check", Use::Read, Names::No),
    ("diff", Use::Read, Names::No),
    ("tar", Use::Read, Names::Asked),
    ("chmod", Use::Change, Names::No),
    ("chown", Use::Change, Names::Asked),
    ("touch", Use::Change, Names::No),
    ("truncate", Use::Change, Names::No),
    ("fallocate", Use::Change, Names::No),
    ("mkdir", Use::Change, Names::No),
    ("ln", Use::Change, Names::No),
    ("rm", Use::Change, Names::No),
    ("setfattr", Use::Change, Names::No),
    ("setfacl", Use::Change, Names::Asked),
    ("defrag", Use::Change, Names::No),
    ("quota", Use::Change, Names::No),
    ("tune", Use::Change, Names::No),
    ("recover", Use::Change, Names::No),
    ("repair", Use::Change, Names::No),
];

/// The arguments that name images, alone or with a path in them.
const IMAGES: [&str; 9] =
    ["places", "place", "image", "images", "words", "a", "b", "link", "journal"];
/// The arguments that name files of the host that are read.
const READ: [&str; 3] = ["keys", "restore", "undo_apply"];
/// The arguments that name files of the host that are made.
const MADE: [&str; 2] = ["file", "undo"];

/// What every command may read: what the host says about its devices, mounts, times and users.
const HOST: [&str; 16] = [
    "/proc/self",
    "/proc/swaps",
    "/proc/partitions",
    "/sys",
    "/etc/localtime",
    "/etc/zoneinfo",
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/ld.so.cache",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];
/// What the name of another machine needs.
const NET: [&str; 5] =
    ["/etc/hosts", "/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services"];

/// Adds `--no-jail` and `--verbose` to a command that has a jail.
pub fn with_options(command: clap::Command) -> clap::Command {
    if !JAILED.iter().any(|(name, ..)| *name == command.get_name()) {
        return command;
    }
    let has_verbose = command.get_arguments().any(|argument| argument.get_id() == "verbose");
    let flag = |name: &'static str, help| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help).display_order(999)
    };
    let command = command.arg(flag("no-jail", "Do not confine the command to what it needs"));
    match has_verbose {
        true => command,
        false => command.arg(flag("verbose", "Print which walls of the jail are missing, and why")),
    }
}

/// Confines the process to what the command needs, if the command has a jail.
pub fn enter(matches: &ArgMatches) {
    let Some((name, given)) = matches.subcommand() else { return };
    let is_on = |flag| given.try_get_one(flag).ok().flatten() == Some(&true);
    let row = JAILED.iter().find(|(command, ..)| *command == name);
    if let Some((_, access, names)) = row.filter(|_| !is_on("no-jail")) {
        let missing = match jail(name, *access, *names, given) {
            Ok(jail) => match jail.enter() {
                Ok(walls) => walls.missing().to_vec(),
                Err(error) => vec![error.to_string()],
            },
            Err(why) => vec![format!("none: {why}")],
        };
        if is_on("verbose") {
            missing.iter().for_each(|why| complain(format_args!("lanefs {name}: jail: {why}")));
        }
    }
    #[cfg(feature = "misbehave")]
    misbehave::attempt();
}

/// Returns the jail of a command.
///
/// # Errors
/// Why this use of the command gets none.
fn jail(
    command: &str,
    access: Use,
    names: Names,
    given: &ArgMatches,
) -> Result<Jail, &'static str> {
    if std::env::var_os("LD_PRELOAD").is_some_and(|value| !value.is_empty()) {
        return Err("LD_PRELOAD puts other code into the command");
    }
    if names == Names::Asked && !names_are_in_files() {
        return Err("/etc/nsswitch.conf names services for users other than files");
    }
    let values = |ids: &[&str]| -> Vec<OsString> {
        let raw = ids.iter().filter_map(|id| given.try_get_raw(id).ok().flatten());
        raw.flatten().map(OsStr::to_os_string).collect()
    };
    let zones = ["TZ", "TZDIR"].into_iter().filter_map(std::env::var_os);
    let zones = zones.map(|zone| PathBuf::from(zone.to_string_lossy().trim_start_matches(':')));
    let mut jail = Jail::new()
        .read(HOST)
        .read(zones.filter(|zone| zone.is_absolute()))
        .read(values(&READ))
        .keep(Capability::DacOverride);
    for value in values(&IMAGES) {
        // A disk that has no partition of this name is looked at for the message.
        jail = jail.read(value.to_string_lossy().rsplit_once('@').map(|(disk, _)| disk));
        for name in [ImagePath::from(value.clone()).image, value.into()] {
            let files = match Source::array_name(&name) {
                Some(array) => {
                    let members = array.listed().ok_or("the members of the array are searched")?;
                    members.to_vec()
                }
                None => vec![file_of(&name).to_path_buf(), name],
            };
            for file in files {
                jail = match access {
                    _ if is_uri(&file) => jail.sockets().read(NET),
                    _ if file.is_dir() && command == "diff" => {
                        return Err("a directory of the host is compared");
                    }
                    _ if file.is_dir() => jail,
                    Use::Change if command == "repair" => undo_files(jail.write([&file]), &file),
                    Use::Read => jail.read([file]),
                    Use::Change => jail.write([file]),
                };
            }
        }
    }
    for made in values(&MADE).iter().map(Path::new) {
        jail = match made.metadata() {
            Ok(found) if found.is_file() && command == "tar" => {
                return Err("the output replaces a file, with its attributes");
            }
            Ok(found) if !found.is_file() => jail.write([made]),
            Ok(_) => jail.write([made]).make_in([folder(made)]),
            Err(_) if made.is_symlink() => return Err("the output is a link that leads nowhere"),
            Err(_) => jail.make_in([folder(made)]),
        };
    }
    Ok(jail)
}

fn folder(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Allows making undo files beside an image, and reading those to which a link there leads.
fn undo_files(jail: Jail, image: &Path) -> Jail {
    let Ok(image) = image.canonicalize() else { return jail };
    if !image.is_file() {
        return jail;
    }
    let beside = folder(&image);
    let entries = std::fs::read_dir(beside).into_iter().flatten().flatten();
    let undo = entries.map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains(".undo"))
    });
    jail.read(undo).make_in([beside])
}

/// Returns whether the C library finds the users and groups of the host in files. Other services
/// are asked through sockets. What the module of systemd adds to the files are passing users of
/// its services.
fn names_are_in_files() -> bool {
    let text = std::fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let of = lines.filter_map(|line| line.trim().split_once(':'));
    let mut services = of
        .filter(|(database, _)| matches!(*database, "passwd" | "group"))
        .flat_map(|(_, services)| services.split_whitespace());
    services.all(|service| matches!(service, "files" | "systemd") || service.starts_with('['))
}

#[cfg(feature = "misbehave")]
#[path = "../../tests/misbehaving/mod.rs"]
mod misbehave;
