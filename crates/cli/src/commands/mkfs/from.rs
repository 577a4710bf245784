//! `lanefs mkfs --from`: makes a file system together with its files.

use super::arguments::{Arguments, options};
use super::fill::From;
use super::seal::{Made, seal};
use super::target::{facts, fit_to_rows, open, open_for, refuse_overwriting, summary};
use super::unnamed::Unnamed;
use super::verity;
use super::words::Wanted;
use crate::cli::{
    Failure, MadeFile, OutputFile, Report, complain, counted, human, open_image, open_with_notes,
    refuse_hidden_owners,
};
use crate::copy::Progress;
use lanefs::Source as Image;
use lanefs_build::{
    Builder, Built, Bytes, Owners, Room, Source, Spare, Table, Whiteouts, most_bytes_fitted,
};
use lanefs_device::{Access, Device, OpenOptions};
use lanefs_mkfs::{Contents, Filling, MkfsOptions, preview};
use serde_json::json;
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};

impl From {
    pub(super) fn is_given(&self) -> bool {
        !self.from.is_empty() || self.directory.is_some()
    }

    fn sources(&self) -> Result<Vec<Source>, Failure> {
        let directory = self.directory.iter().map(|path| {
            match path.metadata() {
                Err(error) => return Err(Failure::on_host(path)(error)),
                Ok(found) if !found.is_dir() => {
                    return Err(Failure::new(path.display(), "not a directory"));
                }
                Ok(_) if self.owner.is_none() => refuse_hidden_owners(path.display())?,
                Ok(_) => {}
            }
            Ok(Source::directory(path))
        });
        let others = self.from.iter().map(|name| {
            if self.owner.is_none() && Path::new(name.strip_prefix("dir:").unwrap_or(name)).is_dir()
            {
                refuse_hidden_owners(name)?;
            }
            Source::detect(name).map_err(failed)
        });
        directory.chain(others).collect()
    }

    fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(2, usize::from).min(16);
        self.threads.unwrap_or_else(all)
    }

    fn tables(&self) -> Result<Vec<Table>, Failure> {
        type Parse<'p> = &'p dyn Fn(&str, &str) -> lanefs_build::Result<Table>;
        let base = &self.mountpoint;
        let kinds: [(&[PathBuf], Parse<'_>); 4] = [
            (&self.mtree, &Table::mtree),
            (&self.table, &Table::parse),
            (&self.fs_config, &|name, text| Table::fs_config(name, text, base)),
            (&self.file_contexts, &|name, text| Table::file_contexts(name, text, base)),
        ];
        let mut tables = Vec::new();
        for (paths, parse) in kinds {
            for path in paths {
                let text = std::fs::read_to_string(path).map_err(Failure::on_host(path))?;
                tables.push(parse(&path.to_string_lossy(), &text).map_err(failed)?);
            }
        }
        Ok(tables)
    }
}

fn failed(error: lanefs_build::Error) -> Failure {
    Failure::new(error.place, error.cause)
}

/// Makes the file system, and prints a description of it.
pub(super) fn run(arguments: &Arguments, report: &Report) -> Result<(), Failure> {
    let builder = builder(arguments)?;
    let options = checked_options(arguments)?;
    let place = Place::open(arguments)?;
    let built = make(arguments, options, builder, &place)?;
    place.fit(&built)?;
    let names = (place.path, &*place.file());
    let mut sealed = seal(&arguments.fill, names, &built, arguments.fill.threads())?;
    place.publish()?;
    sealed.as_mut().map_or(Ok(()), Made::publish)?;
    for loss in &built.losses {
        complain(format_args!("lanefs: warning: {loss}; left out"));
    }
    let data = built.data * u64::from(built.report.block_size);
    let mut facts = facts(&arguments.image, &built.report);
    facts["verity"] = json!(sealed.as_ref().map(Made::as_json));
    facts["files"] = json!(built.files);
    facts["directories"] = json!(built.directories);
    facts["data_bytes"] = json!(data);
    let (files, directories) =
        (counted(built.files, "file"), counted(built.directories, "directory"));
    let mut lines = summary(arguments, &built.report);
    lines.push(format!("{files} in {directories}, {} of data", human(data)));
    lines.extend(sealed.as_ref().map(Made::line));
    report.printed(arguments.output().print(&facts, lines));
    Ok(())
}

