//! The subcommands. Those of a family share a file.

mod acls;
mod attributes;
mod bench;
mod check;
mod cp;
mod diff;
mod edit;
mod extents;
mod find;
mod fsck;
mod info;
mod jail;
mod list;
mod manual;
mod mkfs;
mod mount;
mod names;
mod quota;
mod raid;
mod recover;
mod repair;
mod resize;
mod stat;
mod stats;
mod tar;
mod tune;
mod umount;
mod usage;
mod xattrs;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

const TERM_WIDTH: usize = 100;

/// ext4 in user space that keeps scaling as cores are added.
#[derive(Debug, Parser)]
#[command(name = "lanefs", version, max_term_width = TERM_WIDTH)]
#[command(after_help = "\
IMAGE:/PATH names a file in an image. IMAGE@WHICH names a partition of a disk: by number, name=,
label=, uuid=, partuuid= or root; without it the only ext4 file system is taken. md:MEMBER,MEMBER,... names a RAID-5 array and can be given
wherever an image can. Exit codes: 0 success, 1 failure, 2 wrong usage.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Defines the subcommands, each with its word, the file, its arguments and its function.
macro_rules! commands {
    ($($variant:ident $word:literal: $file:ident $arguments:ident $run:ident;)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($variant(Box<$file::$arguments>),)*
        }

        impl Command {
            fn run(&self) -> ExitCode {
                match self {
                    $(Command::$variant(arguments) => $file::$run(arguments),)*
                }
            }

            /// Returns the description of the subcommand `name`.
            fn description(name: &str) -> Option<clap::Command> {
                match name {
                    $($word => {
                        let command = clap::Command::new($word);
                        Some(<$file::$arguments as clap::Args>::augment_args(command))
                    })*
                    _ => None,
                }
            }
        }
    };
}

commands! {
    Mkfs "mkfs": mkfs Arguments run;
    Info "info": info Arguments run;
    Disk "disk": info Disk disk;
    Ls "ls": list Ls ls;
    Tree "tree": list Tree tree;
    Stat "stat": stat Arguments run;
    Cat "cat": list Cat cat;
    Cp "cp": cp Arguments run;
    Mv "mv": names Mv mv;
    Rm "rm": names Rm rm;
    Mkdir "mkdir": names Mkdir mkdir;
    Ln "ln": names Ln ln;
    Chmod "chmod": attributes Chmod chmod;
    Chown "chown": attributes Chown chown;
    Touch "touch": attributes Touch touch;
    Truncate "truncate": attributes Truncate truncate;
    Fallocate "fallocate": attributes Allocate fallocate;
    Filefrag "filefrag": extents Filefrag filefrag;
    Defrag "defrag": extents Defrag defrag;
    Getfattr "getfattr": xattrs Getfattr getfattr;
    Setfattr "setfattr": xattrs Setfattr setfattr;
    Getfacl "getfacl": acls Getfacl getfacl;
    Setfacl "setfacl": acls Setfacl setfacl;
    Df "df": usage Df df;
    Du "du": usage Du du;
    Quota "quota": quota Arguments run;
    Tar "tar": tar Arguments run;
    Diff "diff": diff Arguments run;
    Find "find": find Arguments run;
    Raid "raid": raid Arguments run;
    Check "check": check Arguments run;
    Recover "recover": recover Arguments run;
    Repair "repair": repair Arguments run;
    Fsck "fsck": fsck Arguments run;
    Tune "tune": tune Arguments run;
    Trim "trim": extents Trim trim;
    Clone "clone": resize Clone clone;
    Resize "resize": resize Resize resize;
    Edit "edit": edit Arguments run;
    Bench "bench": bench Arguments run;
    Stats "stats": stats Arguments run;
    Mount "mount": mount Arguments run;
    Umount "umount": umount Arguments run;
    Completions "completions": manual Completions completions;
    Manual "manual": manual Manual manual;
}

