//! The subcommands, one file each.

mod bench;
mod cat;
mod check;
mod chmod;
mod chown;
mod clone;
mod cp;
mod defrag;
mod df;
mod diff;
mod du;
mod edit;
mod fallocate;
mod filefrag;
mod find;
mod getfacl;
mod getfattr;
mod info;
mod ln;
mod ls;
mod mkdir;
mod mkfs;
mod mount;
mod mv;
mod quota;
mod raid;
mod recover;
mod repair;
mod resize;
mod rm;
mod setfacl;
mod setfattr;
mod stat;
mod stats;
mod tar;
mod touch;
mod tree;
mod trim;
mod truncate;
mod tune;
mod umount;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// ext4 in user space that keeps scaling as cores are added.
#[derive(Debug, Parser)]
#[command(name = "lanefs", version, max_term_width = 100)]
#[command(after_help = "\
IMAGE:/PATH names a file in an image. md:MEMBER,MEMBER,... names a RAID-5 array and can be given
wherever an image can. Exit codes: 0 success, 1 failure, 2 wrong usage.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mkfs(Box<mkfs::Arguments>),
    Info(info::Arguments),
    Ls(ls::Arguments),
    Tree(tree::Arguments),
    Stat(stat::Arguments),
    Cat(cat::Arguments),
    Cp(cp::Arguments),
    Mv(mv::Arguments),
    Rm(rm::Arguments),
    Mkdir(mkdir::Arguments),
    Ln(ln::Arguments),
    Chmod(chmod::Arguments),
    Chown(chown::Arguments),
    Touch(touch::Arguments),
    Truncate(truncate::Arguments),
    Fallocate(fallocate::Arguments),
    Filefrag(filefrag::Arguments),
    Defrag(defrag::Arguments),
    Getfattr(getfattr::Arguments),
    Setfattr(setfattr::Arguments),
    Getfacl(getfacl::Arguments),
    Setfacl(setfacl::Arguments),
    Df(df::Arguments),
    Du(du::Arguments),
    Quota(quota::Arguments),
    Tar(tar::Arguments),
    Diff(diff::Arguments),
    Find(find::Arguments),
    Raid(raid::Arguments),
    Check(check::Arguments),
    Recover(recover::Arguments),
    Repair(repair::Arguments),
    Tune(tune::Arguments),
    Trim(trim::Arguments),
    Clone(clone::Arguments),
    Resize(resize::Arguments),
    Edit(edit::Arguments),
    Bench(bench::Arguments),
    Stats(stats::Arguments),
    Mount(mount::Arguments),
    Umount(umount::Arguments),
}

/// Runs the command line `arguments`, with the program's name first.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments = as_mount_helper(arguments);
    match Arguments::parse_from(arguments).command {
        Command::Mkfs(arguments) => mkfs::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Tree(arguments) => tree::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Cat(arguments) => cat::run(&arguments),
        Command::Cp(arguments) => cp::run(&arguments),
        Command::Mv(arguments) => mv::run(&arguments),
        Command::Rm(arguments) => rm::run(&arguments),
        Command::Mkdir(arguments) => mkdir::run(&arguments),
        Command::Ln(arguments) => ln::run(&arguments),
        Command::Chmod(arguments) => chmod::run(&arguments),
        Command::Chown(arguments) => chown::run(&arguments),
        Command::Touch(arguments) => touch::run(&arguments),
        Command::Truncate(arguments) => truncate::run(&arguments),
        Command::Fallocate(arguments) => fallocate::run(&arguments),
        Command::Filefrag(arguments) => filefrag::run(&arguments),
        Command::Defrag(arguments) => defrag::run(&arguments),
        Command::Getfattr(arguments) => getfattr::run(&arguments),
        Command::Setfattr(arguments) => setfattr::run(&arguments),
        Command::Getfacl(arguments) => getfacl::run(&arguments),
        Command::Setfacl(arguments) => setfacl::run(&arguments),
        Command::Df(arguments) => df::run(&arguments),
        Command::Du(arguments) => du::run(&arguments),
        Command::Quota(arguments) => quota::run(&arguments),
        Command::Tar(arguments) => tar::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Find(arguments) => find::run(&arguments),
        Command::Raid(arguments) => raid::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Recover(arguments) => recover::run(&arguments),
        Command::Repair(arguments) => repair::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Trim(arguments) => trim::run(&arguments),
        Command::Clone(arguments) => clone::run(&arguments),
        Command::Resize(arguments) => resize::run(&arguments),
        Command::Edit(arguments) => edit::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => umount::run(&arguments),
    }
}

/// Inserts the subcommand `mount` if it is missing: mount(8) calls a program named
/// `mount.fuse.lanefs` with source and directory, and mount.fuse3 calls `lanefs` in the same way.
fn as_mount_helper(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    let by_name = called.is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount."));
    // No subcommand has a slash in its name, but the source of a mount has one.
    let by_source = arguments.get(1).is_some_and(|first| {
        let first = first.as_encoded_bytes();
        !first.starts_with(b"-") && first.contains(&b'/')
    });
    if by_name {
        // In mount(8) `-f` means to do everything except the mount; here it means to stay in the
        // foreground.
        arguments.iter_mut().filter(|word| *word == "-f").for_each(|word| *word = "--fake".into());
    }
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
        let fake = ["mount.fuse.lanefs", "disk.img", "/mnt", "-f", "-o", "rw"];
        assert_eq!(helped(&fake)[4], "--fake");
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
