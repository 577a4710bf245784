//! The order in which faults are mended.

use crate::fault::Fault;
use crate::harm::Harm;
use crate::place::Place;
use crate::report::Finding;

/// Faults that are mended together. Faults of an earlier stage may cause faults of a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Superblock, descriptors, journal.
    Volume,
    /// Inodes that are to be deleted or truncated.
    Orphans,
    /// Inodes, their blocks and attributes.
    Files,
    /// Blocks that are in use more than once, or not in the cluster of their place in the file.
    Shared,
    /// Entries and indexes of directories.
    Names,
    /// Paths to directories and files.
    Paths,
    /// Link counts.
    Links,
    /// Quota files, which depend on all inodes.
    Quotas,
    /// Bitmaps and all other counts.
    Counts,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 9] = [
        Stage::Volume,
        Stage::Orphans,
        Stage::Files,
        Stage::Shared,
        Stage::Names,
        Stage::Paths,
        Stage::Links,
        Stage::Quotas,
        Stage::Counts,
    ];

    /// Returns the stage of a finding; `None` if the finding is not a fault.
    pub fn of(finding: &Finding) -> Option<Stage> {
        if finding.harm() == Harm::Note {
            return None;
        }
        Some(match (&finding.fault, finding.place) {
            (Fault::NoRoot, _) => Stage::Paths,
            (Fault::Count { .. } | Fault::References { .. }, _) => Stage::Counts,
            (Fault::QuotaFile(_) | Fault::QuotaHole { .. } | Fault::Quota { .. }, _) => {
                Stage::Quotas
            }
            (Fault::NamedAsQuota, _) => Stage::Volume,
            (Fault::Superblock(_), _) => Stage::Volume,
            (_, Place::Superblock | Place::Backup { .. } | Place::Descriptor { .. }) => {
                Stage::Volume
            }
            (_, Place::Journal | Place::Blocks { .. }) => Stage::Volume,
            (_, Place::BlockBitmap { .. } | Place::InodeBitmap { .. }) => Stage::Counts,
            (_, Place::OrphanList | Place::OrphanFile { .. }) => Stage::Orphans,
            (Fault::DoublyClaimed { .. } | Fault::ClusterOffset { .. }, _) => Stage::Shared,
            (Fault::Unconnected | Fault::NoName | Fault::Parent { .. }, _) => Stage::Paths,
            (Fault::Links { .. }, _) => Stage::Links,
            (_, Place::Directory { .. } | Place::Entry { .. } | Place::Index { .. }) => {
                Stage::Names
            }
            (_, Place::Inode { .. } | Place::Node { .. }) => Stage::Files,
            (_, Place::Pointers { .. } | Place::Attributes { .. }) => Stage::Files,
        })
    }
}
