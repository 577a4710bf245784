//! Extended attributes of a mount's root directory that are not on disk: the server answers them.

use crate::protocol::Errno;

/// Serves `getxattr` and `setxattr` on the root directory of a mount, for attribute names that
/// start with `PREFIX`. Only user root and the user that the server runs as may use these
/// attributes. listxattr does not list them, and they are not on disk.
pub trait Control: Send + Sync {
    /// Returns the value of the attribute; `None` if this control does not have the name.
    fn get(&self, name: &[u8]) -> Option<Vec<u8>>;

    /// Sets the attribute; `None` if this control does not have the name. This function must return
    /// soon, since it may be called on the thread that reads requests.
    fn set(&self, name: &[u8], value: &[u8]) -> Option<Result<(), Errno>>;

    /// Returns figures for `lanefs stats`, with their names; by default none.
    fn figures(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// The prefix of the names of all attributes that a [`Control`] serves.
pub const PREFIX: &[u8] = b"system.lanefs_";
