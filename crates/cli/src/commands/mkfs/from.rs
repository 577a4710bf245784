//! `lanefs mkfs --from`: makes a file system together with its files.

use crate::cli::{
    Failure, OutputFile, Report, complain, counted, hex, human, is_there, open_image,
    open_with_notes, refuse_hidden_owners,
};
use crate::commands::mkfs::arguments::{Arguments, From, HashTree, options};
use crate::commands::mkfs::target::{
    facts, fit_to_rows, open, open_for, refuse_overwriting, summary,
};
use crate::commands::mkfs::words::Wanted;
use crate::copy::Progress;
use lanefs::Source as Image;
use lanefs::device::{file_of, is_uri};
use lanefs_build::{
    AttributeFilter, Builder, Built, Bytes, FakerootState, HostView, Owners, Room, Sealed, Source,
    Spare, Subtree, Table, Verity, Whiteouts, most_bytes_fitted,
};
use lanefs_device::{Access, Device, FileDevice, OpenOptions};
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

    fn view(&self) -> Result<HostView, Failure> {
        let state = self.fakeroot_state.as_ref().map(|path| {
            let text = std::fs::read_to_string(path).map_err(Failure::on_host(path))?;
            FakerootState::parse(&path.to_string_lossy(), &text).map_err(failed)
        });
        Ok(HostView {
            override_stat: self.override_stat,
            fakeroot: state.transpose()?,
            unreadable: self.unreadable,
        })
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
    if arguments.spare().is_some() {
        place.fit(&built)?;
    }
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
    let subtree = Subtree { root: from.root.clone(), strip: from.strip };
    builder = builder.threads(from.threads()).view(from.view()?).subtree(subtree);
    if !from.xattrs.is_empty() {
        let kept = AttributeFilter::parse(&from.xattrs);
        builder = builder.attributes(kept.map_err(|why| Failure::new("--xattrs", why))?);
    }
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
    if let Some(HashTree::File(tree)) = &arguments.fill.verity
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
    options.contents = if place.output.is_some() { Contents::Zeros } else { Contents::Unknown };
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
    /// The new file, unless the file system is made in a part of an existing one.
    output: Option<OutputFile>,
    offset: u64,
}

impl<'a> Place<'a> {
    /// Prepares the image file, device or array. Creates the file if it does not exist. An existing
    /// file is replaced when the new one is complete, unless the file system begins after the start
    /// of the file. Without `--force`, refuses a file, device or array that seems to hold data.
    fn open(arguments: &'a Arguments) -> Result<Place<'a>, Failure> {
        let path = arguments.image.as_path();
        let offset = arguments.offset();
        let mut place = Place { path, array: None, output: None, offset };
        let is_whole = Image::array_name(path).is_none() && offset == 0;
        let is_device = is_uri(file_of(path)) || path.exists() && !path.is_file();
        let same = |other: &Path| {
            other == path || other.canonicalize().ok() == path.canonicalize().ok() && path.exists()
        };
        let is_alone = match &arguments.fill.verity {
            Some(HashTree::File(tree)) => !same(tree),
            _ => true,
        };
        if arguments.fill.verity.is_some() && (!is_whole || is_device || !is_alone) {
            let why = "--verity needs an image file of its own";
            return Err(Failure::new(path.display(), why));
        }
        if Image::array_name(path).is_some() {
            let whole = OpenOptions { offset, ..OpenOptions::default() };
            let source = open_with_notes(path, Access::ReadWrite, whole)?;
            refuse_overwriting(arguments, &*source.device())?;
            place.array = Some(source);
            return Ok(place);
        }
        let is_new = !is_there(path);
        if is_new && arguments.wanted().is_none() && arguments.spare().is_none() {
            return Err(Failure::new(
                path.display(),
                "does not exist: give a --size, or --size auto",
            ));
        }
        let failed = Failure::on_host(path);
        let (mut len, mut is_file) = (None, true);
        if !is_new {
            let device = open(arguments, None)?;
            refuse_overwriting(arguments, &device)?;
            len = Some(device.len());
            let in_partition = device.partition().is_some();
            is_file = device.is_file();
            drop(device);
            if in_partition {
                open_for(arguments, arguments.size(), |_| Ok(()))?;
            }
        }
        if !is_file {
            return Ok(place);
        }
        // Nothing follows the file system in the file, so the file's length may change.
        let is_ours = is_new || offset == 0;
        let wanted = match arguments.wanted() {
            Some(Wanted::Bytes(size)) => Some(size),
            Some(Wanted::Auto(_)) if is_ours => Some(most_bytes(arguments)?),
            None if is_new => Some(most_bytes(arguments)?),
            _ => len,
        };
        let len = offset.saturating_add(wanted.unwrap_or(0));
        if is_ours {
            let create = if is_new { OutputFile::unnamed } else { OutputFile::create };
            let OutputFile { file, .. } = place.output.insert(create(path).map_err(&failed)?);
            // The file is emptied and then extended by a hole, so no old data is left and zeros
            // need not be written.
            file.set_len(0).and_then(|()| file.set_len(len)).map_err(failed)?;
        } else {
            let file = File::options().write(true).open(path).map_err(&failed)?;
            if file.metadata().map_err(&failed)?.len() < len {
                file.set_len(len).map_err(failed)?;
            }
        }
        Ok(place)
    }

    /// Returns a path by which this process can open the file.
    fn file(&self) -> Cow<'_, Path> {
        self.output.as_ref().map_or(self.path.into(), OutputFile::now)
    }

