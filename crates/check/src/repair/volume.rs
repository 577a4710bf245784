//! Repairs the superblock's fields, the descriptors, the journal, and the resize inode.

use super::inode_offsets::{BLOCK, LINKS, set_size};
use super::mender::{Mender, put16, put32};
use crate::bytes::le32;
use crate::fault::Fault;
use crate::field::{Feature, Field};
use crate::journal::latest_number;
use crate::mapping::Runs;
use crate::named::{self, FIRST_INO, Purpose};
use crate::place::Place;
use crate::record::Record;
use crate::report::Finding;
use crate::special::{DOUBLE, POINTERS};
use crate::superblock::{GROUP_QUOTAS, USER_QUOTAS};
use lanefs_device::Device;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::group_desc::{Cause, GroupFlags};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::jbd2::JournalSuperblock;
use lanefs_ondisk::quota::Kind;
use lanefs_ondisk::superblock::{
    RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use lanefs_ondisk::{Block, FileBlock, FileType, Group, Ino};
use zerocopy::FromBytes;

const MMP_MAGIC: u32 = 0x004d_4d50;
/// The mmp sequence number of a file system that is not mounted.
const MMP_CLEAN: u32 = 0xff4d_4d50;
const MMP_COVERED: usize = 1020;
const EXTRA: u16 = 32;

impl Mender<'_> {
    /// Mends the superblock, the descriptors and the journal.
    pub fn mend_volume(&mut self, found: &[Finding]) {
        if self.extend_tables(found) {
            return;
        }
        // A wrong inode number in the superblock may be the cause of all other findings, so it is
        // mended first and alone.
        let field = |finding: &Finding| match finding.fault {
            Fault::Field { field, .. } => Some(field),
            _ => None,
        };
        let first = found.iter().find(|finding| field(finding) == Some(Field::FirstInode));
        let number = found.iter().find(|finding| field(finding).is_some_and(Field::is_inode));
        if let Some(finding) = first.or(number) {
            return self.mend_superblock(&finding.fault);
        }
        for finding in found {
            match finding.place {
                Place::Descriptor { group } => self.mend_descriptor(group, &finding.fault),
                // If the inode table with the journal's inode cannot be found, the log only seems
                // to be lost.
                Place::Journal if !self.has_tables() => {}
                Place::Journal => self.mend_journal(&finding.fault),
                _ => self.mend_superblock(&finding.fault),
            }
        }
    }

    /// Applies `change` to the superblock. Returns whether the superblock differs afterwards.
    pub fn edit_superblock(&mut self, change: impl FnOnce(&mut RawSuperblock)) -> bool {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let read = self.run.volume.device().read_at(SUPERBLOCK_OFFSET, &mut bytes);
        let Some(mut raw) = read.ok().and_then(|()| RawSuperblock::read_from_bytes(&bytes).ok())
        else {
            return false;
        };
        change(&mut raw);
        let Ok(superblock) = Superblock::from_raw(raw) else { return false };
        let new = superblock.encode();
        self.write(SUPERBLOCK_OFFSET, &new);
        new != bytes
    }

    fn mend_superblock(&mut self, fault: &Fault) {
        if matches!(fault, Fault::Field { field: Field::Mmp, .. } | Fault::BeingChecked) {
            return self.mend_mmp();
        }
        if let Fault::DoublyClaimed { start, .. } = *fault {
            // The block of mmp.
            return self.move_bitmaps(Group(0), |block| block == start);
        }
        let run = self.run;
        let used = |ino: u32| {
            let bytes = run.read_inode(Ino(ino));
            if bytes.is_some_and(|bytes| Record::decode(&bytes).is_in_use()) { ino } else { 0 }
        };
        // The search reads many inodes, so it is made only for the fault that needs it.
        let nameless = |purpose| named::nameless(run, purpose).map_or(0, |ino| ino.0);
        let edited = self.edit_superblock(|raw| match fault {
            Fault::Field { field: Field::Quotas(kind), .. } => match kind {
                Kind::User => raw.s_usr_quota_inum.set(used(USER_QUOTAS)),
                Kind::Group => raw.s_grp_quota_inum.set(used(GROUP_QUOTAS)),
                Kind::Project => {
                    raw.s_prj_quota_inum.set(nameless(Purpose::Quotas(Kind::Project)));
                }
            },
            Fault::Field { field: Field::OrphanFile, .. } => {
                set_orphan_file(raw, nameless(Purpose::Orphans));
            }
            Fault::Field { field, .. } => mend_field(raw, *field),
            Fault::Feature { feature: Feature::ResizeInode } => raw.s_reserved_gdt_blocks.set(0),
            Fault::ResizeInode => {
                raw.s_feature_compat.set(raw.s_feature_compat.get() & !Compat::RESIZE_INODE.bits());
            }
            Fault::Feature { feature: Feature::HasJournal } => clear_recovery(raw),
            Fault::Feature { feature: feature @ (Feature::LargeFile | Feature::DirNlink) } => {
                let is_large = *feature == Feature::LargeFile;
                let set = if is_large { RoCompat::LARGE_FILE } else { RoCompat::DIR_NLINK };
                raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() | set.bits());
            }
            Fault::Feature { feature: Feature::ExtAttr } => {
                raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::EXT_ATTR.bits());
            }
            Fault::Feature { feature: Feature::OrphanFile } | Fault::NoOrphans => {
                let present = RoCompat::ORPHAN_PRESENT.bits();
                raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !present);
            }
            Fault::NamedAsQuota => {
                raw.s_usr_quota_inum.set(0);
                raw.s_grp_quota_inum.set(0);
                raw.s_prj_quota_inum.set(0);
            }
            _ => {}
        });
        if edited {
            self.act(Place::Superblock, format!("corrected ({fault})"));
        }
    }

    fn mend_mmp(&mut self) {
        let block = Block(self.run.volume.raw().s_mmp_block.get());
        if !self.run.volume.is_for_files(block) || self.is_shared(block) {
            self.edit_superblock(|raw| {
                let mmp = Incompat::MMP.bits();
                raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !mmp);
            });
            return self.act(Place::Superblock, "mmp is switched off: its block is lost");
        }
        let mut bytes = vec![0; self.run.volume.block_bytes()];
        put32(&mut bytes, 0, MMP_MAGIC);
        put32(&mut bytes, 4, MMP_CLEAN);
        if let Some(seed) = self.run.volume.checksums.seed() {
            let sum = seed.chain(bytes.get(..MMP_COVERED).unwrap_or_default()).value();
            put32(&mut bytes, MMP_COVERED, sum);
        }
        self.write_block(block, &bytes);
        self.act(Place::Superblock, "the block of mmp is written anew");
    }

    fn mend_descriptor(&mut self, group: Group, fault: &Fault) {
        let Some(mut desc) = self.descriptor(group) else { return };
        let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        match fault {
            Fault::Descriptor(Cause::Checksum { .. }) | Fault::Feature { .. } => {
                desc.flags -= uninit;
                desc.itable_unused = 0;
            }
            Fault::Descriptor(Cause::FreeBlocks { .. }) => desc.free_blocks = 0,
            Fault::Descriptor(Cause::ItableUnused { .. }) => desc.itable_unused = 0,
            Fault::Flags { .. } => desc.flags -= GroupFlags::BLOCK_UNINIT,
            Fault::DoublyClaimed { start, .. } => {
                return self.move_bitmaps(group, |block| block == *start);
            }
            Fault::Descriptor(Cause::BlockBitmapPlace { block: lost })
            | Fault::Descriptor(Cause::InodeBitmapPlace { block: lost }) => {
                return self.move_bitmaps_of(group, |block| block == *lost);
            }
            _ => return,
        }
        self.write_descriptor(group, &desc);
        self.act(Place::Descriptor { group }, format!("corrected ({fault})"));
    }

    /// Moves a bitmap that is in a block of other metadata. If no bitmap of `group` is in such a
    /// block, moves a bitmap of another group.
    fn move_bitmaps(&mut self, group: Group, is_it: impl Fn(Block) -> bool) {
        let all = (0..self.run.volume.geometry.group_count()).map(Group);
        let has_it = |group: &Group| {
            let desc = self.run.groups.get(*group);
            desc.is_some_and(|desc| is_it(desc.block_bitmap) || is_it(desc.inode_bitmap))
        };
        if let Some(owner) = std::iter::once(group).chain(all).find(has_it) {
            self.move_bitmaps_of(owner, is_it);
        }
    }

    /// Moves a bitmap of `group` to a free block: the first one whose block `is_it` accepts. Its
    /// content need not be copied, because the last stage computes all bitmaps again. Moves nothing
    /// if an inode table cannot be read, because then a block that seems to be free may belong to a
    /// file.
    fn move_bitmaps_of(&mut self, group: Group, is_it: impl Fn(Block) -> bool) {
        if !self.has_tables() {
            return;
        }
        let Some(mut desc) = self.descriptor(group) else { return };
        let bitmaps = [&mut desc.inode_bitmap, &mut desc.block_bitmap];
        let Some(bitmap) = bitmaps.into_iter().find(|block| is_it(**block)) else { return };
        let Some(new) = self.allocate_for(group) else { return };
        *bitmap = new;
        self.write_descriptor(group, &desc);
        self.act(Place::Descriptor { group }, format!("a bitmap is moved to {new}"));
    }

    /// Empties a damaged log. If the journal's inode is damaged, removes the journal, because the
    /// recovery could not restore the inode.
    fn mend_journal(&mut self, fault: &Fault) {
        let ino = Ino(self.run.volume.raw().s_journal_inum.get());
        if matches!(fault, Fault::Special { .. } | Fault::Unreadable) {
            return self.remove_journal(ino);
        }
        let first = self.read_inode(ino).and_then(|(_, record)| {
            let blocks = record.size() >> self.run.volume.geometry.block_size().bits();
            let runs = Runs::of(self.run.volume, ino, &record);
            Some((runs.block(FileBlock(0))?, u32::try_from(blocks).ok()?, runs))
        });
        let first = first.filter(|(first, ..)| !self.is_shared(*first));
        let Some((first, blocks, runs)) = first else { return self.remove_journal(ino) };
        let block_size = self.run.volume.geometry.block_size();
        let uuid = self.run.volume.superblock().uuid();
        let mut head = JournalSuperblock::new(block_size, blocks, uuid);
        // If the new log used sequence numbers of the old log again, a replay could continue with
        // an old transaction.
        if let Some(latest) = latest_number(self.run.volume, &runs, blocks) {
            head.set_sequence(latest.next());
        }
        let head = head.encode();
        if JournalSuperblock::decode(&head, block_size, blocks).is_err() {
            return self.remove_journal(ino);
        }
        self.write(first.0 << block_size.bits(), &head);
        self.edit_superblock(clear_recovery);
        self.act(Place::Journal, format!("emptied ({fault})"));
    }

    fn remove_journal(&mut self, ino: Ino) {
        let orphans = self.run.volume.superblock().orphan_file();
        self.edit_superblock(|raw| {
            clear_recovery(raw);
            let gone = Compat::HAS_JOURNAL | Compat::ORPHAN_FILE;
            raw.s_feature_compat.set(raw.s_feature_compat.get() & !gone.bits());
            let present = RoCompat::ORPHAN_PRESENT.bits();
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !present);
            raw.s_journal_inum.set(0);
            raw.s_journal_dev.set(0);
            raw.s_journal_uuid = [0; 16];
            raw.s_jnl_backup_type = 0;
            raw.s_jnl_blocks = Default::default();
            raw.s_orphan_file_inum.set(0);
        });
        // A file with a name keeps its content.
        let inos = [Some(ino), orphans].into_iter().flatten();
        for ino in inos.filter(|ino| self.run.states.get(*ino).names() == 0) {
            self.clear_inode(ino, "cleared: the journal is removed");
        }
        self.act(Place::Journal, "removed, since it is lost");
    }

    /// Returns whether the file system reserves blocks for additional descriptors.
    pub fn has_resize(&self) -> bool {
        self.run.volume.compat(Compat::RESIZE_INODE)
    }

    /// Rewrites the resize inode.
    pub fn mend_resize(&mut self) {
        let geometry = self.run.volume.geometry;
        let Some((mut bytes, record)) = self.read_inode(Ino::RESIZE) else { return };
        let others = || (0..POINTERS).filter(|n| *n != DOUBLE && record.pointer(*n) != 0);
        if !record.flags.contains(InodeFlags::EXTENTS) && others().next().is_some() {
            // These may lead to reserved blocks, which would then seem to be shared.
            others().for_each(|n| put32(&mut bytes, BLOCK + n * 4, 0));
            self.write_inode(Ino::RESIZE, bytes);
            return self.act(Place::Inode { ino: Ino::RESIZE }, "its other pointers are cleared");
        }
        let old = Block(record.pointer(DOUBLE).into());
        let is_own = self.run.own.word_at(self.run.clusters(old, 1).start) & 1 == 1;
        let is_valid = self.run.volume.is_for_files(old) && !self.is_shared(old) && !is_own;
        let root = if is_valid { Some(old) } else { self.allocate() };
        let Some(root) = root else { return };
        let words = geometry.block_size().bytes() as u64 / 4;
        let first = geometry.super_block().0 + 1 + u64::from(geometry.desc_blocks());
        let backups: Vec<Group> = geometry.backups().take(words as usize).collect();
        let reserved = (0..u64::from(geometry.reserved_gdt_blocks())).map(|n| Block(first + n));
        if reserved.into_iter().any(|block| self.is_shared(block)) {
            return;
        }
        let mut top = vec![0; geometry.block_size().bytes()];
        for n in 0..u64::from(geometry.reserved_gdt_blocks()) {
            let index = (u64::from(geometry.desc_blocks()) + n) % words;
            put32(&mut top, index as usize * 4, (first + n) as u32);
            let mut copies = vec![0; geometry.block_size().bytes()];
            for (at, group) in backups.iter().enumerate() {
                let copy = first + n + u64::from(group.0) * u64::from(geometry.blocks_per_group());
                put32(&mut copies, at * 4, copy as u32);
            }
            self.write_block(Block(first + n), &copies);
        }
        self.write_block(root, &top);
        let Some((mut bytes, _)) = self.read_inode(Ino::RESIZE) else { return };
        let blocks = le32(&bytes, super::inode_offsets::BLOCKS);
        bytes.fill(0);
        put16(&mut bytes, 0, FileType::Regular.mode_bits() | 0o600);
        put16(&mut bytes, LINKS, 1);
        for time in [0x08, 0x0c, 0x10] {
            put32(&mut bytes, time, self.time());
        }
        if bytes.len() > 128 {
            put16(&mut bytes, 0x80, EXTRA);
        }
        put32(&mut bytes, super::inode_offsets::BLOCKS, blocks);
        put32(&mut bytes, BLOCK + DOUBLE * 4, root.0 as u32);
        set_size(&mut bytes, (words * words + words + 12) << geometry.block_size().bits());
        self.write_inode(Ino::RESIZE, bytes);
        self.act(Place::Inode { ino: Ino::RESIZE }, "written anew: it reserves descriptors");
    }

    /// Marks a file system without faults as clean, and makes the copies of the superblock agree
    /// with the superblock.
    pub fn finish(&mut self) {
        let edited = self.edit_superblock(|raw| {
            let state = State::from_bits_retain(raw.s_state.get());
            raw.s_state.set(((state | State::VALID) - State::ERROR).bits());
        });
        if edited {
            self.act(Place::Superblock, "marked as clean");
        }
        let differ = |group: &Group| {
            let place = Place::Backup { group: *group };
            self.findings.iter().any(|finding| finding.place == place)
        };
        let geometry = self.run.volume.geometry;
        for group in geometry.backups().filter(differ).collect::<Vec<_>>() {
            let mut raw = self.run.volume.raw().clone();
            raw.s_block_group_nr.set(u16::try_from(group.0).unwrap_or(u16::MAX));
            raw.s_state.set(0);
            let at = geometry.group_first_block(group);
            if let (Some(at), Ok(copy)) = (at, Superblock::from_raw(raw)) {
                self.write(at.0 << geometry.block_size().bits(), &copy.encode());
                self.act(Place::Backup { group }, "copied from the superblock");
            }
        }
    }
}