fn builder(arguments: &Arguments) -> Result<Builder<'_>, Failure> {
    let from = &arguments.fill;
    let mut builder = Builder::new();
    for source in from.sources()? {
        builder = builder.source(source);
    }
    for table in from.tables()? {
        builder = builder.table(table);
    }
    builder = builder.threads(from.threads());
    let owners =
        Owners { all: from.owner, users: from.map_users.clone(), groups: from.map_groups.clone() };
    let is_dated = std::env::var_os("SOURCE_DATE_EPOCH").is_some();
    Ok(builder
        .owners(owners)
        .whiteouts(if from.whiteouts { Whiteouts::Removals } else { Whiteouts::Files })
        .bytes(if from.reproducible || is_dated { Bytes::Same } else { Bytes::New }))
}

/// Returns the options. Wrong options are found here, before the old contents are lost.
fn checked_options(arguments: &Arguments) -> Result<MkfsOptions, Failure> {
    let image = arguments.image.as_path();
    let options = options(arguments).map_err(Failure::about(image))?;
    Filling::check(&options).map_err(Failure::about(image))?;
    if let Some(size) = arguments.size() {
        preview(size, &options).map_err(Failure::about(image))?;
    } else if arguments.spare().is_some() {
        preview(most_bytes_fitted(&options), &options).map_err(Failure::about(image))?;
    }
    if arguments.fill.shrink && arguments.spare() != Some(Spare::default()) {
        let why = "--shrink leaves no free space, and auto+... does: give one of them";
        return Err(Failure::new(image.display(), why));
    }
    if let Some(verity::Place::File(tree)) = &arguments.fill.verity
        && tree.exists()
        && !arguments.force
    {
        return Err(Failure::new(tree.display(), "exists; --force overwrites it"));
    }
    Ok(options)
}

fn make(
    arguments: &Arguments,
    mut options: MkfsOptions,
    builder: Builder,
    place: &Place,
) -> Result<Built, Failure> {
    let image = arguments.image.as_path();
    options.contents = place.contents;
    options.on_loss = arguments.fill.on_loss;
    if let Some(source) = &place.array {
        fit_to_rows(&mut options, source);
    }
    let room = arguments.spare().map_or(Room::Given, Room::Fitted);
    let device = place.device(arguments)?;
    let progress = Progress::new();
    let mut builder = builder.options(options).room(room);
    if progress.is_on_terminal() && !arguments.quiet {
        builder = builder.progress(|now| progress.reach(now.done, now.total));
    }
    let built = builder.build(&*device);
    progress.done();
    built.map_err(|error| match error.place.as_str() {
        "" => Failure::new(image.display(), error.cause),
        _ => failed(error),
    })
}

/// Returns the largest size that a file system can get if its size follows from the files.
fn most_bytes(arguments: &Arguments) -> Result<u64, Failure> {
    let block_size = arguments.block_size().map_err(Failure::about(&arguments.image))?;
    Ok(most_bytes_fitted(&MkfsOptions { block_size, ..MkfsOptions::default() }))
}

/// The image file, device or array in which the file system is made.
struct Place<'a> {
    path: &'a Path,
    array: Option<Image>,
    /// Whether the file did not exist before.
    is_new: bool,
    /// The new file, which has no name until it is complete.
    unnamed: Option<Unnamed>,
    /// The new file, if it has a name from the start.
    made: Option<MadeFile>,
    /// The new file that replaces an existing one when it is complete.
    output: Option<OutputFile>,
    /// Whether nothing follows the file system in the file, so that the file's length may change.
    is_ours: bool,
    /// Whether the size follows from the files.
    is_fitted: bool,
    offset: u64,
    contents: Contents,
}

