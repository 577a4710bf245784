//! Implements directories: their blocks, look-ups in them, and changes of their shape. The shape
//! says which blocks a directory has, and which names belong in each block.

use crate::alloc::{Claim, Request};
use crate::crypt::{InodeCrypt, NoKeyName};
use crate::data::FileData;
use crate::data::bytes::{is_marked, stop_inline};
use crate::data::mapping::MapChange;
use crate::object::dirty::{Credits, Handle};
use crate::object::fs::Fs;
use crate::object::inode::Inode;
use crate::object::meta::{Contents, MetaRef};
use crate::object::state::{Concerns, InodeState};
use crate::volume::{BlockReader, MetaKind};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::dirent::{DirFormat, Name, NameForm, Packed};
use lanefs_ondisk::hash::{NameHash, NameHasher};
use lanefs_ondisk::inode::{Cause, InodeFlags};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, Unsupported, dirent};
use lanefs_plan::Expected;
use lanefs_plan::cluster::Filling;
use lanefs_plan::dir::{Descent, DirBlocks, DirContext, DirEntry, Found, Indexing, Plan};
use lanefs_plan::extent::{Extent, Mapping, State};
use lanefs_plan::{Error, InvalidArgument, cluster, dir, extent};
use std::ops::ControlFlow;

/// An upper bound for the number of blocks that one operation appends to a directory.
const MOST_APPENDED: u32 = 16;
/// The size in bytes of the first of the two entry areas in an inode.
const INLINE_AREA: usize = 56;
/// Holds a change of a directory's shape that is ready for Apply: all blocks that the change needs
/// are read, claimed and pinned.
struct DirChange<'f> {
    updates: Vec<(MetaRef, Arc<[u8]>)>,
    appended: Vec<(FileBlock, Block, Arc<[u8]>)>,
    claims: Vec<Claim>,
    mapping: Option<MapChange<'f>>,
    indexing: Indexing,
    size: u64,
}

impl DirChange<'_> {
    fn credits(&self) -> Credits {
        let blocks = self.updates.len() + self.appended.len();
        let inode = self.mapping.as_ref().map_or(Credits::INODE, |mapping| mapping.credits);
        inode.and(Credits::RUN.times(self.claims.len())).and(Credits::blocks(1).times(blocks))
    }
}

/// A directory whose operation lock is held: shared for reading, exclusively for a change of its
/// shape.
pub(crate) struct Directory<'d> {
    pub(crate) fs: &'d Fs,
    pub(crate) dir: &'d Arc<Inode>,
    pub(crate) context: DirContext,
    /// The encryption of the directory; `None` if the directory is not encrypted.
    pub(crate) crypt: Option<&'d InodeCrypt>,
    count: u32,
    /// The directory's only block, if its entries are in its inode (feature `inline_data`).
    inline: Option<Arc<[u8]>>,
}

impl DirBlocks for Directory<'_> {
    fn block(&self, n: FileBlock) -> Result<Arc<[u8]>, Error> {
        if let Some(block) = &self.inline {
            return Ok(block.clone());
        }
        let (block, kind) = self.place(n)?;
        self.fs.meta.read(self.fs, block, kind)
    }

    fn look(&self, n: FileBlock, look: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        match &self.inline {
            Some(block) => look(block),
            None => self.look_at(n, |contents| look(contents))?,
        }
        Ok(())
    }

    fn unsound(&self, n: FileBlock, fault: &Error) -> Option<Arc<[u8]>> {
        use lanefs_ondisk::htree::Cause as Index;
        let is_read = match fault {
            Error::Corruption(Corruption::Directory { cause, .. }) => {
                !matches!(cause, dirent::Cause::Checksum { .. } | dirent::Cause::Hole)
            }
            Error::Corruption(Corruption::DirectoryIndex { cause, .. }) => {
                !matches!(cause, Index::Checksum { .. })
            }
            _ => false,
        };
        let place = self.place(n).ok().filter(|_| is_read)?;
        self.fs.read_block(place.0).ok()
    }

    fn count(&self) -> u32 {
        self.count
    }
}

