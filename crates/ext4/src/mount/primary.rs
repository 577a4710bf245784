//! Reads the superblock, whole or torn by a crash.
//!
//! The superblock has two sectors of 512 bytes and one checksum over both, and it is written in
//! place. A crash during that write leaves one sector old and the other new, and the checksum
//! wrong. Such a superblock is accepted as it is on two conditions. First, it passes every other
//! check. Second, in all fields that a mount does not change, it agrees with a copy whose checksum
//! is right (a backup in another group, or a copy in the log). Each field that a mount changes has
//! its old or its new value, and both are valid: the counts are taken from the descriptors, and the
//! log is replayed whether or not the superblock requests the replay. A copy in the log must agree
//! only in the fields by which the log was found, since the replay writes this copy over the torn
//! superblock.

use crate::mount::find_log;
use crate::object::superblock::SUPERBLOCK;
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::superblock::{Cause, Superblock};
use lanefs_ondisk::{Corruption, Group};
use lanefs_plan::Error;

/// The largest number of backups that are compared.
const BACKUPS: usize = 8;

/// The superblock at byte 1024.
#[derive(Debug, Clone)]
pub struct Primary {
    /// The contents of the superblock.
    pub superblock: Superblock,
    /// Whether the superblock's checksum is right.
    pub wholeness: Wholeness,
}

/// Whether a crash tore the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wholeness {
    /// The superblock's checksum is right, or the file system has no checksums.
    Whole,
    /// The superblock's checksum is wrong, but its contents agree with another copy.
    Torn(Witness),
}

/// The copy that a torn superblock agrees with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// The backup at the start of this group.
    Backup(Group),
    /// The newest copy in the log.
    Log,
}

impl Primary {
    /// Reads and checks the superblock. Changes nothing.
    ///
    /// # Errors
    /// [`Error::TooShort`] for a device that has no room for the superblock, [`Error::Corruption`],
    /// [`Error::Device`].
    pub fn read(device: &dyn Device) -> Result<Primary, Error> {
        Primary::read_with(device, None)
    }

    /// Does the same as [`Primary::read`], for a file system whose journal is on `journal`.
    ///
    /// # Errors
    /// The same as for [`Primary::read`].
    pub fn read_with(
        device: &dyn Device,
        journal: Option<&Arc<dyn Device>>,
    ) -> Result<Primary, Error> {
        if device.len() < SUPERBLOCK.end as u64 {
            return Err(Error::TooShort { has: device.len(), needs: SUPERBLOCK.end as u64 });
        }
        let bytes = read_at(device, SUPERBLOCK.start as u64)?;
        let damage = match Superblock::decode(&bytes) {
            Ok(superblock) => return Ok(Primary { superblock, wholeness: Wholeness::Whole }),
            Err(damage) => damage,
        };
        let torn = match &damage {
            Corruption::Superblock { cause: Cause::Checksum { .. } } => {
                Superblock::decode_torn(&bytes).ok()
            }
            _ => None,
        };
        let Some(superblock) = torn else { return Err(damage.into()) };
        match witness(device, journal, &superblock) {
            Some(witness) => Ok(Primary { superblock, wholeness: Wholeness::Torn(witness) }),
            None => Err(damage.into()),
        }
    }
}

/// Returns a backup of the superblock, or a copy in the log, that agrees with `torn`.
fn witness(
    device: &dyn Device,
    journal: Option<&Arc<dyn Device>>,
    torn: &Superblock,
) -> Option<Witness> {
    let geometry = torn.geometry();
    let agrees = |bytes: &[u8]| Superblock::decode(bytes).is_ok_and(|copy| torn.agrees_with(&copy));
    for group in geometry.backups().take(BACKUPS) {
        let start = geometry.group_first_block(group)?.0 << geometry.block_size().bits();
        if read_at(device, start).is_ok_and(|bytes| agrees(&bytes)) {
            return Some(Witness::Backup(group));
        }
    }
    let log = find_log::locate(device, torn, journal).ok()??;
    let plan = find_log::plan(device, torn, &log).ok()?;
    let copy = find_log::superblock_in(&plan, torn).ok()??;
    // The replay writes this copy over the torn superblock. A change of settings may have been
    // interrupted halfway, so only the fields that were used to find the log must agree. If the copy
    // has fewer blocks, the write that makes the file system smaller was torn, and only its second
    // sector is new: the mount drops the log.
    let agrees = torn.check_next(&copy).is_ok() || copy.check_next(torn).is_ok();
    agrees.then_some(Witness::Log)
}

fn read_at(device: &dyn Device, offset: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; SUPERBLOCK.len()];
    device.read_at(offset, &mut bytes)?;
    Ok(bytes)
}
