//! What a copy does with each file.

/// Why a copy that would not end is refused.
pub const INTO_ITSELF: &str = "a directory cannot be copied into itself";

/// Whether directories are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recursion {
    /// Directories are copied with their contents.
    Trees,
    /// Directories are not copied.
    FilesOnly,
}

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dereference {
    /// All links are followed.
    Always,
    /// Only links that are operands are followed.
    Operands,
    /// No link is followed.
    Never,
}

/// What happens to a file that already exists in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// The existing file is overwritten or replaced. It is an error if a regular file would replace
    /// a device, FIFO or socket.
    Overwrite,
    /// The operand replaces an existing file or empty directory, as rename(2) does. All directories
    /// below it are created by this copy, so a name that already exists there is an error.
    Replace,
    /// The existing file stays unchanged.
    Keep,
    /// An existing file or directory is an error.
    Refuse,
}

impl Existing {
    /// Returns what happens to existing files below an operand.
    pub(super) fn below(self) -> Existing {
        if self == Existing::Replace { Existing::Refuse } else { self }
    }
}

/// The attributes of the original that a copy keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// Mode and access control lists.
    pub mode: bool,
    /// Owner and group.
    pub owner: bool,
    /// Times of the last access and modification.
    pub times: bool,
    /// All extended attributes.
    pub attributes: bool,
    /// Hard links: all names of one file become names of one copy.
    pub links: bool,
}

/// The options of a copy.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub recursion: Recursion,
    pub dereference: Dereference,
    pub existing: Existing,
    pub keep: Keep,
    /// The owner and group that all copies get, if given.
    pub owner: Option<(u32, u32)>,
    /// The umask for new files, unless modes are kept.
    pub umask: u16,
    pub verbose: Verbose,
    /// The number of threads; at least 1.
    pub workers: usize,
}

/// Whether each file name is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbose {
    /// Names are printed on standard output.
    Yes,
    /// Names are not printed.
    No,
}
