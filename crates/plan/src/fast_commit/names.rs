//! The third part of a replay: names and link counts.

use crate::dir;
use crate::dir::{DirBlocks, DirContext, Indexing, Plan};
use crate::error::Error;
use crate::error::Expected;
use crate::extent::{Extent, Mapping, State};
use crate::fast_commit::draft::Draft;
use crate::fast_commit::draft::refused;
use crate::fast_commit::inodes::Inodes;
use crate::fast_commit::node::{Mappings, Node};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::inode::{BlockField, InodeFlags};
use lanefs_ondisk::jbd2::{FastCause, FastChange, FastName};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, dirent};

/// The link count of a new directory, which counts its name and ".".
const NEW_LINKS: u16 = 2;

/// Whether a name is the first one of its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Added {
    First,
    Another,
}

impl<'a> Inodes<'a> {
    /// Applies change `n` if it adds or removes a name.
    pub(crate) fn apply_name(&mut self, n: usize, change: &FastChange) -> Result<(), Error> {
        match change {
            FastChange::Create(name) => self.add(n, name, Added::First),
            FastChange::Link(name) => self.add(n, name, Added::Another),
            FastChange::Unlink(name) => self.remove(n, name),
            _ => Ok(()),
        }
    }

    fn add(&mut self, n: usize, new: &FastName, added: Added) -> Result<(), Error> {
        let node = self.node(new.ino)?;
        let is_meant = node.is_meant(n);
        let is_directory = is_meant && node.is_directory();
        let needs_dots = is_directory && node.born.is_some() && !node.has_dots;
        // If the inode number was reused later, a later change removes this entry, so the entry's
        // type does not matter.
        let file_type = node.inode()?.file_type().filter(|_| is_meant);
        let is_started = needs_dots && added == Added::First;
        if is_started {
            self.start_directory(new.ino, new.parent)?;
        }
        let is_new = self.insert(n, new, file_type.unwrap_or(FileType::Regular))?;
        if is_new && is_directory {
            if !is_started {
                return Err(refused("that give a directory another name"));
            }
            self.count_directory(n, new.parent, 1)?;
        }
        let node = self.node(new.ino)?;
        if node.counts(n) && !is_directory {
            let inode = node.inode_mut()?;
            match added {
                Added::First => inode.links = 1,
                Added::Another if is_new => inode.links = inode.links.saturating_add(1),
                Added::Another => {}
            }
        }
        Ok(())
    }

    fn remove(&mut self, n: usize, old: &FastName) -> Result<(), Error> {
        let Some(was_directory) = self.take_out(n, old)? else { return Ok(()) };
        if was_directory {
            self.check_empty(n, old.ino)?;
            self.count_directory(n, old.parent, -1)?;
        }
        let node = self.node(old.ino)?;
        if node.counts(n)
            && let Some(inode) = &mut node.now
        {
            inode.links = if was_directory { 0 } else { inode.links.saturating_sub(1) };
        }
        Ok(())
    }

    /// Fails if a directory that is being removed still has names.
    fn check_empty(&mut self, n: usize, ino: Ino) -> Result<(), Error> {
        let Some((draft, node)) = self.directory(n, ino)? else { return Ok(()) };
        let context = node.context(draft)?;
        let is_empty = dir::is_empty(&context, &node.blocks(draft, &context)?)?;
        match is_empty && ino != Ino::ROOT {
            true => Ok(()),
            false => Err(refused("that remove a directory with names")),
        }
    }

    /// Adds `more` (1 or -1) to the link count of the directory `ino`, in which change `n` adds or
    /// removes a subdirectory. Does nothing if [`Node::counts`] returns false.
    fn count_directory(&mut self, n: usize, ino: Ino, more: i32) -> Result<(), Error> {
        let node = self.node(ino)?;
        if node.is_meant(n) && node.counts(n) {
            node.inode_mut()?.add_directory_links(more);
        }
        Ok(())
    }

