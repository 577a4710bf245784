//! The interface between a copier and a tree: the files of a source and of a target.

use crate::cli::Failure;
use lanefs::{FileType, NewNode, Rdev, Time};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};

/// Identifies a file in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The file system.
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

/// Those attributes of a file that are needed to copy it.
#[derive(Debug, Clone, Copy)]
pub struct Meta {
    pub identity: Identity,
    pub file_type: FileType,
    pub permissions: u16,
    pub links: u64,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    pub rdev: Rdev,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

/// An extended attribute: full name and value.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// The attributes to set on a copy. Fields that are `None` or empty leave the copy's attributes
/// unchanged.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub owner: Option<(u32, u32)>,
    pub permissions: Option<u16>,
    pub attributes: Vec<Attribute>,
    pub other_lists: OtherLists,
    /// The project, which a tree without projects ignores.
    pub project: Option<u32>,
    /// The times of the last access and modification.
    pub times: Option<(Time, Time)>,
}

/// Whether a file keeps the access control lists that are not among the attributes to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OtherLists {
    /// The lists stay. A new mode changes the mask of the access list, as chmod(2) does.
    #[default]
    Kept,
    /// The lists are removed.
    Removed,
}

/// Whether a file to write exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The file does not exist yet.
    New,
    /// The file may exist; its contents are removed.
    Emptied,
}

/// The attributes that hold access control lists.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Returns whether an attribute is an access control list. A copy that keeps the mode keeps these
/// lists too.
pub fn is_list((name, _): &Attribute) -> bool {
    LISTS.contains(&name.as_slice())
}

impl Settings {
    /// Returns the names of the access control lists that are removed. They are removed before the
    /// mode is set, because the mode would become their mask.
    pub fn lists_to_remove(&self) -> impl Iterator<Item = &'static [u8]> {
        let is_set = |list: &&[u8]| self.attributes.iter().any(|(name, _)| name == list);
        let removed = self.other_lists == OtherLists::Removed;
        LISTS.into_iter().filter(move |list| removed && !is_set(list))
    }
}

/// An open file of a tree.
pub trait TreeFile {
    /// Returns the start and the end of the next range of bytes, at or after `from`, that is not a
    /// hole.
    fn data_after(&mut self, from: u64) -> Result<Option<(u64, u64)>, Failure>;
    /// Reads at `offset`; returns 0 at the end of the file.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Failure>;
    /// Fills `buf` with the bytes at `offset`; bytes after the end of the file are zeros.
    fn fill(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Failure> {
        let mut have = 0;
        while let Some(rest) = buf.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match self.read_at(offset + have as u64, rest)? {
                0 => {
                    rest.fill(0);
                    break;
                }
                read => have += read,
            }
        }
        Ok(())
    }
    /// Writes all of `data` at `offset`.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure>;
    /// Sets the size, so that a hole at the end of a file is copied too.
    fn set_len(&mut self, size: u64) -> Result<(), Failure>;
}

/// The names in a directory, without "." and "..".
pub trait Listing {
    /// Returns the next name; `None` at the end.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure>;
}

/// A tree to read and to copy to.
pub trait Tree: Sync {
    /// Whether a second name of a directory means that the tree is damaged.
    const DIRECTORIES_HAVE_ONE_NAME: bool;
    /// A file or directory of the tree.
    type Node: Clone + Send + Sync;
    /// A directory that is being read.
    type Listing<'a>: Listing
    where
        Self: 'a;
    /// An open file of the tree.
    type File<'a>: TreeFile
    where
        Self: 'a;

    /// Returns the attributes of `node`; does not follow symbolic links.
    fn meta(&self, node: &Self::Node) -> Result<Meta, Failure>;
    /// Lists the names in a directory, in the order in which the directory stores them.
    fn list(&self, dir: &Self::Node) -> Result<Self::Listing<'_>, Failure>;
    /// Returns the names in a directory that can be read, in the order of their bytes. Copies of
    /// the same tree must be equal, but a directory of the host may list its names in any order.
    fn names(&self, dir: &Self::Node) -> (Vec<Vec<u8>>, Result<(), Failure>) {
        let mut names = Vec::new();
        let read = self.list(dir).and_then(|mut listing| {
            while let Some(name) = listing.next()? {
                names.push(name);
            }
            Ok(())
        });
        names.sort_unstable();
        (names, read)
    }
    /// Returns the file `name` in `dir`.
    fn child(&self, dir: &Self::Node, name: &[u8]) -> Result<Self::Node, Failure>;
    /// Returns the file to which the symbolic link `node` leads.
    fn follow(&self, node: &Self::Node) -> Result<Self::Node, Failure>;
    /// Returns the text of a symbolic link.
    fn read_link(&self, node: &Self::Node) -> Result<Vec<u8>, Failure>;
    /// Opens a regular file.
    fn open(&self, node: &Self::Node) -> Result<Self::File<'_>, Failure>;
    /// Returns all extended attributes that can be read.
    fn attributes(&self, node: &Self::Node) -> Result<Vec<Attribute>, Failure>;
    /// Returns the name of `node` for messages.
    fn show(&self, node: &Self::Node) -> String;

