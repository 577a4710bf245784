//! Assigns devices to slots from their superblocks.
//!
//! A [`Candidate`] is a device that may be a member. `assembly/source.rs` finds them by the name of
//! the array, `assembly/start.rs` starts the array of them, and `assembly/open.rs` keeps it open
//! with its superblocks (`assembly/metadata.rs`). `assembly/create.rs` makes new arrays.
//!
//! The freshest superblock, which has the highest event count, assigns the roles. A device that is
//! at most one event behind takes the role that the freshest superblock records for its device
//! number. A device that is further behind missed writes and is left out.
//!
//! One event behind is tolerated, because a crash can come between the writes of two superblocks,
//! and md counts one event for a change. Lanefs counts two events for a change (see
//! [`crate::Metadata`]), so this rule leaves out every device that missed a change. If md was the
//! last to write an array, an outdated device may be one event behind or not behind at all. The
//! reason is that md takes an event back when an array becomes clean again. Further rules cover
//! these arrays:
//!
//! - A change writes the same time to all superblocks. So if a device has the highest event count
//!   but not the time of the freshest superblock, the device took part in another history of the
//!   array.
//! - A member may be outdated if its superblock records the array as clean, while the superblocks
//!   of all other members record it as active: becoming active is one event, and data is written
//!   only after that event. An array with a parity log can start without the member, so the member
//!   is left out. In an array without a log, this rule does not apply.
//! - If the freshest bitmap has bits that the member's bitmap lacks, the member missed data: see
//!   `assembly/start.rs`.

pub(crate) mod create;
pub(crate) mod error;
pub(crate) mod metadata;
pub(crate) mod open;
pub(crate) mod source;
pub(crate) mod start;

use crate::assembly::error::{AssembleError, LeftOut, MemberFault, Outside};
use lanefs_device::{Access, Device, FileDevice, OpenOptions};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::md::{self, Recovery, Role, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::path::{Path, PathBuf};

/// The limit of the event count, far enough below `u64::MAX` that the count never saturates:
/// saturated counts could not tell two changes apart. No real use of an array reaches this limit.
const LAST_EVENT: u64 = u64::MAX - (1 << 32);

/// The assignment of devices to slots. Each device is given by its index in the list of candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly {
    /// The freshest candidate.
    pub freshest: usize,
    /// For each slot the member, and the byte up to which it is in sync.
    pub slots: Vec<Option<(usize, Recovery)>>,
    /// Spares: members without a slot.
    pub spares: Vec<usize>,
    /// Devices that are not used.
    pub left_out: Vec<LeftOut>,
}

impl Assembly {
    /// Assigns the slots from the candidates' superblocks.
    ///
    /// # Errors
    /// When the candidates are not the members of one array of level 5.
    pub fn plan(candidates: &[Candidate]) -> Result<Assembly, AssembleError> {
        let events = |c: &Candidate| c.superblock.events();
        // If event counts are equal, an active member is preferred to a spare, because a spare's
        // superblock may be older even then. Further ties are decided by the later time, and then
        // by the order of the candidates.
        let rank = |c: &Candidate| (events(c), is_active_member(c), c.superblock.written());
        let freshest = (0..candidates.len()).rev().max_by_key(|at| rank(&candidates[*at]));
        let freshest = freshest.ok_or(AssembleError::Nothing)?;
        let fresh = &candidates[freshest];
        if events(fresh) >= LAST_EVENT {
            let fault = MemberFault::NoMoreEvents { events: events(fresh) };
            return Err(AssembleError::member(&fresh.name, fault));
        }
        let supported = fresh.superblock.support();
        supported.map_err(|unsupported| AssembleError::member(&fresh.name, unsupported))?;
        check_one_array(candidates)?;
        let members = fresh.superblock.members() as usize;
        let mut assembly = Assembly {
            freshest,
            slots: vec![None; members],
            spares: Vec::new(),
            left_out: Vec::new(),
        };
        for (at, candidate) in candidates.iter().enumerate() {
            assembly.assign(at, candidate, fresh, candidates)?;
        }
        Ok(assembly)
    }

