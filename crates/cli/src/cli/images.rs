//! The images that a command works on, and how they are opened.

use crate::cli::{
    Failure, FileArguments, ImageArguments, ImagePath, Intent, Report, Stop, complain,
    no_file_system, other_contents, read_keys,
};
use lanefs::{Cause, Error, FileSystem, OpenOptions, Source};
use lanefs_device::{
    Access, Device, FileDevice, OpenError, OpenOptions as DeviceOptions, Pick, User, file_of,
    is_uri,
};
use lanefs_ext4::Exclusive;
use lanefs_fuse::MountEntry;
use lanefs_offline::{Image, has_journal_elsewhere};
use lanefs_raid5::ArrayOptions;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        let mut disks: Vec<(Identity, Arc<FileDevice>)> = Vec::new();
        for (image, real, intent) in &intents {
            let mut options = match *intent {
                Intent::Read => OpenOptions::new().read_only(),
                Intent::Change => OpenOptions::new(),
            };
            options = options.keys(&keys);
            let disk = disks.iter().find(|(disk, _)| disk.is_same_file(real));
            // All partitions of a disk are opened as the most demanding use needs it.
            let uses = intents.iter().filter(|(_, other, _)| other.is_same_file(real));
            let most = uses.map(|(.., intent)| *intent).max().unwrap_or(*intent);
            let whole = match disk {
                Some((_, disk)) => WholeImage::beside(disk, image, arguments.image)?,
                None => WholeImage::open(image, arguments.image, most.access())?,
            };
            images.files.extend(whole.files());
            if let Source::Image(device) = &whole.source {
                disks.push((real.clone(), device.clone()));
            }
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
            images.open.push((real.clone(), fs));
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

/// Returns whether there is an image of this name, so that none is to be made.
pub fn is_there(image: &Path) -> bool {
    image.exists() || is_uri(file_of(image))
}

/// Fails if a new file at `path` would have a name that now stands for a partition of a disk.
pub fn refuse_partition_name(path: &Path) -> Result<(), Failure> {
    let disk = file_of(path).display();
    let why = format!("the name of a partition of {disk}; a file of this name would hide it");
    if file_of(path) == path { Ok(()) } else { Err(Failure::new(path.display(), why)) }
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

/// An image, which is equal by all its names. An array or a URI has one, as the user gave it.
#[derive(Debug, Clone)]
struct Identity {
    name: PathBuf,
    /// The numbers of the device and inode, and that of a block device itself.
    file: Option<(u64, u64, u64)>,
    /// The URI without its partition.
    uri: Option<PathBuf>,
    /// Where the partition begins that the name chooses, in bytes; otherwise 0.
    start: u64,
}

impl Identity {
    fn is_same_file(&self, other: &Identity) -> bool {
        let is_alone = self.file.is_some() || self.uri.is_some();
        is_alone && (&self.file, &self.uri) == (&other.file, &other.uri)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        match (self.file, other.file) {
            (Some(this), Some(that)) => this == that && self.start == other.start,
            (None, None) => self.name == other.name,
            _ => false,
        }
    }
}

/// Identifies an image. Its name need not lead to it any more: `/proc/self/fd/3` may be a file that
/// was deleted.
fn identity(image: &Path) -> Result<Identity, Failure> {
    let disk = file_of(image);
    let file = match Source::array_name(image) {
        Some(_) => None,
        None if is_uri(disk) => None,
        None => {
            let found = disk.metadata().map_err(|error| match place_meant(image) {
                Some(place) => {
                    Failure::new(image.display(), format_args!("not a directory: {place}"))
                }
                None => match FileDevice::peek(image, DeviceOptions::default()) {
                    Err(error @ OpenError::Partition { .. }) => error.into(),
                    _ => Failure::host(image.display(), &error),
                },
            })?;
            match found.rdev() {
                0 => Some((found.dev(), found.ino(), 0)),
                number => Some((0, 0, number)),
            }
        }
    };
    let start = match file {
        Some(_) if disk != image => FileDevice::peek(image, DeviceOptions::default())?.start(),
        _ => 0,
    };
    let is_nbd = Source::array_name(image).is_none() && is_uri(disk);
    let uri = is_nbd.then(|| disk.to_path_buf());
    Ok(Identity { name: image.into(), file, uri, start })
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

/// Opens an image or array, and prints the remarks about the members of an array.
pub fn open_with_notes(
    path: &Path,
    access: Access,
    part: DeviceOptions,
) -> Result<Source, Failure> {
    let source = open_source(path, access, part)?;
    tell_notes(path, &source.notes());
    Ok(source)
}

/// Prints the remarks about the members of an array, or the choice of a partition.
pub fn tell_notes(image: &Path, notes: &[String]) {
    notes.iter().for_each(|note| complain(format_args!("lanefs: {}: {note}", image.display())));
}

/// An open image or array, locked until it is closed or dropped.
pub struct WholeImage<'p> {
    path: &'p Path,
    source: Source,
}

impl<'p> WholeImage<'p> {
    /// Opens the image. If the image is a disk whose name chooses no partition, opens its only ext4
    /// file system. Prints the notes about the members of an array and the choice of a partition.
    pub fn open(
        path: &'p Path,
        arguments: ImageArguments,
        access: Access,
    ) -> Result<WholeImage<'p>, Failure> {
        WholeImage::open_part(path, arguments.part(Pick::OnlyExt4), access)
    }

    /// Does the same as [`WholeImage::open`] for the part of the image that `part` asks for.
    pub fn open_part(
        path: &'p Path,
        part: DeviceOptions,
        access: Access,
    ) -> Result<WholeImage<'p>, Failure> {
        let source = open_with_notes(path, access, part)?;
        if access == Access::ReadWrite {
            announce_mmp("lanefs", path, &source.device());
        }
        Ok(WholeImage { path, source })
    }

    /// Opens another partition of the disk of which `disk` is one, with the same access.
    fn beside(
        disk: &FileDevice,
        path: &'p Path,
        arguments: ImageArguments,
    ) -> Result<WholeImage<'p>, Failure> {
        let device = disk.beside(path, arguments.part(Pick::OnlyExt4))?;
        Ok(WholeImage { path, source: Source::Image(Arc::new(device)) })
    }

    /// Returns the device that holds the file system.
    pub fn device(&self) -> Arc<dyn Device> {
        self.source.device()
    }

    /// Returns the number and the first byte of the partition that is the image.
    pub fn partition(&self) -> Option<(u32, u64)> {
        let Source::Image(device) = &self.source else { return None };
        let partition = device.partition()?;
        (partition.bytes.start == device.start()).then_some((partition.number, device.start()))
    }

    /// Returns whether the file system takes up a whole image file, so that the file's length may
    /// be changed.
    pub fn is_whole_file(&self) -> bool {
        let Source::Image(device) = &self.source else { return false };
        device.is_whole() && device.is_file()
    }

    /// Fails if a file system of `bytes` bytes would reach beyond the partition in which it begins.
    pub fn refuse_beyond_partition(&self, bytes: u64) -> Result<(), Failure> {
        let partition = match &self.source {
            Source::Image(device) => device.partition(),
            Source::Array(_) => None,
        };
        let room = self.device().len();
        match partition {
            Some(partition) if bytes > room => {
                let number = partition.number;
                let why = format_args!(
                    "{bytes} bytes: partition {number} has room for {room}; lanefs resize \
                     --grow-partition makes it larger"
                );
                Err(Failure::new(self.path.display(), why))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the image holds something else than an ext4 file system, damaged or not. Must be
    /// called before a repair, or the search for damage, trusts a copy of the superblock.
    pub fn refuse_other_contents(&self) -> Result<(), Failure> {
        match other_contents(&*self.device()) {
            Some(what) => {
                let why = format_args!("no ext4 file system: {what}");
                Err(Failure::new(self.path.display(), why))
            }
            None => Ok(()),
        }
    }

    /// Returns the paths of the files or devices that hold the image.
    pub fn files(&self) -> Vec<PathBuf> {
        match self.source.array() {
            None => vec![file_of(self.path).into()],
            Some(array) => array.metadata().members().into_iter().map(|m| m.name).collect(),
        }
    }

    /// Returns the open image or array, from which the caller can open the file system.
    pub fn into_source(self) -> Source {
        self.source
    }

    /// Describes an error of the image. If the image has no ext4 file system, names its contents.
    pub fn failure(&self, error: impl Display) -> Failure {
        match no_file_system(&*self.device()) {
            Some(why) => Failure::new(self.path.display(), why),
            None => Failure::new(self.path.display(), error),
        }
    }

    /// Opens the file system as a whole, with its journal if that is elsewhere.
    pub fn file_system(&self, journal: Option<&Arc<dyn Device>>) -> Result<Image, Failure> {
        Image::open_with(self.device(), journal).map_err(|error| self.failure(error))
    }

    /// Closes the image after work on it succeeded. The caller must have dropped every other
    /// reference to the device.
    pub fn end<T, E: Display>(self, done: Result<T, E>) -> Result<T, Failure> {
        let done = done.map_err(|error| self.failure(error))?;
        self.close()?;
        Ok(done)
    }

    /// Closes the image. The caller must have dropped every other reference to the device.
    pub fn close(self) -> Result<(), Failure> {
        self.source.close().map_err(|error| Failure::within(self.path.display(), &error))
    }
}

/// The time that a command waits for an image that is in use, because the image may have been
/// unmounted just before. When umount(8) unmounts a file system of type `fuse`, it returns before
/// the server has written its last byte. A loop device may exist slightly longer than its mount.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time that `lanefs mount` waits. It is longer than [`PATIENCE`], because the server of an
/// earlier mount may have much data to write to a slow disk.
const MOUNT_PATIENCE: Duration = Duration::from_secs(60);
/// The time after which `lanefs mount` prints that it waits.
const TOLD_AFTER: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// Opens an image; waits briefly if another program uses the image but has not mounted it.
pub fn open_image(
    image: &Path,
    access: Access,
    part: DeviceOptions,
) -> Result<FileDevice, OpenError> {
    wait(PATIENCE, &mut || {}, &mut || {
        FileDevice::open(image, access, part).map_err(|error| (in_use(&error), error))
    })
}

/// Opens an image or an array, and waits as [`open_image`] does.
pub fn open_source(name: &Path, access: Access, part: DeviceOptions) -> Result<Source, Failure> {
    if Source::array_name(name).is_none() {
        return Ok(Source::Image(Arc::new(open_image(name, access, part)?)));
    }
    let opened =
        wait(PATIENCE, &mut || {}, &mut || open_array(name, part, ArrayOptions::new(access)));
    opened.map_err(|error| Failure::opening_source(name, &error))
}

/// Opens an image to be mounted: waits longer than [`open_image`], and prints that it waits.
pub fn open_image_to_mount(
    image: &Path,
    access: Access,
    part: DeviceOptions,
) -> Result<FileDevice, OpenError> {
    wait(MOUNT_PATIENCE, &mut || announce_wait(image), &mut || {
        FileDevice::open(image, access, part).map_err(|error| (in_use(&error), error))
    })
}

/// Opens an array to be mounted: waits longer than [`open_source`], and prints that it waits.
pub fn open_array_to_mount(
    name: &Path,
    part: DeviceOptions,
    options: ArrayOptions,
) -> Result<Source, Error> {
    wait(MOUNT_PATIENCE, &mut || announce_wait(name), &mut || open_array(name, part, options))
}

fn open_array(
    name: &Path,
    part: DeviceOptions,
    options: ArrayOptions,
) -> Result<Source, (Use, Error)> {
    Source::open_with(name, part, options).map_err(|error| match error.cause() {
        Cause::Open(cause) => (in_use(cause), error),
        _ => (Use::Lasts, error),
    })
}

fn announce_wait(name: &Path) {
    let (name, seconds) = (name.display(), MOUNT_PATIENCE.as_secs());
    complain(format_args!("lanefs mount: {name}: still in use, waiting for up to {seconds} s"));
}

/// Prints that a change will wait, because another computer possibly uses the file system (feature
/// `mmp`).
pub fn announce_mmp(command: &str, name: &Path, device: &Arc<dyn Device>) {
    if let Some((wait, why)) = Exclusive::expected_wait(device) {
        let (name, seconds) = (name.display(), wait.as_secs());
        complain(format_args!("{command}: {name}: {why}: waiting for {seconds} s"));
    }
}

/// Whether it is useful to wait for an image that cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The program that uses the image is possibly about to close it.
    MayEnd,
    /// Waiting would not help: the image is mounted, or the error has another cause.
    Lasts,
}

/// Calls `open` until it succeeds or fails permanently, or until `patience` has passed. If the wait
/// exceeds `TOLD_AFTER`, calls `announce` once.
fn wait<T, E>(
    patience: Duration,
    announce: &mut dyn FnMut(),
    open: &mut dyn FnMut() -> Result<T, (Use, E)>,
) -> Result<T, E> {
    let (start, mut announced) = (Instant::now(), false);
    loop {
        match open() {
            Ok(opened) => return Ok(opened),
            Err((Use::MayEnd, _)) if start.elapsed() < patience => {}
            Err((_, error)) => return Err(error),
        }
        if !announced && start.elapsed() > TOLD_AFTER {
            announced = true;
            announce();
        }
        std::thread::sleep(PAUSE);
    }
}

fn in_use(error: &OpenError) -> Use {
    let may_end = match error {
        OpenError::InUse { path, by: User::Lock } => matches!(MountEntry::of(path), Ok(None)),
        OpenError::InUse { by: User::Loop { mounted_on, .. }, .. } => mounted_on.is_none(),
        _ => false,
    };
    if may_end { Use::MayEnd } else { Use::Lasts }
}