impl<'a> Place<'a> {
    /// Prepares the image file, device or array. Creates the file if it does not exist. An existing
    /// file is replaced when the new one is complete, unless the file system begins after the start
    /// of the file. Without `--force`, refuses a file, device or array that seems to hold data.
    fn open(arguments: &'a Arguments) -> Result<Place<'a>, Failure> {
        let path = arguments.image.as_path();
        let offset = arguments.offset();
        let mut place = Place {
            path,
            array: None,
            is_new: false,
            unnamed: None,
            made: None,
            output: None,
            is_ours: false,
            is_fitted: arguments.spare().is_some(),
            offset,
            contents: Contents::Unknown,
        };
        let is_whole = Image::array_name(path).is_none() && offset == 0;
        let is_device = path.exists() && !path.is_file();
        let same = |other: &Path| {
            other == path || other.canonicalize().ok() == path.canonicalize().ok() && path.exists()
        };
        let is_alone = match &arguments.fill.verity {
            Some(verity::Place::File(tree)) => !same(tree),
            _ => true,
        };
        if arguments.fill.verity.is_some() && (!is_whole || is_device || !is_alone) {
            let why = "--verity needs an image file of its own";
            return Err(Failure::new(path.display(), why));
        }
        if Image::array_name(path).is_some() {
            let whole = OpenOptions { offset, len: None };
            let source = open_with_notes(path, Access::ReadWrite, whole)?;
            refuse_overwriting(arguments, &*source.device())?;
            place.array = Some(source);
            return Ok(place);
        }
        place.is_new = !path.exists();
        if place.is_new && arguments.wanted().is_none() && !place.is_fitted {
            return Err(Failure::new(
                path.display(),
                "does not exist: give a --size, or --size auto",
            ));
        }
        let failed = Failure::on_host(path);
        let mut len = None;
        if !place.is_new {
            let device = open(arguments, None)?;
            refuse_overwriting(arguments, &device)?;
            len = Some(device.len());
            let in_partition = device.partition().is_some();
            drop(device);
            if in_partition {
                open_for(arguments, arguments.size())?;
            }
        }
        let is_file = place.is_new || path.metadata().map_err(&failed)?.is_file();
        if !is_file {
            return Ok(place);
        }
        place.is_ours = place.is_new || offset == 0;
        let wanted = match arguments.wanted() {
            Some(Wanted::Bytes(size)) => Some(size),
            Some(Wanted::Auto(_)) if place.is_ours => Some(most_bytes(arguments)?),
            None if place.is_new => Some(most_bytes(arguments)?),
            _ => len,
        };
        place.unnamed = Unnamed::create(path);
        if place.unnamed.is_none() && path.symlink_metadata().is_err() {
            place.made = Some(MadeFile::create(path, 0).map_err(&failed)?);
        }
        if place.is_ours && !place.is_new {
            place.output = Some(OutputFile::create(path).map_err(&failed)?);
        }
        let create = place.unnamed.is_none();
        let file = File::options().write(true).create(create).truncate(false).open(place.file());
        let file = file.map_err(&failed)?;
        let len = offset.saturating_add(wanted.unwrap_or(0));
        if place.is_ours {
            // The file is emptied and then extended by a hole, so no old data is left and zeros
            // need not be written.
            file.set_len(0).and_then(|()| file.set_len(len)).map_err(failed)?;
            place.contents = Contents::Zeros;
        } else if file.metadata().map_err(&failed)?.len() < len {
            file.set_len(len).map_err(failed)?;
        }
        Ok(place)
    }

    /// Returns a path by which this process can open the file.
    fn file(&self) -> Cow<'a, Path> {
        match (&self.unnamed, self.output.as_ref().and_then(OutputFile::unfinished)) {
            (Some(unnamed), _) => unnamed.path().into(),
            (None, Some(beside)) => beside.to_owned().into(),
            (None, None) => self.path.into(),
        }
    }

    /// Gives a new file its name, and keeps it.
    fn publish(self) -> Result<(), Failure> {
        let unnamed = self.unnamed.map_or(Ok(()), |new| new.publish(self.path));
        let published = unnamed.and_then(|()| self.output.map_or(Ok(()), OutputFile::finish));
        published.map_err(Failure::on_host(self.path))?;
        self.made.into_iter().for_each(MadeFile::keep);
        Ok(())
    }

    fn device(&self, arguments: &Arguments) -> Result<std::sync::Arc<dyn Device>, Failure> {
        if let Some(source) = &self.array {
            return Ok(source.device());
        }
        let len = arguments.size();
        let part = OpenOptions { offset: self.offset, len };
        let file = self.file();
        let named =
            |failure: Failure| failure.renamed(&file.to_string_lossy(), self.path.display());
        let device = open_image(&file, Access::ReadWrite, part);
        Ok(std::sync::Arc::new(device.map_err(|error| named(error.into()))?))
    }

    /// If the size of the file system is computed from its files, cuts the image file to this size.
    fn fit(&self, built: &Built) -> Result<(), Failure> {
        if !self.is_ours || !self.is_fitted {
            return Ok(());
        }
        let len = self.offset.saturating_add(built.bytes());
        let file = File::options().write(true).open(self.file());
        let cut = file.and_then(|file| file.set_len(len));
        cut.map_err(Failure::on_host(self.path))
    }
}
