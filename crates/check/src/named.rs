//! The inodes that the superblock names: journal, orphan file and quota files. A damaged number may
//! name a file of a user, so the check compares the inode with the purpose that the superblock
//! gives it.

use crate::fault::{Fault, TargetFault};
use crate::field::Field;
use crate::groups::Groups;
use crate::mapping::Runs;
use crate::place::Place;
use crate::record::Record;
use crate::run::Run;
use crate::volume::Volume;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::features::Compat;
use lanefs_ondisk::inode::{self, InodeFlags};
use lanefs_ondisk::jbd2::{BlockKind, Header};
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::quota::{Kind, QuotaFile};
use lanefs_ondisk::superblock::{JournalPlace, Superblock};
use lanefs_ondisk::{Block, FileBlock, FileType, Ino};

/// The first inode that is not reserved, in every file system that mke2fs makes.
pub const FIRST_INO: u32 = 11;

/// The value that marks the superblock's copy of the journal inode's block field as valid.
pub const BACKUP_BLOCKS: u8 = 1;

/// The number of bytes of the magic number at the start of a quota file.
const MAGIC: usize = 4;

/// A purpose of an inode that the superblock names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Journal,
    Orphans,
    Quotas(Kind),
}

impl Purpose {
    /// Returns whether the inode is a file whose content has the magic number of this purpose.
    pub fn fits(self, volume: &Volume, groups: &Groups, ino: Ino) -> bool {
        let Some(bytes) = groups.read_inode(volume, ino) else { return false };
        let record = Record::decode(&bytes);
        if record.links == 0 || record.file_type() != Some(FileType::Regular) {
            return false;
        }
        let runs = Runs::of(volume, ino, &record);
        let has_magic = |at: Block, bytes: &[u8]| match self {
            Purpose::Journal => is_log(bytes),
            Purpose::Orphans => {
                let seed = OrphanSeed::new(Checksums::None, ino, record.generation);
                OrphanBlock::decode(bytes, at, seed).is_ok()
            }
            Purpose::Quotas(kind) => {
                let new = QuotaFile::new(kind);
                new.bytes().get(..MAGIC) == bytes.get(..MAGIC)
            }
        };
        let first = runs.block(FileBlock(0));
        first.is_some_and(|at| volume.read_block(at).is_ok_and(|bytes| has_magic(at, &bytes)))
    }

    fn field(self) -> Field {
        match self {
            Purpose::Journal => Field::JournalInode,
            Purpose::Orphans => Field::OrphanFile,
            Purpose::Quotas(kind) => Field::Quotas(kind),
        }
    }
}

/// Returns whether a block has the magic number of the superblock of a log.
pub fn is_log(bytes: &[u8]) -> bool {
    let kinds = [BlockKind::SuperblockV1, BlockKind::SuperblockV2];
    Header::decode(bytes).is_some_and(|header| kinds.contains(&header.kind))
}

/// If the superblock names an inode that is not the journal, returns the superblock with the
/// reserved inode of the journal. The log in that inode is replayed, or repaired.
pub fn with_journal(volume: &Volume, groups: &Groups) -> Option<Superblock> {
    let Some(JournalPlace::Inode(ino)) = volume.superblock().journal() else { return None };
    if ino == Ino::JOURNAL || is_journal(volume, groups, ino) {
        return None;
    }
    let mut raw = volume.raw().clone();
    raw.s_journal_inum.set(Ino::JOURNAL.0);
    Superblock::from_raw(raw).ok()
}

/// Returns whether an inode that is not the reserved one has the log. Since a file of a user may
/// look like a log, the inode is believed only on further evidence: the superblock has a copy of
/// its mapping, or the inode is immutable. tune2fs makes the journal of a mounted file system
/// immutable.
fn is_journal(volume: &Volume, groups: &Groups, ino: Ino) -> bool {
    let fits = |ino| Purpose::Journal.fits(volume, groups, ino);
    let Some(bytes) = groups.read_inode(volume, ino).filter(|_| fits(ino)) else { return false };
    let (raw, record) = (volume.raw(), Record::decode(&bytes));
    let words = raw.s_jnl_blocks.iter().zip(record.block.chunks(4));
    let is_copied = raw.s_jnl_backup_type == BACKUP_BLOCKS
        && words.into_iter().all(|(word, bytes)| word.get().to_le_bytes() == bytes);
    is_copied || (record.flags.contains(InodeFlags::IMMUTABLE) && !fits(Ino::JOURNAL))
}

/// Checks the inode numbers in the superblock, after all names were counted.
pub fn check(run: &Run<'_>) {
    let wrong = |field, found: Ino| {
        run.add(Place::Superblock, Fault::Field { field, found: found.0.into() });
    };
    if has_reserved_file(run) {
        wrong(Field::FirstInode, run.volume.geometry.first_ino());
    }
    for (purpose, ino) in [
        (Purpose::Orphans, run.volume.superblock().orphan_file()),
        (Purpose::Quotas(Kind::Project), project_quotas(run.volume)),
    ] {
        let Some(ino) = ino else { continue };
        if is_uninitialised(run, purpose, ino) {
            let why = TargetFault::Uninitialised;
            run.add(Place::Superblock, Fault::BadTarget { target: ino.0, why });
        } else if !is_believed(run, purpose, ino) {
            wrong(purpose.field(), ino);
        }
    }
}

/// Returns whether an inode fits its purpose, but is beyond the initialised part of its table.
fn is_uninitialised(run: &Run<'_>, purpose: Purpose, ino: Ino) -> bool {
    let is_valid = |bytes: Vec<u8>| inode::verify(&bytes, ino, run.volume.checksums).is_ok();
    !run.states.get(ino).is_scanned()
        && purpose.fits(run.volume, run.groups, ino)
        && run.read_inode(ino).is_some_and(is_valid)
}

/// Returns the project quota file; `None` if its number is reserved or too large, which is reported
/// elsewhere.
fn project_quotas(volume: &Volume) -> Option<Ino> {
    let [.., projects] = volume.superblock().quota_files();
    projects.filter(|ino| *ino >= volume.geometry.first_ino() && volume.geometry.has_inode(*ino))
}

/// Returns whether a file of a user has a number below `s_first_ino`.
fn has_reserved_file(run: &Run<'_>) -> bool {
    (FIRST_INO..run.volume.geometry.first_ino().0).any(|ino| {
        let state = run.states.get(Ino(ino));
        state.links() > 0 && state.file_type().is_some()
    })
}

/// Returns whether an inode has the purpose for which the superblock names it. An inode with a name
/// is a file of a user. An inode without a name is believed if its content fits the purpose. It is
/// also believed if no other nameless inode fits, because its own content may be damaged.
fn is_believed(run: &Run<'_>, purpose: Purpose, ino: Ino) -> bool {
    let (volume, state) = (run.volume, run.states.get(ino));
    let is_journal =
        volume.compat(Compat::HAS_JOURNAL) && volume.raw().s_journal_inum.get() == ino.0;
    if ino < volume.geometry.first_ino() || state.names() > 0 || is_journal {
        return false;
    }
    purpose.fits(volume, run.groups, ino) || nameless(run, purpose).is_none()
}

/// Returns an inode without a name that fits `purpose`.
pub fn nameless(run: &Run<'_>, purpose: Purpose) -> Option<Ino> {
    let findings = run.report.findings();
    let nameless = findings.iter().filter(|finding| finding.fault == Fault::NoName);
    let mut inos = nameless.filter_map(|finding| finding.place.ino());
    inos.find(|ino| purpose.fits(run.volume, run.groups, *ino))
}
