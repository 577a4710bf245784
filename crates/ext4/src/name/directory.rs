//! Directories: look-ups, scans, and changes of their shape.

use crate::alloc::{Claim, Privilege, Request};
use crate::data::mapping::MapChange;
use crate::fs::Fs;
use crate::object::commit::Handle;
use crate::object::inode::{Concerns, Inode, InodeRef, InodeState};
use crate::object::meta::{Contents, MetaKind, MetaRef};
use crate::plan::dir::{self, Descent, DirBlocks, DirContext, Found, Indexing, Plan};
use crate::plan::extent::{self, Extent, Mapping, State};
use crate::plant::{Step, left_out};
use crate::{DirEntry, DirId, Error, Named};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::dirent::{self, Name};
use lanefs_ondisk::inode::{Cause as InodeCause, InodeFlags};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino};
use std::ops::ControlFlow;

impl Inode {
    /// Tells this directory from any other.
    pub fn dir_id(&self) -> DirId {
        DirId { ino: self.ino, generation: self.generation }
    }
}

/// More blocks than one operation appends to a directory.
const MOST_APPENDED: u32 = 16;
/// How often an entry names the same free inode before that is damage.
const TRIES: u32 = 64;

/// A change of a directory's shape, ready to be applied: everything read, claimed and pinned.
struct DirChange<'f> {
    updates: Vec<(MetaRef, Arc<[u8]>)>,
    appended: Vec<(FileBlock, Block, Arc<[u8]>)>,
    claims: Vec<Claim>,
    mapping: Option<MapChange<'f>>,
    indexing: Indexing,
    size: u64,
    credits: u32,
}

/// A directory that is read and not changed; its operation lock is held shared.
pub(crate) struct DirView<'f> {
    fs: &'f Fs,
    dir: &'f Arc<Inode>,
    pub(crate) context: DirContext,
    count: u32,
}

impl DirBlocks for DirView<'_> {
    fn block(&self, n: FileBlock) -> Result<Arc<[u8]>, Error> {
        let (block, kind) = self.fs.directory_place(self.dir, n)?;
        self.fs.meta.read(self.fs, block, kind)
    }

    fn count(&self) -> u32 {
        self.count
    }
}

impl DirView<'_> {
    /// The one block where `name` is, if it is there, and where it would go: which can be told while
    /// others change other names, as long as nobody changes the directory's shape. `None` if there may
    /// be several: a linear directory of several blocks, or leaves that share the name's hash. "." and
    /// ".." are not looked for.
    pub(crate) fn leaf_of(&self, name: Name<'_>) -> Result<Option<FileBlock>, Error> {
        if matches!(name.bytes(), b"." | b"..") {
            return Ok(None);
        }
        let (cx, count) = (&self.context, self.count);
        if cx.indexing != Indexing::Indexed || count == 0 {
            return Ok((count == 1).then_some(FileBlock(0)));
        }
        let begin = |root: &Contents<'_>| Descent::begin(cx, count, root, name);
        let mut descent = self.look_at(FileBlock(0), begin)??;
        while let Some(node) = descent.node() {
            descent = self.look_at(node, |block| descent.step(cx, block))??;
        }
        Ok(descent.only_leaf())
    }

    /// Looks for a name in block `n`, whose contents these are.
    pub(crate) fn find_in(
        &self,
        n: FileBlock,
        contents: &Contents<'_>,
        name: Name<'_>,
    ) -> Result<Option<Found>, Error> {
        match contents.names(&self.context.format) {
            Some(names) => dir::find_by(&self.context, n, names, contents, name),
            None => dir::find_in(&self.context, n, contents, name),
        }
    }

    fn look_at<R>(&self, n: FileBlock, look: impl Fn(&Contents<'_>) -> R) -> Result<R, Error> {
        let (block, kind) = self.fs.directory_place(self.dir, n)?;
        self.fs.meta.look(self.fs, block, kind, look, |_, _| ())
    }
}