    fn assign(
        &mut self,
        at: usize,
        candidate: &Candidate,
        fresh: &Candidate,
        all: &[Candidate],
    ) -> Result<(), AssembleError> {
        let own = &candidate.superblock;
        let newest = fresh.superblock.events();
        let mut leave = |why| self.left_out.push(LeftOut { name: candidate.name.clone(), why });
        if own.role() == Role::Spare && fresh.superblock.role_of(own.number()) == Role::Spare {
            // A spare has no data, so it need not have been there at each change. Another spare may
            // have got its number meanwhile.
            let has_number = |other: &&Candidate| other.superblock.number() == own.number();
            let spares = self.spares.iter().map(|at| &all[*at]);
            match spares.clone().any(|other| has_number(&other)) {
                true => leave(Outside::Unnumbered),
                false => self.spares.push(at),
            }
            return Ok(());
        }
        if own.events().saturating_add(1) < newest || is_alone_behind(candidate, fresh, all) {
            leave(Outside::Stale { events: own.events(), newest });
            return Ok(());
        }
        let is_of_this_life = own.written() == fresh.superblock.written();
        if own.events() == newest && is_active_member(candidate) && !is_of_this_life {
            leave(Outside::OldCopy);
            return Ok(());
        }
        let slot = match fresh.superblock.role_of(own.number()) {
            Role::Faulty => {
                leave(Outside::Faulty);
                return Ok(());
            }
            Role::Journal => {
                leave(Outside::Unnumbered);
                return Ok(());
            }
            Role::Spare if matches!(own.role(), Role::Active(_)) => {
                leave(Outside::Unnumbered);
                return Ok(());
            }
            Role::Spare => {
                self.spares.push(at);
                return Ok(());
            }
            Role::Active(slot) => usize::from(slot),
        };
        own.support().map_err(|unsupported| AssembleError::member(&candidate.name, unsupported))?;
        check_same_shape(candidate, fresh)?;
        // The decoder of the roles has checked that `slot` is below the number of members, so
        // `slots` has this slot.
        let Some(assigned) = self.slots.get_mut(slot) else { return Ok(()) };
        if let Some((other, _)) = *assigned {
            let other = all.get(other).map(|other| other.name.clone()).unwrap_or_default();
            return Err(AssembleError::Twice { name: other, other: candidate.name.clone() });
        }
        *assigned = Some((at, own.recovery()));
        Ok(())
    }

    /// Returns the slots without a member, or with a member that is not fully rebuilt.
    pub fn degraded(&self) -> Vec<usize> {
        let whole =
            |assigned: &Option<(usize, Recovery)>| matches!(assigned, Some((_, Recovery::InSync)));
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, assigned)| !whole(assigned)).map(|(slot, _)| slot).collect()
    }
}

fn is_active_member(candidate: &Candidate) -> bool {
    matches!(candidate.superblock.role(), Role::Active(_))
}

/// For an array with a parity log, returns true if the candidate lacks the latest events and its
/// superblock alone records the array as clean: the superblocks of all other members record the
/// array as active. Returns false if the superblocks have the same time, because then they were
/// written by a single change, which a crash interrupted.
fn is_alone_behind(candidate: &Candidate, fresh: &Candidate, all: &[Candidate]) -> bool {
    let is_dirty = |c: &Candidate| c.superblock.resync_from().is_some();
    let newest = fresh.superblock.events();
    let behind = |c: &Candidate| c.superblock.events() < newest;
    let knowing = all.iter().filter(|c| !behind(c) && is_dirty(c) && is_active_member(c));
    fresh.superblock.ppl().is_some()
        && behind(candidate)
        && !is_dirty(candidate)
        && is_active_member(candidate)
        && candidate.superblock.written() != fresh.superblock.written()
        && knowing.count() + 1 >= fresh.superblock.members() as usize
}

fn check_one_array(candidates: &[Candidate]) -> Result<(), AssembleError> {
    for (at, one) in candidates.iter().enumerate() {
        for other in candidates.iter().take(at) {
            let (set, other_set) = (one.superblock.set(), other.superblock.set());
            let (name, other_name) = (one.name.clone(), other.name.clone());
            if set != other_set {
                return Err(AssembleError::Mixed { name, set, other: other_name, other_set });
            }
            if one.superblock.device() == other.superblock.device() {
                return Err(AssembleError::Twice { name: other_name, other: name });
            }
        }
    }
    Ok(())
}

