//! The subcommands, one file each.

mod mount;
mod umount;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// ext4 in user space that keeps scaling as cores are added.
#[derive(Debug, Parser)]
#[command(name = "lanefs", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mount(mount::Arguments),
    Umount(umount::Arguments),
}

/// Runs what `arguments` (the program's name first) ask for.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments = as_mount_helper(arguments);
    match Arguments::parse_from(arguments).command {
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => umount::run(&arguments),
    }
}

/// mount(8) calls a program named `mount.fuse.lanefs` with source and directory, and mount.fuse3
/// calls `lanefs` so, both without a subcommand: puts `mount` in.
fn as_mount_helper(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    let by_name = called.is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount."));
    // No subcommand has a slash in its name, and what can be mounted has one or exists.
    let by_source = arguments.get(1).is_some_and(|first| {
        let first = first.as_encoded_bytes();
        !first.starts_with(b"-") && first.contains(&b'/')
    });
    if by_name || by_source {
        arguments.insert(1, "mount".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn helped(words: &[&str]) -> Vec<String> {
        let words = words.iter().map(OsString::from).collect();
        as_mount_helper(words).into_iter().map(|w| w.into_string().unwrap()).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn mount_is_understood_without_a_subcommand() {
        let helper = ["/sbin/mount.fuse.lanefs", "disk.img", "/mnt", "-o", "rw,nosuid"];
        assert_eq!(helped(&helper)[1..3], ["mount", "disk.img"]);
        let fuse3 = ["lanefs", "/srv/disk.img", "/mnt", "-o", "rw,dev,suid"];
        assert_eq!(helped(&fuse3)[1], "mount");
        assert_eq!(helped(&["lanefs", "mount", "a", "b"])[1..], ["mount", "a", "b"]);
        assert_eq!(helped(&["lanefs", "--version"])[1], "--version");
    }

    #[test]
    fn mount_takes_options_as_mount_8_gives_them() {
        let line = ["lanefs", "mount", "a.img", "/mnt", "-o", "ro", "-o", "noatime", "-n", "-s"];
        let Command::Mount(mount) = Arguments::try_parse_from(line).unwrap().command else {
            panic!("not a mount");
        };
        assert_eq!(mount.options, ["ro", "noatime"]);
    }
}
