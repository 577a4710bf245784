//! The images that a command works on.

use super::{
    Failure, FileArguments, ImagePath, Intent, Report, Stop, WholeImage, no_file_system, read_keys,
};
use lanefs::{FileSystem, OpenOptions, Source};
use lanefs_offline::has_journal_elsewhere;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The reason why a file of the host is neither read nor replaced.
pub const HOLDS_IMAGE: &str = "holds an image that this command has open";

/// The open images of a command. Each image is opened once, even if several operands name it.
pub struct Images {
    open: Vec<(Identity, FileSystem)>,
    files: Vec<PathBuf>,
}

impl Images {
    /// Opens each image of `wanted` once. Opens it for writing if at least one of its uses changes
    /// it.
    pub fn open<'a>(
        arguments: &FileArguments,
        wanted: impl IntoIterator<Item = (&'a Path, Intent)>,
    ) -> Result<Images, Failure> {
        let mut intents: Vec<(PathBuf, Identity, Intent)> = Vec::new();
        for (image, intent) in wanted {
            let real = identity(image)?;
            match intents.iter_mut().find(|(_, known, _)| *known == real) {
                Some((_, _, most)) => *most = intent.max(*most),
                None => intents.push((image.into(), real, intent)),
            }
        }
        let keys = read_keys(&arguments.keys)?;
        let most = intents.iter().map(|(_, _, intent)| *intent).max();
        let journal = arguments.journal.open(most.unwrap_or(Intent::Read).access())?;
        let count = intents.len();
        let files = arguments.journal.path().map(Path::to_path_buf).into_iter().collect();
        let mut images = Images { open: Vec::new(), files };
        for (image, real, intent) in intents {
            let mut options = match intent {
                Intent::Read => OpenOptions::new().read_only(),
                Intent::Change => OpenOptions::new(),
            };
            options = options.keys(&keys);
            let whole = WholeImage::open(&image, arguments.image, intent.access())?;
            images.files.extend(whole.files());
            let source = whole.into_source();
            let device = source.device();
            // A single image always gets the journal device. Among several images, only those whose
            // journal is on another device get it.
            match &journal {
                Some(journal) if count == 1 || has_journal_elsewhere(&*device) => {
                    options = options.journal_device(journal.clone());
                }
                _ => {}
            }
            let fs = FileSystem::open_source(source, &options).map_err(
                |error| match no_file_system(&*device) {
                    Some(why) => Failure::new(image.display(), why),
                    None => Failure::within(image.display(), &error),
                },
            )?;
            images.open.push((real, fs));
        }
        Ok(images)
    }

    /// Returns the file system of an open image.
    pub fn get(&self, image: &Path) -> Result<&FileSystem, Failure> {
        let real = identity(image)?;
        let found = self.open.iter().find(|(known, _)| *known == real);
        found.map(|(_, fs)| fs).ok_or_else(|| {
            Failure::new(image.display(), "the image was renamed or replaced meanwhile")
        })
    }

    /// Calls `act` for each place. Reports failures to `report` and continues.
    ///
    /// # Errors
    /// If the output cannot be written; then the remaining places are left out.
    pub fn each(
        &self,
        places: &[ImagePath],
        report: &Report,
        mut act: impl FnMut(&FileSystem, &ImagePath) -> Result<(), Stop>,
    ) -> io::Result<()> {
        for place in places {
            let fs = self.get(&place.image).map_err(Stop::Failure);
            match fs.and_then(|fs| act(fs, place)) {
                Ok(()) => {}
                Err(Stop::Failure(failure)) => report.fail(failure),
                Err(Stop::Output(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the files that hold the images: the members of an array, and the file of a journal
    /// that is not in its image.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Closes all images, even if an error occurs, and reports the errors.
    pub fn close(self, report: &Report) {
        for (image, fs) in self.open {
            report.check(fs.close().map_err(|error| Failure::within(image.name.display(), &error)));
        }
    }
}

/// Fails if `path`, which is to be written, is one of `images`, the files that hold open images.
pub fn refuse_image(path: &Path, images: &[PathBuf]) -> Result<(), Failure> {
    let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    match file(path) {
        Some(found) if images.iter().any(|image| file(image) == Some(found)) => {
            Err(Failure::new(path.display(), HOLDS_IMAGE))
        }
        _ => Ok(()),
    }
}

/// An image, which is equal by all its names. An array has one name, as the user gave it.
#[derive(Debug, Clone)]
struct Identity {
    name: PathBuf,
    /// The numbers of the device and inode, and that of a block device itself.
    file: Option<(u64, u64, u64)>,
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        match (self.file, other.file) {
            (Some(this), Some(that)) => this == that,
            (None, None) => self.name == other.name,
            _ => false,
        }
    }
}

/// Identifies an image. Its name need not lead to it any more: `/proc/self/fd/3` may be a file that
/// was deleted.
fn identity(image: &Path) -> Result<Identity, Failure> {
    let file = match Source::array_name(image) {
        Some(_) => None,
        None => {
            let found = image.metadata().map_err(|error| match place_meant(image) {
                Some(place) => {
                    Failure::new(image.display(), format_args!("not a directory: {place}"))
                }
                None => Failure::host(image.display(), &error),
            })?;
            match found.rdev() {
                0 => Some((found.dev(), found.ino(), 0)),
                number => Some((0, 0, number)),
            }
        }
    };
    Ok(Identity { name: image.into(), file })
}

/// If a file lies on the way to `path`, as in `disk.img/etc`, returns a hint to write
/// `disk.img:/etc`.
fn place_meant(path: &Path) -> Option<String> {
    let image = path.ancestors().skip(1).find(|above| above.is_file())?;
    let below = path.strip_prefix(image).ok()?;
    Some(format!("a file in an image is named {}:/{}", image.display(), below.display()))
}

/// Opens the images of all `places`, calls `act` for each place, and closes the images. Continues
/// after failures.
pub fn with_each(
    command: &'static str,
    image: &FileArguments,
    intent: Intent,
    places: &[ImagePath],
    mut act: impl FnMut(&FileSystem, &ImagePath, &Report) -> Result<(), Failure>,
) -> ExitCode {
    Report::run(command, |report| {
        let images = Images::open(image, places.iter().map(|place| place.wanted(intent)))?;
        for place in places {
            report.check(images.get(&place.image).and_then(|fs| act(fs, place, report)));
        }
        images.close(report);
        Ok(())
    })
}

/// Opens the images of all `places` for reading, and calls `act` for each place, which prints to
/// `out`. Continues after failures, except those of `out`.
pub fn print_each<W: Write>(
    command: &'static str,
    image: &FileArguments,
    places: &[ImagePath],
    mut out: W,
    mut act: impl FnMut(&FileSystem, &ImagePath, &Report, &mut W) -> Result<(), Stop>,
) -> ExitCode {
    Report::run(command, |report| {
        let images = Images::open(image, places.iter().map(|place| place.wanted(Intent::Read)))?;
        let printed = images.each(places, report, |fs, place| act(fs, place, report, &mut out));
        Ok(printed.and_then(|()| out.flush())?)
    })
}

/// Opens the images of all `places` for writing, and calls `change` for each place. Continues after
/// failures.
pub fn change_each(
    command: &'static str,
    image: &FileArguments,
    places: &[ImagePath],
    mut change: impl FnMut(&FileSystem, &Path) -> lanefs::Result<()>,
) -> ExitCode {
    with_each(command, image, Intent::Change, places, |fs, place, _| {
        change(fs, &place.path).map_err(|error| place.failure(error))
    })
}