fn check_same_shape(candidate: &Candidate, fresh: &Candidate) -> Result<(), AssembleError> {
    type Fact = fn(&Superblock) -> u64;
    let facts: [(&'static str, Fact); 7] = [
        ("level", |s| s.level() as u64),
        ("layout", |s| s.layout().into()),
        ("chunk size", |s| s.chunk().into()),
        ("number of members", |s| s.members().into()),
        ("size", |s| s.size()),
        ("bitmap", |s| s.bitmap_offset().unwrap_or(0)),
        ("partial parity log", |s| s.ppl().map_or(0, |area| area.offset)),
    ];
    for (field, fact) in facts {
        if fact(&candidate.superblock) != fact(&fresh.superblock) {
            let (name, other) = (candidate.name.clone(), fresh.name.clone());
            return Err(AssembleError::Differs { name, other, field });
        }
    }
    Ok(())
}

/// A device with an md superblock.
#[derive(Clone)]
pub struct Candidate {
    /// The device's name in messages.
    pub name: PathBuf,
    /// The whole device.
    pub device: Arc<dyn Device>,
    /// The device's superblock.
    pub superblock: Superblock,
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Candidate {
    /// Opens the file or block device at `path`, exclusively if it is to be written.
    ///
    /// # Errors
    /// If the device cannot be opened or read, or has no valid superblock.
    pub fn open(path: &Path, access: Access) -> Result<Candidate, AssembleError> {
        let device = FileDevice::open(path, access, OpenOptions::default())?;
        Candidate::read(path, Arc::new(device.keeping_length()))
    }

    /// Reads the superblock at `path` while other processes may use and change the device.
    ///
    /// # Errors
    /// The same as for [`Candidate::open`], but a device in use is not an error.
    pub fn peek(path: &Path) -> Result<Candidate, AssembleError> {
        let device = FileDevice::peek(path, OpenOptions::default())?;
        Candidate::read(path, Arc::new(device))
    }

    /// Reads the superblock of `device`.
    ///
    /// # Errors
    /// If the superblock cannot be read or is not valid.
    pub fn read(name: &Path, device: Arc<dyn Device>) -> Result<Candidate, AssembleError> {
        let len = device.len();
        if len < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
            return Err(AssembleError::member(name, md::Cause::NotASuperblock));
        }
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        device
            .read_at(SUPERBLOCK_OFFSET, &mut bytes)
            .map_err(|error| AssembleError::member(name, error))?;
        match Superblock::decode(&bytes, len) {
            Ok(mut superblock) => {
                // A rebuild that has come to the end is done, also where its last record is absent.
                if matches!(superblock.recovery(), Recovery::Below(n) if n >= superblock.size()) {
                    superblock.set_recovery(Recovery::InSync);
                }
                Ok(Candidate { name: name.into(), device, superblock })
            }
            Err(cause) => Err(AssembleError::member(name, cause)),
        }
    }

    /// Returns the bad sectors in the member's bad-block log, as byte ranges of its device.
    ///
    /// # Errors
    /// If the log cannot be read or is not valid.
    pub fn bad_blocks(&self) -> Result<Vec<std::ops::Range<u64>>, AssembleError> {
        let has = self.superblock.features().contains(md::Features::BAD_BLOCKS);
        let Some(area) = self.superblock.bad_block_log().filter(|_| has) else {
            return Ok(Vec::new());
        };
        // The log has at most 65,535 sectors, because its length field has 16 bits.
        let mut log = vec![0; area.len as usize];
        let failed = |error| AssembleError::member(&self.name, error);
        self.device.read_at(area.offset, &mut log).map_err(failed)?;
        let ranges = md::bad_blocks::decode(&log, self.superblock.bad_block_shift())
            .map_err(|cause| AssembleError::member(&self.name, cause))?;
        let bytes = |sector: u64| sector.saturating_mul(md::SECTOR);
        Ok(ranges.into_iter().map(|range| bytes(range.start)..bytes(range.end)).collect())
    }
}
