//! Creates inodes: claims and prepares all parts, then allocates the parts and adds the name, if
//! any, in one handle.

use crate::alloc::{Claim, InodeClaim, Parent, Privilege};
use crate::attr::{Named, NewInode, NewKind, now};
use crate::crypt::InodeCrypt;
use crate::data::mapping::check_reach;
use crate::data::values::NewValue;
use crate::data::xattrs::{NewBlock, prepare_new_xattrs};
use crate::flags;
use crate::name::directory::checked_entry;
use crate::name::entry_slot::{Edit, EntrySlot};
use crate::name::shared_else_exclusive;
use crate::name::{DirLocking, NameChange, check_addable, drop_link, may_count, names_changed};
use crate::object::dirty::{Credits, Handle, RawRecord};
use crate::object::fs::Fs;
use crate::object::inode::{Inode, InodeRef, NumberFreed};
use crate::object::orphan::Orphans;
use crate::object::state::{Concerns, FastPart};
use crate::object::table::TableRef;
use crate::ops::write::{At, Stamp, Write};
use crate::quota::{Counted, Held, Wanted, owners};
use crate::volume::MetaKind;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Nameless, set_nameless};
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::inode::{DeviceNumber, InodeFlags};
use lanefs_ondisk::xattr::AttributeName;
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, inode as disk};
use lanefs_plan::Expected;
use lanefs_plan::dir::Look;
use lanefs_plan::extent::{Extent, Nodes, State};
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, InvalidArgument};

const SET_GROUP_ID: u16 = 0o2000;
/// The length of the longest target that fits into the inode, where ext4 stores a NUL after it.
const FAST_SYMLINK: usize = 59;

/// A new inode, claimed and prepared.
pub(super) struct Born<'a> {
    claim: InodeClaim<'a>,
    /// The inode object. It has one hold, and is not in the map of inodes yet.
    inode: Arc<Inode>,
    /// The only block of a directory or of a long symbolic link.
    block: Option<FirstBlock>,
    xattrs: Option<NewBlock>,
    /// The part of a fast commit that expresses the creation of the inode.
    part: FastPart,
    /// The reservation for the inode in the owners' limits.
    held: Vec<Held>,
}

impl Born<'_> {
    /// The credits for the inode, its number, and its blocks. The target of a symbolic link is data.
    pub(super) fn credits(&self) -> Credits {
        let blocks = usize::from(self.block.is_some()) + usize::from(self.xattrs.is_some());
        let images = match self.block {
            Some((_, None)) => blocks - 1,
            _ => blocks,
        };
        let inode = Credits::INODE.and(Credits::NEW_NUMBER);
        inode.and(Credits::RUN.times(blocks)).and(Credits::blocks(1).times(images))
    }
}

/// A claimed inode number, the position of its record, and the new inode's generation.
struct Bare<'a> {
    claim: InodeClaim<'a>,
    table: TableRef,
    offset: usize,
    generation: u32,
}

/// The first block of a new directory or long symbolic link. Contents are given only for a
/// directory, whose block goes to the journal. The target of a link is data, which is already
/// written.
type FirstBlock = (Claim, Option<Arc<[u8]>>);

/// Selects whether a new inode gets a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Named,
    Unnamed,
}

/// The node reader for trees of new inodes, which have no nodes outside of the inode.
struct NoNodes;

impl Nodes for NoNodes {
    fn node(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        Err(Error::OutsideFileSystem { block })
    }
}

