//! The builder, which makes a file system from sources.

use crate::apply::{Subtree, Whiteouts};
use crate::convert::{Times, convert};
use crate::error::{Cause, Error, Result};
use crate::host;
use crate::owners::Owners;
use crate::pipeline::{Digest, Pipeline};
use crate::progress::{Meter, Progress, Tell};
use crate::source::{Filler, Source};
use crate::table::Table;
use crate::tree::Tree;
use crate::view::{AttributeFilter, HostView};
use lanefs_device::Device;
use lanefs_mkfs::{Filling, Identity, MkfsError, MkfsOptions, Report, Room};
use lanefs_ondisk::Time;

/// Builds a file system from sources.
///
/// ```
/// use lanefs_build::{Builder, Room, Source, Spare};
/// use lanefs_device::RamDevice;
///
/// # let tree = tempfile::tempdir()?;
/// # std::fs::write(tree.path().join("motd"), "welcome\n")?;
/// let device = RamDevice::create(64 << 20)?;
/// let built = Builder::new()
///     .room(Room::Fitted(Spare { bytes: 1 << 20, percent: 0 }))
///     .source(Source::directory(tree.path()))
///     .build(&device)?;
/// assert_eq!(built.files, 1);
/// assert!(built.bytes() < 4 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Builder<'p> {
    options: MkfsOptions,
    room: Room,
    sources: Vec<Source>,
    owners: Owners,
    tables: Vec<Table>,
    threads: usize,
    whiteouts: Whiteouts,
    view: HostView,
    kept: Option<AttributeFilter>,
    subtree: Subtree,
    bytes: Bytes,
    progress: Option<Box<Tell<'p>>>,
}

/// Whether the same sources give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bytes {
    /// UUID, hash seed and creation time are new for each image, unless the caller sets them.
    #[default]
    New,
    /// UUID, hash seed and creation time are computed from the sources, so the same sources give
    /// the same bytes. Each file's access, change and creation times are set to its modification
    /// time.
    Same,
}

/// Describes the new file system.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Built {
    /// The sizes and counts of the file system.
    pub report: Report,
    /// Number of files that are not directories.
    pub files: u64,
    /// Number of directories.
    pub directories: u64,
    /// The number of blocks that hold file data.
    pub data: u64,
    /// The file properties that were left out, if the options allow that. Each text names the path
    /// and the reason.
    pub losses: Vec<String>,
}

impl Built {
    /// Returns the length of the file system in bytes.
    pub fn bytes(&self) -> u64 {
        self.report.blocks * u64::from(self.report.block_size)
    }
}

impl Default for Builder<'_> {
    fn default() -> Self {
        Builder::new()
    }
}

impl<'p> Builder<'p> {
    /// Creates a builder of an empty file system.
    pub fn new() -> Self {
        Builder {
            options: MkfsOptions::default(),
            room: Room::Given,
            sources: Vec::new(),
            owners: Owners::default(),
            tables: Vec::new(),
            threads: std::thread::available_parallelism().map_or(2, usize::from).min(16),
            whiteouts: Whiteouts::default(),
            view: HostView::default(),
            kept: None,
            subtree: Subtree::default(),
            bytes: Bytes::default(),
            progress: None,
        }
    }