impl Fs {
    /// The planners' view of a directory. The operation lock is held.
    pub(crate) fn dir_context(&self, dir: &Inode) -> Result<DirContext, Error> {
        if dir.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        let flags = InodeFlags::from_bits_retain(dir.rights().flags);
        let indexing = match (self.dir_index, flags.contains(InodeFlags::INDEX)) {
            (false, _) => Indexing::Never,
            (true, false) => Indexing::Possible,
            (true, true) => Indexing::Indexed,
        };
        if flags.contains(InodeFlags::INLINE_DATA) {
            let what = format!("{}: a directory inside its inode (inline_data)", dir.ino);
            return Err(lanefs_ondisk::Unsupported { what }.into());
        }
        Ok(self.dir_context_of(dir.ino, dir.generation, indexing))
    }

    /// Gives the directory a block with room for `name`, which is not there, in a handle of its own.
    ///
    /// # Locking
    /// The operation lock is held exclusively.
    pub(crate) fn make_room(&self, dir: &Arc<Inode>, name: Name<'_>) -> Result<(), Error> {
        let view = self.view_directory(dir)?;
        let plan = dir::plan_room(&view.context, &view, name)?;
        self.change_shape(&view, plan)
    }

    /// Takes the index flag away, since without `dir_index` the index is not kept up, in a handle of its
    /// own. Locking as [`Fs::make_room`].
    pub(crate) fn drop_index(&self, dir: &Arc<Inode>) -> Result<(), Error> {
        self.change_shape(&self.view_directory(dir)?, Plan::default())
    }

    /// Whether the directory, whose operation lock is held, has no names.
    pub(crate) fn is_empty_directory(&self, dir: &Arc<Inode>) -> Result<bool, Error> {
        let view = self.view_directory(dir)?;
        dir::is_empty(&view.context, &view)
    }

    fn change_shape(&self, view: &DirView<'_>, plan: Plan) -> Result<(), Error> {
        let change = self.prepare_shape(view, plan)?;
        let mut handle = self.join(change.credits)?;
        self.apply_shape(&mut handle, view.dir, change);
        Ok(())
    }