impl Fs {
    /// Creates an inode and its name. [`Error::Exists`] if the name exists.
    pub fn create(
        &self,
        dir: &InodeRef,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<InodeRef, Error> {
        self.check_writable()?;
        let name = checked_entry(name, || Error::Exists)?;
        let inode = shared_else_exclusive(|locking| self.create_locked(dir, name, new, locking))?;
        self.note_load();
        self.obey_dirsync(&[dir])?;
        Ok(inode)
    }

    /// Creates an inode and its name. Returns `None` if this requires that the directory's lock is
    /// held exclusively. The inode is created before the names are locked, so that other threads
    /// wait only while the name is added. If another thread takes the name, or the free space in
    /// the directory, meanwhile, the new inode is treated as if it had lost its last name.
    fn create_locked(
        &self,
        dir: &InodeRef,
        name: Name<'_>,
        new: &NewInode<'_>,
        locking: DirLocking,
    ) -> Result<Option<InodeRef>, Error> {
        // Declared before the lock, so that an inode without a name is deleted after the lock is
        // released.
        let inode;
        let _locked = locking.lock(dir);
        let change = NameChange::of(new.kind.file_type());
        check_addable(&self.volume, dir, change)?;
        let Some(place) = EntrySlot::with_room(self, dir, name, locking)? else {
            return Ok(None);
        };
        match place.seen() {
            Look::There(_) => return Err(Error::Exists),
            Look::Room(_) if may_count(dir, change, locking) => {}
            Look::Room(_) | Look::Full => return Ok(None),
        }
        let born = self.prepare_inode(dir, new, Naming::Named)?;
        let named = Named { ino: born.inode.ino, file_type: born.inode.file_type };
        // If the inode gets no name, it becomes an orphan, or its number is freed again.
        let mut handle = self.join(born.credits().and(EntrySlot::CREDITS.or(Orphans::RECORD)))?;
        // Each publication below pins the lane. While this pin is held, that costs almost nothing.
        let _pin = lanefs_lanes::pin();
        inode = self.apply_birth(&mut handle, born);
        if self.fast.is_some() {
            inode.note_first_name(dir.ino, name.bytes());
        }
        let names = place.lock();
        match place.look_again() {
            Ok(Look::Room(room)) => {
                place.apply(&mut handle, Edit::Add(room, named));
                drop(names);
                names_changed(&mut handle, dir, change);
                Ok(Some(inode))
            }
            other => {
                drop(names);
                drop_link(self, &mut handle, &inode);
                other.map(|_| None)
            }
        }
    }

    /// Creates an unnamed file (O_TMPFILE), which is an orphan until [`Fs::link`] names it.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if `dir` is immutable or has no name any more, as on the kernel's
    /// ext4; and the errors of [`Fs::create`].
    pub fn create_unnamed(&self, dir: &InodeRef, new: &NewInode<'_>) -> Result<InodeRef, Error> {
        self.check_writable()?;
        if dir.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        if new.kind.file_type() != FileType::Regular {
            return Err(InvalidArgument::NotRegularFile.into());
        }
        let born = {
            let _shared = dir.op.shared();
            flags::check_not_immutable(&dir.rights())?;
            if dir.links() == 0 {
                return Err(Error::NotPermitted);
            }
            self.prepare_inode(dir, new, Naming::Unnamed)?
        };
        let inode = self.give_birth(born)?;
        self.note_load();
        Ok(inode)
    }

    /// Creates an inode without a name, which is an orphan.
    fn give_birth(&self, born: Born<'_>) -> Result<InodeRef, Error> {
        let mut handle = self.join(born.credits().and(Orphans::RECORD))?;
        let _pin = lanefs_lanes::pin();
        let inode = self.apply_birth(&mut handle, born);
        self.orphans.add(&mut handle, &inode);
        set_nameless(&inode, Nameless::Yes);
        Ok(inode)
    }

    /// Writes an attribute value of `owner` to a new inode without a name. The new inode is stored
    /// in `place`, even if an error is returned. The caller holds the operation lock of `owner`,
    /// and drops the inode after releasing the lock.
    pub(super) fn write_value<'p>(
        &self,
        owner: &InodeRef,
        value: &[u8],
        place: &'p mut Option<NewValue>,
    ) -> Result<&'p NewValue, Error> {
        let size = u32::try_from(value.len()).map_err(|_| Error::FileTooLarge)?;
        let seed = self.volume.value_seed.ok_or(Error::NotSupported)?;
        let bare = self.prepare_number(FileType::Regular, owner)?;
        let Bare { claim, table, offset, generation } = bare;
        let mut disk = self.new_record(generation);
        let rights = owner.rights();
        (disk.uid, disk.gid) = (rights.uid, rights.gid);
        disk.mode = FileType::Regular.mode_bits() | 0o600;
        self.prepare_contents(claim.ino(), owner.ino, &mut disk, &NewKind::Regular)?;
        let raw = RawRecord::default();
        let inode = self.new_inode(claim.ino(), table, offset, &disk, raw)?;
        let part = FastPart::Birth;
        let born = Born { claim, inode, block: None, xattrs: None, part, held: Vec::new() };
        // The lock is free, because no other thread can reach the inode before its birth. Later,
        // eviction could hold the lock, and waiting for it would break the order of the locks.
        let object = Arc::clone(&born.inode);
        let locked = object.op.try_exclusive().expected()?;
        let inode = self.give_birth(born)?;
        let new = place.insert(NewValue { inode, size, hash: seed.chain(value).value() });
        let inode = &new.inode;
        let (at, by) = (At::Offset(0), Privilege::Root);
        let write = Write { at, data: value, stamp: Stamp::Keep, by };
        let (_, written) = self.write_locked(inode, &write)?;
        drop(locked);
        self.release(inode);
        if written < value.len() { Err(Error::NoSpace) } else { Ok(new) }
    }

    /// Prepares a new inode: takes those steps that may sleep or fail. The caller holds the
    /// parent's operation lock.
    pub(super) fn prepare_inode(
        &self,
        dir: &Arc<Inode>,
        new: &NewInode<'_>,
        naming: Naming,
    ) -> Result<Born<'_>, Error> {
        let kind = new.kind.file_type();
        let crypt = self.data(dir).crypt_for_new(kind)?;
        let encrypted = self.encrypted_target(&new.kind, crypt.as_ref())?;
        let contents = match &encrypted {
            Some(target) => NewKind::Symlink(target),
            None => new.kind,
        };
        let Bare { claim, table, offset, generation } = self.prepare_number(kind, dir)?;
        let ino = claim.ino();
        let mut disk = self.inheriting_record(dir, new, generation);
        let held = self.hold_for_new(ino, &disk, new, &contents)?;
        let mut inherited = self.data(dir).inherited_acls(kind, disk.mode & 0xfff, new.umask)?;
        disk.mode = kind.mode_bits() | inherited.permissions;
        disk.links = match (naming, kind) {
            (Naming::Unnamed, _) => 0,
            (Naming::Named, FileType::Directory) => 2,
            (Naming::Named, _) => 1,
        };
        if let Some(crypt) = &crypt {
            disk.flags |= InodeFlags::ENCRYPT;
            let context = (AttributeName::encryption_context(), crypt.context.encode());
            inherited.xattrs.push(context);
        }
        let mut raw = RawRecord::default();
        let xattrs = prepare_new_xattrs(self, ino, &disk, &mut raw, &inherited.xattrs)?;
        let block = self.prepare_contents(ino, dir.ino, &mut disk, &contents)?;
        if xattrs.is_some() {
            disk.sectors += self.volume.sectors(1);
        }
        disk.file_acl = xattrs.as_ref().map(|(claim, _)| claim.start());
        let has_xattrs = xattrs.is_some() || raw.has_bytes();
        let part = match kind == FileType::Regular && !has_xattrs {
            true => FastPart::Birth,
            false => FastPart::None,
        };
        let inode = self.new_inode(ino, table, offset, &disk, raw)?;
        if let Some(crypt) = crypt {
            inode.crypt.get_or_init(|| Box::new(crypt));
        }
        Ok(Born { claim, inode, block, xattrs, part, held })
    }

    /// Makes sure that the owners of a new inode have entries in the quota files, and that their
    /// limits permit the inode and its first block.
    fn hold_for_new(
        &self,
        ino: Ino,
        disk: &disk::Inode,
        new: &NewInode<'_>,
        contents: &NewKind<'_>,
    ) -> Result<Vec<Held>, Error> {
        let owners = owners(disk);
        self.know_owners(&owners)?;
        let has_block = match contents {
            NewKind::Directory => true,
            NewKind::Symlink(target) => target.len() > FAST_SYMLINK,
            _ => false,
        };
        let unit = self.volume.cluster_bytes();
        let wanted = Wanted { inodes: 1, unit, units: has_block.into() };
        let by = if new.uid == 0 { Privilege::Root } else { Privilege::Ordinary };
        Ok(self.hold_quota(ino, &owners, wanted, by)?.0)
    }

    /// Returns the record of a new inode, still without a file type.
    #[inline]
    fn new_record(&self, generation: u32) -> disk::Inode {
        let mut disk = disk::Inode { generation, ..disk::Inode::zeroed(self.volume.extra_isize) };
        let now = now();
        (disk.atime, disk.mtime, disk.ctime) = (now, now, now);
        disk.crtime = disk.crtime.map(|_| now);
        disk
    }

    /// Returns the record of a new inode in `dir`, with the owners, the flags, and the mode that it
    /// has without a default list.
    #[inline]
    fn inheriting_record(
        &self,
        dir: &Arc<Inode>,
        new: &NewInode<'_>,
        generation: u32,
    ) -> disk::Inode {
        let (kind, parent) = (new.kind.file_type(), dir.rights());
        let mut disk = self.new_record(generation);
        disk.mode = new.permissions & 0xfff;
        (disk.uid, disk.gid) = (new.uid, new.gid);
        if parent.permissions & SET_GROUP_ID != 0 {
            disk.gid = parent.gid;
            if kind == FileType::Directory {
                disk.mode |= SET_GROUP_ID;
            }
        }
        if self.volume.projects {
            disk.projid = self.data(dir).project_for_new(&disk);
        }
        disk.flags = inherited_flags(InodeFlags::from_bits_retain(parent.flags), kind);
        disk
    }

    /// Claims an inode number near `parent`.
    fn prepare_number(&self, kind: FileType, parent: &Arc<Inode>) -> Result<Bare<'_>, Error> {
        let claim = self.groups.claim_inode(self, kind, &as_parent(parent))?;
        let ino = claim.ino();
        let place = self.volume.geometry().inode_place(ino).expected()?;
        let (table, before) = {
            // Each look-up pins the lane. While this pin is held, that costs almost nothing.
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
        // The new generation is the previous one plus one. So two inodes of one number are never
        // confused, and the same operations always produce the same image.
        let generation = before.generation.wrapping_add(1);
        Ok(Bare { claim, table, offset: place.offset, generation })
    }

    /// Prepares the initial contents of a new inode: its tree, target or device, and the block that
    /// it needs, if any.
    fn prepare_contents(
        &self,
        ino: Ino,
        parent: Ino,
        disk: &mut disk::Inode,
        kind: &NewKind<'_>,
    ) -> Result<Option<FirstBlock>, Error> {
        match kind {
            NewKind::Regular => {
                let form = self.volume.new_form;
                disk.flags.set(InodeFlags::EXTENTS, form == Form::Extents);
                disk.block = form.empty_root();
                Ok(None)
            }
            NewKind::Directory => {
                let claim = self.claim_first_block(ino)?;
                let context = self.volume.dir_context(ino, disk.generation, disk.flags);
                self.map_first_block(ino, disk, &claim)?;
                disk.size = self.volume.block_size() as u64;
                Ok(Some((claim, Some(lanefs_plan::dir::new_directory(&context, parent)))))
            }
            NewKind::Symlink(target) => self.prepare_symlink(ino, disk, target),
            NewKind::CharDevice(rdev) | NewKind::BlockDevice(rdev) => {
                disk.set_device_number(DeviceNumber { major: rdev.major, minor: rdev.minor });
                Ok(None)
            }
            NewKind::Fifo | NewKind::Socket => Ok(None),
        }
    }

    /// Checks the target of a new symbolic link, and returns its encrypted form if the new link
    /// will be encrypted.
    fn encrypted_target(
        &self,
        kind: &NewKind<'_>,
        crypt: Option<&InodeCrypt>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let NewKind::Symlink(target) = kind else { return Ok(None) };
        let block_size = self.volume.block_size();
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.contains(&0) {
            return Err(InvalidArgument::PathBytes.into());
        }
        if target.len() > FAST_SYMLINK && target.len() >= block_size.min(4096) {
            return Err(Error::NameTooLong);
        }
        let Some(crypt) = crypt else { return Ok(None) };
        // The block also holds the length before the target (2 bytes), and the NUL after it.
        let most = block_size.saturating_sub(3);
        let encrypted = crypt.names()?.encrypt(target, most).ok_or(Error::NameTooLong)?;
        let len = u16::try_from(encrypted.len()).map_err(|_| Error::NameTooLong)?;
        Ok(Some([&len.to_le_bytes()[..], &encrypted].concat()))
    }

    fn prepare_symlink(
        &self,
        ino: Ino,
        disk: &mut disk::Inode,
        target: &[u8],
    ) -> Result<Option<FirstBlock>, Error> {
        disk.size = target.len() as u64;
        if target.len() <= FAST_SYMLINK {
            disk.block[..target.len()].copy_from_slice(target);
            return Ok(None);
        }
        let claim = self.claim_first_block(ino)?;
        self.map_first_block(ino, disk, &claim)?;
        let block_size = self.volume.block_size();
        let mut contents = vec![0; block_size];
        contents[..target.len()].copy_from_slice(target);
        self.volume.device.write_at(claim.start().0 * block_size as u64, &contents)?;
        // No flush is needed here: after a crash the target is read only if the link's commit is
        // durable, and the commit flushes.
        self.journal.note_write();
        Ok(Some((claim, None)))
    }

    fn map_first_block(
        &self,
        ino: Ino,
        disk: &mut disk::Inode,
        claim: &Claim,
    ) -> Result<(), Error> {
        let only =
            Extent { start: FileBlock(0), len: 1, block: claim.start(), state: State::Written };
        let volume = &self.volume;
        let form = volume.new_form;
        check_reach(form, &[only])?;
        let root = form.empty_root();
        let plan = form.plan_replace(&root, &NoNodes, &volume.limits_of(ino), 0..1, &[only])?;
        disk.flags.set(InodeFlags::EXTENTS, form == Form::Extents);
        disk.block = plan.place(&[]).root;
        disk.sectors += self.volume.sectors(1);
        Ok(())
    }

    /// Apply: allocates the claimed parts and inserts the inode into the map, with one hold.
    pub(super) fn apply_birth(&self, handle: &mut Handle<'_>, born: Born<'_>) -> InodeRef {
        let Born { claim, inode, block, xattrs, part, held: _held } = born;
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
        // An inode created without a name may get its first name later. The change publishes
        // nothing, because the attributes were published when the object was created.
        let born = inode.change_state(handle, Concerns::Data, part, |state| {
            state.linkable = state.disk.links == 0;
            Counted::of(&state.disk)
        });
        if let Some(quotas) = self.mount.quotas() {
            quotas.note_change(ino, &born.nothing(), &born);
        }
        let mut freed = NumberFreed::Earlier;
        self.inodes.insert(inode.clone(), |dead| freed = dead.note_reused(handle));
        if freed == NumberFreed::Now && self.fast.is_some() {
            inode.note_unfit(handle.tid());
        }
        InodeRef::adopt(inode)
    }

    /// Reads the previous inode with the same number from its record at `offset` in `table`.
    fn stored_predecessor(&self, table: &TableRef, offset: usize) -> Result<Predecessor, Error> {
        let base = self.tables.base(table, self)?;
        let record = self.volume.record_in(&base, offset).expected()?;
        // i_links_count at offset 0x1a and i_generation at offset 0x64 of a record (kernel
        // documentation, "Index Nodes"). A record with links is in use, as e2fsck assumes too.
        let lives = record.get(0x1a..0x1c).is_some_and(|links| links != [0; 2]);
        let bytes = record.get(0x64..0x68).and_then(|bytes| bytes.try_into().ok());
        Ok(Predecessor { generation: bytes.map_or(0, u32::from_le_bytes), lives })
    }
}