/// Runs the command line `arguments`, with the program's name first.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments = as_helper(arguments);
    let description = described(arguments.get(1));
    match description.try_get_matches_from(&arguments) {
        Ok(matches) => {
            let arguments = Arguments::from_arg_matches(&matches);
            let arguments = arguments.unwrap_or_else(|error| error.exit());
            jail::enter(&matches);
            arguments.command.run()
        }
        // For fsck(8), 2 means that the system is to be rebooted.
        Err(error) if error.use_stderr() && arguments.get(1).is_some_and(|word| word == "fsck") => {
            let _ = error.print();
            ExitCode::from(16)
        }
        Err(error) => explained(error, &arguments).exit(),
    }
}

/// Adds advice to a usage error.
fn explained(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let is = |at: usize, word: &str| arguments.get(at).is_some_and(|given| given == word);
    let has_from = (2..arguments.len()).any(|at| is(at, "--from"));
    if error.kind() == ErrorKind::MissingRequiredArgument && is(1, "mkfs") && has_from {
        let advice = "--from takes all words after it as sources: write IMAGE before --from";
        let advice = ContextValue::StyledStrs(vec![StyledStr::from(advice)]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}

/// Returns clap's description of the command line. If the subcommand `name` exists, only that one
/// is described, because describing all subcommands takes longer than a short command runs.
fn described(name: Option<&OsString>) -> clap::Command {
    match name.and_then(|name| Command::description(name.to_str()?)) {
        Some(one) => {
            let all = clap::Command::new("lanefs").max_term_width(TERM_WIDTH);
            all.subcommand(completed(one))
        }
        None => description(),
    }
}

/// The exit codes of a command that describes none itself.
const EXIT_CODES: &str = "Exit codes: 0 success, 1 failure, 2 wrong usage.";
/// What is added for a command that works on several files.
const OF_SEVERAL: &str = " A file that fails does not stop the others, but an
image that cannot be opened does.";

/// Adds the options of the jail to a subcommand. Puts the exit codes before the examples in its
/// help, unless it has them.
fn completed(command: clap::Command) -> clap::Command {
    let command = jail::with_options(command);
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if command.has_subcommands() || help.contains("Exit codes") {
        return command;
    }
    let several =
        |argument: &clap::Arg| matches!(argument.get_id().as_str(), "places" | "operands");
    let more = if command.get_arguments().any(several) { OF_SEVERAL } else { "" };
    let (notes, examples) = help.split_at(help.rfind("\n\nExample").map_or(0, |at| at + 2));
    command.after_help(format!("{notes}{EXIT_CODES}{more}\n\n{examples}"))
}

/// Returns clap's description of the whole command line.
pub fn description() -> clap::Command {
    Arguments::command().mut_subcommands(completed)
}

/// Inserts the subcommand if it is missing. The name of a link to `lanefs` tells it: mount(8),
/// mkfs(8) and fsck(8) run `mount.TYPE`, `mkfs.TYPE` and `fsck.TYPE`. mount.fuse3 calls `lanefs`
/// itself with source and directory.
fn as_helper(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    let called = called.and_then(OsStr::to_str).and_then(|name| name.split_once('.'));
    // No subcommand has a slash in its name, but the source of a mount has one.
    let by_source = arguments.get(1).is_some_and(|first| {
        let first = first.as_encoded_bytes();
        !first.starts_with(b"-") && first.contains(&b'/')
    });
    let subcommand = match called {
        Some(("mount", _)) => "mount",
        Some(("mkfs", _)) => "mkfs",
        Some(("fsck", _)) => "fsck",
        _ if by_source => "mount",
        _ => return arguments,
    };
    if called.is_some() && subcommand == "mount" {
        // In mount(8), `-f` means to do everything except mounting; in `lanefs mount`, it means to
        // stay in the foreground.
        arguments.iter_mut().filter(|word| *word == "-f").for_each(|word| *word = "--fake".into());
    }
    arguments.insert(1, subcommand.into());
    arguments
}

#[cfg(test)]
mod tests;
