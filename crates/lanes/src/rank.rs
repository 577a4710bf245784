//! The lock order of Lanefs, in one place.

/// A lock's position in the order: a thread may take a lock only if its rank is above every rank
/// that it holds. [`Rank::Operation`] and [`Rank::Names`] are the exceptions: a thread may hold
/// several of one rank, taken in ascending number of the inode or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rank {
    /// A mount's topology lock, for moving a directory to another parent; and the lock of the
    /// thread that makes the file system larger. Held across I/O.
    Topology,
    /// An inode's operation lock. Held across I/O, waits for log space, and several transactions.
    Operation,
    /// A file's growth lock: held by writes that extend the file, across I/O and several
    /// transactions.
    Growth,
    /// Held by the one thread that maps written blocks of a file whose operation lock is held
    /// shared. Held across reads, waits for log space, and several transactions.
    Mapping,
    /// Held by the one thread that loads an inode, while its table block is read.
    InodeLoad,
    /// Held by the one thread that loads a group or inode-table block, across one read.
    Load,
    /// An inode's preallocation window, while blocks are taken from it or returned to it.
    Window,
    /// Membership of the journal: opening and closing a transaction. Held for condition waits only.
    Membership,
    /// The journal's internal state: image store, log space. Never held across I/O.
    Journal,
    /// The members of an array, and the state in its superblocks. Held while the superblocks are
    /// written.
    ArrayState,
    /// An array's superblocks and bitmaps in memory. Held across I/O.
    ArrayRecord,
    /// The state of one member's partial parity log. Never held across I/O.
    ParityLog,
    /// The names in one block of a directory whose operation lock is held shared. Held inside a
    /// handle, several in ascending block number. Never held across a wait or I/O.
    Names,
    /// A state guard, the last lock that operations take; one at a time. Never held across a wait
    /// or I/O.
    Guard,
    /// A lane's own lists. Never held across a wait or I/O.
    LaneList,
    /// Buckets of maps and wait queues: the innermost locks. Never held across a wait or I/O.
    Bucket,
}

impl Rank {
    /// All ranks, in the lock order.
    pub const ALL: [Rank; 16] = [
        Rank::Topology,
        Rank::Operation,
        Rank::Growth,
        Rank::Mapping,
        Rank::InodeLoad,
        Rank::Load,
        Rank::Window,
        Rank::Membership,
        Rank::Journal,
        Rank::ArrayState,
        Rank::ArrayRecord,
        Rank::ParityLog,
        Rank::Names,
        Rank::Guard,
        Rank::LaneList,
        Rank::Bucket,
    ];
}

// Fails to compile if a new rank is missing in the list.
const _: () = assert!(Rank::Bucket as usize + 1 == Rank::ALL.len());