/// Describes a directory to the allocator.
fn as_parent(dir: &Inode) -> Parent<'_> {
    let before = dir.deltas.next_number(dir.links().saturating_sub(2));
    let is_top = dir.ino == Ino::ROOT
        || InodeFlags::from_bits_retain(dir.rights().flags).contains(InodeFlags::TOPDIR);
    Parent { ino: dir.ino, place: &dir.place, before, is_top }
}

/// Describes the last inode that had the number of a new inode.
struct Predecessor {
    generation: u32,
    /// Whether the inode is still in use. If it is, the bitmap, which shows it as free, is wrong.
    lives: bool,
}

impl Predecessor {
    fn in_memory(object: &Inode) -> Predecessor {
        Predecessor { generation: object.generation, lives: !object.state.lock().freed }
    }
}

/// Returns the flags that a new inode inherits from its directory, as chattr(1) describes.
fn inherited_flags(parent: InodeFlags, kind: FileType) -> InodeFlags {
    let mut passed = InodeFlags::SYNC | InodeFlags::NODUMP | InodeFlags::NOATIME;
    match kind {
        FileType::Directory => {
            passed |= InodeFlags::DIRSYNC | InodeFlags::PROJINHERIT | InodeFlags::CASEFOLD;
        }
        FileType::Regular => {}
        // Symbolic links, devices, FIFOs and sockets support only these flags.
        _ => passed = InodeFlags::NODUMP | InodeFlags::NOATIME,
    }
    parent & passed
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
