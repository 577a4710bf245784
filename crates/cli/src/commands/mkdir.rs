//! `lanefs mkdir`

use crate::cli::{FileArguments, ImagePath, ModeChange, change_each, process_umask};
use lanefs::{FileSystem, FileType, Metadata, NewKind, NewNode};
use std::path::Path;
use std::process::ExitCode;

/// Makes directories in an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanefs mkdir -p disk.img:/usr/local/bin disk.img:/etc")]
pub struct Arguments {
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Make missing parents too, and ignore directories that exist
    #[arg(short, long)]
    parents: bool,
    /// Mode of the directories, octal or symbolic as in chmod
    #[arg(short, long, allow_hyphen_values = true)]
    mode: Option<ModeChange>,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs mkdir`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let umask = process_umask();
    change_each("mkdir", &arguments.image, &arguments.places, |fs, path| {
        make(fs, path, arguments, umask)
    })
}

fn make(fs: &FileSystem, path: &Path, arguments: &Arguments, umask: u16) -> lanefs::Result<()> {
    let is_dir = |path: &Path| fs.metadata(path).as_ref().is_ok_and(Metadata::is_dir);
    let new = |permissions, umask| NewNode { kind: NewKind::Directory, permissions, umask };
    if arguments.parents {
        if is_dir(path) {
            return Ok(());
        }
        let missing = path.ancestors().skip(1).take_while(|above| !is_dir(above));
        let missing: Vec<&Path> = missing.filter(|above| above.file_name().is_some()).collect();
        for above in missing.into_iter().rev() {
            // The owner may write to a new parent, whatever the umask says.
            match fs.create_node(above, &new(0o777, umask & !0o300)) {
                Err(error) if error.is_exists() && is_dir(above) => {}
                made => made?,
            }
        }
    }
    let Some(mode) = &arguments.mode else { return fs.create_node(path, &new(0o777, umask)) };
    let (mode, decided) = mode.applied(0o777, FileType::Directory, umask);
    fs.create_node(path, &new(mode & 0o1777, 0))?;
    // The other bits may be those that the directory has inherited. As in mkdir(1), if a bit that
    // the change names has to be set or cleared, all bits of the wanted mode are set with it.
    let made = fs.symlink_metadata(path)?.permissions();
    match (made ^ mode) & decided {
        0 => Ok(()),
        _ => fs.set_permissions(path, mode | made & !decided),
    }
}