    /// Gives a new directory its first block.
    fn start_directory(&mut self, ino: Ino, parent: Ino) -> Result<(), Error> {
        self.node(ino)?;
        let Inodes { draft, nodes, .. } = self;
        let node = nodes.get_mut(&ino).expected()?;
        if node.inode()?.block_field(&draft.geometry) != BlockField::ExtentTree {
            return Err(refused("of a new directory without an extent tree"));
        }
        node.mappings(draft)?;
        let inode = node.inode_mut()?;
        (inode.size, inode.links) = (0, NEW_LINKS);
        inode.flags -= InodeFlags::INDEX;
        node.has_dots = true;
        let first = dir::new_directory(&node.context(draft)?, parent);
        node.change_directory(draft, Plan { appended: vec![first], ..Plan::default() })
    }

    /// Adds an entry. Returns false if the directory has this entry already.
    fn insert(&mut self, n: usize, new: &FastName, file_type: FileType) -> Result<bool, Error> {
        let name = Name::new(&new.name).map_err(|_| Error::NameTooLong)?;
        let Some((draft, node)) = self.directory(n, new.parent)? else { return Ok(true) };
        let context = node.context(draft)?;
        let blocks = node.blocks(draft, &context)?;
        match dir::find(&context, &blocks, name)? {
            Some(found) if found.ino == new.ino => return Ok(false),
            Some(found) => return Err(node.fault(FastCause::NameTaken { found: found.ino })),
            None => {}
        }
        let plan = dir::plan_insert(&context, &blocks, name, new.ino, file_type)?;
        node.change_directory(draft, plan)?;
        Ok(true)
    }

    /// Removes an entry. Returns whether the entry referred to a directory; `None` if there is no
    /// such entry. The entry may be missing: if a file is created and removed between two fast
    /// commits, only the removal is recorded.
    fn take_out(&mut self, n: usize, old: &FastName) -> Result<Option<bool>, Error> {
        let name = Name::new(&old.name).map_err(|_| Error::NameTooLong)?;
        let was_directory = self.node(old.ino)?.is_directory();
        if self.node(old.parent)?.now.is_none() {
            return Ok(None);
        }
        let Some((draft, node)) = self.directory(n, old.parent)? else {
            return Ok(Some(was_directory));
        };
        let context = node.context(draft)?;
        let blocks = node.blocks(draft, &context)?;
        let found = dir::find(&context, &blocks, name)?.filter(|found| found.ino == old.ino);
        let Some(found) = found else { return Ok(None) };
        let mut bytes = blocks.block(found.block)?.to_vec();
        dirent::remove(&context.format, &mut bytes, 0, found.offset).map_err(|cause| {
            Corruption::Directory { ino: old.parent, block: found.block, cause }
        })?;
        let update = (found.block, bytes.into());
        node.change_directory(draft, Plan { updates: vec![update], ..Plan::default() })?;
        let stored = found.file_type.map(|kind| kind == FileType::Directory);
        Ok(Some(stored.unwrap_or(was_directory)))
    }

    /// Returns the directory `ino`, in which change `n` adds or removes a name. Returns `None` if a
    /// change after `n` gave the number to another inode, because the names of the older directory
    /// are then gone.
    fn directory(&mut self, n: usize, ino: Ino) -> Result<Option<Found<'_, 'a>>, Error> {
        let node = self.node(ino)?;
        if !node.is_meant(n) {
            return Ok(None);
        }
        node.inode()?;
        if !node.is_directory() {
            return Err(node.fault(FastCause::NotADirectory));
        }
        let Inodes { draft, nodes, .. } = self;
        let node = nodes.get_mut(&ino).expected()?;
        match node.inode()?.block_field(&draft.geometry) {
            BlockField::ExtentTree => {}
            BlockField::InlineData => {
                return Err(refused("of a name in a directory in its inode (inline_data)"));
            }
            _ => return Err(refused("of a name in a directory with a block map")),
        }
        node.mappings(draft)?;
        Ok(Some((draft, node)))
    }
}

