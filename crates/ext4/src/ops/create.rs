//! New inodes: claimed and prepared whole, then allocated and named in one handle.

use crate::alloc::{self, Claim, InodeClaim, Privilege, Request};
use crate::fs::Fs;
use crate::name::directory::checked_entry;
use crate::name::place::{Beside, Edit, PLACE_CREDITS, lock_for_names};
use crate::object::commit::Handle;
use crate::object::inode::{Concerns, Inode, InodeRef};
use crate::object::meta::MetaKind;
use crate::object::record::RawRecord;
use crate::object::table::TableRef;
use crate::ops::link::DROP_LINK_CREDITS;
use crate::ops::read::now;
use crate::ops::xattrs::NewBlock;
use crate::plan::dir::{Indexing, Look};
use crate::plan::extent::{self, Extent, Nodes, State};
use crate::{Error, Named, NewInode, NewKind};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Nameless, set_nameless};
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::inode::{DeviceNumber, InodeFlags};
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, inode as disk};

/// The most links that an inode can have (ext4's limit); a directory beyond it says 1.
pub(crate) const MAX_LINKS: u16 = 65000;
const SET_GROUP_ID: u16 = 0o2000;
/// Target bytes that fit into the inode, with the NUL that ext4 puts behind them.
const FAST_SYMLINK: usize = 59;

/// Credits of a birth: the inode, its group, and up to two blocks with theirs.
const BIRTH_CREDITS: u32 = 16;

/// What a change of one name does to the count of a directory's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameChange {
    OneDirectoryMore,
    OneDirectoryLess,
    /// Of anything that is no directory.
    Uncounted,
}

impl NameChange {
    fn of(new: FileType) -> NameChange {
        match new {
            FileType::Directory => NameChange::OneDirectoryMore,
            _ => NameChange::Uncounted,
        }
    }

    /// Of so many directories more: one, none, or one less.
    pub(crate) fn of_directories(more: i32) -> NameChange {
        match more {
            1.. => NameChange::OneDirectoryMore,
            0 => NameChange::Uncounted,
            ..0 => NameChange::OneDirectoryLess,
        }
    }

    /// Links more.
    fn links(self) -> i32 {
        match self {
            NameChange::OneDirectoryMore => 1,
            NameChange::OneDirectoryLess => -1,
            NameChange::Uncounted => 0,
        }
    }
}

/// Whether the count of links is so far from its limit that all that count now, each knowing
/// of none of the others, stay below it.
pub(crate) fn may_count(dir: &Inode, change: NameChange, beside: Beside) -> bool {
    let far = || dir.links() < u32::from(MAX_LINKS) / 2;
    beside == Beside::Nobody || change == NameChange::Uncounted || far()
}

/// A new inode, claimed and prepared.
struct Born<'a> {
    claim: InodeClaim<'a>,
    /// In no map yet, with one hold.
    inode: Arc<Inode>,
    /// The one block of a directory or of a long symbolic link.
    block: Option<FirstBlock>,
    xattrs: Option<NewBlock>,
}

/// The first block of a new directory or long symbolic link, and the contents that the journal
/// gets: those of a link are data and written already.
type FirstBlock = (Claim, Option<Arc<[u8]>>);

/// Whether a new inode is to have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    Named,
    Unnamed,
}

/// Trees of new inodes have no nodes outside of the inode.
struct NoNodes;

impl Nodes for NoNodes {
    fn node(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        Err(Error::OutsideFileSystem { block })
    }
}

