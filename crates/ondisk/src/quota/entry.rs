//! One entry of a quota file: the usage and limits of one id.

/// Bytes of an entry.
pub(super) const ENTRY: usize = 72;

/// Offsets of the fields.
const ID: usize = 0;
const INODES_HARD: usize = 8;
const INODES_SOFT: usize = 16;
const INODES: usize = 24;
const SPACE_HARD: usize = 32;
const SPACE_SOFT: usize = 40;
const SPACE: usize = 48;
const SPACE_UNTIL: usize = 56;
const INODES_UNTIL: usize = 64;

/// The space and the inodes that an id uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Space in bytes.
    pub bytes: u64,
    /// Number of inodes.
    pub inodes: u64,
}

/// The limits of an id; 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// The hard limit of space, which usage never exceeds, in units of 1024 bytes.
    pub kib_hard: u64,
    /// The soft limit of space, which usage may exceed for the grace time, in units of 1024 bytes.
    pub kib_soft: u64,
    /// The hard limit of inodes, which usage never exceeds.
    pub inodes_hard: u64,
    /// The soft limit of inodes, which usage may exceed for the grace time.
    pub inodes_soft: u64,
}

/// An entry of a quota file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Usage.
    pub usage: Usage,
    /// Limits.
    pub limits: Limits,
    /// When the grace time for space ends, in seconds since 1970; 0 if the soft limit of space is
    /// not exceeded.
    pub bytes_until: u64,
    /// When the grace time for inodes ends, in seconds since 1970; 0 if the soft limit of inodes is
    /// not exceeded.
    pub inodes_until: u64,
}

impl Quota {
    pub(super) fn decode(bytes: &[u8]) -> Quota {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        let quota = Quota {
            usage: Usage { bytes: word(SPACE), inodes: word(INODES) },
            limits: Limits {
                kib_hard: word(SPACE_HARD),
                kib_soft: word(SPACE_SOFT),
                inodes_hard: word(INODES_HARD),
                inodes_soft: word(INODES_SOFT),
            },
            bytes_until: word(SPACE_UNTIL),
            inodes_until: word(INODES_UNTIL),
        };
        match quota == IN_USE && word(ID) == 0 {
            true => Quota::default(),
            false => quota,
        }
    }

    pub(super) fn encode(&self, id: u32, bytes: &mut [u8]) {
        // An entry of zeros counts as free. So if id 0 has no usage and no limits, its entry
        // contains a time that is not zero, which marks the entry as used.
        let fields = if id == 0 && *self == Quota::default() { IN_USE } else { *self };
        bytes.fill(0);
        let mut put = |at: usize, word: u64| {
            if let Some(field) = bytes.get_mut(at..at + 8) {
                field.copy_from_slice(&word.to_le_bytes());
            }
        };
        put(ID, id.into());
        put(INODES_HARD, fields.limits.inodes_hard);
        put(INODES_SOFT, fields.limits.inodes_soft);
        put(INODES, fields.usage.inodes);
        put(SPACE_HARD, fields.limits.kib_hard);
        put(SPACE_SOFT, fields.limits.kib_soft);
        put(SPACE, fields.usage.bytes);
        put(SPACE_UNTIL, fields.bytes_until);
        put(INODES_UNTIL, fields.inodes_until);
    }
}

/// What the entry of id 0 contains if id 0 has no usage and no limits.
const IN_USE: Quota = Quota {
    usage: Usage { bytes: 0, inodes: 0 },
    limits: Limits { kib_hard: 0, kib_soft: 0, inodes_hard: 0, inodes_soft: 0 },
    bytes_until: 0,
    inodes_until: 1,
};
