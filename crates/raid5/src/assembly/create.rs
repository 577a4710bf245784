//! Creates arrays: computes the layout of the members and writes their metadata.
//!
//! The offsets are those of mdadm 4.2, so that Lanefs and mdadm create members with the same
//! layout. A member has, in this order: superblock, bitmap or partial parity log, bad-block log,
//! headroom for a later reshape, data.

use crate::assembly::error::{AssembleError, BadBitmapChunk, InvalidRequest, MemberFault};
use crate::assembly::metadata::now;
use crate::base::layout::{Geometry, Layout};
use crate::log::recovery::write_empty;
use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::md::{
    Features, NewArray, Recovery, Role, SECTOR, SUPERBLOCK_OFFSET, Superblock, Uuid, bitmap, ppl,
};
use std::path::PathBuf;

/// Sectors of a partial parity log that mdadm creates.
const LOG: u64 = 2048;
/// Sectors from the start of a superblock to the next area.
const BEHIND: u64 = 8;
const MIB: u64 = 2048;
/// Default number of bytes of a member that one bitmap bit covers.
const BITMAP_CHUNK: u64 = 64 << 20;

/// How a new array restores parity after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewConsistency {
    /// A partial parity log restores parity.
    PartialParity,
    /// A resync of the regions that are marked in a write-intent bitmap restores parity. One bit
    /// covers this many bytes of a member. `None` means 64 MiB or, if the bitmap would then not fit
    /// into its space, the smallest power of two with which it fits.
    Bitmap(Option<u64>),
    /// A resync of the whole array restores parity.
    Resync,
}

/// Whether the present contents of the members have right parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialParity {
    /// The parity is unknown: a resync computes it while the array is used.
    Unknown,
    /// The parity is known to be right, for example because all members hold zeros.
    Right,
}

/// A new array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOptions {
    /// The array's UUID.
    pub set: Uuid,
    /// A UUID for each member.
    pub devices: Vec<Uuid>,
    /// The array's name, usually `HOST:NAME`; at most 32 bytes are used.
    pub name: String,
    /// The layout of data and parity.
    pub layout: Layout,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// How the array restores parity after a crash.
    pub consistency: NewConsistency,
    /// Bytes to use on each member; `None` means the space of the smallest member.
    pub size: Option<u64>,
    /// Whether parity is right already.
    pub parity: InitialParity,
    /// A slot that gets no member now. Its contents are computed from the other members by parity.
    pub missing: Option<usize>,
}

impl CreateOptions {
    fn slots(&self) -> usize {
        self.devices.len() + usize::from(self.missing.is_some())
    }

    /// Returns whether parity is right. If a member is missing, parity counts as right, because it
    /// defines the contents of the missing member.
    fn parity(&self) -> InitialParity {
        if self.missing.is_some() { InitialParity::Right } else { self.parity }
    }
}

/// The layout of a member. All numbers are sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Areas {
    data_offset: u64,
    size: u64,
    /// Space for the bitmap or the log.
    space: u64,
    bad_blocks: u64,
}

/// Turns the devices into the members of a new array, in the order given. The devices' contents are
/// lost.
///
/// # Errors
/// If the devices are too small, the options invalid, or a device fails. After
/// [`AssembleError::Unsettled`], some or all of the superblocks may be written.
pub fn create(
    members: &[(PathBuf, Arc<dyn Device>)],
    options: &CreateOptions,
) -> Result<(), AssembleError> {
    if members.len() != options.devices.len() {
        return Err(InvalidRequest::Uuids.into());
    }
    if options.missing.is_some_and(|slot| slot >= options.slots()) {
        return Err(InvalidRequest::NoSuchSlot.into());
    }
    let smallest = members.iter().min_by_key(|(_, device)| device.len());
    let (name, smallest) = smallest.ok_or(AssembleError::Nothing)?;
    let plan = Areas::new(smallest.len(), options).map_err(|needed| {
        AssembleError::member(name, MemberFault::TooSmall { len: smallest.len(), needed })
    })?;
    let count = options.slots();
    let geometry = Geometry::new(options.layout, count, options.chunk, plan.size * SECTOR);
    geometry.map_err(|error| AssembleError::member(name, error))?;
    let superblocks = superblocks(members, options, &plan);
    for ((name, device), superblock) in members.iter().zip(&superblocks) {
        let failed = |error| AssembleError::member(name, error);
        write_areas(&**device, superblock, options, &plan)?.map_err(failed)?;
    }
    // The superblocks are written last, because an incomplete array must not be assembled.
    for ((_, device), superblock) in members.iter().zip(&superblocks) {
        let written = device.write_durable_at(SUPERBLOCK_OFFSET, &superblock.encode());
        written.map_err(AssembleError::Unsettled)?;
    }
    Ok(())
}

