//! `lanefs raid`: RAID-5 arrays in Linux md's own format.

mod array;
mod change;
mod create;
mod examine;
mod facts;
mod live;
mod member_name;
mod members;
mod new_member;
mod pace;
mod progress;
mod recover;
mod scrub;
mod scrub_place;
mod scrub_report;
mod status;

pub use array::look_at;
pub use live::{ArrayFigures, LiveArray, LiveControl};

use clap::Subcommand;
use std::process::ExitCode;

/// Makes and maintains RAID-5 arrays in the format of Linux md
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs raid create a.img b.img c.img d.img --size 2G       makes the image files
  lanefs mkfs md:a.img,b.img,c.img,d.img                     makes a file system on it
  lanefs mount md:a.img,b.img,missing,d.img mnt              any order, one may be missing
  lanefs raid status md:a.img,b.img,c.img,d.img
  lanefs raid add md:a.img,b.img,missing,d.img new.img       rebuilds on new.img

ARRAY is md:MEMBER,MEMBER,... as above, or md:UUID to search the block devices for its members, or
md:UUID,DIRECTORY to search a directory. While the array is mounted, root and the owner of the mount
can use status, scrub, fail, remove, add and replace: the mount's server makes the change, even if
the command is interrupted. docs/raid5.md says how arrays work.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(create::Arguments),
    Examine(examine::Arguments),
    Status(status::Arguments),
    Fail(members::FailArguments),
    Remove(members::RemoveArguments),
    Add(members::AddArguments),
    Replace(members::ReplaceArguments),
    Recover(recover::Arguments),
    Scrub(scrub::Arguments),
}

/// Runs a subcommand.
pub fn run(arguments: &Arguments) -> ExitCode {
    match &arguments.command {
        Command::Create(arguments) => create::run(arguments),
        Command::Examine(arguments) => examine::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Fail(arguments) => members::fail(arguments),
        Command::Remove(arguments) => members::remove(arguments),
        Command::Add(arguments) => members::add(arguments),
        Command::Replace(arguments) => members::replace(arguments),
        Command::Recover(arguments) => recover::run(arguments),
        Command::Scrub(arguments) => scrub::run(arguments),
    }
}