impl<'d> Directory<'d> {
    /// Creates a view of `dir`. The caller holds the operation lock of `dir`.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; an error for a directory that is not mapped in a supported way, or
    /// is too large.
    pub(crate) fn of(fs: &'d Fs, dir: &'d Arc<Inode>) -> Result<Directory<'d>, Error> {
        if dir.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        let flags = InodeFlags::from_bits_retain(dir.rights().flags);
        let volume = &fs.volume;
        let context = volume.dir_context(dir.ino, dir.generation, flags);
        let data = FileData { fs, inode: dir };
        let crypt = data.crypt()?;
        if crypt.is_some() && context.hasher.folding != Folding::None {
            let what = "an encrypted directory that ignores case".to_string();
            return Err(Unsupported { what }.into());
        }
        if data.is_inline() {
            let context = DirContext { indexing: volume.indexing(false), ..context };
            let mut view = Directory { fs, dir, context, crypt, count: 1, inline: None };
            view.inline = Some(view.inline_block()?);
            return Ok(view);
        }
        let blocks = dir.size() >> volume.geometry().block_size().bits();
        let count = u32::try_from(blocks).map_err(|_| Error::FileTooLarge)?;
        if count > extent::END - MOST_APPENDED {
            return Err(Error::FileTooLarge);
        }
        Ok(Directory { fs, dir, context, crypt, count, inline: None })
    }

    /// Returns how the directory compares names. Names that are not compared by their bytes are not
    /// published to the name cache, because the cache finds names by their bytes.
    pub(crate) fn folding(&self) -> Folding {
        self.context.hasher.folding
    }

    /// Returns whether the directory's entries are in its inode.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline.is_some()
    }

    /// Returns the entries in the inode as a directory block: "." and "..", then these entries.
    fn inline_block(&self) -> Result<Arc<[u8]>, Error> {
        let ino = self.dir.ino;
        let damaged = |cause| Corruption::Directory { ino, block: FileBlock(0), cause };
        let bytes = self.data().inline_bytes()?;
        let inodes = self.fs.volume.geometry().inode_count();
        let format = &DirFormat { inodes, ..self.context.format };
        // `bytes` has the inode number of the parent, 56 bytes of entries, and a second area of
        // entries.
        let (parent, entries) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
        let parent = Ino(u32::from_le_bytes(*parent));
        if parent.0 == 0 || parent.0 > format.inodes {
            return Err(damaged(dirent::Cause::NoDots).into());
        }
        let mut block = dirent::new_directory(format, ino, parent);
        let (first, second) = entries.split_at(INLINE_AREA.min(entries.len()));
        for area in [first, second] {
            for entry in dirent::inline_entries(format, area) {
                let entry = entry.map_err(damaged)?;
                let Some(packed) = Packed::from_entry(&entry) else { continue };
                if entry.is_dot() {
                    return Err(
                        damaged(dirent::Cause::MisplacedDot { offset: entry.offset }).into()
                    );
                }
                let room = dirent::find_room(format, &block, &packed).map_err(damaged)?;
                let room = room.ok_or(Error::NameTooLong)?;
                dirent::insert_at(format, &mut block, room, &packed);
            }
        }
        Ok(block.into())
    }

    /// Moves the entries from the inode to a block. Joins the transaction with a handle of its own,
    /// so the caller has none. The operation lock is held exclusively.
    pub(crate) fn leave_inode(&self) -> Result<(), Error> {
        let Some(block) = &self.inline else { return Ok(()) };
        let Directory { fs, dir, context, crypt, .. } = *self;
        let empty = Directory { fs, dir, context, crypt, count: 0, inline: None };
        empty.change_shape(Plan { appended: vec![block.clone()], ..Plan::default() })
    }

    fn data(&self) -> FileData<'d> {
        FileData { fs: self.fs, inode: self.dir }
    }

    /// Passes the entries after `cookie` (0: from the start) to `each`, "." and ".." first.
    pub(crate) fn read_from(
        &self,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        match self.crypt {
            Some(crypt) => self.read_encrypted(crypt, cookie, each),
            None => dir::read_from(&self.context, self, cookie, each),
        }
    }

    /// Looks for a stored name in all blocks that may contain it.
    pub(crate) fn find(&self, name: Name<'_>) -> Result<Option<Found>, Error> {
        let is_dot = matches!(name.bytes(), b"." | b"..");
        if is_dot || self.context.indexing == Indexing::Indexed || self.is_inline() {
            return dir::find(&self.context, self, name);
        }
        // A name is mostly looked up after its neighbours, in the order of the listing.
        let first = self.dir.last_found.load(Ordering::Relaxed).min(self.count);
        for n in (first..self.count).chain(0..first).map(FileBlock) {
            let found = self.look_at(n, |block| self.find_in(n, block, name))??;
            if found.is_some() {
                if n.0 != first {
                    self.dir.last_found.store(n.0, Ordering::Relaxed);
                }
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the one block that contains a stored name if the name exists, or would contain it
    /// otherwise. The result stays valid while other threads change other names, as long as the
    /// directory's shape does not change. `None` if several blocks are possible: a linear directory
    /// of several blocks, or leaves that share the name's hash. Also `None` for "." and "..", and
    /// if the entries are in the inode.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the directory does not permit this name.
    pub(crate) fn leaf_of(&self, name: Name<'_>) -> Result<Option<FileBlock>, Error> {
        if !self.folding().permits(name.bytes()) {
            return Err(InvalidArgument::NotUtf8.into());
        }
        if matches!(name.bytes(), b"." | b"..") || self.is_inline() {
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

    /// Looks for a stored name in block `n`, whose contents are given.
    pub(crate) fn find_in(
        &self,
        n: FileBlock,
        contents: &Contents<'_>,
        name: Name<'_>,
    ) -> Result<Option<Found>, Error> {
        if self.folding() != Folding::None {
            return dir::find_in(&self.context, n, contents, name);
        }
        match contents.names(&self.context.format) {
            Some(names) => dir::find_by(&self.context, n, names, contents, name),
            None => dir::find_in(&self.context, n, contents, name),
        }
    }

    fn look_at<R>(&self, n: FileBlock, look: impl FnOnce(&Contents<'_>) -> R) -> Result<R, Error> {
        let (block, kind) = self.place(n)?;
        self.fs.meta.look(self.fs, block, kind, look, |_, _| ())
    }

    /// Makes room for a stored name in one of the directory's blocks. The directory must not have
    /// the name yet. Joins the transaction with a handle of its own, so the caller has none.
    ///
    /// # Locking
    /// The operation lock is held exclusively.
    pub(crate) fn make_room(&self, name: Name<'_>) -> Result<(), Error> {
        self.change_shape(dir::plan_room(&self.context, self, name)?)
    }

    /// Clears the index flag, since without `dir_index` the index is not kept up to date. Joins the
    /// transaction with a handle of its own, so the caller has none. The operation lock is held
    /// exclusively.
    pub(crate) fn drop_index(&self) -> Result<(), Error> {
        self.change_shape(Plan::default())
    }

    /// Returns whether the directory has no names except "." and "..".
    pub(crate) fn is_empty(&self) -> Result<bool, Error> {
        dir::is_empty(&self.context, self)
    }

    fn change_shape(&self, plan: Plan) -> Result<(), Error> {
        let change = self.prepare_shape(plan)?;
        let mut handle = self.fs.join(change.credits())?;
        self.apply_shape(&mut handle, change);
        Ok(())
    }

    /// Claims and pins the blocks that a plan needs. May sleep.
    fn prepare_shape(&self, plan: Plan) -> Result<DirChange<'d>, Error> {
        let mut updates = Vec::new();
        for (n, data) in plan.updates {
            updates.push((self.meta_block(n)?, data));
        }
        let block_size = self.fs.volume.block_size() as u64;
        let size = (u64::from(self.count) + plan.appended.len() as u64) * block_size;
        let indexing = match plan.becomes_indexed {
            true => Indexing::Indexed,
            false => self.context.indexing,
        };
        let mut change = DirChange {
            updates,
            appended: Vec::new(),
            claims: Vec::new(),
            mapping: None,
            indexing,
            size,
        };
        if !plan.appended.is_empty() {
            self.claim_appended(plan.appended, &mut change)?;
        }
        Ok(change)
    }

    /// Returns a hold on block `n`.
    pub(crate) fn meta_block(&self, n: FileBlock) -> Result<MetaRef, Error> {
        if let Some(held) = self.block_in_memory(n) {
            return Ok(held);
        }
        let (block, kind) = self.place(n)?;
        self.fs.meta.get(self.fs, block, kind)
    }

    /// Returns a hold on block `n` if its mapping and its contents are in memory. Both look-ups use
    /// the same reader pin.
    #[inline]
    fn block_in_memory(&self, n: FileBlock) -> Option<MetaRef> {
        self.dir.note_use();
        let pin = lanefs_lanes::pin();
        let block = written(self.dir.map.get(&pin)?.find(n))?;
        self.fs.meta.held(&pin, block, self.kind(n))
    }

    /// Returns the position of block `n` on the device, and the kind of the block.
    pub(crate) fn place(&self, n: FileBlock) -> Result<(Block, MetaKind), Error> {
        let ino = self.dir.ino;
        let block = self.data().with_map(|map| written(map.find(n)))?;
        let hole = || Corruption::Directory { ino, block: n, cause: dirent::Cause::Hole };
        Ok((block.ok_or_else(hole)?, self.kind(n)))
    }

    fn kind(&self, n: FileBlock) -> MetaKind {
        let Inode { ino, generation, .. } = **self.dir;
        MetaKind::Directory { ino, generation, block: n }
    }

    fn claim_appended(
        &self,
        appended: Vec<Arc<[u8]>>,
        change: &mut DirChange<'d>,
    ) -> Result<(), Error> {
        let (count, data) = (self.count, self.data());
        let map = data.map()?;
        let clusters = self.fs.volume.clusters();
        let end = count + appended.len() as u32;
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = count;
        let mut goal = data.goal_at(&map, at);
        while at < end {
            let (start, block, len) = match cluster::fill(&map, &(at..end), clusters) {
                Filling::InUse { block, len } => (at, block, len),
                Filling::New { start, .. } => {
                    let request = Request::for_metadata(goal, end - start);
                    let claim = self.fs.claim_blocks(&request)?.into_claim();
                    let (block, len) = (claim.start(), claim.len());
                    change.claims.push(claim);
                    (start, block, len)
                }
            };
            let whole = Extent { start: FileBlock(start), len, block, state: State::Written };
            let extent = whole.clip(&(at..end)).expected()?;
            goal = Block(extent.block.0 + u64::from(extent.len));
            at = extent.end();
            extents.push(extent);
        }
        for (n, contents) in appended.into_iter().enumerate() {
            let at = count + n as u32;
            let place = extents.iter().find_map(|e| e.clip(&(at..at + 1)));
            let place = place.expected()?;
            change.appended.push((FileBlock(at), place.block, contents));
        }
        let mapping = data.plan_mapping(count..end, &extents)?;
        if mapping.covered.end < end {
            // The last leaf of a tree covers all block numbers up to the largest, so a block is
            // mapped behind the directory's end.
            let cause = Cause::Size { size: self.dir.size() };
            return Err(Corruption::Inode { ino: self.dir.ino, cause }.into());
        }
        change.mapping = Some(mapping);
        Ok(())
    }

    /// Apply: changes the directory's blocks and its inode.
    fn apply_shape(&self, handle: &mut Handle<'_>, change: DirChange<'_>) {
        let Directory { fs, dir, .. } = *self;
        for (block, data) in change.updates {
            block.replace(handle, data);
        }
        for claim in change.claims {
            fs.groups.allocate(handle, claim);
        }
        for (n, block, data) in change.appended {
            let kind = MetaKind::Directory { ino: dir.ino, generation: dir.generation, block: n };
            fs.meta.create(handle, block, kind, data);
        }
        let update = |state: &mut InodeState| {
            if is_marked(state.disk.flags) {
                stop_inline(&fs.volume, dir, state);
            }
            state.disk.size = change.size;
            // Without `dir_index` the index is not kept up to date, so an old flag must be cleared.
            state.disk.flags.set(InodeFlags::INDEX, change.indexing == Indexing::Indexed);
        };
        match change.mapping {
            Some(mapping) => self.data().apply_mapping(handle, mapping, update),
            None => dir.change(handle, Concerns::Data, update),
        }
    }
}

/// Returns the block on the device; `None` for a hole or unwritten space.
fn written(mapping: Mapping) -> Option<Block> {
    match mapping {
        Mapping::Mapped { block, state: State::Written, .. } => Some(block),
        _ => None,
    }
}

/// Checks that `name` is a valid name.
pub(crate) fn checked(name: &[u8]) -> Result<Name<'_>, Error> {
    use lanefs_ondisk::dirent::NameError;
    Name::new(name).map_err(|error| match error {
        NameError::TooLong => Error::NameTooLong,
        NameError::Empty => Error::NotFound,
        _ => Error::InvalidArgument(InvalidArgument::NameBytes),
    })
}

/// Checks that `name` can be created or removed; fails with the error `dots` for "." and "..".
pub(crate) fn checked_entry(name: &[u8], dots: impl FnOnce() -> Error) -> Result<Name<'_>, Error> {
    match name {
        b"." | b".." => Err(dots()),
        _ => checked(name),
    }
}

// Converts names in encrypted directories between the form that callers know and the stored form.

/// A name as a directory stores it.
pub(crate) enum StoredName<'n> {
    Given(Name<'n>),
    /// A valid encrypted name.
    Encrypted(Vec<u8>),
}

impl StoredName<'_> {
    fn encrypted(bytes: Vec<u8>) -> Option<StoredName<'static>> {
        Name::of(NameForm::Encrypted, &bytes).is_ok().then_some(StoredName::Encrypted(bytes))
    }

    pub(crate) fn name(&self) -> Name<'_> {
        match self {
            StoredName::Given(name) => *name,
            StoredName::Encrypted(bytes) => {
                Name::of(NameForm::Encrypted, bytes).expect("checked by the constructor")
            }
        }
    }
}