    /// Claims what a plan needs. Sleeps.
    fn prepare_shape(&self, view: &DirView<'_>, plan: Plan) -> Result<DirChange<'_>, Error> {
        let mut updates = Vec::new();
        for (n, data) in plan.updates {
            updates.push((self.directory_block(view.dir, n)?, data));
        }
        let block_size = self.geometry.block_size().bytes() as u64;
        let size = (u64::from(view.count) + plan.appended.len() as u64) * block_size;
        let indexing = match plan.becomes_indexed {
            true => Indexing::Indexed,
            false => view.context.indexing,
        };
        let mut change = DirChange {
            credits: 2 + updates.len() as u32,
            updates,
            appended: Vec::new(),
            claims: Vec::new(),
            mapping: None,
            indexing,
            size,
        };
        if !plan.appended.is_empty() {
            self.claim_directory_blocks(view.dir, view.count, plan.appended, &mut change)?;
        }
        Ok(change)
    }

    /// Reads a directory; its operation lock is held.
    pub(crate) fn view_directory<'f>(&'f self, dir: &'f Arc<Inode>) -> Result<DirView<'f>, Error> {
        let context = self.dir_context(dir)?;
        let blocks = dir.size() >> self.geometry.block_size().bits();
        let count = u32::try_from(blocks).map_err(|_| Error::FileTooLarge)?;
        if count > extent::END - MOST_APPENDED {
            return Err(Error::FileTooLarge);
        }
        Ok(DirView { fs: self, dir, context, count })
    }

    /// Block `n` of a directory.
    pub(crate) fn directory_block(&self, dir: &Arc<Inode>, n: FileBlock) -> Result<MetaRef, Error> {
        let (block, kind) = self.directory_place(dir, n)?;
        self.meta.get(self, block, kind)
    }

    pub(crate) fn directory_place(
        &self,
        dir: &Arc<Inode>,
        n: FileBlock,
    ) -> Result<(Block, MetaKind), Error> {
        match self.with_map(dir, |map| map.find(n))? {
            Mapping::Mapped { block, state: State::Written, .. } => {
                let kind =
                    MetaKind::Directory { ino: dir.ino, generation: dir.generation, block: n };
                Ok((block, kind))
            }
            _ => {
                Err(Corruption::Directory { ino: dir.ino, block: n, cause: dirent::Cause::Hole }
                    .into())
            }
        }
    }

    fn claim_directory_blocks<'f>(
        &'f self,
        dir: &Arc<Inode>,
        count: u32,
        appended: Vec<Arc<[u8]>>,
        change: &mut DirChange<'f>,
    ) -> Result<(), Error> {
        let map = self.map_of(dir)?;
        let end = count + appended.len() as u32;
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = count;
        let mut goal = self.goal_at(dir, &map, at);
        while at < end {
            let request = Request {
                goal,
                want: end - at,
                ahead: 0,
                at_least: 1,
                privilege: Privilege::Root,
                stream: None,
            };
            let claim = self.claim_or_reclaim(&request)?.into_claim();
            let (block, len) = (claim.start(), claim.len());
            extents.push(Extent { start: FileBlock(at), len, block, state: State::Written });
            goal = Block(block.0 + u64::from(len));
            at += len;
            change.claims.push(claim);
        }
        for (n, data) in appended.into_iter().enumerate() {
            let at = count + n as u32;
            let place = extents.iter().find_map(|e| e.clip(&(at..at + 1)));
            let place = place.ok_or(Error::NoSpace)?;
            change.appended.push((FileBlock(at), place.block, data));
        }
        let mapping = self.plan_mapping(dir, count..end, &extents)?;
        if mapping.covered.end < end {
            // The last leaf reaches to the end of what a file can have, so this cannot be.
            return Err(Error::FileTooLarge);
        }
        change.credits += mapping.credits + 4 * change.claims.len() as u32;
        change.mapping = Some(mapping);
        Ok(())
    }

    /// Apply: the directory's blocks and its inode.
    fn apply_shape(&self, handle: &mut Handle<'_>, dir: &Arc<Inode>, change: DirChange<'_>) {
        for (block, data) in change.updates {
            block.replace(handle, data);
        }
        for claim in change.claims {
            self.groups.allocate(handle, claim);
        }
        for (n, block, data) in change.appended {
            let kind = MetaKind::Directory { ino: dir.ino, generation: dir.generation, block: n };
            self.meta.create(handle, block, kind, data);
        }
        let update = |state: &mut InodeState| {
            state.disk.size = change.size;
            // Without `dir_index` the index is not kept up: a flag found there must go.
            state.disk.flags.set(InodeFlags::INDEX, change.indexing == Indexing::Indexed);
        };
        match change.mapping {
            Some(mapping) => self.apply_mapping(handle, dir, mapping, update),
            None => dir.change(handle, Concerns::Data, update),
        }
    }

