//! The lock order of Lanefs, in one place.

/// A lock's position in the order: a thread may take a lock only if the lock's rank is above the
/// ranks of all locks that the thread holds. [`Rank::Operation`] and [`Rank::Names`] are the
/// exceptions: a thread may hold several locks of these ranks, taken in ascending order of their
/// inode or block numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rank {
    /// `Fs::topology`, held while a directory moves to another parent. `Fs::growing`, held while
    /// the file system grows, or becomes read-only or writable. Both are held across I/O.
    Topology,
    /// `Inode::op`, an inode's operation lock: the inode's names, mappings and size, which an
    /// operation reads and then changes. A thread takes several of these locks in ascending order
    /// of inode number. Held across I/O, across waits for log space, and across several
    /// transactions.
    Operation,
    /// `Inode::growth`: a file's end, so that only one write at a time extends the file. Held
    /// across I/O and several transactions.
    Growth,
    /// `Inode::mapping`: a file's mappings, while the operation lock is held shared. Held across
    /// reads, across waits for log space, and across several transactions.
    Mapping,
    /// The locks for loading. An inode is loaded under a lock that its number selects, and
    /// its mappings under `Inode::loading`. Held across reads.
    InodeLoad,
    /// `TableBlock::base`, `SuperState`, and the locks under which metadata blocks and groups are
    /// loaded. Held across the read of one block. `GuardedDevice::storing`, held while the MMP block
    /// is stored.
    Load,
    /// `Inode::window`: the preallocation window, while blocks are taken from it or returned to it.
    Window,
    /// The journal's membership: opening a transaction, and waiting until all members of a closing
    /// one have left. Held only for condition waits and while the transaction's lists are taken.
    Membership,
    /// The journal's shared state: the progress of commits, the pool of credits, the flushes under
    /// way, and the chain of the orphan list. Never held across I/O.
    Journal,
    /// The members of an array, the flushes under way, the words of its bitmap, and the state in
    /// its superblocks. Held while the superblocks are written.
    ArrayState,
    /// An array's superblocks and bitmaps in memory. Held across I/O.
    ArrayRecord,
    /// The unfinished entries of one member's partial parity log. Never held across I/O.
    ParityLog,
    /// `MetaBlock::names`: the names in one block of a directory whose operation lock is held
    /// shared. Held inside a handle. A thread takes several of these locks in ascending order of
    /// block number. Never held across a wait or I/O.
    Names,
    /// A connection to a server of block devices: first the lock under which a request is sent, held
    /// across I/O; then the replies that are expected.
    Connection,
    /// A *state guard*: the lock of `Inode::state`, of `MetaBlock::state`, of a group, of the
    /// orphan list, or of the pool of free blocks. A thread holds one at a time. A state guard
    /// excludes not only other operations, but the committer too. Never held across a wait or I/O.
    Guard,
    /// A lane's own data: lists of changed objects, stashes of credits and of free blocks, deltas
    /// of a directory, the list of inodes with a preallocation window. Also the bitmap bits of an
    /// array, and the usage of a quota's owner. Never held across a wait or I/O.
    LaneList,
    /// Buckets of maps, wait queues, rows of an array, threads of a FUSE session, the position of an
    /// open file: the innermost locks. Never held across a wait or I/O.
    Bucket,
}

impl Rank {
    /// All ranks, in the lock order.
    pub const ALL: [Rank; 17] = [
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
        Rank::Connection,
        Rank::Guard,
        Rank::LaneList,
        Rank::Bucket,
    ];
}

// Fails to compile if a new rank is missing from the list.
const _: () = assert!(Rank::Bucket as usize + 1 == Rank::ALL.len());