pub fn clear_recovery(raw: &mut RawSuperblock) {
    let recover = Incompat::RECOVER.bits();
    raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !recover);
}

/// Returns a superblock that asks for a replay of the log.
pub fn asking_for_replay(raw: &RawSuperblock) -> Option<Superblock> {
    let mut raw = raw.clone();
    raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::RECOVER.bits());
    Superblock::from_raw(raw).ok()
}

pub fn put_superblock(device: &dyn Device, superblock: &Superblock) {
    let mut raw = superblock.raw().clone();
    raw.s_block_group_nr.set(0);
    if let Ok(superblock) = Superblock::from_raw(raw) {
        // If the write to the view in memory fails, the next check reports the fault again.
        let _ = device.write_at(SUPERBLOCK_OFFSET, &superblock.encode());
    }
}

/// Sets the number of the orphan file's inode. If it is 0, orphans are kept in the orphan list.
fn set_orphan_file(raw: &mut RawSuperblock, ino: u32) {
    let file = Compat::ORPHAN_FILE.bits();
    let has_file = raw.s_feature_compat.get() & file != 0;
    raw.s_orphan_file_inum.set(if has_file { ino } else { 0 });
    if ino == 0 {
        raw.s_feature_compat.set(raw.s_feature_compat.get() & !file);
    }
}