impl Fs {
    /// Creates an inode and its name. [`Error::Exists`] if the name is there.
    pub fn create(
        &self,
        dir: &InodeRef,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<InodeRef, Error> {
        self.check_writable()?;
        let name = checked_entry(name, Error::Exists)?;
        let inode = match self.create_beside(dir, name, new, Beside::Others)? {
            Some(inode) => inode,
            None => self.create_beside(dir, name, new, Beside::Nobody)?.ok_or(Error::Busy)?,
        };
        self.obey_dirsync(&[dir])?;
        Ok(inode)
    }

    /// Creates; `None` if that cannot be beside others. The inode is born before the names are locked,
    /// so that others wait for the name alone; if the name or the room turns out to be gone, it is an
    /// inode that has lost its last name.
    fn create_beside(
        &self,
        dir: &InodeRef,
        name: Name<'_>,
        new: &NewInode<'_>,
        beside: Beside,
    ) -> Result<Option<InodeRef>, Error> {
        // Declared before the lock: one that got no name is ended after it is let go.
        let inode;
        let _locked = lock_for_names(&[dir], &[], beside);
        let change = NameChange::of(new.kind.file_type());
        self.check_addable(dir, change)?;
        let Some(place) = self.place_for(dir, name, beside)? else { return Ok(None) };
        match place.seen() {
            Look::There(_) => return Err(Error::Exists),
            Look::Room(_) if may_count(dir, change, beside) => {}
            Look::Room(_) | Look::Full => return Ok(None),
        }
        let born = self.prepare_inode(dir, new, Naming::Named)?;
        let named = Named { ino: born.inode.ino, file_type: born.inode.file_type };
        let mut handle = self.join(PLACE_CREDITS + BIRTH_CREDITS + DROP_LINK_CREDITS)?;
        // One for all that publishes.
        let _pin = lanefs_lanes::pin();
        inode = self.apply_birth(&mut handle, born);
        let names = place.lock();
        match place.look_again() {
            Ok(Look::Room(room)) => {
                place.apply(&mut handle, Edit::Add(room, named));
                drop(names);
                self.names_changed(&mut handle, dir, change);
                Ok(Some(inode))
            }
            other => {
                drop(names);
                self.drop_link(&mut handle, &inode);
                other.map(|_| None)
            }
        }
    }

    /// Fails if `dir` takes no new name, or not this one. Its operation lock is held.
    pub(crate) fn check_addable(&self, dir: &InodeRef, change: NameChange) -> Result<(), Error> {
        if dir.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        let links = match change {
            NameChange::OneDirectoryMore if !self.dir_nlink => dir.attr().links,
            _ => dir.links(),
        };
        if links == 0 {
            return Err(Error::NotFound);
        }
        self.check_not_immutable(dir)?;
        let full = links >= u32::from(MAX_LINKS) && !self.dir_nlink;
        match change {
            NameChange::OneDirectoryMore if full => Err(Error::TooManyLinks),
            _ => Ok(()),
        }
    }

    /// Apply: `dir` has one name more, less, or another one.
    pub(crate) fn names_changed(
        &self,
        handle: &mut Handle<'_>,
        dir: &Arc<Inode>,
        change: NameChange,
    ) {
        let (tid, now) = (handle.tid(), now());
        if dir.crowd.note(tid, now, change.links()) {
            return;
        }
        dir.change(handle, Concerns::Data, |state| {
            state.names_changed(1, now);
            state.count_subdirectories(change.links());
        });
        dir.crowd.listed(tid);
        dir.crowd.meet(&dir.home);
    }

    /// An unnamed file (O_TMPFILE): an orphan until [`Fs::link`] names it.
    pub fn create_unnamed(&self, dir: &InodeRef, new: &NewInode<'_>) -> Result<InodeRef, Error> {
        self.check_writable()?;
        if dir.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        if new.kind.file_type() != FileType::Regular {
            return Err(Error::InvalidArgument { what: "an unnamed inode that is not a file" });
        }
        let born = {
            let _shared = dir.op.shared();
            self.prepare_inode(dir, new, Naming::Unnamed)?
        };
        let mut handle = self.join(20)?;
        let _pin = lanefs_lanes::pin();
        let inode = self.apply_birth(&mut handle, born);
        self.add_orphan(&mut handle, &inode);
        set_nameless(&inode, Nameless::Yes);
        Ok(inode)
    }

    /// Everything that may sleep or fail; the parent's operation lock is held.
    fn prepare_inode(
        &self,
        dir: &Arc<Inode>,
        new: &NewInode<'_>,
        naming: Naming,
    ) -> Result<Born<'_>, Error> {
        let kind = new.kind.file_type();
        let beside = match dir.crowd.is_there() {
            true => alloc::Beside::Lane,
            false => alloc::Beside::Parent,
        };
        let claim = self.groups.claim_inode(self, kind, dir.ino, beside)?;
        let ino = claim.ino();
        let place = self.geometry.inode_place(ino).ok_or(Error::NoSpace)?;
        let (table, before) = {
            // One for both.
            let _pin = lanefs_lanes::pin();
            (self.table_block(place.group, place.table_block)?, self.inodes.get(ino))
        };
        let before = match before {
            Some(object) => Predecessor::in_memory(&object),
            None => self.stored_predecessor(&table, place.offset)?,
        };
        if before.lives {
            claim.leave_taken();
            let cause = disk::Cause::MarkedFree { group: place.group, bit: place.index };
            let error = Corruption::Inode { ino, cause }.into();
            self.note_error(&error);
            return Err(error);
        }
        let extra = self.superblock.want_extra_isize();
        let mut disk = disk::Inode::zeroed(extra);
        // The number before plus one: no two inodes of one number are taken for each other, and
        // the same operations make the same image.
        disk.generation = before.generation.wrapping_add(1);
        let parent = dir.rights();
        let mut permissions = new.permissions & 0xfff;
        disk.uid = new.uid;
        disk.gid = new.gid;
        if parent.permissions & SET_GROUP_ID != 0 {
            disk.gid = parent.gid;
            if kind == FileType::Directory {
                permissions |= SET_GROUP_ID;
            }
        }
        let inherited = self.inherited_acls(dir, kind, permissions, new.umask)?;
        disk.mode = kind.mode_bits() | inherited.permissions;
        let now = now();
        (disk.atime, disk.mtime, disk.ctime) = (now, now, now);
        disk.crtime = disk.crtime.map(|_| now);
        disk.links = match (naming, kind) {
            (Naming::Unnamed, _) => 0,
            (Naming::Named, FileType::Directory) => 2,
            (Naming::Named, _) => 1,
        };
        disk.flags = inherited_flags(InodeFlags::from_bits_retain(parent.flags), kind);

        let mut raw = RawRecord::default();
        let xattrs = self.prepare_new_xattrs(ino, &disk, &mut raw, &inherited.xattrs)?;
        let block = self.prepare_contents(ino, dir.ino, &mut disk, &new.kind)?;
        if xattrs.is_some() {
            disk.sectors += self.sectors_a_block();
        }
        disk.file_acl = xattrs.as_ref().map(|(claim, _)| claim.start());
        let inode = self.new_inode_object(ino, table, place.offset, disk, raw)?;
        Ok(Born { claim, inode, block, xattrs })
    }

