//! `lanefs chown`

use crate::cli::{
    Failure, FileArguments, ImagePath, Intent, OwnerChange, UserNames, long_help, with_each,
};
use crate::copy::{Settings, Tree};
use crate::walk::{Depth, each_file};
use lanefs::Follow;
use std::process::ExitCode;

/// Changes owners in an image
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
Names are looked up in /etc/passwd and /etc/group of the image, or of the host if the image has
none.

Examples:
  lanefs chown -R 1000:1000 disk.img:/home/ann
  lanefs chown :wheel disk.img:/usr/bin/sudo")]
pub struct Arguments {
    /// USER, USER:GROUP or :GROUP; names or numbers
    owner: OwnerChange,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Change directories and everything in them; change symbolic links themselves, not their
    /// targets
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs chown`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let depth = if arguments.recursive { Depth::Tree } else { Depth::Itself };
    let follow = match arguments.no_dereference || arguments.recursive {
        true => Follow::Nothing,
        false => Follow::Links,
    };
    let places = &arguments.places;
    with_each("chown", &arguments.image, Intent::Change, places, |fs, place, report| {
        let owner = arguments.owner.resolve(&UserNames::of(fs));
        let (uid, gid) = owner.map_err(|error| Failure::new(place, error))?;
        each_file(fs, place, depth, follow, report, &mut |tree, _, entry| {
            let owner = (uid.unwrap_or(entry.meta.uid), gid.unwrap_or(entry.meta.gid));
            tree.set(&entry.node, &Settings { owner: Some(owner), ..Settings::default() })
        })
    })
}
