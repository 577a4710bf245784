//! The harm that a fault does to the users of a file system.

use lanefs_ondisk::FileBlock;
use std::fmt;

/// The harm of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Harm {
    /// The file system cannot be mounted, or can be mounted only without its journal.
    Unmountable,
    /// No file can be created or written in the block group.
    NoAllocation,
    /// A whole file or directory cannot be used.
    FileLost,
    /// Data of the file is lost: from block `from` on, if the first lost block is known.
    DataLost {
        /// The first lost block of the file.
        from: Option<FileBlock>,
    },
    /// Names are lost, or refer to the wrong file.
    NamesLost,
    /// Names exist, but a look-up does not find them.
    NamesNotFound,
    /// Files exist, but no name refers to them.
    NoPath,
    /// Attributes are lost.
    AttributesLost,
    /// Data in use is going to be overwritten.
    Overwritten,
    /// The file system cannot grow while it is mounted.
    NoGrowth,
    /// Space is never freed.
    NeverFreed,
    /// Space that belongs to no file cannot be used.
    SpaceLeaked {
        /// The number of blocks, or of clusters with `bigalloc`.
        clusters: u64,
    },
    /// Reported numbers, such as free space, are wrong.
    WrongCounts,
    /// A system call returns a wrong result.
    WrongAnswers,
    /// The fault has no effect, because no reader uses the wrong field.
    Harmless,
    /// A remark, not a fault. An image with nothing but remarks is clean.
    Note,
}

impl Harm {
    /// Returns a short name for programs.
    pub fn code(self) -> &'static str {
        match self {
            Harm::Unmountable => "unmountable",
            Harm::NoAllocation => "no_allocation",
            Harm::FileLost => "file_lost",
            Harm::DataLost { .. } => "data_lost",
            Harm::NamesLost => "names_lost",
            Harm::NamesNotFound => "names_not_found",
            Harm::NoPath => "no_path",
            Harm::AttributesLost => "attributes_lost",
            Harm::Overwritten => "overwritten",
            Harm::NoGrowth => "no_growth",
            Harm::NeverFreed => "never_freed",
            Harm::SpaceLeaked { .. } => "space_leaked",
            Harm::WrongCounts => "wrong_counts",
            Harm::WrongAnswers => "wrong_answers",
            Harm::Harmless => "harmless",
            Harm::Note => "note",
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Harm::Unmountable => f.write_str("the file system may not mount"),
            Harm::NoAllocation => f.write_str("nothing can be allocated in the group"),
            Harm::FileLost => f.write_str("the file cannot be used"),
            Harm::DataLost { from: None } => f.write_str("file data lost"),
            Harm::DataLost { from: Some(from) } => write!(f, "file data lost from {from} on"),
            Harm::NamesLost => f.write_str("names lost"),
            Harm::NamesNotFound => f.write_str("names are not found"),
            Harm::NoPath => f.write_str("files without a path"),
            Harm::AttributesLost => f.write_str("attributes lost"),
            Harm::Overwritten => f.write_str("data may be overwritten"),
            Harm::NoGrowth => f.write_str("the file system cannot grow while it is mounted"),
            Harm::NeverFreed => f.write_str("space is never freed"),
            Harm::SpaceLeaked { clusters } => write!(f, "space leaked: {clusters} blocks"),
            Harm::WrongCounts => f.write_str("wrong counts"),
            Harm::WrongAnswers => f.write_str("wrong answers to programs"),
            Harm::Harmless => f.write_str("harmless"),
            Harm::Note => f.write_str("no fault"),
        }
    }
}