    /// What a new inode starts with: its tree, target or device, and the block it needs.
    fn prepare_contents(
        &self,
        ino: Ino,
        parent: Ino,
        disk: &mut disk::Inode,
        kind: &NewKind<'_>,
    ) -> Result<Option<FirstBlock>, Error> {
        match kind {
            NewKind::Regular => {
                disk.flags |= InodeFlags::EXTENTS;
                disk.block = extent::empty_root();
                Ok(None)
            }
            NewKind::Directory => {
                let claim = self.claim_first_block(ino)?;
                let context = self.dir_context_of(ino, disk.generation, Indexing::Possible);
                self.map_first_block(ino, disk, &claim)?;
                disk.size = self.geometry.block_size().bytes() as u64;
                Ok(Some((claim, Some(crate::plan::dir::new_directory(&context, parent)))))
            }
            NewKind::Symlink(target) => self.prepare_symlink(ino, disk, target),
            NewKind::CharDevice(rdev) | NewKind::BlockDevice(rdev) => {
                disk.set_device_number(DeviceNumber { major: rdev.major, minor: rdev.minor });
                Ok(None)
            }
            NewKind::Fifo | NewKind::Socket => Ok(None),
        }
    }

    fn prepare_symlink(
        &self,
        ino: Ino,
        disk: &mut disk::Inode,
        target: &[u8],
    ) -> Result<Option<FirstBlock>, Error> {
        let block_size = self.geometry.block_size().bytes();
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.contains(&0) {
            return Err(Error::InvalidArgument { what: "a symbolic link's target with NUL" });
        }
        disk.size = target.len() as u64;
        if target.len() <= FAST_SYMLINK {
            disk.block[..target.len()].copy_from_slice(target);
            return Ok(None);
        }
        if target.len() >= block_size.min(4096) {
            return Err(Error::NameTooLong);
        }
        let claim = self.claim_first_block(ino)?;
        self.map_first_block(ino, disk, &claim)?;
        let mut contents = vec![0; block_size];
        contents[..target.len()].copy_from_slice(target);
        self.device.write_at(claim.start().0 * block_size as u64, &contents)?;
        // Whoever needs it needs the commit of the link, which flushes.
        self.journal.note_write();
        Ok(Some((claim, None)))
    }