/// Turns stored names into the names that callers see.
struct Shown<'d> {
    crypt: &'d InodeCrypt,
    /// Without the key, a text is shown for each name, and this hasher computes the hash in that
    /// text. Without a hasher, the text has zeros in place of the hash.
    hasher: Option<NameHasher>,
}

impl Directory<'_> {
    /// Returns the stored form of `name`; `None` if the directory cannot have that name, because
    /// the key is missing and no encrypted name is shown as `name`.
    pub(crate) fn stored<'n>(&self, name: Name<'n>) -> Result<Option<StoredName<'n>>, Error> {
        let Some(crypt) = self.crypt.filter(|_| !matches!(name.bytes(), b"." | b"..")) else {
            return Ok(Some(StoredName::Given(name)));
        };
        let bytes = match (crypt.names(), NoKeyName::decode(name.bytes())) {
            (Ok(names), _) => names.encrypt(name.bytes(), dirent::MAX_NAME),
            (Err(_), Some(NoKeyName::Whole(bytes))) => Some(bytes),
            (Err(_), Some(NoKeyName::Long { major, .. })) => {
                let text = NoKeyName::decode(name.bytes());
                text.map(|text| self.find_long(&text, major)).transpose()?.flatten()
            }
            (Err(_), None) => None,
        };
        Ok(bytes.and_then(StoredName::encrypted))
    }

    /// Returns the stored name for which `text` is shown. Reads only the entries whose hash is the
    /// one in the text, or all entries if the text has no hash.
    fn find_long(&self, text: &NoKeyName, major: u32) -> Result<Option<Vec<u8>>, Error> {
        let mut found = None;
        let major = if dir::in_hash_order(&self.context, self) { major } else { 0 };
        let mut look = |entry: &DirEntry<'_>| {
            if text.is_of(entry.name) {
                found = Some(entry.name.to_vec());
            }
            let is_past = major != 0 && dir::hash_at(entry.next).is_none_or(|hash| hash > major);
            match found.is_some() || is_past {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        dir::read_from(&self.context, self, dir::cookie_of(major), &mut look)?;
        Ok(found)
    }

    /// Does the same as [`Directory::read_from`] for an encrypted directory.
    pub(crate) fn read_encrypted(
        &self,
        crypt: &InodeCrypt,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let shown = Shown { crypt, hasher: self.shown_hasher()? };
        let mut damage = Ok(());
        dir::read_from(&self.context, self, cookie, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return each(entry);
            }
            match shown.name(entry.name) {
                Ok(name) => each(&DirEntry { name: &name, ..*entry }),
                Err(cause) => {
                    damage = Err(Corruption::Inode { ino: self.dir.ino, cause });
                    ControlFlow::Break(())
                }
            }
        })?;
        Ok(damage?)
    }

    /// Returns the hasher for the texts that are shown for names while the key is missing. Returns
    /// `None` for a linear directory of several blocks, and on a file system without `dir_index`.
    /// In these cases the texts contain no hash, as in the kernel (6.18).
    fn shown_hasher(&self) -> Result<Option<NameHasher>, Error> {
        Ok(match self.context.indexing {
            Indexing::Indexed => Some(dir::hasher_of(&self.context, self)?),
            _ => dir::in_hash_order(&self.context, self).then_some(self.context.hasher),
        })
    }
}

impl Shown<'_> {
    fn name(&self, stored: &[u8]) -> Result<Vec<u8>, Cause> {
        let damaged = Cause::EncryptedText { len: stored.len() };
        let Ok(names) = self.crypt.names() else {
            let none = NameHash { major: 0, minor: 0 };
            let hash = self.hasher.map_or(none, |hasher| hasher.hash(stored));
            return Ok(NoKeyName::encode(hash, stored));
        };
        let name = names.decrypt(stored).ok_or(damaged.clone())?;
        match Name::new(&name) {
            Ok(valid) if !matches!(valid.bytes(), b"." | b"..") => Ok(name),
            _ => Err(damaged),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
