//! `lanefs chown`

use super::tree_walk::{Links, each_below};
use crate::cli::{
    ImageArguments, ImagePath, Images, Intent, OwnerChange, Report, UserNames, change_each,
    long_help,
};
use lanefs::{Follow, SetAttr};
use std::process::ExitCode;

/// Changes owners in an image
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
Names are looked up in /etc/passwd and /etc/group of the image, or of the host if the image has none.

Examples:
  lanefs chown -R 1000:1000 disk.img:/home/ann
  lanefs chown :wheel disk.img:/usr/bin/sudo")]
pub struct Arguments {
    /// USER, USER:GROUP or :GROUP; names or numbers
    owner: OwnerChange,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Change directories recursively; symbolic links in them are changed themselves
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    image: ImageArguments,
}

/// Runs `lanefs chown`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("chown");
    // Names differ between images, so they are looked up for each operand.
    let wanted = arguments.places.iter().map(|place| (place.image.as_path(), Intent::Read));
    let names = Images::open(arguments.image, wanted).and_then(|images| {
        let each = arguments.places.iter().map(|place| {
            let names = UserNames::of(images.get(&place.image)?);
            arguments.owner.resolve(&names).map_err(|error| crate::cli::Failure::new(place, error))
        });
        each.collect::<Result<Vec<_>, _>>()
    });
    let Some(owners) = report.given(names) else { return report.exit() };
    let mut owners = owners.into_iter();
    change_each("chown", arguments.image, &arguments.places, |fs, path| {
        let (uid, gid) = owners.next().unwrap_or_default();
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        if arguments.recursive {
            return each_below(fs, path, Links::Themselves, &mut |path| {
                fs.set_attr(path, &set, Follow::Nothing)
            });
        }
        let follow = if arguments.no_dereference { Follow::Nothing } else { Follow::Links };
        fs.set_attr(path, &set, follow)
    })
}
