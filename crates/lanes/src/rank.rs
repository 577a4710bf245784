//! The lock order of Lanefs, in one place.

/// A lock's position in the order: a thread may take a lock only if its rank is above every rank
/// that it holds. [`Rank::Operation`] and [`Rank::Names`] are the exceptions: several at once, in
/// ascending number of the inode or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rank {
    /// The topology lock of a mount, for moving a directory to another parent. Held across I/O.
    Topology,
    /// An inode's operation lock. Held across I/O, waits for log space and several transactions.
    Operation,
    /// One loader of an inode. Held while its table block is read.
    InodeLoad,
    /// Keeps captures and evictions apart: held by the evicting thread, and by the committer while
    /// it captures, which reads.
    Eviction,
    /// One loader of a group or inode-table block. Held across one read.
    Load,
    /// The blocks that an inode has claimed in advance: taken out, used, put back.
    Window,
    /// Membership of the journal: opening and closing a transaction. Condition waits only.
    Membership,
    /// The journal's own records: image store, log space. Never held across I/O.
    Journal,
    /// The members of an array, and the state in its superblocks. Held while they are written.
    ArrayState,
    /// The superblocks and bitmaps of an array as they are written. Held across I/O.
    ArrayRecord,
    /// The records of one member's partial parity log. Never held across I/O.
    ParityLog,
    /// The names in one block of a directory, whose operation lock is held shared: held inside a
    /// handle, several in ascending block number. Never held across a wait or I/O.
    Names,
    /// A state guard: leaf of the operations; one at a time. Never held across a wait or I/O.
    Guard,
    /// A lane's own lists. Never held across anything.
    LaneList,
    /// Buckets of maps and wait queues: the innermost. Never held across anything.
    Bucket,
}

impl Rank {
    /// All ranks, in the order of locking.
    pub const ALL: [Rank; 15] = [
        Rank::Topology,
        Rank::Operation,
        Rank::InodeLoad,
        Rank::Eviction,
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

// A new rank has to be added to the list.
const _: () = assert!(Rank::Bucket as usize + 1 == Rank::ALL.len());
