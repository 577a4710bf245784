//! Arrays in memory, for benchmarks and for tests of other crates.

use crate::array::Array;
use crate::array::setup::{Consistency, MetadataStore, Policies, RecordError, Setup};
use crate::base::ArrayError;
use crate::base::layout::{Geometry, Slots};
use crate::members::Member;
use lanefs_device::RamDevice;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::md::Area;

/// Bytes before each member's data area, for its log.
const DATA_OFFSET: u64 = 1 << 20;

/// A metadata store that stores nothing, because members in memory are never assembled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unrecorded;

impl MetadataStore for Unrecorded {
    fn mark_active(&self) -> Result<Slots, RecordError> {
        Ok(Slots::NONE)
    }
    fn mark_clean(&self) -> Result<Slots, RecordError> {
        Ok(Slots::NONE)
    }
    fn fail_members(&self, _: Slots) -> Result<Slots, RecordError> {
        Ok(Slots::NONE)
    }
    fn set_recovered(&self, _: usize, _: u64) -> Result<Slots, RecordError> {
        Ok(Slots::NONE)
    }
    fn set_resynced(&self, _: u64) -> Result<Slots, RecordError> {
        Ok(Slots::NONE)
    }
    fn write_bits(&self, _: usize, _: &[u8]) -> Result<Slots, RecordError> {
        Ok(Slots::NONE)
    }
}

impl Member {
    /// Creates a member in memory for an array of this geometry, with space for a log. The member
    /// is rebuilt up to byte `recovered` of its data area; `u64::MAX` means in sync.
    ///
    /// # Errors
    /// When there is no address space left.
    pub fn in_memory(shape: &Geometry, recovered: u64) -> std::io::Result<Member> {
        let device = Arc::new(RamDevice::create(DATA_OFFSET + shape.member_len())?);
        let log = Some(Area { offset: 4096, len: DATA_OFFSET - 4096 });
        Ok(Member { device, data_offset: DATA_OFFSET, log, recovered, bad_blocks: None })
    }
}

impl Array {
    /// Creates an array in memory with all members, filled with zeros.
    ///
    /// # Errors
    /// When there is no address space left.
    pub fn in_memory(
        shape: Geometry,
        consistency: Consistency,
        policies: Policies,
    ) -> std::io::Result<Array> {
        let members = (0..shape.members()).map(|_| Member::in_memory(&shape, u64::MAX).map(Some));
        let setup = Setup {
            geometry: shape,
            members: members.collect::<Result<_, _>>()?,
            record: Arc::new(Unrecorded),
            consistency,
            active: false,
            unsynced_from: u64::MAX,
            policies,
        };
        Array::start(setup).map_err(|error: ArrayError| std::io::Error::other(error))
    }
}