/// Sets a superblock field to a valid value. Any valid value will do, because no structure depends
/// on these fields.
fn mend_field(raw: &mut RawSuperblock, field: Field) {
    let extra = if raw.s_inode_size.get() > 128 { EXTRA } else { 0 };
    match field {
        Field::ReservedBlocks => {
            raw.s_r_blocks_count_lo.set(0);
            raw.s_r_blocks_count_hi.set(0);
        }
        Field::DescriptorSize => raw.s_desc_size.set(0),
        Field::LeastExtraSize => raw.s_min_extra_isize.set(extra),
        Field::WantedExtraSize => raw.s_want_extra_isize.set(extra),
        Field::Encoding => raw.s_encoding.set(1),
        Field::JournalDeviceUuid => raw.s_journal_uuid = [0; 16],
        Field::JournalInode => {
            let has_journal = raw.s_feature_compat.get() & Compat::HAS_JOURNAL.bits() != 0;
            raw.s_journal_inum.set(if has_journal { Ino::JOURNAL.0 } else { 0 });
        }
        Field::FirstInode => raw.s_first_ino.set(FIRST_INO),
        Field::Revision => raw.s_rev_level.set(1),
        Field::ChecksumSeed => {
            let seed = Incompat::CSUM_SEED.bits();
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !seed);
        }
        Field::Quotas(_)
        | Field::OrphanFile
        | Field::Mmp
        | Field::JournalError
        | Field::JournalUsers => {}
    }
}