/// The file system, and a directory in it.
type Found<'f, 'a> = (&'f mut Draft<'a>, &'f mut Node);

/// The blocks of a directory.
struct Blocks<'b, 'a> {
    draft: &'b Draft<'a>,
    context: &'b DirContext,
    mappings: &'b Mappings,
    count: u32,
}

impl Blocks<'_, '_> {
    fn place(&self, n: FileBlock) -> Result<Block, Error> {
        match self.mappings.now.find(n) {
            Mapping::Mapped { block, state: State::Written, .. } => Ok(block),
            _ => {
                let cause = dirent::Cause::Hole;
                Err(Corruption::Directory { ino: self.context.ino, block: n, cause }.into())
            }
        }
    }
}

impl DirBlocks for Blocks<'_, '_> {
    fn block(&self, n: FileBlock) -> Result<Arc<[u8]>, Error> {
        self.draft.count_search()?;
        let bytes = self.draft.block(self.place(n)?)?;
        dir::verify(self.context, n, &bytes)?;
        Ok(bytes)
    }

    fn count(&self) -> u32 {
        self.count
    }
}

impl Node {
    fn context(&self, draft: &Draft<'_>) -> Result<DirContext, Error> {
        let inode = self.inode()?;
        Ok(DirContext::new(&draft.superblock, self.ino, inode.generation, inode.flags))
    }

    fn blocks<'b, 'a>(
        &'b self,
        draft: &'b Draft<'a>,
        context: &'b DirContext,
    ) -> Result<Blocks<'b, 'a>, Error> {
        let count = self.inode()?.size >> draft.geometry.block_size().bits();
        let count = u32::try_from(count).map_err(|_| Error::FileTooLarge)?;
        let mappings = self.map.as_ref().expected()?;
        Ok(Blocks { draft, context, mappings, count })
    }

    /// Changes the blocks of a directory as `plan` says.
    fn change_directory(&mut self, draft: &mut Draft<'_>, plan: Plan) -> Result<(), Error> {
        let context = self.context(draft)?;
        let mut updates = Vec::new();
        let mut count = {
            let blocks = self.blocks(draft, &context)?;
            for (n, bytes) in plan.updates {
                updates.push((blocks.place(n)?, bytes));
            }
            blocks.count
        };
        let has_grown = !plan.appended.is_empty();
        for bytes in plan.appended {
            let block = self.append_block(draft, count)?;
            updates.push((block, bytes));
            count = count.saturating_add(1);
        }
        for (block, bytes) in updates {
            draft.check_place(self.ino, block, 1)?;
            let mut bytes = bytes.to_vec();
            dir::seal(&context, &mut bytes);
            draft.put(block, bytes.into())?;
        }
        let inode = self.inode_mut()?;
        inode.size = u64::from(count) << draft.geometry.block_size().bits();
        if plan.becomes_indexed {
            inode.flags |= InodeFlags::INDEX;
        }
        if context.indexing == Indexing::Never {
            // Without `dir_index` the index is not kept up to date.
            inode.flags -= InodeFlags::INDEX;
        }
        match has_grown {
            true => self.count_sectors(draft),
            false => Ok(()),
        }
    }

    /// Allocates a block for block `n` of a directory.
    fn append_block(&mut self, draft: &mut Draft<'_>, n: u32) -> Result<Block, Error> {
        let mappings = self.map.as_mut().expected()?;
        let near = mappings.now.last().map_or(Block(0), |extent| extent.block);
        let near = match near {
            Block(0) => draft.first_block_near(self.ino),
            near => near,
        };
        let block = draft.allocate(near)?;
        let extent = Extent { start: FileBlock(n), len: 1, block, state: State::Written };
        let range = n..n.saturating_add(1);
        mappings.now = mappings.now.replace(range.clone(), &[extent]);
        self.change_tree(draft, range, &[extent]).map(|()| block)
    }
}