    /// Returns the file `name` in `dir`, if it exists; does not follow symbolic links.
    fn look(&self, dir: &Self::Node, name: &[u8]) -> Result<Option<(Self::Node, Meta)>, Failure>;
    /// Creates a file of any type except a regular file. The host uses the umask of the process
    /// instead of that of `new`.
    fn make(&self, dir: &Self::Node, name: &[u8], new: NewNode<'_>) -> Result<Self::Node, Failure>;
    /// Creates a regular file, or empties an existing one.
    fn make_file(
        &self,
        dir: &Self::Node,
        name: &[u8],
        new: NewNode<'_>,
        opening: Opening,
    ) -> Result<(Self::Node, Self::File<'_>), Failure>;
    /// Gives `node` a further name.
    fn link(&self, node: &Self::Node, dir: &Self::Node, name: &[u8]) -> Result<(), Failure>;
    /// Renames `from` to `to` in a directory; replaces a file or empty directory of that name.
    fn rename(&self, dir: &Self::Node, from: &[u8], to: &[u8]) -> Result<Self::Node, Failure>;
    /// Returns the settings that make a new file equal to the regular file `node` except for its
    /// data. Returns `None` if no new file can take the place of `node`.
    ///
    /// # Errors
    /// If `node` must not be written.
    fn replacement(&self, node: &Self::Node) -> Result<Option<Settings>, Failure>;
    /// Returns the free space in bytes for files in `dir`.
    fn free_space(&self, dir: &Self::Node) -> Result<u64, Failure>;
    /// Removes a file that is not a directory.
    fn remove(&self, dir: &Self::Node, name: &[u8]) -> Result<(), Failure>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Self::Node, name: &[u8]) -> Result<(), Failure>;
    /// Sets the attributes of `node`.
    fn set(&self, node: &Self::Node, settings: &Settings) -> Result<(), Failure>;
    /// Returns the full path of the entry `name` in `dir`, for messages.
    fn show_entry(&self, dir: &Self::Node, name: &[u8]) -> String;
}

/// Calls `read` for the bytes from an offset on until it finds none, and `write` with each piece
/// and its offset. A piece is at most as long as `buffer`.
pub fn pump<E>(
    mut buffer: Vec<u8>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = 0;
    loop {
        let len = read(at, &mut buffer)?;
        let piece = buffer.get(..len).unwrap_or_default();
        if piece.is_empty() {
            return Ok(());
        }
        write(at, piece)?;
        at += len as u64;
    }
}

/// The number of temporary names that this process has chosen.
static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// Replaces `name` in `dir`, a file or an empty directory, by the file that `make` makes under the
/// name that it is given. If anything fails, what `make` has made is removed, and the old file is
/// unchanged.
pub fn replace<T: Tree>(
    target: &T,
    dir: &T::Node,
    name: &[u8],
    make: impl FnOnce(&[u8]) -> Result<(), Failure>,
) -> Result<T::Node, Failure> {
    let temporary = temporary_name(target, dir)?;
    let replaced = make(&temporary).and_then(|()| target.rename(dir, &temporary, name));
    replaced.map_err(|failure| {
        // These fail if nothing was made.
        let _ = target.remove(dir, &temporary).or_else(|_| target.remove_dir(dir, &temporary));
        failure.renamed(&target.show_entry(dir, &temporary), target.show_entry(dir, name))
    })
}

/// Returns a name that does not exist in `dir`. A name may stay if the process is killed, so the
/// number of the process alone makes it no new one.
fn temporary_name<T: Tree>(target: &T, dir: &T::Node) -> Result<Vec<u8>, Failure> {
    loop {
        let number = CHOSEN.fetch_add(1, Ordering::Relaxed);
        let name = format!(".lanefs-{}-{number}", std::process::id()).into_bytes();
        if target.look(dir, &name)?.is_none() {
            return Ok(name);
        }
    }
}