    /// What `name` leads to in `dir`: also published to the name cache, if it leads nowhere too.
    pub fn lookup(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<Named>, Error> {
        let name = checked(name)?;
        let shared = dir.op.shared();
        if dir.file_type == FileType::Directory && dir.links() == 0 {
            return Ok(None);
        }
        let view = self.view_directory(dir)?;
        let found = match view.leaf_of(name)? {
            Some(leaf) => self.look_up_in(&view, leaf, name)?,
            None => {
                let found = dir::find(&view.context, &view, name)?;
                // Nobody changes this name but with the lock held exclusively.
                if let Some(named) = self.to_publish(found)
                    && !matches!(name.bytes(), b"." | b"..")
                {
                    self.names.publish(dir.dir_id(), name.bytes(), named);
                }
                found
            }
        };
        drop(shared);
        match (known(found), found) {
            (Some(named), _) => Ok(named),
            // The inode knows its type. Not asked with the lock held, since letting an inode go may
            // end it.
            (None, Some(Found { ino, .. })) => {
                Ok(Some(Named { ino, file_type: self.get(ino, None)?.file_type }))
            }
            (None, None) => Ok(None),
        }
    }

    /// Looks for `name` in the one block where it can be, which others may be changing, and publishes
    /// what is found if they have not.
    fn look_up_in(
        &self,
        view: &DirView<'_>,
        leaf: FileBlock,
        name: Name<'_>,
    ) -> Result<Option<Found>, Error> {
        let dir = view.dir;
        let (block, kind) = self.directory_place(dir, leaf)?;
        let look = |contents: &Contents<'_>| view.find_in(leaf, contents, name);
        self.meta.look(self, block, kind, look, |found, still| {
            if let Ok(found) = found
                && let Some(named) = self.to_publish(*found)
            {
                let still = || still() || left_out(Step::ReadStillLatest);
                self.names.publish_read(dir.dir_id(), name.bytes(), named, &still);
            }
        })?
    }

    /// As [`known`], of what a name may lead to: who hears of it may look for the inode in memory, where
    /// the file system's own files are too.
    fn to_publish(&self, found: Option<Found>) -> Option<Option<Named>> {
        let named = known(found)?;
        named.is_none_or(|named| self.is_for_names(named.ino)).then_some(named)
    }

    /// A hold on what `name` leads to in `dir`, or `None`. Asks again if the inode is gone before
    /// it can be held, or its number may be another one's by then; damage if the entry names an inode
    /// that stays free.
    pub fn find(&self, dir: &InodeRef, name: &[u8]) -> Result<Option<InodeRef>, Error> {
        let mut free = (Ino(0), 0);
        loop {
            let Some(named) = self.lookup(dir, name)? else { return Ok(None) };
            match self.get(named.ino, None) {
                Ok(inode) => {
                    // Held, it keeps its number: if the name leads to the number, it leads to it.
                    let again = self.lookup(dir, name)?.map(|again| again.ino);
                    if again == Some(named.ino) {
                        return Ok(Some(inode));
                    }
                }
                Err(Error::Stale) if free.0 == named.ino => free.1 += 1,
                Err(Error::Stale) => free = (named.ino, 1),
                Err(error) => return Err(error),
            }
            // A name that goes away takes its inode with it, not the other way round.
            if free.1 == TRIES {
                let cause = InodeCause::NotInUse;
                let error = Corruption::Inode { ino: named.ino, cause }.into();
                self.note_error(&error);
                return Err(error);
            }
        }
    }

    /// Entries after `cookie` (0: from the start) in hash order, "." and ".." first.
    pub fn read_dir(
        &self,
        dir: &InodeRef,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let _shared = dir.op.shared();
        let blocks = self.view_directory(dir)?;
        if dir.links() == 0 {
            return Ok(());
        }
        dir::read_from(&blocks.context, &blocks, cookie, each)
    }
}

/// What an entry or its absence tells of a name; `None` if the directory does not keep types (no
/// feature `filetype`).
fn known(found: Option<Found>) -> Option<Option<Named>> {
    let Some(Found { ino, file_type, .. }) = found else { return Some(None) };
    file_type.map(|file_type| Some(Named { ino, file_type }))
}

/// `name` if it can be one.
pub(crate) fn checked(name: &[u8]) -> Result<Name<'_>, Error> {
    use lanefs_ondisk::dirent::NameError;
    Name::new(name).map_err(|error| match error {
        NameError::TooLong => Error::NameTooLong,
        NameError::Empty => Error::NotFound,
        _ => Error::InvalidArgument { what: "a name with '/' or NUL" },
    })
}

/// `name` if it can name something new or be taken away; `dots` is the answer for "." and "..".
pub(crate) fn checked_entry(name: &[u8], dots: Error) -> Result<Name<'_>, Error> {
    match name {
        b"." | b".." => Err(dots),
        _ => checked(name),
    }
}
