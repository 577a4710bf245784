//! The feature flags of an array.

use bitflags::bitflags;

bitflags! {
    /// The flags of the field `feature_map`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Features: u32 {
        /// There is an internal write-intent bitmap.
        const BITMAP_OFFSET = 1;
        /// So far only a part of this member has been rebuilt.
        const RECOVERY_OFFSET = 2;
        /// The array is changing its shape.
        const RESHAPE_ACTIVE = 4;
        /// The bad-block log has entries.
        const BAD_BLOCKS = 8;
        /// This member will replace another member with the same role. The contents of the other
        /// member are being copied to this member.
        const REPLACEMENT = 16;
        /// A reshape proceeds from the end to the start.
        const RESHAPE_BACKWARDS = 32;
        /// A reshape moves the data area.
        const NEW_OFFSET = 64;
        /// This member is being updated from the bitmap.
        const RECOVERY_BITMAP = 128;
        /// Several machines use the array.
        const CLUSTERED = 256;
        /// There is a journal device.
        const JOURNAL = 512;
        /// There is a partial parity log with one header.
        const PPL = 1024;
        /// There is a partial parity log with several headers.
        const MULTIPLE_PPLS = 2048;
        /// The superblock contains the layout of a raid0 whose members differ in size.
        const RAID0_LAYOUT = 4096;
        const _ = !0;
    }
}

impl Features {
    /// The supported features.
    pub(super) const SUPPORTED: Features = Features::BITMAP_OFFSET
        .union(Features::RECOVERY_OFFSET)
        .union(Features::BAD_BLOCKS)
        .union(Features::RECOVERY_BITMAP)
        .union(Features::PPL)
        .union(Features::MULTIPLE_PPLS);

    /// The feature bits of both forms of the partial parity log.
    pub const ANY_PPL: Features = Features::PPL.union(Features::MULTIPLE_PPLS);

    /// Returns a name for each feature. The name of an unknown feature is the value of its flag.
    pub fn names(self) -> Vec<String> {
        let name = |bit: u32| match Features::from_bits_retain(bit) {
            Features::BITMAP_OFFSET => "a bitmap".into(),
            Features::RECOVERY_OFFSET => "a recovery offset".into(),
            Features::BAD_BLOCKS => "bad blocks".into(),
            Features::RECOVERY_BITMAP => "recovery by bitmap".into(),
            Features::PPL => "a partial parity log".into(),
            Features::MULTIPLE_PPLS => "a partial parity log of several headers".into(),
            Features::RESHAPE_ACTIVE => "an active reshape".into(),
            Features::REPLACEMENT => "a replacement under way".into(),
            Features::RESHAPE_BACKWARDS => "a backwards reshape".into(),
            Features::NEW_OFFSET => "a moving data area".into(),
            Features::CLUSTERED => "a clustered array".into(),
            Features::JOURNAL => "a journal device".into(),
            Features::RAID0_LAYOUT => "a raid0 layout".into(),
            other => format!("unknown feature {:#x}", other.bits()),
        };
        let bits = (0..32).map(|shift| 1 << shift).filter(|bit| self.bits() & bit != 0);
        bits.map(name).collect()
    }
}
