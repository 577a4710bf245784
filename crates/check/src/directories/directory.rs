//! A directory while it is being checked.

use crate::encryption::Policy;
use crate::fault::Fault;
use crate::parents::Parents;
use crate::place::Place;
use crate::record::Record;
use crate::run::Run;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::dirent::{DirFormat, Entry};
use lanefs_ondisk::{FileType, Ino};

/// The offset of the file type in an entry.
const TYPE: usize = 7;

/// A directory that is being checked.
pub(super) struct Directory<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) parents: &'a Parents,
    pub(super) format: DirFormat,
    pub(super) ino: Ino,
    pub(super) record: Record,
    /// The seed of the checksums of the directory's blocks.
    pub(super) seed: Option<Seed>,
    pub(super) policy: Policy,
    pub(super) entries: u64,
}

impl Directory<'_> {
    /// Compares the type in an entry with the inode's type. An entry without a type is valid,
    /// because readers then look at the inode.
    pub(super) fn check_type(&self, place: Place, bytes: &[u8], entry: &Entry<'_>, ino: Ino) {
        let found = bytes.get(entry.offset + TYPE).copied().unwrap_or_default();
        let state = self.run.states.get(ino);
        let expected = match self.format.has_file_types {
            true => state.file_type(),
            false => None,
        };
        if state.is_used() && found != 0 && found != expected.map_or(0, FileType::dirent_byte) {
            self.run.add(place, Fault::EntryType { found, expected });
        }
    }

    /// Returns how the directory compares names.
    pub(super) fn folding(&self) -> Folding {
        self.run.volume.folding_of(self.record.flags)
    }

    /// Counts a name of an inode.
    pub(super) fn count_target(&self, ino: Ino) {
        self.run.states.count_name(ino);
    }
}