    /// Sets the options of the file system. If the options contain a time, and [`Bytes::Same`] is
    /// set, files get no times later than that time.
    pub fn options(mut self, options: MkfsOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how the size of the file system is chosen. For example, [`Room::Fitted`] uses no more
    /// of the device than is needed.
    pub fn room(mut self, room: Room) -> Self {
        self.room = room;
        self
    }

    /// Adds a source. If several sources have an entry of the same name, the entry of the last
    /// source is used.
    pub fn source(mut self, source: Source) -> Self {
        self.sources.push(source);
        self
    }

    /// Sets the rules that determine the owners of files.
    pub fn owners(mut self, owners: Owners) -> Self {
        self.owners = owners;
        self
    }

    /// Adds a table of files, modes, owners or labels. Tables are applied after all sources, in
    /// this order: mtree specifications, tables of devices, fs_config, file_contexts. Tables of one
    /// kind are applied in the order in which they are added.
    pub fn table(mut self, table: Table) -> Self {
        self.tables.push(table);
        self
    }

    /// Sets the number of threads that move data. The number does not change the result.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Sets what `.wh.` names mean in tars. In container images they always mean removals.
    pub fn whiteouts(mut self, whiteouts: Whiteouts) -> Self {
        self.whiteouts = whiteouts;
        self
    }

    /// Sets how the directories among the sources are seen.
    pub fn view(mut self, view: HostView) -> Self {
        self.view = view;
        self
    }

    /// Sets the part of each tar that is used. Then the sources must be tars.
    pub fn subtree(mut self, subtree: Subtree) -> Self {
        self.subtree = subtree;
        self
    }

    /// Sets which extended attributes of the sources reach the image. Without this call, all do,
    /// except the host's labels (security.selinux, security.ima, security.evm) of a directory.
    pub fn attributes(mut self, kept: AttributeFilter) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Sets whether the same sources give the same bytes.
    pub fn bytes(mut self, bytes: Bytes) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the function `tell`, which is called after each read of data. It may be called on any
    /// thread.
    pub fn progress(mut self, tell: impl Fn(Progress) + Sync + 'p) -> Self {
        self.progress = Some(Box::new(tell));
        self
    }

    /// Builds the file system. The old contents of the device are lost.
    ///
    /// # Errors
    /// The [`Error`] names the source or entry that caused it. If the options do not fit together
    /// or do not fit the device, nothing was written. After any other error, the device has no file
    /// system.
    pub fn build(mut self, device: &dyn Device) -> Result<Built> {
        let meter = Meter::new(self.progress.take(), self.sources.len());
        for source in &self.sources {
            source.size().into_iter().for_each(|bytes| meter.expect(bytes));
        }
        let directories = self.sources.iter().filter_map(Source::as_directory).collect();
        meter.beside(directories, host::measure, || self.build_beside(device, &meter))
    }

    fn build_beside(self, device: &dyn Device, meter: &Meter<'_>) -> Result<Built> {
        let begin = |error: MkfsError| Error::new("", error);
        let now = self.options.identity().time;
        let default_time = match (self.bytes, self.options.time) {
            (Bytes::New, _) | (_, Some(_)) => now,
            (Bytes::Same, None) => 0,
        };
        let (digest, times) = match self.bytes {
            Bytes::New => (Digest::No, Times::Kept),
            Bytes::Same => (Digest::Yes, Times::Clamped(self.options.time)),
        };
        let filling = Filling::begin(device, &self.options, self.room).map_err(begin)?;
        let pipeline = Pipeline::new(filling, digest, meter);
        let time = Time { secs: default_time as i64, nanos: 0 };
        let mut tree = Tree::new(time, self.owners, self.options.on_loss);
        tree.kept = self.kept;
        let (uid, gid) = self.options.root_owner;
        if let Some(root) = tree.node_mut(Tree::ROOT) {
            (root.meta.uid, root.meta.gid) = (uid, gid);
        }
        let (threads, whiteouts) = (self.threads, self.whiteouts);
        let (view, subtree) = (&self.view, &self.subtree);
        let (tree_mut, pipe) = (&mut tree, &pipeline);
        let mut filler =
            Filler { tree: tree_mut, pipeline: pipe, threads, whiteouts, view, subtree };
        self.sources.into_iter().try_for_each(|source| source.add_to(&mut filler))?;
        tree.end_sources();
        if !tree.has_claims && view.fakeroot.as_ref().is_some_and(|state| !state.is_empty()) {
            let detail = "none of its files is in the sources: a copy has other inodes".into();
            return Err(Error::new("", Cause::Invalid { what: "the state of fakeroot", detail }));
        }
        let mut tables = self.tables;
        tables.sort_by_key(Table::rank);
        pipeline.run(threads, |feeder| {
            tables.iter().try_for_each(|table| table.apply(&mut tree, feeder))
        })?;
        pipeline.release(&tree.take_removed());
        let (filling, data) = pipeline.into_parts();
        let mut losses = std::mem::take(&mut tree.losses);
        if tree.labels > 0 {
            losses.push(format!(
                "{} labels of the host (security.selinux, security.ima, security.evm)",
                tree.labels
            ));
        }
        let converted = convert(tree, data, times, now)?;
        let identity = match self.bytes {
            Bytes::New => self.options.identity(),
            Bytes::Same => Identity {
                uuid: self.options.uuid.unwrap_or(converted.uuid("uuid")),
                hash_seed: self.options.hash_seed.unwrap_or(converted.uuid("hash seed")),
                time: self.options.time.unwrap_or(converted.newest),
            },
        };
        let report = filling.finish(&converted.tree, &identity).map_err(|error| match error {
            MkfsError::File { index, fault } => {
                Error::new(converted.path(index), Cause::File(fault))
            }
            error => Error::new("", error),
        })?;
        let of_tree = report.losses.iter();
        losses.extend(of_tree.map(|(index, fault)| format!("{}: {fault}", converted.path(*index))));
        Ok(Built {
            losses,
            report,
            files: converted.files,
            directories: converted.directories,
            data: converted.data,
        })
    }
}