fn superblocks(
    members: &[(PathBuf, Arc<dyn Device>)],
    options: &CreateOptions,
    plan: &Areas,
) -> Vec<Superblock> {
    // In the metadata of an array with a log, unknown parity would look the same as interrupted
    // writes. So the last member is marked as not yet rebuilt: the rebuild makes its contents agree
    // with the others, so all parity is right after the rebuild.
    let rebuilds = options.parity() == InitialParity::Unknown
        && options.consistency == NewConsistency::PartialParity;
    let resyncs = options.parity() == InitialParity::Unknown && !rebuilds;
    let array = NewArray {
        set: options.set,
        name: &options.name,
        time: now(),
        layout: options.layout.md(),
        size: plan.size,
        chunk: (options.chunk / SECTOR) as u32,
        members: options.slots() as u32,
        features: match options.consistency {
            NewConsistency::PartialParity => Features::MULTIPLE_PPLS,
            NewConsistency::Bitmap(_) => Features::BITMAP_OFFSET,
            NewConsistency::Resync => Features::empty(),
        },
        resync_from: resyncs.then_some(0),
    };
    let superblock = |slot: usize, device: &dyn Device, uuid: &Uuid| {
        let mut superblock = Superblock::new(
            &array,
            &lanefs_ondisk::md::Device {
                uuid: *uuid,
                number: slot as u16,
                data_offset: plan.data_offset,
                data_size: device.len() / SECTOR - plan.data_offset,
                bad_blocks: plan.bad_blocks as u16,
                ppl: LOG as u16,
            },
        );
        superblock.set_events(1);
        if let Some(missing) = options.missing {
            superblock.set_role_of(missing as u32, Role::Spare);
        }
        if rebuilds && slot + 1 == options.slots() {
            superblock.set_recovery(Recovery::Below(0));
        }
        superblock
    };
    let slots = (0..options.slots()).filter(|slot| Some(*slot) != options.missing);
    let numbered = slots.zip(members.iter().zip(&options.devices));
    numbered.map(|(slot, ((_, device), uuid))| superblock(slot, &**device, uuid)).collect()
}

/// Writes all areas except the superblock. The outer error is a mistake of the caller; the inner
/// error is a fault of the device.
fn write_areas(
    device: &dyn Device,
    superblock: &Superblock,
    options: &CreateOptions,
    plan: &Areas,
) -> Result<Result<(), DeviceError>, AssembleError> {
    let space = plan.space * SECTOR;
    let header = match options.consistency {
        NewConsistency::Bitmap(chunk) => Some(plan.bitmap(options, chunk)?),
        _ => None,
    };
    let write = || {
        // File systems have their signatures in this area. It is zeroed, so that other programs do
        // not recognise a file system on a member.
        device.write_zeros(0, SUPERBLOCK_OFFSET)?;
        if let Some(header) = &header {
            let offset = SUPERBLOCK_OFFSET + BEHIND * SECTOR;
            device.write_zeros(offset, space)?;
            device.write_at(offset, &header.encode())?;
            if options.parity() == InitialParity::Unknown {
                let bits = vec![0xff; header.bit_bytes() as usize];
                device.write_at(offset + bitmap::HEADER_SIZE as u64, &bits)?;
            }
        }
        write_logs(device, superblock)
    };
    Ok(write())
}

/// Writes an empty partial parity log and an empty bad-block log, durably.
pub(crate) fn write_logs(device: &dyn Device, superblock: &Superblock) -> Result<(), DeviceError> {
    if let Some(area) = superblock.ppl() {
        write_empty(device, area, ppl::signature(superblock.set()))?;
    }
    if let Some(area) = superblock.bad_block_log() {
        device.write_at(area.offset, &vec![0xff; area.len as usize])?;
    }
    device.flush()
}

impl Areas {
    /// Computes the layout for members of at least `len` bytes. If `len` is too small, the error
    /// holds the length needed.
    fn new(len: u64, options: &CreateOptions) -> Result<Areas, u64> {
        let sectors = len / SECTOR;
        let space = match options.consistency {
            NewConsistency::PartialParity => LOG,
            // mdadm leaves room for a bitmap that may be added later.
            NewConsistency::Bitmap(_) | NewConsistency::Resync => match sectors {
                0..0x100_0008 => 8,
                0x100_0008..0x1900_0080 => 128,
                _ => 256,
            },
        };
        let chunk = (options.chunk / SECTOR).max(1);
        let mut headroom = 128 * MIB;
        // Like mdadm, halves the headroom until it is at most 1/1024 of the device, but not to less
        // than two chunks.
        while headroom << 10 > sectors && headroom / 2 >= chunk / 2 * 4 {
            headroom /= 2;
        }
        let data_offset = (3 * BEHIND + space + headroom).next_multiple_of(MIB);
        let most = sectors.saturating_sub(data_offset) / chunk * chunk;
        let asked = options.size.map(|bytes| bytes / SECTOR / chunk * chunk);
        let size = asked.unwrap_or(most);
        if size == 0 || size > most {
            return Err((data_offset + size.max(chunk)).saturating_mul(SECTOR));
        }
        Ok(Areas { data_offset, size, space, bad_blocks: BEHIND + space })
    }

    fn bitmap(
        &self,
        options: &CreateOptions,
        asked: Option<u64>,
    ) -> Result<bitmap::Header, BadBitmapChunk> {
        let room = (self.space * SECTOR - bitmap::HEADER_SIZE as u64) * 8;
        let bits = |chunk: u64| (self.size * SECTOR).div_ceil(chunk);
        let chunk = match asked {
            Some(chunk) if !chunk.is_power_of_two() || chunk < 4096 => {
                return Err(BadBitmapChunk::NotAPower);
            }
            Some(chunk) if bits(chunk) > room => {
                return Err(BadBitmapChunk::TooSmall);
            }
            Some(chunk) => chunk,
            None => {
                let mut chunk = BITMAP_CHUNK;
                while bits(chunk) > room {
                    chunk *= 2;
                }
                chunk
            }
        };
        let chunk = u32::try_from(chunk).map_err(|_| BadBitmapChunk::TooLarge)?;
        let mut header = bitmap::Header::new(options.set, self.size, chunk);
        header.set_events(1);
        if options.parity() == InitialParity::Right {
            header.set_events_cleared(1);
        }
        Ok(header)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