    pub(crate) fn claim_first_block(&self, ino: Ino) -> Result<Claim, Error> {
        let (group, _) = self.inode_group(ino)?;
        let goal = self.geometry.group_first_block(group).unwrap_or_default();
        let privilege = Privilege::Root;
        let request = Request { goal, want: 1, ahead: 0, at_least: 1, privilege, stream: None };
        Ok(self.claim_or_reclaim(&request)?.into_claim())
    }

    fn map_first_block(
        &self,
        ino: Ino,
        disk: &mut disk::Inode,
        claim: &Claim,
    ) -> Result<(), Error> {
        let only =
            Extent { start: FileBlock(0), len: 1, block: claim.start(), state: State::Written };
        let root = extent::empty_root();
        let plan = extent::plan_replace(&root, &NoNodes, &self.limits_of(ino), 0..1, &[only])?;
        disk.flags |= InodeFlags::EXTENTS;
        disk.block = plan.place(&[]).root;
        disk.sectors += self.sectors_a_block();
        Ok(())
    }

    /// Apply: allocates what was claimed and brings the inode to life, with one hold.
    fn apply_birth(&self, handle: &mut Handle<'_>, born: Born<'_>) -> InodeRef {
        let Born { claim, inode, block, xattrs } = born;
        let (ino, generation) = (inode.ino, inode.generation);
        self.groups.allocate_inode(handle, claim, inode.file_type);
        if let Some((claim, data)) = block {
            let block = claim.start();
            self.groups.allocate(handle, claim);
            if let Some(data) = data {
                let kind = MetaKind::Directory { ino, generation, block: FileBlock(0) };
                self.meta.create(handle, block, kind, data);
            }
        }
        if let Some((claim, data)) = xattrs {
            let block = claim.start();
            self.groups.allocate(handle, claim);
            self.meta.create(handle, block, MetaKind::Xattr, data);
        }
        // Born without a name, it may get one.
        inode.change(handle, Concerns::Data, |state| state.linkable = state.disk.links == 0);
        self.inodes.insert(inode.clone(), |dead| dead.is_succeeded(handle));
        InodeRef::adopt(inode)
    }

    /// The inode whose record is at `offset` in `table`.
    fn stored_predecessor(&self, table: &TableRef, offset: usize) -> Result<Predecessor, Error> {
        let base = table.base(self)?;
        let record = self.record_in(&base, offset).ok_or(Error::NoSpace)?;
        // i_links_count at offset 0x1a and i_generation at offset 0x64 of a record (kernel
        // documentation, "Index Nodes"). As for e2fsck, a record with links is in use.
        let lives = record.get(0x1a..0x1c).is_some_and(|links| links != [0; 2]);
        let bytes = record.get(0x64..0x68).and_then(|bytes| bytes.try_into().ok());
        Ok(Predecessor { generation: bytes.map_or(0, u32::from_le_bytes), lives })
    }
}

/// The last inode that had a number.
struct Predecessor {
    generation: u32,
    /// Its number was never freed: the bit in the bitmap lies.
    lives: bool,
}

impl Predecessor {
    fn in_memory(object: &Inode) -> Predecessor {
        Predecessor { generation: object.generation, lives: !object.state.lock().freed }
    }
}

/// `more` subdirectories, or less.
pub(crate) fn add_directory_links(disk: &mut disk::Inode, more: i32) {
    for _ in 0..more {
        add_directory_link(disk);
    }
    for _ in more..0 {
        remove_directory_link(disk);
    }
}

/// One more subdirectory; past the limit the count is 1, "many" (feature `dir_nlink`).
fn add_directory_link(disk: &mut disk::Inode) {
    disk.links = match disk.links {
        1 => 1,
        links if links >= MAX_LINKS => 1,
        links => links + 1,
    };
}

/// One subdirectory less.
fn remove_directory_link(disk: &mut disk::Inode) {
    if disk.links > 2 {
        disk.links -= 1;
    }
}

/// The flags that a new inode takes over from its directory, as chattr(1) describes.
fn inherited_flags(parent: InodeFlags, kind: FileType) -> InodeFlags {
    let mut passed = InodeFlags::SYNC | InodeFlags::NODUMP | InodeFlags::NOATIME;
    match kind {
        FileType::Directory => passed |= InodeFlags::DIRSYNC,
        FileType::Regular => {}
        // Only these mean something for the others.
        _ => passed = InodeFlags::NODUMP | InodeFlags::NOATIME,
    }
    parent & passed
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
