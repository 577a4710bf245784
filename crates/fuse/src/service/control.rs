//! Attributes of the root that belong to the server and to no file.

use crate::protocol::Errno;

/// Answers `getxattr` and `setxattr` of names on the root of a mount, for root and for the user that
/// the server runs as. These names begin with [`PREFIX`]; they are in no list and never on the disk.
pub trait Control: Send + Sync {
    /// The value of the attribute; `None` if the name is not one of these.
    fn get(&self, name: &[u8]) -> Option<Vec<u8>>;

    /// Takes a value for the attribute; `None` if the name is not one of these. Returns soon: it may
    /// be asked on the thread that reads requests.
    fn set(&self, name: &[u8], value: &[u8]) -> Option<Result<(), Errno>>;
}

/// What the names begin with.
pub const PREFIX: &[u8] = b"system.lanefs_";