    /// Gives a new file its name, and keeps it.
    fn publish(self) -> Result<(), Failure> {
        let published = self.output.map_or(Ok(()), OutputFile::finish);
        published.map_err(Failure::on_host(self.path))
    }

    fn device(&self, arguments: &Arguments) -> Result<std::sync::Arc<dyn Device>, Failure> {
        if let Some(source) = &self.array {
            return Ok(source.device());
        }
        let len = arguments.size();
        let part = OpenOptions { offset: self.offset, len, ..OpenOptions::default() };
        let file = self.file();
        let named =
            |failure: Failure| failure.renamed(&file.to_string_lossy(), self.path.display());
        let device = open_image(&file, Access::ReadWrite, part);
        Ok(std::sync::Arc::new(device.map_err(|error| named(error.into()))?))
    }

    /// Cuts an image file to the size of its file system.
    fn fit(&self, built: &Built) -> Result<(), Failure> {
        let Some(output) = &self.output else { return Ok(()) };
        let cut = output.file.set_len(self.offset.saturating_add(built.bytes()));
        cut.map_err(Failure::on_host(self.path))
    }
}

/// A hash tree, with the values that are needed to open it.
pub(super) struct Made {
    verity: Verity,
    sealed: Sealed,
    /// The offset of the tree in its file, in bytes.
    offset: u64,
    /// The file of the tree and its name, unless the tree is in the image. An earlier file stays
    /// until [`Made::publish`], and a new one is removed if the command fails.
    tree: Option<(OutputFile, PathBuf)>,
}

/// Creates the file of a hash tree. Refuses one that another program uses.
fn tree_file(path: &Path) -> Result<(OutputFile, PathBuf), Failure> {
    if path.exists() {
        drop(FileDevice::open(path, Access::ReadWrite, OpenOptions::default())?);
    }
    Ok((OutputFile::create(path).map_err(Failure::on_host(path))?, path.into()))
}

/// Writes the hash tree of an image file. `name` is the file's name in messages, and `image` is the
/// path that opens it.
pub(super) fn seal(
    from: &From,
    (name, image): (&Path, &Path),
    built: &Built,
    threads: usize,
) -> Result<Option<Made>, Failure> {
    let Some(place) = &from.verity else { return Ok(None) };
    let derived = Verity::derived(built.report.uuid);
    let salt = from.verity_salt.as_ref().map_or(derived.salt().to_vec(), |salt| salt.0.clone());
    let verity = Verity::new(salt, derived.uuid()).unwrap_or(derived);
    let len = built.bytes();
    let Some(hash_bytes) = Verity::hash_bytes(len) else {
        let why = "--verity needs a size that is a multiple of 4096 bytes";
        return Err(Failure::new(name.display(), why));
    };
    let tree = match place {
        HashTree::Append => None,
        HashTree::File(path) => Some(tree_file(path)?),
    };
    let (name, path, offset) = match &tree {
        None => (name, Cow::from(image), len),
        Some((output, name)) => (&**name, output.now(), 0),
    };
    let file = File::options().create(true).write(true).truncate(false).open(&path);
    let sized = file.and_then(|file| file.set_len(offset).and(file.set_len(offset + hash_bytes)));
    sized.map_err(Failure::on_host(name))?;
    let open = |path: &Path, access| {
        let renamed = |failure: Failure| failure.renamed(&path.to_string_lossy(), name.display());
        let opened = FileDevice::open(path, access, OpenOptions::default());
        opened.map_err(|error| renamed(error.into()))
    };
    let written = match place {
        HashTree::Append => {
            let whole = open(image, Access::ReadWrite)?;
            verity.write(&whole, len, &whole, offset, threads)
        }
        HashTree::File(_) => {
            let out = open(&path, Access::ReadWrite)?;
            verity.write(&open(image, Access::ReadOnly)?, len, &out, offset, threads)
        }
    };
    let sealed = written.map_err(Failure::about(name))?;
    Ok(Some(Made { verity, sealed, offset, tree }))
}

impl Made {
    /// Puts the complete tree in the place of an earlier one.
    pub(super) fn publish(&mut self) -> Result<(), Failure> {
        let Some((output, path)) = self.tree.take() else { return Ok(()) };
        output.finish().map_err(Failure::on_host(&path))
    }

    /// Returns the values for `veritysetup open`.
    pub(super) fn line(&self) -> String {
        format!(
            "dm-verity: root hash {}, hash tree at byte {}, {} data blocks",
            hex(&self.sealed.root_hash),
            self.offset,
            self.sealed.data_blocks
        )
    }

    pub(super) fn as_json(&self) -> serde_json::Value {
        serde_json::json!({
            "root_hash": hex(&self.sealed.root_hash),
            "salt": hex(self.verity.salt()),
            "uuid": uuid::Uuid::from_bytes(self.verity.uuid()).to_string(),
            "hash_offset": self.offset,
            "hash_bytes": self.sealed.hash_bytes,
            "data_blocks": self.sealed.data_blocks,
        })
    }
}
